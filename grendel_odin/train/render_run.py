"""Rendering a finished model: test and train views with their scores, or a film along a path."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from grendel_odin.config import UserError
from grendel_odin.data.cameras import Camera
from grendel_odin.data.images import ImageStore
from grendel_odin.data.scene import load_scene
from grendel_odin.data.views import View
from grendel_odin.model.ply import read_ply
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.render import background_color, make_renderer
from grendel_odin.render.settings import for_depth
from grendel_odin.report.lpips import HOW_TO_INSTALL, find_lpips
from grendel_odin.report.pictures import Row, write_png, write_side_by_side
from grendel_odin.report.video import HOW_TO_GET_MP4, write_video
from grendel_odin.train.evaluate import RenderedView, render_image, render_views
from grendel_odin.train.paths import PathKind, camera_path
from grendel_odin.train.results import Pair, Scores, Split, png_names, remove_renders, writing
from grendel_odin.train.saved_model import SavedModel

PICTURE = "side_by_side.png"
_PICTURE_ROWS = 4


class Renders:
    """Renders a model's views or a film into its output tree."""

    def __init__(self, model: SavedModel) -> None:
        """Raises UserError if the scene or the PLY cannot be read."""
        settings = model.settings
        self._model = model
        self._scene = load_scene(settings.data, settings.seed)
        self._table = _read(model.ply, self._scene.offset)
        fitted = for_depth(settings.renderer, self._scene.depth)
        self._renderer = make_renderer(fitted, settings.train.thread_count())
        self._background = background_color(settings.renderer)

    def views(self, split: Split) -> str:
        """Render a split's views to PNG files, with scores and a picture; returns the table."""
        data = self._model.settings.data
        views = self._scene.test if split is Split.TEST else self._scene.train
        if not views:
            return f"no {split.value} views (data.test_every={data.test_every})"
        images = ImageStore(views, self._background, data.cache_bytes, data.workers)
        with closing(images):
            rendered = render_views(
                self._renderer,
                self._table,
                views,
                images,
                self._background,
                self._model.settings.model.sh_degree,
            )
            bar = tqdm(rendered, f"{split.value} views", len(views), leave=False)
            return write_split(self._model, split, views, bar)

    def film(self, kind: PathKind, frames: int) -> str:
        """Render a camera path to a film; returns a line that says where it is."""
        if frames < 1:
            raise UserError(f"--frames {frames}: a film has at least 1 frame.")
        cameras = [view.camera for view in self._scene.train]
        path = camera_path(kind, cameras, self._scene.points.xyz, frames)
        stem = self._model.output / "videos" / f"{kind.value}_{self._model.method}"
        with writing(stem):
            film = write_video(stem, tqdm(self._images(path), "film", frames, leave=False))
        return f"film: {film}" + (f" ({HOW_TO_GET_MP4})" if film.suffix == ".gif" else "")

    def _images(self, cameras: Sequence[Camera]) -> Iterator[Tensor]:
        sh_degree = self._model.settings.model.sh_degree
        for camera in cameras:
            yield render_image(self._renderer, self._table, camera, self._background, sh_degree)


def _read(ply: Path, offset: NDArray[np.float64]) -> PrimitiveTable:
    """A model with something to render; what was left out of it is said in a line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = read_ply(ply, offset)
    for warning in caught:
        print(f"warning: {warning.message}", file=sys.stderr)
    if not len(table):
        raise UserError(f"{ply}: holds no finite primitive, so there is nothing to render.")
    return table


def write_split(
    model: SavedModel, split: Split, views: Sequence[View], rendered: Iterable[RenderedView]
) -> str:
    """Write a model's renders of `views`, their scores and a picture of a few of them.

    Returns a table for the console. LPIPS is for test views only, as elsewhere: it is slow.
    """
    folder = model.output / split.value / model.method
    lpips = find_lpips() if split is Split.TEST else None
    scores, rows = Scores(lpips, model.settings.train.thread_count()), []
    names = png_names([view.camera.name for view in views])
    shown = set(np.linspace(0, len(views) - 1, _PICTURE_ROWS).round().astype(int).tolist())
    with writing(folder):
        remove_renders(folder)
        for index, (name, each) in enumerate(zip(names, rendered, strict=True)):
            write_png(folder / "renders" / name, each.render)
            write_png(folder / "gt" / name, each.truth)
            if each.mask is not None:
                write_png(folder / "masks" / name, each.mask.expand(3, -1, -1))
            scores.add(Pair(name, each.render, each.truth, each.mask))
            if index in shown:
                psnr = scores.per_view["PSNR"].get(name, math.nan)
                rows.append(Row(each.view.camera.name, psnr, each.truth, each.render))
        write_side_by_side(folder / PICTURE, rows)
        scores.save(model.output, split, model.method)
    lines = [scores.table(f"{split.value} views"), f"renders: {folder}"]
    lines.append(f"picture: {folder / PICTURE}")
    if split is Split.TEST and not lpips:
        lines.append(HOW_TO_INSTALL)
    return "\n".join(lines)
