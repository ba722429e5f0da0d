"""Seconds to write (and read back) a PLY: python benchmarks/ply.py [rows] [folder]."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import torch

from grendel_odin.model.ids import mix64
from grendel_odin.model.ply import write_ply
from grendel_odin.model.ply_read import read_ply
from grendel_odin.model.table import ROW_WIDTH, PrimitiveTable

BAR_SECONDS_PER_ROW = 15.0 / 10_000_000


def table_of(rows: int) -> PrimitiveTable:
    """Rows in an order that has nothing to do with their ids, as after many densifications."""
    values = torch.rand(rows, ROW_WIDTH, generator=torch.Generator().manual_seed(0))
    return PrimitiveTable(values, mix64(torch.arange(rows)))


def main(rows: int, parent: str | None) -> None:
    table = table_of(rows)
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        path = Path(folder) / "point_cloud.ply"
        start = time.perf_counter()
        write_ply(path, table)
        write_s = time.perf_counter() - start
        size = path.stat().st_size
        table.values = torch.empty(0, ROW_WIDTH)
        start = time.perf_counter()
        assert len(read_ply(path)) == rows
        read_s = time.perf_counter() - start
    figures = {
        "benchmark": "ply",
        "rows": rows,
        "megabytes": round(size / 1e6, 1),
        "write_s": round(write_s, 2),
        "write_bar_s": round(rows * BAR_SECONDS_PER_ROW, 2),
        "read_s": round(read_s, 2),
        "write_mb_per_s": round(size / 1e6 / write_s, 1),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(
        int(arguments[0]) if arguments else 10_000_000,
        arguments[1] if len(arguments) > 1 else None,
    )
