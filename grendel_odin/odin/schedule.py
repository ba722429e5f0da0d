"""The static data schedule: units of views, epoch after epoch, each little coupled to the last.

Groups take turns. A view is the least coupled to the previous unit among a few that are drawn at
random from its group. What a greedy draw leaves for the end of an epoch is then mended: views of
the worst pairs of units are exchanged with others, if the worst of the pairs concerned does not
rise. Epochs follow each other without a gap: a unit may begin in one and end in the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grendel_odin.odin import _planner
from grendel_odin.odin.partition import Partition
from grendel_odin.odin.rlg import Graph
from grendel_odin.odin.settings import PlanSettings, UnitShape

Order = NDArray[np.int32]

CANDIDATES = 8
"""Views of a group among which one is chosen."""
TRIALS, ROUNDS = 1024, 16
"""Lookups for an exchange (its partners are as many fewer as units are larger), and passes over the
worst pairs of units at most."""


@dataclass(frozen=True, slots=True)
class Border:
    """Where one epoch ends and the next begins; all that an epoch needs to know of the past."""

    epoch: int = 0
    """Number of the epoch that begins."""
    previous: tuple[int, ...] = ()
    """The last whole unit; none before the first."""
    open: tuple[int, ...] = ()
    """Views that the unit which is not yet full has from the epoch that has ended."""


@dataclass(frozen=True, slots=True)
class Couplings:
    """Of units with the unit before: mean, 90th percentile, maximum."""

    mean: float
    high: float
    most: float

    @classmethod
    def of(cls, values: NDArray[np.float32]) -> Couplings:
        """Of one number for each pair of consecutive units; zeros if there is none."""
        if not len(values):
            return cls(0.0, 0.0, 0.0)
        return cls(float(values.mean()), float(np.quantile(values, 0.9)), float(values.max()))


def draw_epoch(
    graph: Graph,
    partition: Partition,
    settings: PlanSettings,
    border: Border,
    native: _planner.LocalityGraph | None = None,
) -> tuple[Order, Border]:
    """[V] every view once, and where the next epoch begins.

    Raises ValueError if there are fewer views than a unit holds.
    """
    views, batch = len(graph), settings.batch
    if batch > views:
        raise ValueError(f"a unit of {batch} different views cannot be drawn from {views}")
    order = _planner.epoch_order(
        native or graph.native(),
        *(partition.groups, partition.count, batch, settings.unit is UnitShape.COMPACT),
        np.array(border.previous, np.int32),
        np.array(border.open, np.int32),
        *(settings.seed, border.epoch, CANDIDATES, min(max(TRIALS // batch, 16), 256), ROUNDS),
    )
    return order, next_border(order, batch, border)


def next_border(order: Order, batch: int, border: Border) -> Border:
    """Where the epoch after this one begins."""
    left = (len(border.open) + len(order)) % batch
    ended = [*border.open, *order[-2 * batch :].tolist()]  # the open views count if these are few
    whole = ended[: len(ended) - left]
    previous = tuple(whole[-batch:]) if len(whole) >= batch else border.previous
    return Border(border.epoch + 1, previous, tuple(ended[len(ended) - left :]))


def couplings(
    graph: Graph, order: Order, batch: int, native: _planner.LocalityGraph | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """For each unit but the first: its coupling with the unit before (the sum of the weights of
    all pairs of their views), and the share of its items that unit is expected to touch."""
    return _planner.neighbour_couplings(native or graph.native(), order, batch)


def random_order(views: int, seed: int, epochs: int) -> Order:
    """[epochs x V] what a shuffle gives, to compare with."""
    draw = np.random.default_rng(seed)
    return np.concatenate([draw.permutation(views).astype(np.int32) for _ in range(epochs)])


def cut_units(orders: Iterator[Order], batch: int) -> Iterator[list[int]]:
    """Units of `batch` views from the orders of epochs, for as long as there are any."""
    left: list[int] = []
    for order in orders:
        left += order.tolist()
        whole = len(left) // batch * batch
        for first in range(0, whole, batch):
            yield left[first : first + batch]
        left = left[whole:]
