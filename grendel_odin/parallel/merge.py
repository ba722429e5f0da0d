"""What all ranks hold together: one PLY, one hash. No rank ever holds the whole model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grendel_odin.model.ply import finite_rows_by_id, write_rows
from grendel_odin.model.state_hash import lanes, state_sum, sum_sha256
from grendel_odin.model.table import ROW_WIDTH, PrimitiveTable
from grendel_odin.parallel.world import World

CHUNK = 1 << 16
"""Rows that the main rank holds while it merges."""


def save_ply(world: World, path: Path, table: PrimitiveTable, comments: Sequence[str]) -> int:
    """One file of the rows of all ranks in id order, written by the main rank.

    Every rank calls it. Returns the number of rows, of all ranks, dropped as not finite. Raises
    UserError on all ranks if the file cannot be written.
    """
    rows = finite_rows_by_id(table)
    present, finite = world.sum_counts(len(table), len(rows))
    parts = _by_id(world, table, rows)

    def take_part() -> None:
        try:
            if world.is_main:
                write_rows(path, finite, parts, comments)
        finally:
            for _ in parts:  # what is left of them: every rank exchanges to the end
                pass

    world.together(take_part)
    return present - finite


def model_sha256(world: World, table: PrimitiveTable) -> str:
    """model.state_hash of the rows of all ranks."""
    sums = world.sum_counts(*lanes(state_sum(table)))
    return sum_sha256(sum(lane << (32 * place) for place, lane in enumerate(sums)))


def _by_id(
    world: World, table: PrimitiveTable, rows: NDArray[np.int64]
) -> Iterator[tuple[Tensor, NDArray[np.int64]]]:
    """Chunks [n, 64] of all ranks' rows in id order on the main rank; nothing on the others."""
    if world.size == 1:
        yield table.values, rows
        return
    ids = world.gather_rows(table.ids[torch.from_numpy(rows)])
    owners = np.repeat(np.arange(world.size), [len(each) for each in ids])
    owners = owners[torch.cat(ids).numpy().argsort()]
    sent = 0
    for start in range(0, len(owners), CHUNK):
        chunk = owners[start : start + CHUNK]
        counts = np.bincount(chunk, minlength=world.size)
        own = torch.from_numpy(rows[sent : sent + counts[world.rank]])
        sent += int(counts[world.rank])
        outgoing = [torch.empty(0, ROW_WIDTH)] * world.size
        outgoing[0] = table.values[own]
        held = counts if world.is_main else np.zeros_like(counts)
        incoming = [torch.empty(int(n), ROW_WIDTH) for n in held]
        if world.is_main:
            incoming[0] = outgoing[0]
        world.exchange(outgoing, incoming)
        if world.is_main:
            place = torch.from_numpy(chunk.argsort(kind="stable").argsort(kind="stable"))
            yield torch.cat(incoming), place.numpy()
