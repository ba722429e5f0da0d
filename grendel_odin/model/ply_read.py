"""Reads the PLY files of any 3DGS trainer: SH degree 0 to 3, properties in any order."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from grendel_odin.config import UserError
from grendel_odin.model.ply import CHUNK, OFFSET, finite_rows_by_id, property_columns
from grendel_odin.model.ply_header import PlyHeader, open_ply
from grendel_odin.model.table import MAX_SH_DEGREE, PrimitiveTable


def read_ply(path: Path, frame: NDArray[np.float64] | None = None) -> PrimitiveTable:
    """Read a binary 3DGS PLY; see `read_rows`. A warning says how many rows are not finite."""
    header = open_ply(path)
    table = read_rows([(path, header)], range(header.rows), frame)
    if len(table) < header.rows:
        warnings.warn(
            f"{path}: dropped {header.rows - len(table)} rows that are not finite", stacklevel=2
        )
    return table


def read_rows(
    files: Sequence[tuple[Path, PlyHeader]], part: range, frame: NDArray[np.float64] | None
) -> PrimitiveTable:
    """Some of the rows of files laid end to end, without those that are not finite.

    Positions become relative to `frame` [3], an offset in the input's frame, whatever offset a
    file's header tells (none: 0 0 0); without `frame` they are as stored. Ids are row numbers.
    Raises UserError if a file is no 3DGS PLY, is cut short, or cannot be read.
    """
    table = PrimitiveTable.empty(len(part))
    table.ids = torch.arange(part.start, part.stop)
    values, first = table.values.numpy(), 0
    for path, header in files:
        own = range(
            min(max(part.start - first, 0), header.rows), min(part.stop - first, header.rows)
        )
        if own:
            place = first + own.start - part.start
            _fill(values[place : place + len(own)], path, header, own, frame)
        first += header.rows
    rows = torch.from_numpy(finite_rows_by_id(table))
    if len(rows) < len(table):
        table = PrimitiveTable(table.values[rows], table.ids[rows])
    return table


def _fill(
    values: NDArray[np.float32],
    path: Path,
    header: PlyHeader,
    part: range,
    frame: NDArray[np.float64] | None,
) -> None:
    """Rows of one file into values [n, 64]."""
    columns = property_columns(sh_degree(header, path))
    _require(header, columns, path)
    shift = np.zeros(3) if frame is None else header_offset(header) - frame
    with np.errstate(over="ignore"):  # a double may become an infinity; its row is dropped later
        for start, chunk in vertex_chunks(header, path, part):
            into = values[start - part.start :][: len(chunk)]
            for name, column in columns.items():
                into[:, column] = chunk[name]
            if shift.any():
                for axis, name in enumerate("xyz"):
                    into[:, columns[name]] = chunk[name].astype(np.float64) + shift[axis]


def header_offset(header: PlyHeader) -> NDArray[np.float64]:
    """[3] what the comments say is to be added to positions; zeros if they say nothing."""
    for comment in header.comments:
        word, *numbers = comment.split() or [""]
        if word == OFFSET and len(numbers) == 3:
            with suppress(ValueError):
                offset = np.array([float(number) for number in numbers])
                if np.isfinite(offset).all():
                    return offset
    return np.zeros(3)


def vertex_chunks(
    header: PlyHeader, path: Path, part: range
) -> Iterator[tuple[int, NDArray[np.void]]]:
    """(first row, rows) of a part of the file's body, chunk by chunk."""
    row: np.dtype[Any] = header.row
    with open(path, "rb") as file:
        file.seek(header.offset + part.start * row.itemsize)
        for start in range(part.start, part.stop, CHUNK):
            count = min(CHUNK, part.stop - start)
            yield start, np.frombuffer(file.read(count * row.itemsize), row)


def sh_degree(header: PlyHeader, path: Path) -> int:
    """Of the file's rows. Raises UserError if their properties fit none."""
    rest = sum(name.startswith("f_rest_") for name in header.row.names or ())
    degrees = {3 * ((degree + 1) ** 2 - 1): degree for degree in range(MAX_SH_DEGREE + 1)}
    if rest not in degrees:
        raise UserError(
            f"{path}: {rest} f_rest properties fit no SH degree from 0 to {MAX_SH_DEGREE} "
            f"(which have {', '.join(map(str, degrees))}). Next: export the model again."
        )
    return degrees[rest]


def _require(header: PlyHeader, columns: dict[str, int], path: Path) -> None:
    names = header.row.names or ()
    missing = [name for name in columns if name not in names]
    if missing:
        listed = ", ".join(missing[:6]) + (", ..." if len(missing) > 6 else "")
        raise UserError(
            f"{path}: not a 3DGS PLY: its rows lack {listed}. Next: give a point_cloud.ply that a "
            "3DGS trainer wrote; expand compressed files with splat-transform first."
        )
