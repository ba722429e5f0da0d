"""Where a COLMAP model lies among several, and which form it has."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from grendel_odin.data.colmap_binary import record_count

PARTS = ("cameras", "images", "points3D")
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


def find_models(scene: Path) -> list[Found]:
    """All models of a scene that have their three files, best first: the one with most images."""
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
    for folder in _folders(scene):
        if lacking := _lacking(folder):
            return None, [lacking]
    hint = "run COLMAP's mapper, or point data.path at the folder that holds sparse/"
    deeper = sorted({file.parent for file in scene.glob("*/sparse/**/cameras.*")})
    if deeper:
        hint = f"{deeper[0]} holds one: set data.path or data.model accordingly"
    return None, [f"no COLMAP model in {scene}: neither sparse/0 nor sparse holds one; {hint}"]


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
    for kind in ("bin", "txt"):
        if all((folder / f"{part}.{kind}").is_file() for part in PARTS):
            return kind
    return ""


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
    missing = {
        kind: [f"{part}.{kind}" for part in PARTS if not (folder / f"{part}.{kind}").is_file()]
        for kind in ("bin", "txt")
    }
    kind = min(missing, key=lambda kind: len(missing[kind]))
    if len(missing[kind]) == len(PARTS):
        return ""
    return f"the COLMAP model {folder} lacks {', '.join(missing[kind])}"


def _relative(scene: Path, model: Found) -> str:
    try:
        return model.folder.relative_to(scene).as_posix()
    except ValueError:
        return str(model.folder)


def _no_folder(path: Path) -> str:
    if path.exists():
        return f"data.path={path} is not a folder"
    siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    near = get_close_matches(path.name, siblings, n=1)
    hint = f"; did you mean {path.parent / near[0]}?" if near else ""
    return f"data.path={path} does not exist{hint}"
