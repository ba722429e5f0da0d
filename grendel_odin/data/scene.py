"""A scene on disk becomes views, points and an extent. Nothing is ever written there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from grendel_odin.config import UserError
from grendel_odin.data.cameras import Camera
from grendel_odin.data.colmap import read_model
from grendel_odin.data.colmap_files import find_model
from grendel_odin.data.extent import scene_extent, split
from grendel_odin.data.images import image_problems, stored_size
from grendel_odin.data.settings import DataSettings
from grendel_odin.data.views import Points, View

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

    @property
    def views(self) -> list[View]:
        """All views by index, as the points' tracks count them."""
        return sorted(self.train + self.test, key=lambda view: view.index)


def load_scene(settings: DataSettings) -> Scene:
    """Reads a COLMAP scene and the headers of its images.

    Raises one UserError that lists every problem found.
    """
    if not settings.path:
        raise UserError("data.path is not set: give the folder of a scene, data.path=FOLDER")
    path = Path(settings.path).expanduser()
    model_folder, problems = find_model(path)
    if path.is_dir():
        problems += _folder_problems(path, settings)
    if model_folder is None or problems:
        raise UserError("\n".join(problems))
    model, problems = read_model(model_folder)
    if model is None:
        raise UserError("\n".join(problems))
    views, view_problems = _views(model.cameras, path / settings.images, settings.downscale)
    train, test = split(views, settings.test_every)
    problems += view_problems + image_problems(views)
    if views and not train:
        problems.append(
            f"data.test_every={settings.test_every} makes all {len(views)} views of {path} test "
            "views; data.test_every=0 trains on all"
        )
    if problems:
        raise UserError("\n".join(problems))
    extent = scene_extent([view.camera for view in train], model.points)
    return Scene(path, train, test, model.points, extent)


def _folder_problems(path: Path, settings: DataSettings) -> list[str]:
    folder = path / settings.images
    if folder.is_dir() or (
        settings.downscale > 1 and _reduced(folder, settings.downscale).is_dir()
    ):
        return []
    names = sorted(entry.name for entry in path.iterdir() if entry.is_dir())
    near = get_close_matches(settings.images, names, n=1) or names
    hint = f"; nearest: data.images={near[0]}" if near else ""
    return [f"the image folder {folder} does not exist (data.images={settings.images}){hint}"]


def _reduced(folder: Path, downscale: int) -> Path:
    """The folder where images reduced by a factor lie by custom: images_4 beside images."""
    return folder.with_name(f"{folder.name}_{downscale}")


def _views(cameras: Sequence[Camera], folder: Path, downscale: int) -> tuple[list[View], list[str]]:
    """Pairs cameras with files; intrinsics follow the true size of each file, not the factor."""
    reduced = _reduced(folder, downscale)
    if downscale > 1 and reduced.is_dir():
        return _views_of_reduced(cameras, reduced)
    views = []
    for index, camera in enumerate(cameras):
        size = (camera.width, camera.height)
        width, height = (max(1, round(side / downscale)) for side in size)
        views.append(View(camera.resized(width, height), folder / camera.name, index, size))
    return views, []


def _views_of_reduced(cameras: Sequence[Camera], folder: Path) -> tuple[list[View], list[str]]:
    views, problems = [], []
    for index, camera in enumerate(cameras):
        path = folder / camera.name
        width, height = stored_size(path) or (camera.width, camera.height)
        if not _same_shape(camera, width, height):
            problems.append(
                f"{path} is {width}x{height}: not a reduced {camera.width}x{camera.height} image, "
                f"the size that the camera of {camera.name} has; make {folder.name} anew or "
                "remove it"
            )
        views.append(View(camera.resized(width, height), path, index))
    return views, problems


def _same_shape(camera: Camera, width: int, height: int) -> bool:
    """One factor explains both sides, each rounded up or down to whole pixels."""
    low = max((width - 1) / camera.width, (height - 1) / camera.height)
    high = min((width + 1) / camera.width, (height + 1) / camera.height)
    return low <= high
