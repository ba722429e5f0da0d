"""Writes the renders of a split: PNG files, scores and a picture, by all ranks together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from tqdm import tqdm

from grendel_odin.config import UserError, writing
from grendel_odin.parallel.world import World
from grendel_odin.report.lpips import HOW_TO_INSTALL, Lpips, find_lpips
from grendel_odin.report.pictures import Row, read_png, write_png, write_side_by_side
from grendel_odin.train.evaluate import RenderedView
from grendel_odin.train.png_files import png_names, remove_renders
from grendel_odin.train.results import Pair, Scores, Split
from grendel_odin.train.saved_model import SavedModel

PICTURE = "side_by_side.png"
_PICTURE_ROWS = 4


@dataclass(frozen=True, slots=True)
class Selection:
    """Some of the views of a split, by their number in the order of names; -1: no limit."""

    left: int = -1
    right: int = -1
    """The first one that is not rendered."""
    every: int = -1
    """Only numbers that this divides."""
    count: int = -1

    def of(self, views: int) -> list[int]:
        """Numbers of the chosen ones among so many."""
        stop = views if self.right < 0 else min(self.right, views)
        numbers = range(max(self.left, 0), stop)
        chosen = [number for number in numbers if self.every < 1 or number % self.every == 0]
        return chosen if self.count < 0 else chosen[: self.count]

    def __str__(self) -> str:
        window = f"--l {self.left} --r {self.right}"
        return f"{window} --sample_freq {self.every} --generate_num {self.count}"


def write_split(
    model: SavedModel,
    split: Split,
    view_names: Sequence[str],
    chosen: Sequence[int],
    rendered: Iterable[RenderedView],
    bar: tqdm[NoReturn],
    world: World,
) -> str:
    """Write a model's renders of some views, their scores and a picture of a few of them.

    `view_names` are those of the whole split, `chosen` the numbers of what is rendered: files
    have the same names whatever is chosen, and a part neither removes nor scores the rest.
    Returns a table for the console.
    """
    folder = model.output / split.value / model.method
    whole = len(chosen) == len(view_names)
    every_name = png_names(view_names)
    names = [every_name[number] for number in chosen]
    lpips = common_lpips(world) if split is Split.TEST else None  # it is slow
    world.on_main(lambda: _prepare(folder, whole))
    world.together(lambda: _check_seen(folder))
    own, problem = Scores(lpips, model.settings.train.thread_count()), ""
    for each in rendered:  # to the end, whatever happens: every rank exchanges with all others
        if not problem:
            try:
                own.add(_write(folder, names[each.number], each))
            except UserError as error:
                problem = str(error)
        bar.update()
    world.together(lambda: _raise_if(problem))
    scores = own.gather(world, names)
    shown = sorted(set(np.linspace(0, len(names) - 1, _PICTURE_ROWS).round().astype(int).tolist()))

    def finish() -> None:
        with writing(folder):
            rows = [_row(folder, view_names[chosen[at]], names[at], scores) for at in shown]
            write_side_by_side(folder / PICTURE, rows)
            if whole:
                scores.save(model.output, split, model.method)

    world.on_main(finish)
    lines = [scores.table(f"{split.value} views"), f"renders: {folder}"]
    lines.append(f"picture: {folder / PICTURE}")
    if not whole:
        lines.append(
            f"{len(names)} of {len(every_name)} views: {split.files('results')[0]} is left as it "
            "was; metrics.py scores all that is there"
        )
    if split is Split.TEST and not lpips:
        lines.append(HOW_TO_INSTALL)
    return "\n".join(lines)


def common_lpips(world: World) -> Lpips | None:
    """LPIPS, if all ranks have its weights."""
    lpips = world.together(find_lpips)
    (missing,) = world.sum_counts(int(lpips is None))
    return None if missing else lpips


def _prepare(folder: Path, whole: bool) -> None:
    """An earlier rendering of the whole split may have had other views."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if whole:
            remove_renders(folder)


def _check_seen(folder: Path) -> None:
    if not folder.is_dir():
        raise UserError(
            f"{folder}: the main rank made this folder, but it is not seen here. Next: name a "
            "folder that all nodes share."
        )


def _write(folder: Path, name: str, each: RenderedView) -> Pair:
    with writing(folder):
        write_png(folder / "renders" / name, each.render)
        write_png(folder / "gt" / name, each.truth)
        if each.mask is not None:
            write_png(folder / "masks" / name, each.mask.expand(3, -1, -1))
    return Pair(name, each.render, each.truth, each.mask)


def _row(folder: Path, view: str, name: str, scores: Scores) -> Row:
    """Of the picture, from the files, which any rank may have written."""
    psnr = scores.per_view["PSNR"].get(name, math.nan)
    return Row(view, psnr, read_png(folder / "gt" / name), read_png(folder / "renders" / name))


def _raise_if(problem: str) -> None:
    if problem:
        raise UserError(problem)
