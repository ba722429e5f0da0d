"""Which rank owns which row: in equal shares, with rows that views see together kept together.

Rows get a code, and the order of codes is parted into equal shares; no rank ever needs the rows of
others. Only speed depends on the spread: the model has the same bits with any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grendel_odin.data.cameras import Camera
from grendel_odin.model.ids import mix64
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.parallel.assign import assign
from grendel_odin.parallel.covisibility import Cells, part_cells
from grendel_odin.parallel.world import World

AXIS_BITS = 10
HALF = 30
"""Bits of a Morton code, and of the mixed id that orders rows of one grid place."""
DIGIT = 4
SAMPLE = 1 << 13
"""Rows whose positions tell how far the grid reaches."""
TAIL = 0.01
"""Share of them left out at either end of an axis: a few floaters must not coarsen the grid."""


class Spread(str, Enum):
    """How rows are given to ranks."""

    CONTIGUOUS = "contiguous"  # equal pieces of the present order
    RANDOM = "random"  # by mixed bits of seed and id (Grendel)
    MORTON = "morton"  # pieces of a Z-order curve through space
    COVISIBILITY = "covisibility"  # METIS: cells of rows that many views see together


@dataclass(frozen=True, slots=True)
class Grid:
    """A cube of 1024 places along each axis; what lies outside counts to its border."""

    low: NDArray[np.float64]
    """[3] its first corner."""
    step: float
    """Edge of a place."""

    def places(self, means: Tensor) -> Tensor:
        """[n, 3] int64 of positions [n, 3]; those that are not numbers lie at 0."""
        local = (means.double() - torch.from_numpy(self.low)) / self.step
        return local.nan_to_num(0.0).clamp(0, (1 << AXIS_BITS) - 1).long()

    def positions(self, places: NDArray[np.float64]) -> NDArray[np.float64]:
        """[n, 3] the middles of places [n, 3]."""
        return self.low + (places + 0.5) * self.step


def owners(
    spread: Spread, world: World, table: PrimitiveTable, cameras: Sequence[Camera], seed: int
) -> Tensor:
    """[n] int64: the rank that is to own each of this rank's rows. Every rank calls it.

    Shares are equal to a row, those of `covisibility` within 5% where its cells allow. They are
    named such that few rows have to move.
    """
    if world.size == 1:
        return torch.zeros(len(table), dtype=torch.int64)
    part = _parts(spread, world, table, cameras, seed)
    present = world.gather_integers(torch.bincount(part, minlength=world.size))
    return torch.tensor(assign(present))[part]


def _parts(
    spread: Spread, world: World, table: PrimitiveTable, cameras: Sequence[Camera], seed: int
) -> Tensor:
    if spread is Spread.CONTIGUOUS:
        lengths = world.gather_integers(torch.tensor([len(table)]))[:, 0]
        first = int(lengths[: world.rank].sum())
        return torch.arange(first, first + len(table)) * world.size // max(1, int(lengths.sum()))
    if spread is Spread.RANDOM:
        codes = mix64(table.ids ^ mix64(torch.tensor(seed + 1))) & ((1 << 2 * HALF) - 1)
        return _shares(world, codes, world.size)
    grid = _grid(world, table)
    places = grid.places(table.field("means"))
    codes = _morton(places) << HALF | _mixed(table.ids) >> HALF
    if spread is Spread.MORTON:
        return _shares(world, codes, world.size)
    cells = Cells.count(world, places, lambda number: _shares(world, codes, number))
    return part_cells(world, cells, grid.positions(cells.places), cameras, seed)[cells.of]


def even_splitters(world: World, codes: Tensor, shares: int) -> Tensor:
    """[shares - 1] int64, ascending: codes at which the rows of all ranks part into equal shares.

    codes: [n] int64 of own rows, 0 <= code < 2^60. A digit at a time, all ranks count how many
    codes lie below the candidates, so the answer depends on the codes alone.
    """
    ordered = codes.sort().values
    (total,) = world.sum_counts(len(codes))
    targets = torch.arange(1, shares) * total // shares
    splitters = torch.zeros_like(targets)
    digits = torch.arange(1, 1 << DIGIT)
    for shift in range(2 * HALF - DIGIT, -1, -DIGIT):
        candidates = splitters[:, None] + (digits << shift)
        below = world.gather_integers(torch.searchsorted(ordered, candidates)).sum(0)
        splitters += (below <= targets[:, None]).sum(1) << shift
    return splitters


def _shares(world: World, codes: Tensor, shares: int) -> Tensor:
    """[n] int64: the share of each own row."""
    return torch.searchsorted(even_splitters(world, codes, shares), codes, right=True)


def _grid(world: World, table: PrimitiveTable) -> Grid:
    (total,) = world.sum_counts(len(table))
    chosen = _mixed(table.ids) < (SAMPLE << 2 * HALF) // max(total, SAMPLE)
    means = table.field("means")[chosen]
    sample = torch.cat(world.gather_rows(means[means.isfinite().all(1)])).double().numpy()
    if len(sample) == 0:
        return Grid(np.zeros(3), 1.0)
    low, high = np.quantile(sample, [TAIL, 1 - TAIL], axis=0)
    return Grid(low, float((high - low).max()) / (1 << AXIS_BITS) or 1.0)


def _mixed(ids: Tensor) -> Tensor:
    """[n] 60 mixed bits of ids."""
    return mix64(ids) & ((1 << 2 * HALF) - 1)


def _morton(places: Tensor) -> Tensor:
    """[n] the bits of places [n, 3], interleaved."""
    spaced = places
    for shift, mask in ((16, 0x30000FF), (8, 0x300F00F), (4, 0x30C30C3), (2, 0x9249249)):
        spaced = (spaced | spaced << shift) & mask
    return spaced[:, 0] | spaced[:, 1] << 1 | spaced[:, 2] << 2
