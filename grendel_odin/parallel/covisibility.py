"""Parts cells of rows such that views see few parts: METIS on how often cells are seen together.

What travels is what projects into a view, so cells are joined by projection, not by the tracks of
structure from motion, which occlusion thins out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pymetis
import torch
from numpy.typing import NDArray
from torch import Tensor

from grendel_odin.data.cameras import Camera
from grendel_odin.data.extent import seen
from grendel_odin.parallel.world import World

CELLS_PER_RANK = 64
MOST_CELLS = 2048
"""The graph is dense where views see much of the scene."""
MOST_VIEWS = 1000
HEAVIEST = 1.05
"""Rows of a part against the mean, where cells allow."""
_STRONGEST = 10_000
_METIS_SLACK = 30  # thousandths


@dataclass(frozen=True, slots=True)
class Cells:
    """Neighbouring rows, taken together; of all ranks."""

    of: Tensor
    """[n] int64: the cell of each own row."""
    rows: NDArray[np.int64]
    """[K] rows in each cell."""
    places: NDArray[np.float64]
    """[K, 3] mean place of its rows."""

    @staticmethod
    def count(world: World, places: Tensor, shares: Callable[[int], Tensor]) -> Cells:
        """Cells of about equal numbers of rows. Every rank calls it.

        places: [n, 3] int64 of own rows. shares(K): [n] int64, the cell of each own row.
        """
        (total,) = world.sum_counts(len(places))
        number = max(1, min(total, MOST_CELLS, CELLS_PER_RANK * world.size))
        of = shares(number)
        sums = torch.zeros(number, 4, dtype=torch.int64)
        sums.index_add_(0, of, torch.cat([torch.ones_like(places[:, :1]), places], 1))
        sums = world.gather_integers(sums).sum(0)
        rows = sums[:, 0].numpy()
        return Cells(of, rows, sums[:, 1:].numpy() / np.maximum(rows, 1)[:, None])


def part_cells(
    world: World,
    cells: Cells,
    positions: NDArray[np.float64],
    cameras: Sequence[Camera],
    seed: int,
) -> Tensor:
    """[K] int64: the part of each cell, one part a rank. Every rank calls it; one computes.

    positions: [K, 3] of the cells, in the world frame.
    """
    parts = np.zeros(len(cells.rows), dtype=np.int64)
    if world.is_main:
        bonds = covisibility(positions, cells.rows, cameras)
        parts = levelled(_metis(bonds, cells.rows, world.size, seed), cells.rows, bonds, world.size)
    return world.gather_integers(torch.from_numpy(parts))[0]


def covisibility(
    positions: NDArray[np.float64], rows: NDArray[np.int64], cameras: Sequence[Camera]
) -> NDArray[np.float32]:
    """[K, K]: how much views see cells together; every view counts by 1 / (rows that it sees)."""
    some = cameras[:: -(-len(cameras) // MOST_VIEWS) or 1]
    sees = np.array([seen(camera, positions)[0] for camera in some], dtype=np.float32)
    sees = sees.reshape(-1, len(positions))
    sees /= np.sqrt(np.maximum(sees @ rows.astype(np.float32), 1.0))[:, None]
    bonds: NDArray[np.float32] = sees.T @ sees
    np.fill_diagonal(bonds, 0.0)
    return bonds


def levelled(
    parts: NDArray[np.int64], rows: NDArray[np.int64], bonds: NDArray[np.float32], ranks: int
) -> NDArray[np.int64]:
    """The parts, after cells moved from the heaviest to the lightest until all are even enough."""
    parts = parts.copy()
    while True:
        load = np.bincount(parts, rows, ranks)
        heavy, light = int(load.argmax()), int(load.argmin())
        if load[heavy] <= HEAVIEST * load.mean():
            return parts
        helps = (parts == heavy) & (rows > 0) & (rows < load[heavy] - load[light])
        if not helps.any():
            return parts
        gain = bonds[:, parts == light].sum(1) - bonds[:, parts == heavy].sum(1)
        parts[np.where(helps, gain, -np.inf).argmax()] = light


def _metis(
    bonds: NDArray[np.float32], rows: NDArray[np.int64], ranks: int, seed: int
) -> NDArray[np.int64]:
    number = len(rows)
    if number <= ranks:
        return np.arange(number)
    weights = np.rint(bonds * (_STRONGEST / max(float(bonds.max()), 1e-30))).astype(np.int64)
    cells, neighbours = weights.nonzero()
    starts = np.searchsorted(cells, np.arange(number + 1))
    _, parts = pymetis.part_graph(
        ranks,
        pymetis.CSRAdjacency(starts.tolist(), neighbours.tolist()),
        vweights=rows.tolist(),
        eweights=weights[cells, neighbours].tolist(),
        recursive=False,
        options=pymetis.Options(ufactor=_METIS_SLACK, ncuts=4, seed=seed % (1 << 31)),
    )
    return np.array(parts, dtype=np.int64)
