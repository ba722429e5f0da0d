"""Publication by row in one process, for any trainer with sparse explicit state.

Three hooks: a unit's candidates before it reads state (`begin`), its active rows and their updates
after its backward pass (`finish`), and the moment of publication (`publish`). A unit may begin
while updates of the unit before are still under way: it reads at once what these do not touch,
reads late what its policy admits, and waits for the rest. Two units are in flight at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from grendel_odin.odin.admit import Admission, Policy, pending
from grendel_odin.odin.gradient_bins import (
    bins_of,
    histogram,
    running_mean,
    step_sizes,
    unknown_sizes,
)
from grendel_odin.odin.row_pool import find, ordered
from grendel_odin.odin.shadow import Apply, Shadow, VersionError, Write

STATE, MEANS = slice(-1), slice(-1, None)
"""Running means of the sizes of steps are a part of the state, so that they have versions, too."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A unit's candidates, divided."""

    unit: int
    now: Tensor
    """May be read at once."""
    late: Tensor
    """Those among them that are read at the version before the last."""
    wait: Tensor
    """To be published by the unit before, and then read."""


@dataclass(slots=True)
class Counts:
    """Rows, summed over units."""

    candidates: int = 0
    conflicts: int = 0
    """Of the candidates, those that the unit before had not published."""
    late: int = 0
    """Of these, those that were read late."""
    barriers: int = 0
    """Units that waited for everything: no candidates were given, or the policy is off."""


class Session:
    """Versions, admission and kept rows of a state that one process trains."""

    def __init__(
        self,
        state: Sequence[Tensor],
        update: Tensor,
        apply: Apply,
        admission: Admission,
        idle: Write | None = None,
    ) -> None:
        """state: tensors [N, ...] that units read; update: shaped as the updates [*, W] of rows,
        which are rate x gradient up to a factor that all rows share. apply and idle take steps in
        place, each row by itself; idle: of rows that a unit does not write (momentum, decay)."""
        self._means = unknown_sizes(len(state[0]), state[0].device)
        self.shadow = Shadow([*state, self._means], update)
        self._every_row = torch.arange(len(self._means), device=self._means.device)
        self.counts = Counts()
        self._apply, self._idle, self._admission = apply, idle, admission
        self._active: dict[int, Tensor] = {}
        self._totals: dict[int, list[int]] = {}
        self._unit = 0

    def begin(self, candidates: Tensor | None = None) -> Reading:
        """Hook 1: rows that the next unit may read, ascending; None if that is not known."""
        if self._unit and self._unit not in self._active:
            raise VersionError(f"unit {self._unit} has not finished")
        unit = self._unit + 1
        if len(left := self.shadow.staged(unit - 2)):
            raise VersionError(f"unit {unit} began while {len(left)} rows of {unit - 2} are staged")
        self._unit = unit
        barrier = candidates is None or self._admission.policy is Policy.OFF
        rows = self._every_row if candidates is None else ordered(candidates)
        conflict = pending(self.shadow.versions[rows], unit)
        if barrier and len(self.shadow.staged(unit - 1)):
            waits, late = torch.ones_like(conflict), rows[:0]
        else:
            late = self._admitted(unit, rows[conflict], len(rows))
            waits = conflict & ~find(late, rows)[1]
        self.shadow.hold(unit, late)
        self._count(len(rows), int(conflict.sum()), len(late), barrier)
        return Reading(unit, rows[~waits], late, rows[waits])

    def read(self, unit: int, rows: Tensor) -> list[Tensor]:
        """Rows of the state as the unit sees them. Raises VersionError for one to wait for."""
        return self.shadow.read(unit, rows, STATE)

    def finish(self, unit: int, rows: Tensor, updates: Tensor) -> None:
        """Hook 2: rows that the unit writes, ascending, and their updates [A, W]; copied."""
        rows = ordered(rows)
        (means,) = self.shadow.read(unit, rows, MEANS)
        self._totals = {unit: histogram(*bins_of(means))[1].tolist()}
        self._active = {each: self._active[each] for each in self._active if each == unit - 1}
        self._active[unit] = rows
        self.shadow.release(unit)
        self.shadow.stage(unit, rows, updates)
        self.shadow.advance_others(unit, rows, self._idle)

    def publish(self, unit: int, rows: Tensor | None = None) -> None:
        """Hook 3: later units may read the unit's steps, or those of some rows."""
        if unit > max(self._active, default=0):
            raise VersionError(f"unit {unit} has not finished")
        published = self.shadow.publish(unit, self._step, rows)
        if (active := self._active.get(unit + 1)) is not None:  # these rows were not ready before
            behind = published[~find(active, published)[1]]
            self.shadow.advance(unit + 1, behind, self._idle)

    def _step(self, rows: Tensor, updates: Tensor) -> None:
        self._apply(rows, updates)
        sizes = step_sizes(updates.flatten(1), 1.0)
        self._means[rows] = running_mean(self._means[rows], sizes)

    def _admitted(self, unit: int, conflict: Tensor, candidates: int) -> Tensor:
        bins, mantissas = bins_of(self._means[conflict])
        counts, sums = (each.tolist() for each in histogram(bins, mantissas))
        total = self._totals.get(unit - 1, [])
        return conflict[bins < self._admission.threshold(candidates, counts, sums, total)]

    def _count(self, candidates: int, conflicts: int, late: int, barrier: bool) -> None:
        counts = self.counts
        counts.candidates += candidates
        counts.conflicts += conflicts
        counts.late += late
        counts.barriers += barrier
