"""The binary form of a COLMAP model: little-endian records of unequal length.

Every length is checked against the end of the file before it is believed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from grendel_odin.data.colmap_records import (
    REMEDY,
    Damaged,
    ImageRecord,
    PointRecords,
    decode_name,
    unique,
)
from grendel_odin.data.lens import LensModel, model_name, parameter_count

T = TypeVar("T")

_CAMERA = struct.Struct("<IiQQ")
_IMAGE = struct.Struct("<I7dI")
_COUNT = struct.Struct("<Q")
_OBSERVATION_BYTES = 24
_POINT: np.dtype[Any] = np.dtype(
    [("id", "<u8"), ("xyz", "<f8", 3), ("rgb", "u1", 3), ("error", "<f8"), ("track", "<u8")]
)
_TRACK_ENTRY: np.dtype[Any] = np.dtype([("image", "<u4"), ("observation", "<u4")])


def read_cameras(file: Path) -> dict[int, LensModel]:
    """By id. Raises Damaged."""

    def read(data: bytes, start: int) -> tuple[tuple[int, LensModel], int]:
        number, model, width, height = _CAMERA.unpack_from(data, start)
        name = model_name(model)
        count = parameter_count(name) if name else None
        if name is None or count is None:
            raise _Refused(f"unknown camera model {model} of camera {number}")
        begin = start + _CAMERA.size
        params = struct.unpack_from(f"<{count}d", data, begin)
        return (number, LensModel(name, width, height, params)), begin + 8 * count

    return unique(file, _walk(file, read))


def read_images(file: Path) -> list[ImageRecord]:
    """In the order of the file. Raises Damaged."""

    def read(data: bytes, start: int) -> tuple[ImageRecord, int]:
        number, *pose, camera = _IMAGE.unpack_from(data, start)
        begin = start + _IMAGE.size
        end = data.find(b"\0", begin)
        if end < 0:
            raise struct.error
        (observations,) = _COUNT.unpack_from(data, end + 1)
        name = decode_name(data[begin:end])
        image = ImageRecord(number, tuple(pose[:4]), tuple(pose[4:]), camera, name)
        return image, end + 9 + _OBSERVATION_BYTES * int(observations)

    images = _walk(file, read)
    unique(file, [(image.id, image) for image in images])
    return images


def read_points(file: Path) -> PointRecords:
    """In the order of the file. Raises Damaged.

    Only lengths are followed one by one; numpy gathers the rest from the buffer.
    """
    length_at = _POINT.itemsize - 8

    def read(data: bytes, start: int) -> tuple[int, int]:
        length = int.from_bytes(data[start + length_at : start + length_at + 8], "little")
        return start, start + _POINT.itemsize + _TRACK_ENTRY.itemsize * length

    data = _bytes(file)
    starts = np.array(_walk(file, read, data), dtype=np.int64)
    heads = _gather(data, _POINT, starts)
    lengths = heads["track"].astype(np.int64)
    before = np.concatenate([[0], np.cumsum(lengths)[:-1]]) if len(lengths) else lengths
    first = starts + _POINT.itemsize - before * _TRACK_ENTRY.itemsize
    place = np.repeat(first, lengths) + np.arange(lengths.sum()) * _TRACK_ENTRY.itemsize
    entries = _gather(data, _TRACK_ENTRY, place)
    return PointRecords(
        ids=heads["id"].astype(np.uint64),
        xyz=heads["xyz"].astype(np.float64),
        rgb=np.ascontiguousarray(heads["rgb"]),
        track_lengths=lengths,
        track_images=entries["image"].astype(np.int64),
    )


def record_count(file: Path) -> int:
    """How many records a file announces; 0 if it does not even hold that number."""
    with file.open("rb") as stream:
        head = stream.read(_COUNT.size)
    return int(_COUNT.unpack(head)[0]) if len(head) == _COUNT.size else 0


class _Refused(Exception):
    """A record holds what cannot be."""


def _bytes(file: Path) -> bytes:
    data = file.read_bytes()
    if len(data) < _COUNT.size:
        raise Damaged(
            f"{file} is cut off: {len(data)} bytes do not even hold the number of records; {REMEDY}"
        )
    return data


def _walk(file: Path, read: Callable[[bytes, int], tuple[T, int]], data: bytes = b"") -> list[T]:
    """Follows a file's records to its end."""
    data = data or _bytes(file)
    size = len(data)
    (count,) = _COUNT.unpack_from(data, 0)
    start = _COUNT.size
    records: list[T] = []
    while len(records) < count:
        try:
            record, end = read(data, start)
        except struct.error:
            end = size + 1
        except _Refused as refused:
            where = f"record {len(records) + 1} of {count}, at offset {start}"
            raise Damaged(f"{file}: {refused} in {where}; {REMEDY}") from None
        if end > size:
            raise Damaged(
                f"{file} is cut off in record {len(records) + 1} of {count}, which starts at "
                f"offset {start}: the file has {size} bytes; {REMEDY}"
            )
        records.append(record)
        start = end
    if start < size:
        raise Damaged(
            f"{file} has {size - start} bytes left after its {count} records, from offset "
            f"{start}: a number in it is damaged; {REMEDY}"
        )
    return records


def _gather(data: bytes, record: np.dtype[Any], starts: NDArray[np.int64]) -> NDArray[Any]:
    """Records that start at any byte; a view with a stride of one byte makes that one look-up."""
    if len(starts) == 0:
        return np.zeros(0, record)
    shape = (len(data) - record.itemsize + 1,)
    anywhere: NDArray[Any] = np.ndarray(shape, record, data, strides=(1,))
    return anywhere[starts]
