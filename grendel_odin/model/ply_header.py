"""The header of a binary PLY file, written, and read without trusting it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from grendel_odin.config import UserError

_MAX_HEADER = 1 << 16
_BYTE_ORDERS = {"binary_little_endian": "<", "binary_big_endian": ">"}
_TYPES = {
    **{"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4"},
    **{"float": "f4", "double": "f8"},
    **{"int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4"},
    **{"float32": "f4", "float64": "f8"},
}

_NAMES = {"f4": "float", "f8": "double", "i4": "int", "u4": "uint", "i2": "short", "u2": "ushort"}
_NAMES |= {"i1": "char", "u1": "uchar"}


@dataclass(frozen=True, slots=True)
class PlyHeader:
    """Where the vertex rows of a file lie and what they hold."""

    rows: int
    row: np.dtype[Any]
    """Structured type of one vertex."""
    offset: int
    """Byte at which the first row starts."""
    comments: tuple[str, ...] = ()

    @property
    def end(self) -> int:
        """Byte after the last row."""
        return self.offset + self.rows * self.row.itemsize


def open_ply(path: Path) -> PlyHeader:
    """The header of a file. Raises UserError as `read_header`, and if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return read_header(file, path)
    except OSError as error:
        raise UserError(f"{path}: cannot read the PLY ({error.strerror or error}).") from error


def header_bytes(rows: int, row: np.dtype[Any], comments: Sequence[str] = ()) -> bytes:
    """The header of a file whose body is so many little-endian rows of this structured type."""
    lines = ["ply", "format binary_little_endian 1.0"]
    lines += [f"comment {' '.join(comment.split())}" for comment in comments]
    lines.append(f"element vertex {rows}")
    lines += [f"property {_NAMES[row[name].str[1:]]} {name}" for name in row.names or ()]
    return "\n".join([*lines, "end_header", ""]).encode("ascii", "replace")


def read_header(file: BinaryIO, path: Path) -> PlyHeader:
    """The header of an open PLY file whose first element is `vertex`.

    Raises UserError if it is malformed, in ASCII, or promises more bytes than the file has.
    """
    lines, comments = _header_lines(file, path)
    offset = file.tell()
    byte_order = _byte_order(lines, path)
    elements = [index for index, line in enumerate(lines) if line[0] == "element"]
    if not elements or len(lines[elements[0]]) != 3 or lines[elements[0]][1] != "vertex":
        raise _broken(path, "its first element is not 'vertex'")
    count = lines[elements[0]][2]
    if not count.isdecimal():
        raise _broken(path, f"its vertex count is '{count}'")
    end = elements[1] if len(elements) > 1 else len(lines)
    properties = [line for line in lines[elements[0] : end] if line[0] == "property"]
    header = PlyHeader(int(count), _row_type(properties, byte_order, path), offset, comments)
    _check_size(header, os.fstat(file.fileno()).st_size, path)
    return header


def _header_lines(file: BinaryIO, path: Path) -> tuple[list[list[str]], tuple[str, ...]]:
    """The words of each line between the magic number and end_header; the comments apart."""
    if file.readline(16).strip() != b"ply":
        raise _broken(path, "it does not start with 'ply'")
    lines: list[list[str]] = []
    comments: list[str] = []
    while file.tell() < _MAX_HEADER:
        line = file.readline(_MAX_HEADER)
        words = line.decode("ascii", "replace").split()
        if words == ["end_header"]:
            return lines, tuple(comments)
        if not line:
            break
        if words and words[0] in ("comment", "obj_info"):
            comments.append(" ".join(words[1:]))
        elif words:
            lines.append(words)
    raise _broken(path, f"no 'end_header' in its first {_MAX_HEADER} bytes")


def _byte_order(lines: list[list[str]], path: Path) -> str:
    form = lines[0][1] if lines and lines[0][0] == "format" and len(lines[0]) == 3 else ""
    if form == "ascii":
        raise UserError(
            f"{path}: an ASCII PLY is not read. Next: convert it to binary_little_endian, for "
            "instance by opening and saving it in SuperSplat or MeshLab."
        )
    if form not in _BYTE_ORDERS:
        raise _broken(path, "its second line names no known format")
    return _BYTE_ORDERS[form]


def _row_type(properties: list[list[str]], byte_order: str, path: Path) -> np.dtype[Any]:
    fields = []
    for words in properties:
        if len(words) != 3 or words[1] not in _TYPES:
            raise _broken(path, f"'{' '.join(words)}' is not a scalar property")
        fields.append((words[2], byte_order + _TYPES[words[1]]))
    if len({name for name, _ in fields}) < len(fields):
        raise _broken(path, "it names a property twice")
    if not fields:
        raise _broken(path, "its vertices have no properties")
    return np.dtype(fields)


def _check_size(header: PlyHeader, size: int, path: Path) -> None:
    if size < header.end:
        raise UserError(
            f"{path}: cut short: its header promises {header.rows} primitives in {header.end} "
            f"bytes, the file has {size}. Next: copy or export it again."
        )


def _broken(path: Path, reason: str) -> UserError:
    return UserError(
        f"{path}: not a PLY file that can be read: {reason}. Next: give a point_cloud.ply that a "
        "3DGS trainer wrote."
    )
