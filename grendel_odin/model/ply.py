"""The PLY files of 3DGS, written as SIBR and SuperSplat read them.

Positions are float32, which cannot hold survey coordinates. A model of such a scene is written in
a local frame, and `comment offset X Y Z` in the header says what to add to reach the input's frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from grendel_odin.config import UserError, replacing
from grendel_odin.model.ply_header import header_bytes
from grendel_odin.model.table import GAUSSIAN, MAX_SH_DEGREE, PrimitiveTable

CHUNK = 1 << 12
"""Rows that pass through memory together."""
OFFSET = "offset"
ANTIALIASED_COMMENT = "rasterize_mode antialiased"


def property_columns(sh_degree: int) -> dict[str, int]:
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


_COLUMNS = property_columns(MAX_SH_DEGREE)
PROPERTIES = (*list(_COLUMNS)[:3], "nx", "ny", "nz", *list(_COLUMNS)[3:])
"""The 62 float32 of a row. SIBR reads them into a fixed struct, so order and count are part of
the format, normals and SH degree 3 included."""
ROW = np.dtype([(name, "<f4") for name in PROPERTIES])


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
            file.write(header_bytes(total, ROW, comments))
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


def finite_rows_by_id(table: PrimitiveTable) -> NDArray[np.int64]:
    """[n] rows without NaN or infinity, in id order."""
    values = table.values.numpy()
    finite = np.ones(len(table), dtype=np.bool_)
    for start in range(0, len(table), CHUNK):
        chunk = slice(start, start + CHUNK)
        np.isfinite(values[chunk]).all(axis=1, out=finite[chunk])
    order = table.ids.numpy().argsort()
    return order[finite[order]]


def _ply_rows(
    values: NDArray[np.float32], rows: NDArray[np.int64]
) -> Iterator[NDArray[np.float32]]:
    """Chunks [n, 62] of the file's body; a chunk is overwritten by the next.

    NumPy into reused memory: a chunk stays in the cache and no thread pool is woken for it.
    """
    columns = np.array([_COLUMNS.get(name, 0) for name in PROPERTIES])
    normals = slice(PROPERTIES.index("nx"), PROPERTIES.index("nz") + 1)
    gathered = np.empty((CHUNK, values.shape[1]), np.float32)
    permuted = np.empty((CHUNK, len(PROPERTIES)), "<f4")
    for start in range(0, len(rows), CHUNK):
        chosen = rows[start : start + CHUNK]
        chunk = gathered[: len(chosen)]
        # "clip" is what lets NumPy write to `out` without a copy; all indices are in range.
        np.take(values, chosen, axis=0, out=chunk, mode="clip")
        out = permuted[: len(chosen)]
        np.take(chunk, columns, axis=1, out=out, mode="clip")
        out[:, normals] = 0.0
        yield out
