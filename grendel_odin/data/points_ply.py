"""Points to start from in a PLY file of any kind: text or binary, float or double coordinates."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from grendel_odin.config import UserError
from grendel_odin.data.views import Points

_MAX_HEADER = 1 << 16
_TYPES = {
    **{"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4"},
    **{"int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4"},
    **{"float": "f4", "double": "f8", "float32": "f4", "float64": "f8"},
}
_BYTE_ORDERS = {"ascii": "=", "binary_little_endian": "<", "binary_big_endian": ">"}
_COLORS = (("red", "green", "blue"), ("diffuse_red", "diffuse_green", "diffuse_blue"), tuple("rgb"))
_FULL = {"f": 1.0, "u1": 255.0, "u2": 65535.0}
"""What full brightness is in a column, by its kind."""
_GREY = 128


@dataclass(frozen=True, slots=True)
class _Layout:
    form: str
    rows: int
    row: np.dtype[Any]
    """Structured type of a vertex."""


def read_points_ply(path: Path) -> tuple[Points, list[str]]:
    """The vertices of a PLY file in its order, without tracks; and notes on what was left out.

    Colours are bytes, 16-bit numbers or floats in [0, 1]; a file without any gives grey points.
    Raises UserError if the file is missing, malformed or cut short.
    """
    try:
        with path.open("rb") as file:
            layout = _layout(file, path)
            rows = _text_rows(file, layout, path) if layout.form == "ascii" else _rows(file, layout)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: the points cannot be read ({reason})") from error
    if len(rows) < layout.rows:
        raise UserError(
            f"{path} is cut short: its header promises {layout.rows} points, {len(rows)} are "
            "there; copy or export the file again"
        )
    return _points(rows, path)


def _layout(file: BinaryIO, path: Path) -> _Layout:
    """The header's vertex element, which must come first."""
    if file.readline(16).strip() != b"ply":
        raise _broken(path, "it does not start with 'ply'")
    form, elements, fields = "", list[list[str]](), list[tuple[str, str]]()
    while file.tell() < _MAX_HEADER:
        line = file.readline(_MAX_HEADER)
        words = line.decode("ascii", "replace").split() or ["comment"]
        if words == ["end_header"]:
            break
        if not line:
            raise _broken(path, "its header has no end")
        if words[0] == "format":
            form = words[1] if len(words) > 1 else ""
        elif words[0] == "element":
            elements.append(words)
        elif words[0] == "property" and len(elements) == 1:
            if len(words) != 3 or words[1] not in _TYPES:
                raise _broken(path, f"'{' '.join(words)}' is not a scalar property")
            fields.append((words[2], words[1]))
    else:
        raise _broken(path, f"no 'end_header' in its first {_MAX_HEADER} bytes")
    first = elements[0] if elements else []
    if len(first) != 3 or first[1] != "vertex" or not first[2].isdecimal():
        raise _broken(path, "its first element is not 'vertex' with a count")
    if form not in _BYTE_ORDERS:
        raise _broken(path, f"its format '{form}' is none of {', '.join(_BYTE_ORDERS)}")
    names = [name for name, _ in fields]
    if len(set(names)) < len(names) or not {"x", "y", "z"} <= set(names):
        raise _broken(path, "its vertices need x, y and z, and no property twice")
    order = _BYTE_ORDERS[form]
    row = np.dtype([(name, order + _TYPES[kind]) for name, kind in fields])
    if form == "ascii":  # text has digits that a declared float would lose
        row = np.dtype([(name, "f8" if row[name].kind == "f" else row[name]) for name in names])
    return _Layout(form, int(first[2]), row)


def _rows(file: BinaryIO, layout: _Layout) -> NDArray[np.void]:
    """As many whole rows as the file holds, no more than its header promises."""
    there = (os.fstat(file.fileno()).st_size - file.tell()) // layout.row.itemsize
    count = min(layout.rows, there)
    return np.frombuffer(file.read(count * layout.row.itemsize), layout.row)


def _text_rows(file: BinaryIO, layout: _Layout, path: Path) -> NDArray[np.void]:
    """The same for rows of text. Raises UserError at a line that is not a row of numbers."""
    size = os.fstat(file.fileno()).st_size
    if not layout.rows or file.tell() == size:
        return np.zeros(0, layout.row)
    count = min(layout.rows, size)  # a row takes more than a byte
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of blank lines
            numbers = np.loadtxt(file, np.float64, comments=None, max_rows=count, ndmin=2)
    except ValueError as error:
        raise _broken(path, f"its points are not rows of numbers ({error})") from error
    names = layout.row.names or ()
    if len(numbers) and numbers.shape[1] != len(names):
        raise _broken(path, f"a row has {numbers.shape[1]} numbers, not {len(names)}")
    rows = np.zeros(len(numbers), layout.row)
    with np.errstate(all="ignore"):
        for column, name in enumerate(names[: numbers.shape[1]]):
            rows[name] = numbers[:, column]
    return rows


def _points(rows: NDArray[np.void], path: Path) -> tuple[Points, list[str]]:
    notes = []
    xyz = np.stack([rows[axis].astype(np.float64) for axis in "xyz"], axis=1)
    rgb = _colors(rows)
    if rgb is None:
        notes += [f"{path.name} has no colours: its points start in grey"] * (len(xyz) > 0)
        rgb = np.full(xyz.shape, _GREY, np.uint8)
    finite = np.isfinite(xyz).all(axis=1)
    if not finite.all():
        notes.append(f"{int((~finite).sum())} of {len(xyz)} points of {path.name} are not finite")
    count = int(finite.sum())
    tracks = np.zeros(count + 1, np.int64), np.zeros(0, np.int32)
    return Points(xyz[finite], rgb[finite], *tracks), notes


def _colors(rows: NDArray[np.void]) -> NDArray[np.uint8] | None:
    """[P, 3]; None if the columns are not there or of no known kind."""
    for triple in _COLORS:
        if set(triple) <= set(rows.dtype.names or ()):
            kind = rows.dtype[triple[0]]
            full = _FULL.get(kind.kind) or _FULL.get(kind.str[1:])
            if full is None:
                continue
            values = np.stack([rows[name].astype(np.float64) for name in triple], axis=1)
            scaled: NDArray[np.float64] = np.nan_to_num(values * (255.0 / full)).round()
            return scaled.clip(0, 255).astype(np.uint8)
    return None


def _broken(path: Path, reason: str) -> UserError:
    return UserError(f"{path}: not a PLY file of points: {reason}; export the points anew")
