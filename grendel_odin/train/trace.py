"""Which rows each view activates: the trace that odin.rlg=computation is built from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from grendel_odin.data.views import View
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.render.protocol import Renderer


def trace_rows(
    table: PrimitiveTable, renderer: Renderer, views: Sequence[View]
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """For each view its number and the ids of the rows that it sees (radius > 0)."""
    for number, view in enumerate(views):
        rows = renderer.project(table, view.camera, 0).rows
        yield number, table.ids[rows.long()].numpy().copy()
