"""A COLMAP scene: its model, and the photographs that belong to it."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from grendel_odin.data.colmap import read_colmap
from grendel_odin.data.names import pair_images
from grendel_odin.data.settings import DataSettings
from grendel_odin.data.subset import without_cameras
from grendel_odin.data.views import Model, Sources


def read_colmap_scene(scene: Path, settings: DataSettings) -> tuple[Model | None, list[str]]:
    """The model with the paths of its images, and all problems.

    Missing images stay in the model, where their absence is told with all others, unless
    data.skip_missing leaves them out.
    """
    model, problems = read_colmap(scene, settings.model)
    folder, reduced = _image_folder(scene, settings)
    if not folder.is_dir():
        problems += _no_images(scene, settings) if scene.is_dir() else []
        return None, problems
    if model is None:
        return None, problems
    paired = pair_images([camera.name for camera in model.cameras], folder)
    notes = [*model.notes, *paired.notes]
    paths = paired.paths
    if settings.skip_missing and paired.missing:
        names = [model.cameras[i].name for i in paired.missing]
        model = without_cameras(model, paired.missing)
        paths = [path for i, path in enumerate(paths) if i not in set(paired.missing)]
        notes.append(f"{len(names)} images have no file and are left out: {', '.join(names[:20])}")
        if not paths:
            problems.append(f"none of the {len(names)} images of the model has a file in {folder}")
    sources = Sources(paths, [None] * len(paths), None, reduced)
    return replace(model, notes=notes, sources=sources), problems + paired.problems


def _image_folder(scene: Path, settings: DataSettings) -> tuple[Path, bool]:
    """images, or images_4 beside it, where images reduced by a factor lie by custom."""
    folder = scene / settings.images
    ready = folder.with_name(f"{folder.name}_{settings.downscale}") if folder.name else folder
    reduced = settings.downscale > 1 and ready.is_dir()
    return (ready if reduced else folder), reduced


def _no_images(scene: Path, settings: DataSettings) -> list[str]:
    names = sorted(entry.name for entry in scene.iterdir() if entry.is_dir())
    near = get_close_matches(settings.images, names, n=1) or names
    hint = f"; nearest: data.images={near[0]}" if near else ""
    for above in (scene.resolve().parent, scene.resolve().parent.parent):
        if (above / settings.images).is_dir():
            hint = f"; {above} has one: set data.path={above}"
    return [
        f"the image folder {scene / settings.images} does not exist "
        f"(data.images={settings.images}){hint}"
    ]
