"""results.json and per_view.json, keyed as the 3DGS and 2DGS metrics tools key them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from statistics import fmean
from typing import Any

from torch import Tensor

from grendel_odin.config import UserError, replacing
from grendel_odin.render.losses import composite
from grendel_odin.report.lpips import Lpips
from grendel_odin.report.pictures import read_png
from grendel_odin.report.table import score_table
from grendel_odin.train.evaluate import score
from grendel_odin.train.run_folder import to_json


class Split(str, Enum):
    """Which views; a value names the run's folder of renders."""

    TRAIN = "train"
    TEST = "test"

    def file(self, stem: str) -> str:
        """results.json holds test views, as elsewhere; train views have a file of their own."""
        return f"{stem}.json" if self is Split.TEST else f"{stem}_{self.value}.json"


@dataclass(frozen=True, slots=True)
class Pair:
    """A render and its truth, uint8 [3, H, W], under the name of their PNG files."""

    name: str
    render: Tensor
    truth: Tensor
    mask: Tensor | None = None
    """uint8 [H, W], 0 where pixels do not count."""


class Scores:
    """SSIM, PSNR and, where there are weights, LPIPS of pairs of images, by name."""

    def __init__(self, lpips: Lpips | None, threads: int = 1) -> None:
        self._lpips = lpips
        self._threads = threads
        self.per_view: dict[str, dict[str, float]] = {"SSIM": {}, "PSNR": {}}
        if lpips:
            self.per_view["LPIPS"] = {}
        self.left_out: list[str] = []
        """Pairs without a score: their masks exclude every pixel."""

    def add(self, pair: Pair) -> None:
        both = score(pair.render, pair.truth, self._threads, pair.mask)
        if both is None:
            self.left_out.append(pair.name)
            return
        self.per_view["SSIM"][pair.name] = both.ssim
        self.per_view["PSNR"][pair.name] = both.psnr
        if self._lpips:
            render, truth = pair.render / 255.0, pair.truth / 255.0
            if pair.mask is not None:
                render = composite(render, truth, pair.mask)
            self.per_view["LPIPS"][pair.name] = self._lpips(render, truth)

    @property
    def means(self) -> dict[str, float]:
        return {
            metric: fmean(values.values()) if values else math.nan
            for metric, values in self.per_view.items()
        }

    def table(self, title: str) -> str:
        """The scores for the console."""
        text = score_table(title, self.per_view) if self.per_view["PSNR"] else f"{title}: no scores"
        out = f"left out, as their masks exclude every pixel: {', '.join(self.left_out)}"
        return f"{text}\n{out}" if self.left_out else text

    def save(self, run: Path, split: Split, method: str) -> None:
        """Put the scores under `method` in both files; other methods' entries stay."""
        results: dict[str, Any] = dict(self.means)
        if self._lpips:
            results["LPIPS_net"] = self._lpips.convention
        _merge(run / split.file("results"), method, results)
        _merge(run / split.file("per_view"), method, self.per_view)


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


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failure to write (disk full, no permission) into a UserError."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise UserError(
            f"{where}: cannot write ({error.strerror or error}). Next: free space there, or "
            "choose another output folder."
        ) from error


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


def pairs_on_disk(folder: Path) -> Iterator[Pair]:
    """Renders and truths in FOLDER/renders and FOLDER/gt, masks of some in FOLDER/masks.

    Raises UserError where a folder is missing or empty, or a render has no truth of its size.
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
    for name in names:
        render, truth = read_png(folder / "renders" / name), read_png(folder / "gt" / name)
        if render.shape != truth.shape:
            sizes = f"{tuple(render.shape[:0:-1])} and {tuple(truth.shape[:0:-1])}"
            raise UserError(f"{folder}: render and gt of {name} differ in size: {sizes}.")
        mask = folder / "masks" / name
        yield Pair(name, render, truth, read_png(mask)[0] if mask.is_file() else None)


def _merge(path: Path, method: str, entry: Mapping[str, Any]) -> None:
    content: dict[str, Any] = {}
    if path.exists():
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: not JSON ({error}). Next: remove the file.") from error
        if not isinstance(content, dict):
            raise UserError(f"{path}: not a JSON object. Next: remove the file.")
    content[method] = entry
    with replacing(path) as file:
        file.write((to_json(content, indent=1) + "\n").encode())
