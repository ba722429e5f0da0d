"""What the three files of a COLMAP model hold, in either form, before it is interpreted."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from grendel_odin.data.lens import LensModel

T = TypeVar("T")

REMEDY = "copy the model again or rerun the reconstruction"
_ONE_BYTE = "cp1252"


class Damaged(Exception):
    """A file cannot be read; the text names it and the place."""


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """A registered image with its pose, world to camera."""

    id: int
    quaternion: tuple[float, ...]
    """w, x, y, z; of any length."""
    translation: tuple[float, ...]
    camera_id: int
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class PointRecords:
    """Points in the order of the file."""

    ids: NDArray[np.uint64]
    xyz: NDArray[np.float64]
    rgb: NDArray[np.uint8]
    track_lengths: NDArray[np.int64]
    track_images: NDArray[np.int64]
    """Image ids, point after point."""


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """A whole model."""

    cameras: dict[int, LensModel]
    images: list[ImageRecord]
    points: PointRecords


def unique(file: Path, records: list[tuple[int, T]]) -> dict[int, T]:
    """By id. Raises Damaged if one occurs twice."""
    found = dict(records)
    if len(found) < len(records):
        uses = Counter(number for number, _ in records)
        twice = next(number for number, times in uses.items() if times > 1)
        raise Damaged(f"{file} holds the id {twice} more than once; {REMEDY}")
    return found


def decode_name(raw: bytes) -> str:
    """Names are UTF-8; Windows has written them in its own code page."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode(_ONE_BYTE, "replace")


def printable(text: str) -> str:
    """Text for a message, without what a terminal would act upon."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", lambda match: repr(match[0])[1:-1], text)
