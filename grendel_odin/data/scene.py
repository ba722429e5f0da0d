"""A scene on disk becomes views, points and an extent. Nothing is ever written there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from os.path import expanduser  # leaves what it does not know as it is
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grendel_odin.config import UserError
from grendel_odin.data.colmap_files import find_models, lacking_models
from grendel_odin.data.colmap_scene import read_colmap_scene
from grendel_odin.data.extent import scene_extent, split
from grendel_odin.data.frame import place
from grendel_odin.data.masks import find_masks
from grendel_odin.data.settings import DataSettings
from grendel_odin.data.sizes import Fitted, fit_views, reduction_note
from grendel_odin.data.subset import first_views
from grendel_odin.data.transforms import has_transforms, read_transforms_scene
from grendel_odin.data.views import Model, Points, View

__all__ = ["Points", "Scene", "View", "load_scene"]


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """What a trainer starts from."""

    path: Path
    train: list[View]
    test: list[View]
    points: Points
    extent: float
    """1.1 times the largest distance of a training camera from their mean centre, at least a
    share of the points' distance; above 0."""
    notes: list[str] = field(default_factory=list)
    """What was found, assumed, dropped or counted, a line each."""
    offset: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))
    """[3] what was subtracted from all coordinates; zeros as a rule (data/frame.py)."""
    depth: float = 0.0
    """Median depth at which views see points; 0 if none does."""

    @property
    def views(self) -> list[View]:
        """All views by index, as the points' tracks count them."""
        return sorted(self.train + self.test, key=lambda view: view.index)


def load_scene(settings: DataSettings, seed: int = 0) -> Scene:
    """Reads a scene of any known format and the headers of its images.

    Raises one UserError that lists every problem found.
    """
    if not settings.path:
        raise UserError("data.path is not set: give the folder of a scene, data.path=FOLDER")
    try:
        return _load(Path(expanduser(settings.path)), settings, seed)
    except OSError as error:  # a folder without permission, a file system that is gone
        raise UserError(
            f"{error.filename or settings.path} cannot be read ({error.strerror or error}): check "
            "that it is there and that you may read it and the folders above"
        ) from error


def _load(path: Path, settings: DataSettings, seed: int) -> Scene:
    model, problems = _read(path, settings)
    if model is None:
        raise UserError("\n".join(problems))
    model = first_views(model, settings)
    placed = place(model, settings.random_points, seed)
    model = placed.model
    problems += placed.problems
    fitted = _views(model, path / settings.images, settings.downscale)
    masked = find_masks(path, settings.masks, fitted.views)
    views = masked.views
    train, test = _split(model, views, settings.test_every)
    problems += fitted.problems + masked.problems
    if views and not train:
        problems.append(
            f"data.test_every={settings.test_every} makes all {len(views)} views of {path} test "
            "views; data.test_every=0 trains on all"
        )
    if problems:
        raise UserError("\n".join(problems))
    extent = scene_extent([view.camera for view in train], model.points)
    notes = model.notes + fitted.notes + masked.notes
    offset, depth = placed.offset, placed.depth
    return Scene(path, train, test, model.points, extent, notes, offset, depth)


def _read(path: Path, settings: DataSettings) -> tuple[Model | None, list[str]]:
    """The reader is chosen by what the folder holds; a COLMAP model comes first."""
    transforms = has_transforms(path)
    if settings.model or not transforms or find_models(path):
        model, problems = read_colmap_scene(path, settings)
        unread = ["transforms.json is not read: the COLMAP model beside it is"] * transforms
    else:
        model, problems = read_transforms_scene(path, settings.downscale)
        unread = [f"{lack}; the transforms file is read" for lack in lacking_models(path)]
    if model is not None:
        model.notes.extend(unread)
    return model, problems


def _views(model: Model, folder: Path, downscale: int) -> Fitted:
    """Pairs cameras with their files and masks, at their true sizes."""
    sources = model.sources
    if sources is None:
        paths = [folder / camera.name for camera in model.cameras]
        return fit_views(model.cameras, paths, downscale, model.lenses)
    factor = 1 if sources.reduced else downscale
    fitted = fit_views(model.cameras, sources.images, factor, model.lenses)
    if sources.reduced:
        fitted.notes.extend(reduction_note(model.cameras, fitted.views, downscale))
    pairs = zip(fitted.views, sources.masks, strict=True)
    return replace(fitted, views=[replace(view, mask_path=mask) for view, mask in pairs])


def _split(model: Model, views: list[View], test_every: int) -> tuple[list[View], list[View]]:
    """As the model says; else every so manyth view tests."""
    if model.sources is None or model.sources.is_test is None:
        return split(views, test_every)
    tests = model.sources.is_test
    return [view for view in views if not tests[view.index]], [
        view for view in views if tests[view.index]
    ]
