"""A COLMAP scene: its model, and the photographs that belong to it."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from grendel_odin.data.colmap import read_colmap
from grendel_odin.data.colmap_files import find_models, lacking_models
from grendel_odin.data.names import Paired, pair_images
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
        known = bool(settings.model or find_models(scene) or lacking_models(scene))
        return None, problems + _no_images(scene, settings, known)
    if model is None:
        return None, problems
    names = [camera.name for camera in model.cameras]
    paired, reduced = _pair(names, folder, scene / settings.images, reduced)
    notes, paths = [*model.notes, *paired.notes], paired.paths
    if settings.skip_missing and paired.missing:
        lost = [names[i] for i in paired.missing]
        model = without_cameras(model, paired.missing)
        paths = [path for i, path in enumerate(paths) if i not in set(paired.missing)]
        notes.append(f"{len(lost)} images have no file and are left out: {', '.join(lost[:20])}")
        if not paths:
            problems.append(f"none of the {len(lost)} images of the model has a file in {folder}")
    sources = Sources(paths, [None] * len(paths), None, reduced)
    return replace(model, notes=notes, sources=sources), problems + paired.problems


def _pair(names: list[str], folder: Path, whole: Path, reduced: bool) -> tuple[Paired, bool]:
    """Images in `folder`; in `whole` where the reduced ones there are not all."""
    paired = pair_images(names, folder)
    if not (reduced and paired.missing and whole.is_dir()):
        return paired, reduced
    full = pair_images(names, whole)
    if len(full.missing) >= len(paired.missing):
        return paired, reduced
    note = (
        f"{folder} lacks {len(paired.missing)} of {len(names)} images: those in {whole} are used, "
        "reduced as they are decoded"
    )
    return replace(full, notes=[note, *full.notes]), False


def _image_folder(scene: Path, settings: DataSettings) -> tuple[Path, bool]:
    """images, or images_4 beside it, where images reduced by a factor lie by custom."""
    folder = scene / settings.images
    ready = folder.with_name(f"{folder.name}_{settings.downscale}") if folder.name else folder
    reduced = settings.downscale > 1 and ready.is_dir()
    return (ready if reduced else folder), reduced


def _no_images(scene: Path, settings: DataSettings, known: bool) -> list[str]:
    """`known`: the scene has a model. Else a missing folder is news only if one lies above."""
    if not scene.is_dir():
        return []
    names = sorted(entry.name for entry in scene.iterdir() if entry.is_dir())
    near = get_close_matches(settings.images, names, n=1) or names
    hint = f"; nearest: data.images={near[0]}" if near else ""
    for above in (scene.resolve().parent, scene.resolve().parent.parent):
        if (above / settings.images).is_dir():
            hint, known = f"; {above} has one: set data.path={above}", True
    if not known:
        return []
    return [
        f"the image folder {scene / settings.images} does not exist "
        f"(data.images={settings.images}){hint}"
    ]
