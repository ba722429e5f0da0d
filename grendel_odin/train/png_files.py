"""PNG files of renders and their truths: their names, and what lies on the disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from grendel_odin.config import UserError
from grendel_odin.report.pictures import read_png
from grendel_odin.train.results import Pair, Split


def png_names(names: Sequence[str]) -> list[str]:
    """A flat PNG name for each image name: `a/b.jpg` to `a_b.png`, a number where two would meet.

    Flat, since metrics tools list the folder and open every entry.
    """
    flat = [name.replace("\\", "/").replace("/", "_") for name in names]
    stems = [name.rpartition(".")[0] or name for name in flat]
    uses = Counter(stem.lower() for stem in stems)
    return [
        f"{stem}.png" if uses[stem.lower()] == 1 else f"{index:05d}_{stem}.png"
        for index, stem in enumerate(stems)
    ]


def remove_renders(folder: Path) -> None:
    """Remove the PNG files of an earlier rendering, which may have had other views."""
    for kind in ("renders", "gt", "masks"):
        for path in folder.glob(f"{kind}/*.png"):
            path.unlink()


def methods_on_disk(run: Path, split: Split) -> list[str]:
    """Names (ours_N) of what was rendered of a split. Raises UserError where there is none."""
    if not run.is_dir():
        raise UserError(f"{run}: no such folder. Next: give the `output` of a training run.")
    methods = {each: _methods(run, each) for each in Split}
    others = [each.value for each in Split if methods[each]]
    if not methods[split]:
        other = f", or score --mode {others[0]}, which is there" if others else ""
        raise UserError(
            f"{run / split.value}: nothing rendered. Next: run render.py -m {run}{other}."
        )
    return methods[split]


def _methods(run: Path, split: Split) -> list[str]:
    return sorted(path.parent.name for path in (run / split.value).glob("*/renders"))


def names_on_disk(folder: Path) -> list[str]:
    """Names of the renders in FOLDER/renders.

    Raises UserError where there are none, or one has no truth in FOLDER/gt.
    """
    names = sorted(path.name for path in (folder / "renders").glob("*.png"))
    if not names:
        raise UserError(f"{folder / 'renders'}: no PNG files. Next: run render.py -m RUN first.")
    missing = [name for name in names if not (folder / "gt" / name).is_file()]
    if missing:
        raise UserError(
            f"{folder / 'gt'}: {len(missing)} of {len(names)} truths are missing: "
            f"{', '.join(missing[:5])}. Next: run render.py again."
        )
    return names


def pairs_on_disk(folder: Path, names: Sequence[str]) -> Iterator[Pair]:
    """Renders and truths in FOLDER/renders and FOLDER/gt, masks of some in FOLDER/masks.

    One at a time. Raises UserError where one cannot be read, or the two differ in size.
    """
    for name in names:
        render, truth = read_png(folder / "renders" / name), read_png(folder / "gt" / name)
        if render.shape != truth.shape:
            sizes = f"{tuple(render.shape[:0:-1])} and {tuple(truth.shape[:0:-1])}"
            raise UserError(f"{folder}: render and gt of {name} differ in size: {sizes}.")
        mask = folder / "masks" / name
        yield Pair(name, render, truth, read_png(mask)[0] if mask.is_file() else None)
