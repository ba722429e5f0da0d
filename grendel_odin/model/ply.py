"""The PLY files of 3DGS: written as SIBR and SuperSplat read them, read from any trainer.

Positions are float32, which cannot hold survey coordinates. A model of such a scene is written in
a local frame, and `comment offset X Y Z` in the header says what to add to reach the input's frame.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grendel_odin.config import UserError, replacing
from grendel_odin.model.ply_header import PlyHeader, read_header
from grendel_odin.model.table import GAUSSIAN, MAX_SH_DEGREE, PrimitiveTable

_CHUNK = 1 << 12
OFFSET = "offset"
ANTIALIASED_COMMENT = "rasterize_mode antialiased"


def _property_columns(sh_degree: int) -> dict[str, int]:
    """The table's column of each property; f_rest is channel-major: all of R, then G, then B."""
    coefficients = (sh_degree + 1) ** 2 - 1
    shN = GAUSSIAN["shN"].start
    rest = {
        f"f_rest_{channel * coefficients + k}": shN + 3 * k + channel
        for channel in range(3)
        for k in range(coefficients)
    }
    return {
        **{axis: GAUSSIAN["means"].start + i for i, axis in enumerate("xyz")},
        **{f"f_dc_{i}": GAUSSIAN["sh0"].start + i for i in range(3)},
        **rest,
        "opacity": GAUSSIAN["opacities"].start,
        **{f"scale_{i}": GAUSSIAN["scales"].start + i for i in range(3)},
        **{f"rot_{i}": GAUSSIAN["quats"].start + i for i in range(4)},
    }


_COLUMNS = _property_columns(MAX_SH_DEGREE)
PROPERTIES = (*list(_COLUMNS)[:3], "nx", "ny", "nz", *list(_COLUMNS)[3:])
"""The 62 float32 of a row. SIBR reads them into a fixed struct, so order and count are part of
the format, normals and SH degree 3 included."""


def write_ply(path: Path, table: PrimitiveTable, comments: Sequence[str] = ()) -> int:
    """Write finite rows in id order; returns the number of rows dropped as not finite.

    The file appears complete or not at all. Raises UserError if it cannot be written.
    """
    rows = finite_rows_by_id(table)
    write_rows(path, len(rows), [(table.values, rows)], comments)
    return len(table) - len(rows)


def write_rows(
    path: Path,
    total: int,
    parts: Iterable[tuple[Tensor, NDArray[np.int64]]],
    comments: Sequence[str],
) -> None:
    """Write `total` rows: of each part, values [n, 64], the rows that it names, in order.

    The file appears complete or not at all. Raises UserError if it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(_header(total, comments))
            for values, rows in parts:
                for chunk in _ply_rows(values.numpy(), rows):
                    file.write(chunk.data)
    except OSError as error:
        raise UserError(
            f"{path}: cannot write the PLY of {total} primitives ({error.strerror or error}). "
            "Next: free space there, or choose another output folder."
        ) from error


def offset_comment(offset: NDArray[np.float64]) -> str:
    """The comment that `offset` [3] has in a header; it reads back as the same float64."""
    return " ".join([OFFSET, *(f"{value:.17g}" for value in offset.tolist())])


def read_ply(path: Path, frame: NDArray[np.float64] | None = None) -> PrimitiveTable:
    """Read a binary 3DGS PLY: SH degree 0 to 3, properties in any order, others ignored.

    Positions become relative to `frame` [3], an offset in the input's frame, whatever offset the
    file's header tells (none: 0 0 0); without `frame` they are as stored. Ids follow the file's
    rows. Rows that are not finite are dropped with a warning. Raises UserError if the file is not
    such a PLY, is cut short, or cannot be read.
    """
    try:
        with open(path, "rb") as file:
            header = read_header(file, path)
    except OSError as error:
        raise UserError(f"{path}: cannot read the PLY ({error.strerror or error}).") from error
    columns = _property_columns(_sh_degree(header, path))
    _require(header, columns, path)
    shift = np.zeros(3) if frame is None else header_offset(header) - frame
    table = PrimitiveTable.empty(header.rows)
    values = table.values.numpy()
    with np.errstate(over="ignore"):  # a double may become an infinity; its row is dropped below
        for start, chunk in vertex_chunks(header, path):
            for name, column in columns.items():
                values[start : start + len(chunk), column] = chunk[name]
            if shift.any():
                for axis, name in enumerate("xyz"):
                    position = chunk[name].astype(np.float64) + shift[axis]
                    values[start : start + len(chunk), columns[name]] = position
    table.ids = torch.arange(header.rows)
    finite = torch.from_numpy(finite_rows_by_id(table))
    if len(finite) < len(table):
        warnings.warn(
            f"{path}: dropped {len(table) - len(finite)} rows that are not finite", stacklevel=2
        )
        table = PrimitiveTable(table.values[finite], torch.arange(len(finite)))
    return table


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


def finite_rows_by_id(table: PrimitiveTable) -> NDArray[np.int64]:
    """[n] rows without NaN or infinity, in id order."""
    values = table.values.numpy()
    finite = np.ones(len(table), dtype=np.bool_)
    for start in range(0, len(table), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        np.isfinite(values[chunk]).all(axis=1, out=finite[chunk])
    order = table.ids.numpy().argsort()
    return order[finite[order]]


def _header(rows: int, comments: Sequence[str]) -> bytes:
    lines = ["ply", "format binary_little_endian 1.0"]
    lines += [f"comment {' '.join(comment.split())}" for comment in comments]
    lines += [f"element vertex {rows}", *(f"property float {name}" for name in PROPERTIES)]
    return "\n".join([*lines, "end_header", ""]).encode("ascii", "replace")


def _ply_rows(
    values: NDArray[np.float32], rows: NDArray[np.int64]
) -> Iterator[NDArray[np.float32]]:
    """Chunks [n, 62] of the file's body; a chunk is overwritten by the next.

    NumPy into reused memory: a chunk stays in the cache and no thread pool is woken for it.
    """
    columns = np.array([_COLUMNS.get(name, 0) for name in PROPERTIES])
    normals = slice(PROPERTIES.index("nx"), PROPERTIES.index("nz") + 1)
    gathered = np.empty((_CHUNK, values.shape[1]), np.float32)
    permuted = np.empty((_CHUNK, len(PROPERTIES)), "<f4")
    for start in range(0, len(rows), _CHUNK):
        chosen = rows[start : start + _CHUNK]
        chunk = gathered[: len(chosen)]
        # "clip" is what lets NumPy write to `out` without a copy; all indices are in range.
        np.take(values, chosen, axis=0, out=chunk, mode="clip")
        out = permuted[: len(chosen)]
        np.take(chunk, columns, axis=1, out=out, mode="clip")
        out[:, normals] = 0.0
        yield out


def vertex_chunks(header: PlyHeader, path: Path) -> Iterator[tuple[int, NDArray[np.void]]]:
    """(first row, rows) of the file's body, chunk by chunk."""
    with open(path, "rb") as file:
        file.seek(header.offset)
        for start in range(0, header.rows, _CHUNK):
            count = min(_CHUNK, header.rows - start)
            yield start, np.frombuffer(file.read(count * header.row.itemsize), header.row)


def _sh_degree(header: PlyHeader, path: Path) -> int:
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
