"""Where a COLMAP model lies, and whether its files are complete.

pycolmap does not look for the end of a binary file: a cut one yields wrong numbers or a huge
allocation. So the records are walked first; that costs far less than reading them.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path

PARTS = ("cameras", "images", "points3D")

ParameterCount = Callable[[int], int | None]
"""Number of parameters of a camera model by its id; None for an unknown id."""
_End = Callable[[mmap.mmap, int], int]


def find_model(scene: Path) -> tuple[Path | None, list[str]]:
    """The model's folder: sparse/0, sparse, or the scene's folder itself; and all problems."""
    if not scene.is_dir():
        return None, [_no_folder(scene)]
    for folder in (scene / "sparse" / "0", scene / "sparse", scene):
        if any((folder / f"{part}.{kind}").is_file() for part in PARTS for kind in ("bin", "txt")):
            return folder, _incomplete(folder)
    hint = "run COLMAP's mapper, or point data.path at the folder that holds sparse/"
    if (scene / "transforms.json").is_file() or (scene / "transforms_train.json").is_file():
        hint = "transforms.json is not read: convert the scene to COLMAP's format"
    elif numbered := sorted(p.parent.name for p in scene.glob("sparse/*/cameras.*")):
        hint = f"sparse/ has {', '.join(numbered)}: rename the one to use to 0"
    return None, [f"no COLMAP model in {scene}: neither sparse/0 nor sparse holds one; {hint}"]


def binary_problems(folder: Path, parameter_count: ParameterCount) -> list[str]:
    """Says which binary files of a model end before their last record, and where."""

    def camera_end(data: mmap.mmap, start: int) -> int:
        (model,) = struct.unpack_from("<i", data, start + 4)
        count = parameter_count(model)
        if count is None:
            raise _UnknownModel(model)
        return start + 24 + 8 * count

    ends: dict[str, _End] = {
        "cameras": camera_end,
        "images": _image_end,
        "points3D": _point_end,
    }
    checked = [_walk(folder / f"{part}.bin", end) for part, end in ends.items()]
    return [problem for problem in checked if problem]


class _UnknownModel(Exception):
    """A camera record names a model that pycolmap does not know."""


def _walk(file: Path, end_of_record: _End) -> str | None:
    """Follows a file's records to its end; returns what is wrong."""
    size = file.stat().st_size
    remedy = "copy the model again or rerun the reconstruction"
    if size < 8:
        return f"{file} is cut off: {size} bytes do not even hold the number of records; {remedy}"
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        (count,) = struct.unpack_from("<Q", data, 0)
        start = 8
        for record in range(count):
            try:
                end = end_of_record(data, start)
            except struct.error:
                end = size + 1
            except _UnknownModel as unknown:
                return f"{file}: unknown camera model {unknown} in record {record + 1} of {count}"
            if end > size:
                return (
                    f"{file} is cut off in record {record + 1} of {count}, which starts at offset "
                    f"{start}: the file has {size} bytes; {remedy}"
                )
            start = end
    return None


def _image_end(data: mmap.mmap, start: int) -> int:
    """id, quaternion, translation, camera id; name; count; x, y, point id of each observation."""
    zero = data.find(b"\0", start + 64)
    if zero < 0:
        return len(data) + 1
    (count,) = struct.unpack_from("<Q", data, zero + 1)
    return int(zero + 9 + 24 * count)


def _point_end(data: mmap.mmap, start: int) -> int:
    """id, position, colour, error; track length; image id and observation of each element."""
    (length,) = struct.unpack_from("<Q", data, start + 43)
    return int(start + 51 + 8 * length)


def _incomplete(folder: Path) -> list[str]:
    """The model must be three .bin or three .txt files; binary ones win, as in COLMAP."""
    missing = {
        kind: [f"{part}.{kind}" for part in PARTS if not (folder / f"{part}.{kind}").is_file()]
        for kind in ("bin", "txt")
    }
    if not all(missing.values()):
        return []
    kind = min(missing, key=lambda kind: len(missing[kind]))
    return [f"the COLMAP model {folder} lacks {', '.join(missing[kind])}"]


def _no_folder(path: Path) -> str:
    if path.exists():
        return f"data.path={path} is not a folder"
    siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    near = get_close_matches(path.name, siblings, n=1)
    hint = f"; did you mean {path.parent / near[0]}?" if near else ""
    return f"data.path={path} does not exist{hint}"
