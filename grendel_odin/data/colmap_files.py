"""Where a COLMAP model lies among several, and which form it has."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from grendel_odin.data.colmap_binary import record_count
from grendel_odin.data.colmap_points import points_file

_KINDS = ("bin", "txt")
_PARTS = ("cameras", "images", "points3D")
_PLACES = ("sparse", ".", "colmap/sparse", "colmap")
"""Below a scene; a model lies in one of them or in a numbered folder there."""


@dataclass(frozen=True, slots=True)
class Found:
    """A model on disk."""

    folder: Path
    kind: str
    """Ending of its files: bin (which wins, as in COLMAP) or txt."""
    images: int
    """Registered images by what the file announces."""

    def file(self, part: str) -> Path:
        """One of its files: cameras, images or points3D."""
        return self.folder / f"{part}.{self.kind}"


def find_models(scene: Path) -> list[Found]:
    """All models of a scene that have all their files, best first: the one with most images."""
    kinds = {folder: kind for folder in _folders(scene) if (kind := _kind(folder))}
    found = [Found(folder, kind, _images(folder, kind)) for folder, kind in kinds.items()]
    return sorted(found, key=lambda model: -model.images)


def find_model(scene: Path, wanted: str = "") -> tuple[Found | None, list[str]]:
    """The model to read, and all problems; `wanted` names its folder, relative to the scene."""
    if not scene.is_dir():
        return None, [_no_folder(scene)]
    models = find_models(scene)
    if wanted:
        return _wanted(scene, wanted, models)
    if models:
        return models[0], []
    if lacking := lacking_models(scene):
        return None, lacking[:1]
    hint = "run COLMAP's mapper, or point data.path at the folder that holds sparse/"
    if deeper := _scenes_below(scene):
        hint = f"a folder below looks like a scene: set data.path={deeper[0]}"
    return None, [
        f"no COLMAP model in {scene}, neither in sparse/0 nor in sparse, and no transforms.json or "
        f"transforms_train.json; {hint}"
    ]


def _scenes_below(place: Path) -> list[Path]:
    """Folders up to two levels down that hold a model or a transforms.json."""
    files = [*place.glob("*/sparse"), *place.glob("*/*/sparse"), *place.glob("*/transforms*.json")]
    return sorted({file.parent for file in files})


def text_beside(found: Found) -> list[str]:
    """A hint for a damaged binary model: the same folder may hold it as text."""
    if found.kind != "bin" or _missing(found.folder, "txt"):
        return []
    return [f"{found.folder} also holds the model as text: take the .bin files out to use it"]


def lacking_models(scene: Path) -> list[str]:
    """What models lack that have only some of their files."""
    return [lacking for folder in _folders(scene) if (lacking := _lacking(folder))]


def other_models(scene: Path, chosen: Found) -> list[str]:
    """A note on models that are not used; none if there are none."""
    others = [model for model in find_models(scene) if model.folder != chosen.folder]
    if not others:
        return []
    said = ", ".join(f"{_relative(scene, model)} has {model.images}" for model in others)
    return [
        f"{len(others) + 1} models: {_relative(scene, chosen)} with {chosen.images} registered "
        f"images is used; {said}; data.model={_relative(scene, others[0])} takes another"
    ]


def _folders(scene: Path) -> list[Path]:
    """Where models may lie, in order of preference."""
    folders = []
    for place in _PLACES:
        base = scene / place
        if place.endswith("sparse") and base.is_dir():
            folders += sorted((path for path in base.iterdir() if path.is_dir()), key=_natural)
        folders.append(base)
    return folders


def _natural(path: Path) -> list[tuple[int, str]]:
    """sparse/10 comes after sparse/2."""
    return [(int(part or 0), text) for text, part in re.findall(r"(\D*)(\d*)", path.name)]


def _kind(folder: Path) -> str:
    """bin, txt, or nothing where a model is incomplete."""
    return next((kind for kind in _KINDS if not _missing(folder, kind)), "")


def _missing(folder: Path, kind: str) -> list[str]:
    """Names of files that a model of this form lacks; points may have another."""
    *others, points = (f"{part}.{kind}" for part in _PARTS)
    missing = [name for name in others if not (folder / name).is_file()]
    return missing if points_file(folder, kind) else [*missing, points]


def _images(folder: Path, kind: str) -> int:
    file = folder / f"images.{kind}"
    try:
        if kind == "bin":
            return record_count(file)
        data = file.read_bytes()
    except OSError:  # told when the model is read
        return 0
    return len(re.findall(rb"^\s*\d+(?:\s+[-+.\deE]+){7}\s+\d+\s+[^\s]", data, re.M))


def _wanted(scene: Path, wanted: str, models: list[Found]) -> tuple[Found | None, list[str]]:
    folder = scene / Path(wanted).expanduser()
    if kind := _kind(folder):
        return Found(folder, kind, _images(folder, kind)), []
    if lacking := _lacking(folder):
        return None, [lacking]
    names = [_relative(scene, model) for model in models]
    near = get_close_matches(wanted, names, n=1) or names[:1]
    hint = f"; nearest: data.model={near[0]}" if near else ""
    return None, [f"data.model={wanted}: {folder} holds no COLMAP model{hint}"]


def _lacking(folder: Path) -> str:
    """Which files of a model are not there, where some are."""
    files = (folder / f"{part}.{kind}" for part in _PARTS for kind in _KINDS)
    if not any(file.is_file() for file in files):
        return ""
    missing = min((_missing(folder, kind) for kind in _KINDS), key=len)
    return (
        f"the COLMAP model {folder} lacks {', '.join(missing)}: copy all of its files, in one form"
    )


def _relative(scene: Path, model: Found) -> str:
    try:
        return model.folder.relative_to(scene).as_posix()
    except ValueError:
        return str(model.folder)


def _no_folder(path: Path) -> str:
    if path.exists():
        hint = f", such as {path.parent}" if path.suffix == ".json" else ""
        return f"data.path={path} is not a folder; give the folder of the scene{hint}"
    siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    near = get_close_matches(path.name, siblings, n=1)
    hint = f"; did you mean {path.parent / near[0]}?" if near else ""
    return f"data.path={path} does not exist{hint}"
