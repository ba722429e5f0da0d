"""The Shadow Graph: what each unit in flight sees of one shared state, without copies of it.

There is one state; a row's version is the last unit whose step it has had. Units read rows by
index, their updates are staged and published row by row. Only where a publication overwrites a
version that a unit in flight still needs are the old rows kept aside until that unit is done: copy
on publish, not on read. So a reader never blocks a writer; writers of a row follow one another by
version; and memory grows with the rows that are staged or read late, never with the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from grendel_odin.odin.row_pool import RowPool, blocks, find, ordered

NOWHERE = -1
EVERYTHING = slice(None)
INDEX_BYTES = 24
"""Of a row in a buffer: its number, its slot, a place in the list of free slots."""
Write = Callable[[Tensor], None]
"""Writes the new contents of rows [n] into the state, each by itself."""
Apply = Callable[[Tensor, Tensor], None]
"""The same, from the updates [n, ...] of rows [n]."""


class VersionError(RuntimeError):
    """A read or publication out of turn; always a mistake in the order of calls."""


@dataclass(slots=True)
class _Held:
    """Rows that a unit reads at a version, and the slots of those that have been overwritten."""

    rows: Tensor
    version: int
    slots: Tensor


@dataclass(slots=True)
class _Staged:
    """Rows with updates that are not published, and their slots."""

    rows: Tensor
    slots: Tensor


class Shadow:
    """Versions, staged updates and kept rows of a state. Row lists ascend, each row once."""

    versions: Tensor
    """[N] int32."""

    def __init__(self, state: Sequence[Tensor], update: Tensor, version: int = 0) -> None:
        """state: tensors [N, ...] that units read; update: [*, ...], shaped as one update a row."""
        self._kept, self._updates = RowPool(state), RowPool([update])
        self._held: dict[int, _Held] = {}
        self._staged: dict[int, _Staged] = {}
        self.most_late = self.most_staged = 0
        self.rebuild(state, version)

    def rebuild(self, state: Sequence[Tensor], version: int) -> None:
        """At a fence: from now on this is the state, all of one version."""
        if not self.idle:
            raise VersionError(f"units {[*self._held, *self._staged]} are in flight at a fence")
        self.state = list(state)
        first = state[0]
        self.versions = torch.full((len(first),), version, dtype=torch.int32, device=first.device)

    @property
    def idle(self) -> bool:
        """Whether nothing is staged or held."""
        return not (self._held or self._staged)

    @property
    def late_rows(self) -> int:
        """That units in flight read late; those already overwritten are kept."""
        return sum(len(held.rows) for held in self._held.values())

    @property
    def staged_rows(self) -> int:
        """With updates that are not published."""
        return sum(len(staged.rows) for staged in self._staged.values())

    @property
    def bytes(self) -> int:
        """Of buffers; `versions` come on top, 4 bytes a row of the state."""
        index = sum(each.rows.nbytes + each.slots.nbytes for each in self._held.values())
        index += sum(each.rows.nbytes + each.slots.nbytes for each in self._staged.values())
        return self._kept.bytes + self._updates.bytes + index

    @property
    def row_bytes(self) -> tuple[int, int]:
        """What a row that is read late may take at most, and a staged one; with its indices."""
        return self._kept.row_bytes + INDEX_BYTES, self._updates.row_bytes + INDEX_BYTES

    def hold(self, unit: int, rows: Tensor, version: int | None = None) -> None:
        """The unit reads these rows at `version` (default: unit - 2), whatever is published."""
        rows, version = ordered(rows), unit - 2 if version is None else version
        self._check(rows, self.versions[rows] <= version, f"at most {version}", f"unit {unit} held")
        if unit in self._held:
            raise VersionError(f"unit {unit} holds rows already")
        self._held[unit] = _Held(rows, version, torch.full_like(rows, NOWHERE))
        self.most_late = max(self.most_late, self.late_rows)

    def read(self, unit: int, rows: Tensor, part: slice = EVERYTHING) -> list[Tensor]:
        """Rows [n] of some tensors of the state as the unit sees them: held ones at their version,
        others at unit - 1. Raises VersionError if a row is not there yet."""
        rows = rows.long()
        needed, slots = torch.full_like(rows, unit - 1), torch.full_like(rows, NOWHERE)
        if held := self._held.get(unit):
            place, found = find(held.rows, rows)
            slots[found] = held.slots[place[found]]
            needed[found] = held.version
        aside = slots != NOWHERE
        good = aside | (self.versions[rows] == needed)
        self._check(rows, good, str(unit - 1), f"unit {unit} read")
        seen = [each.index_select(0, rows) for each in self.state[part]]
        if held:
            for into, kept in zip(seen, self._kept.tensors[part], strict=True):
                into[aside] = kept[slots[aside]]
        return seen

    def release(self, unit: int) -> None:
        """The unit reads no more: its backward pass is done."""
        if held := self._held.pop(unit, None):
            self._kept.give(held.slots[held.slots != NOWHERE])

    def stage(self, unit: int, rows: Tensor, updates: Tensor) -> None:
        """Copies the updates [A, ...] of rows [A], to be published later."""
        if unit in self._staged:
            raise VersionError(f"unit {unit} has staged its updates already")
        rows = ordered(rows)
        self._staged[unit] = _Staged(rows, self._updates.stage(updates))
        self.most_staged = max(self.most_staged, self.staged_rows)

    def staged(self, unit: int) -> Tensor:
        """[n] rows that the unit has staged and not published."""
        staged = self._staged.get(unit)
        return staged.rows if staged else self.versions.new_empty(0, dtype=torch.int64)

    def publish(self, unit: int, apply: Apply, rows: Tensor | None = None) -> Tensor:
        """Apply the staged updates of the unit, or of those rows that have one; gives the rows."""
        staged = self._staged.get(unit)
        if staged is None:
            return self.staged(unit)
        left = _Staged(staged.rows[:0], staged.slots[:0])
        if rows is not None:
            chosen = find(ordered(rows), staged.rows)[1]
            left = _Staged(staged.rows[~chosen], staged.slots[~chosen])
            staged = _Staged(staged.rows[chosen], staged.slots[chosen])

        def write(all_rows: Tensor) -> None:
            for block in blocks(len(all_rows), self._updates.row_bytes):
                slots = staged.slots[block]
                apply(all_rows[block], self._updates.tensors[0].index_select(0, slots))

        self.advance(unit, staged.rows, write)
        self._updates.give(staged.slots)
        self._staged[unit] = left
        if not len(left.rows):
            del self._staged[unit]
        return staged.rows

    def advance(self, unit: int, rows: Tensor, write: Write | None = None) -> None:
        """Bring rows from version unit - 1 to version unit: `write` overwrites them in place.

        Rows that units in flight read at version unit - 1 are copied aside first. Raises
        VersionError if a row is at another version.
        """
        rows = ordered(rows)
        self._check(rows, self.versions[rows] == unit - 1, str(unit - 1), f"unit {unit} published")
        self._keep_aside(unit - 1, lambda held: find(rows, held)[1])
        if write:
            write(rows)
        self.versions[rows] = unit

    def advance_others(self, unit: int, active: Tensor, write: Write | None = None) -> None:
        """The same for all rows of version unit - 1 but `active`: those the unit does not write."""
        ready = self.versions == unit - 1
        ready[active.long()] = False
        self._keep_aside(unit - 1, lambda rows: ready[rows])
        if write:
            write(ready.nonzero()[:, 0])
        self.versions.masked_fill_(ready, unit)

    def _keep_aside(self, version: int, lost: Callable[[Tensor], Tensor]) -> None:
        """Copy the rows that are held at a version and will be `lost` [n] bool of rows [n]."""
        for held in self._held.values():
            if held.version == version:
                chosen = lost(held.rows)
                held.slots[chosen] = self._kept.keep(self.state, held.rows[chosen])

    def _check(self, rows: Tensor, good: Tensor, wanted: str, deed: str) -> None:
        if not good.all():
            row = int(rows[~good][0])
            raise VersionError(
                f"{deed} row {row} at version {int(self.versions[row])}, but it must be at "
                f"{wanted} ({int((~good).sum())} such rows)"
            )
