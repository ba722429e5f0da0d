"""Rendering a finished model: test and train views with their scores, or a film along a path."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor
from tqdm import tqdm

from grendel_odin.config import writing
from grendel_odin.data.cameras import Camera
from grendel_odin.data.images import ImageStore
from grendel_odin.data.scene import Scene, load_scene
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.parallel.hybrid import Hybrid
from grendel_odin.parallel.node import share_memory
from grendel_odin.parallel.world import ALONE, World
from grendel_odin.render import background_color, make_renderer
from grendel_odin.render.settings import Backend, for_depth
from grendel_odin.report.video import HOW_TO_GET_MP4, write_video
from grendel_odin.train.evaluate import render_cameras, render_views
from grendel_odin.train.paths import PathKind, camera_path
from grendel_odin.train.render_split import Selection, write_split
from grendel_odin.train.results import Split
from grendel_odin.train.saved_model import SavedModel
from grendel_odin.train.threads import use_threads


class Renders:
    """Renders a model's views or a film into its output tree; every rank calls the same.

    A rank holds its share of the model's rows and renders whole images.
    """

    def __init__(self, model: SavedModel, world: World = ALONE) -> None:
        """Raises UserError if the scene or the PLY cannot be read."""
        settings = model.settings
        self._model, self._world = model, world
        if world.size > 1 and settings.renderer.backend is Backend.REFERENCE:
            raise world.agreed(
                "renderer.backend=reference works in one process; use renderer.backend=cpu"
            )
        self._scene, self._table = world.together(self._read)
        self._check_rows()
        fitted = for_depth(settings.renderer, self._scene.depth)
        self._renderer = make_renderer(fitted, use_threads(settings.train, world))
        self._sharing = Hybrid(world, self._renderer)
        self._background = background_color(settings.renderer)
        self._sh_degree = settings.model.sh_degree

    def _read(self) -> tuple[Scene, PrimitiveTable]:
        settings, world = self._model.settings, self._world
        scene = load_scene(settings.data, settings.seed)
        return scene, self._model.model.read(scene.offset, world.rank, world.size)

    def _check_rows(self) -> None:
        """There must be something to render; what was left out of it is said in a line."""
        model = self._model.model
        (rows,) = self._world.sum_counts(len(self._table))
        if not rows:
            raise self._world.agreed(
                f"{model.path}: holds no finite primitive: there is nothing to render."
            )
        if rows < model.rows and self._world.is_main:
            text = f"dropped {model.rows - rows} rows that are not finite"
            print(f"warning: {model.path}: {text}", file=sys.stderr)

    def views(self, split: Split, selection: Selection) -> str:
        """Render a split's views to PNG files, with scores and a picture; returns the table."""
        data = self._model.settings.data
        everything = self._scene.test if split is Split.TEST else self._scene.train
        chosen = selection.of(len(everything))
        if not everything:
            return f"no {split.value} views (data.test_every={data.test_every})"
        if not chosen:
            return f"none of the {len(everything)} {split.value} views is in {selection}"
        views = [everything[number] for number in chosen]
        memory = share_memory(self._world)
        images = ImageStore(views, self._background, data.cache_bytes, data.workers, memory)
        with closing(images):
            rendered = render_views(
                *(self._renderer, self._table, views, images, self._background),
                *(self._sh_degree, self._sharing),
            )
            names = [view.camera.name for view in everything]
            share = len(views[self._world.rank :: self._world.size])
            bar = self._bar(f"{split.value} views", share)
            with closing(bar):
                return write_split(self._model, split, names, chosen, rendered, bar, self._world)

    def film(self, kind: PathKind, frames: int) -> str:
        """Render a camera path to a film; returns a line that says where it is."""
        if frames < 1:
            raise self._world.agreed(f"--frames {frames}: a film has at least 1 frame.")
        cameras = [view.camera for view in self._scene.train]
        path = camera_path(kind, cameras, self._scene.points.xyz, frames)
        stem = self._model.output / "videos" / f"{kind.value}_{self._model.method}"
        images = self._frames(path)

        def write() -> Path:
            try:
                with writing(stem):
                    return write_video(stem, images) if self._world.is_main else stem
            finally:
                for _ in images:  # what is left of them: every rank exchanges to the end
                    pass

        film = self._world.together(write)
        return f"film: {film}" + (f" ({HOW_TO_GET_MP4})" if film.suffix == ".gif" else "")

    def _frames(self, cameras: Sequence[Camera]) -> Iterator[Tensor]:
        """The images of all ranks in order, on every rank."""
        turns = render_cameras(
            *(self._renderer, self._table, cameras, self._background),
            *(self._sh_degree, self._sharing),
        )
        none = torch.empty(0, 3, cameras[0].height, cameras[0].width, dtype=torch.uint8)
        with closing(self._bar("film", len(cameras))) as bar:
            for turn in turns:
                own = torch.cat([none, *(image[None] for _, image in turn)])
                for frame in torch.cat(self._world.gather_rows(own)):
                    bar.update()
                    yield frame

    def _bar(self, label: str, total: int) -> tqdm[NoReturn]:
        return tqdm(desc=label, total=total, leave=False, disable=not self._world.is_main)
