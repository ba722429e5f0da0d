"""Moves rows to other ranks at a fence: at the start, and when densification left shares uneven."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from grendel_odin.data.cameras import Camera
from grendel_odin.parallel.settings import ParallelSettings
from grendel_odin.parallel.spread import Spread, owners
from grendel_odin.parallel.world import World
from grendel_odin.pipelines.state import TrainingState


@dataclass(frozen=True, slots=True)
class Move:
    """What one redistribution did."""

    before: list[int]
    """Rows by rank."""
    after: list[int]
    rows_moved: int
    bytes_moved: int
    """Parameters, moments, statistics and ids of these rows."""


@dataclass(slots=True)
class Redistribution:
    """Decides when rows move, from counts that all ranks hold; it never changes the model."""

    settings: ParallelSettings
    world: World
    cameras: Sequence[Camera]
    """Of the training views."""
    seed: int
    densifications: int = 0
    """So far."""

    def at_start(self, state: TrainingState) -> Move | None:
        """Rows begin in contiguous shares; any other spread moves them."""
        if self.world.size == 1 or self.settings.spread is Spread.CONTIGUOUS:
            return None
        return self._move(state, self._rows(state))

    def after_densification(self, state: TrainingState) -> Move | None:
        """Every so manyth time, if the smallest share is too small against the largest."""
        every, self.densifications = self.settings.reshard_every, self.densifications + 1
        if self.world.size == 1 or not every or self.densifications % every:
            return None
        rows = self._rows(state)
        if min(rows) * self.settings.reshard_threshold >= max(rows):
            return None
        return self._move(state, rows)

    def _move(self, state: TrainingState, before: list[int]) -> Move:
        to = owners(self.settings.spread, self.world, state.table, self.cameras, self.seed)
        leaving = int((to != self.world.rank).sum())
        row_bytes = state.reshard(self.world, to)
        (moved,) = self.world.sum_counts(leaving)
        return Move(before, self._rows(state), moved, moved * row_bytes)

    def _rows(self, state: TrainingState) -> list[int]:
        """Of all ranks."""
        rows = self.world.gather_integers(torch.tensor([len(state.table)]))
        return rows.flatten().tolist()
