"""Memory for rows that are kept for a while: slots that are used again and counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

BLOCK_BYTES = 1 << 18
"""Copied at once: what lies between stays in the cache, and is all the memory that a copy needs."""


class RowPool:
    """Rows of given shapes in slots; grows to the most that were in use at once."""

    def __init__(self, like: Sequence[Tensor]) -> None:
        """like: tensors [N, ...]; a slot holds one row of each."""
        self.tensors = [each.new_empty(0, *each.shape[1:]) for each in like]
        self.row_bytes = sum(each.new_empty(1, *each.shape[1:]).nbytes for each in like)
        self._free = torch.empty(0, dtype=torch.int64, device=like[0].device)

    @property
    def slots(self) -> int:
        """In use and free."""
        return len(self.tensors[0])

    @property
    def bytes(self) -> int:
        """Of all slots, and of the list of free ones."""
        return sum(each.nbytes for each in (*self.tensors, self._free))

    def take(self, count: int) -> Tensor:
        """[count] int64 slots, ascending."""
        if count > len(self._free):
            self._grow(count - len(self._free))
        taken, self._free = self._free[:count].clone(), self._free[count:].clone()
        return taken

    def give(self, slots: Tensor) -> None:
        """The slots are free again."""
        self._free = torch.cat([self._free, slots]).sort().values

    def keep(self, sources: Sequence[Tensor], rows: Tensor) -> Tensor:
        """[n] slots that now hold the rows [n] of the sources."""
        slots = self.take(len(rows))
        for block in blocks(len(rows), self.row_bytes):
            for into, source in zip(self.tensors, sources, strict=True):
                into.index_copy_(0, slots[block], source.index_select(0, rows[block]))
        return slots

    def stage(self, rows: Tensor) -> Tensor:
        """[n] slots that now hold the rows [n, ...]; for a pool of one tensor."""
        slots = self.take(len(rows))
        self.tensors[0].index_copy_(0, slots, rows)
        return slots

    def _grow(self, missing: int) -> None:
        more = max(missing, BLOCK_BYTES // self.row_bytes)
        before = self.slots
        for place, each in enumerate(self.tensors):
            self.tensors[place] = each.new_empty(before + more, *each.shape[1:])
            self.tensors[place][:before] = each
        self.give(torch.arange(before, before + more, device=self._free.device))


def blocks(rows: int, row_bytes: int) -> Iterator[slice]:
    """Slices of so many rows, of at most BLOCK_BYTES each."""
    step = max(BLOCK_BYTES // row_bytes, 1)
    return (slice(first, first + step) for first in range(0, rows, step))


def ordered(rows: Tensor) -> Tensor:
    """The rows as int64. Raises ValueError unless they ascend, each once."""
    rows = rows.long()
    if not (rows[1:] > rows[:-1]).all():
        raise ValueError("rows must ascend, each once")
    return rows


def find(among: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Places [n] in `among` (ascending) of rows [n], and whether they are there [n] bool."""
    if not len(among):
        return torch.zeros_like(rows), torch.zeros_like(rows, dtype=torch.bool)
    place = torch.searchsorted(among, rows).clamp_(max=len(among) - 1)
    return place, among[place] == rows
