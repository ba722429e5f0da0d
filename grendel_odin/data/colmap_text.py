"""The text form of a COLMAP model, as many programs write it.

Read here, not by pycolmap, which cuts names at their first blank.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from grendel_odin.data.colmap_records import (
    Damaged,
    ImageRecord,
    PointRecords,
    decode_name,
    printable,
    unique,
)
from grendel_odin.data.lens import LensModel

T = TypeVar("T")
_Line = tuple[int, bytes]
"""Number in the file, from 1, and content without the blanks around it."""

_POINT: np.dtype[Any] = np.dtype(
    [("id", "<u8"), *((axis, "<f8") for axis in "xyz"), *((c, "<i8") for c in "rgb"), ("e", "<f8")]
)
_TRACK_FROM = 8
_SHOWN = 60


def read_cameras(file: Path) -> dict[int, LensModel]:
    """By id. Raises Damaged."""

    def read(line: bytes) -> tuple[int, LensModel]:
        number, model, width, height, *params = line.split()
        values = tuple(float(word) for word in params)
        name = model.decode("ascii").upper()
        return _id(number), LensModel(name, int(width), int(height), values)

    form = "CAMERA_ID MODEL WIDTH HEIGHT PARAMS[]"
    return unique(file, [_parsed(file, line, read, form) for line in _filled(_lines(file))])


def read_images(file: Path) -> list[ImageRecord]:
    """In the order of the file. Raises Damaged.

    An image has two lines. The second lists its observations, which are not needed here; it may
    be blank, and programs that have none to write leave it out.
    """
    images: list[ImageRecord] = []
    awaited = False
    for number, text in _lines(file):
        if awaited and (not text or _lists_observations(text)):
            awaited = False
        elif text and not text.startswith(b"#"):
            form = "IMAGE_ID QW QX QY QZ TX TY TZ CAMERA_ID NAME"
            images.append(_parsed(file, (number, text), _image, form))
            awaited = True
    unique(file, [(image.id, image) for image in images])
    return images


def read_points(file: Path) -> PointRecords:
    """In the order of the file. Raises Damaged."""
    lines = _filled(_lines(file))
    try:
        return _points([text for _, text in lines])
    except (ValueError, OverflowError):
        while len(lines) > 1:  # the first half that fails holds a bad line
            half = lines[: len(lines) // 2]
            lines = half if _fails([text for _, text in half]) else lines[len(half) :]
        form = "POINT3D_ID X Y Z R G B ERROR TRACK[] as (IMAGE_ID POINT2D_IDX)"
        _parsed(file, lines[0], lambda text: _points([text]), form)
        raise


def _points(lines: list[bytes]) -> PointRecords:
    heads = np.zeros(0, _POINT)
    if lines:
        columns = range(_TRACK_FROM)
        heads = np.loadtxt(lines, _POINT, None, usecols=columns, ndmin=1, encoding="latin1")
    tracks = [line.split()[_TRACK_FROM:] for line in lines]
    lengths = np.fromiter(map(len, tracks), np.int64, len(tracks))
    colors = np.column_stack([heads[channel] for channel in "rgb"])
    if (lengths % 2).any() or (colors != colors.astype(np.uint8)).any():
        raise ValueError
    words = chain.from_iterable(tracks)
    return PointRecords(
        ids=heads["id"].astype(np.uint64),
        xyz=np.column_stack([heads[axis] for axis in "xyz"]),
        rgb=colors.astype(np.uint8),
        track_lengths=lengths // 2,
        track_images=np.fromiter(map(int, words), np.int64)[::2],
    )


def _fails(lines: list[bytes]) -> bool:
    try:
        _points(lines)
    except (ValueError, OverflowError):
        return True
    return False


def _lines(file: Path) -> list[_Line]:
    """Any line ends; a byte order mark is passed over."""
    data = file.read_bytes()
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        data = data.decode("utf-16", "replace").encode()
    data = data.removeprefix(b"\xef\xbb\xbf")
    if b"\n" not in data:
        data = data.replace(b"\r", b"\n")
    return [(i, line.strip()) for i, line in enumerate(data.split(b"\n"), 1)]


def _filled(lines: list[_Line]) -> list[_Line]:
    return [line for line in lines if line[1] and not line[1].startswith(b"#")]


def _parsed(file: Path, line: _Line, read: Callable[[bytes], T], form: str) -> T:
    number, text = line
    try:
        return read(text)
    except (ValueError, OverflowError):
        shown = printable(decode_name(text[:_SHOWN])) + ("..." if len(text) > _SHOWN else "")
        raise Damaged(
            f"{file}, line {number}: expected {form}, found {shown!r}; write the model anew or "
            "mend the line"
        ) from None


def _image(line: bytes) -> ImageRecord:
    """The name is the rest of the line, blanks and all."""
    number, *words, camera, name = line.split(None, 9)
    if len(words) != 7:
        raise ValueError
    pose = [float(word) for word in words]
    camera_id = _id(camera)
    return ImageRecord(_id(number), tuple(pose[:4]), tuple(pose[4:]), camera_id, decode_name(name))


def _lists_observations(line: bytes) -> bool:
    """Triples of x, y and the id of a point or -1; not the first line of the next image."""
    words = line.split()
    try:
        float(words[0]), float(words[1]), int(words[2]), int(words[-1])
    except (ValueError, IndexError):
        return False
    return len(words) % 3 == 0


def _id(word: bytes) -> int:
    value = int(word)
    if not 0 <= value < 1 << 64:
        raise ValueError
    return value
