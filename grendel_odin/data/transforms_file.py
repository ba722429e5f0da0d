"""transforms.json read without trusting it: typed frames, or every problem by frame and key."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grendel_odin.data.json_fields import Fields

_LARGEST_FILE = 1 << 30
_DISTORTION = ("k1", "k2", "k3", "k4", "k5", "k6", "p1", "p2")
_POSES = ("transform_matrix", "rot_mat")


@dataclass(frozen=True, slots=True)
class Intrinsics:
    """What a frame, or else the top of its file, says of its camera; None: not said."""

    model: str | None
    width: int | None
    height: int | None
    focal_x: float | None
    focal_y: float | None
    angle_x: float | None
    """Full angle of view in radians; used where the focal length of that axis is not said."""
    angle_y: float | None
    center_x: float | None
    center_y: float | None
    distortion: Mapping[str, float]
    """k1 to k6, p1, p2; those that are not zero."""


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One entry of `frames`."""

    place: str
    """How messages call it."""
    file: str
    """As it is written there, with forward slashes."""
    mask: str | None
    has_depth: bool
    intrinsics: Intrinsics
    camera_to_world: NDArray[np.float64]
    """[4, 4] as it is written there: axes of OpenGL, its rotation perhaps scaled."""


@dataclass(frozen=True, slots=True, eq=False)
class TransformsFile:
    """A file's frames and what it says beside them."""

    path: Path
    frames: list[Frame]
    points: str | None
    """`ply_file_path`, with forward slashes."""
    splits: Mapping[str, list[str]]
    """train, val and test: names of files, where the file lists them."""
    moved: bool
    """Whether its writer says that it turned or scaled the scene."""


def read_transforms(path: Path) -> tuple[TransformsFile | None, list[str]]:
    """The file, and all problems found in it; frames with problems are left out."""
    top, problem = _load(path)
    if problem:
        return None, [problem]
    entries = top.get("frames")
    if not isinstance(entries, list):
        return None, [f"{path}: 'frames' must be a list of frames; export it anew"]
    problems: dict[str, None] = {}
    frames = [
        _frame(Fields(entry, top, f"frame {index} of {path}", str(path), problems))
        for index, entry in enumerate(entries)
        if _is_object(entry, f"frame {index} of {path}", problems)
    ]
    whole = Fields(top, {}, str(path), str(path), problems)
    lists = {split: whole.names(f"{split}_filenames") for split in ("train", "val", "test")}
    file = TransformsFile(
        path=path,
        frames=[frame for frame in frames if frame],
        points=whole.text("ply_file_path"),
        splits={split: names for split, names in lists.items() if names is not None},
        moved="applied_transform" in top or "applied_scale" in top,
    )
    return file, list(problems)


def _load(path: Path) -> tuple[dict[str, Any], str]:
    """The file's object, or why there is none."""
    try:
        if path.stat().st_size > _LARGEST_FILE:
            return {}, f"{path} has more than {_LARGEST_FILE} bytes: it is no transforms.json"
        top = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        return {}, f"{path} cannot be read ({error.strerror or error})"
    except (ValueError, RecursionError) as error:
        return {}, f"{path} is not valid JSON ({error}): copy or export it again"
    if not isinstance(top, dict):
        return {}, f"{path} holds no JSON object; a transforms.json with 'frames' is needed"
    return top, ""


def _is_object(entry: object, place: str, problems: dict[str, None]) -> bool:
    if not isinstance(entry, dict):
        problems[f"{place} is not an object"] = None
    return isinstance(entry, dict)


def _frame(fields: Fields) -> Frame | None:
    """None if something that is needed is missing or wrong."""
    file = fields.text("file_path") or _numbered(fields)
    if file is None:
        fields.complain("has no file_path")
    key = next((key for key in _POSES if fields.own(key) is not None), _POSES[0])
    pose = fields.pose(key)
    intrinsics = _intrinsics(fields)
    if fields.faulty or file is None or pose is None:
        return None
    return Frame(
        place=fields.place,
        file=file,
        mask=fields.text("mask_path"),
        has_depth=fields.own("depth_file_path") is not None,
        intrinsics=intrinsics,
        camera_to_world=pose,
    )


def _numbered(fields: Fields) -> str | None:
    """MatrixCity's blocks give the number of a frame: 7 is 0007.png."""
    number = fields.own("frame_index")
    if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 10**9:
        return f"{number:04}"
    return None


def _intrinsics(fields: Fields) -> Intrinsics:
    """A frame's angle of view wins over the top's focal length, and its x over the top's y."""
    across = fields.level("fl_x", "camera_angle_x")
    down = fields.level("fl_y", "camera_angle_y")
    focal = {}
    for axis, level, other in (("x", across, down), ("y", down, across)):
        said = level is not None and (other is None or level <= other)
        by_pixels = fields.level(f"fl_{axis}") == level
        focal[axis] = (
            fields.number(f"fl_{axis}", 0) if said and by_pixels else None,
            fields.number(f"camera_angle_{axis}", 0, math.pi) if said and not by_pixels else None,
        )
    bent = {key: value for key in _DISTORTION if (value := fields.number(key))}
    return Intrinsics(
        model=fields.text("camera_model"),
        width=fields.size("w"),
        height=fields.size("h"),
        focal_x=focal["x"][0],
        focal_y=focal["y"][0],
        angle_x=focal["x"][1],
        angle_y=focal["y"][1],
        center_x=fields.number("cx"),
        center_y=fields.number("cy"),
        distortion=bent,
    )
