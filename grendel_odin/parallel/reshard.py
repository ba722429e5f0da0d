"""Moves rows to other owners: all that belongs to a row travels in one payload."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from grendel_odin.parallel.world import World

CHUNK = 1 << 16
"""Rows that a rank sends at a time, to all others together."""


def reshard(world: World, tensors: Sequence[Tensor], owners: Tensor) -> list[Tensor]:
    """Rows of tensors [n, ...], of any types, at the ranks that are to own them [n].

    Every rank calls it. Rows come by the rank that they come from, and in the order that they had
    there. At its peak a rank holds the old rows, the new ones, and 2^16 rows on their way out
    (twice while they are packed) and as many on their way in.
    """
    if world.size == 1:
        return list(tensors)
    leaving = [(owners == rank).nonzero().squeeze(1) for rank in range(world.size)]
    counts = world.gather_integers(torch.tensor([len(rows) for rows in leaving]))
    arriving: list[int] = counts[:, world.rank].tolist()
    starts = [sum(arriving[:rank]) for rank in range(world.size)]
    made = [each.new_empty(sum(arriving), *each.shape[1:]) for each in tensors]
    for each, new in zip(tensors, made, strict=True):
        stay = leaving[world.rank]
        first = starts[world.rank]
        torch.index_select(each, 0, stay, out=new[first : first + len(stay)])
    counts.fill_diagonal_(0)  # the ranks' own rows stay
    arriving[world.rank], leaving[world.rank] = 0, leaving[world.rank][:0]
    step = max(1, CHUNK // world.size)
    for begin in range(0, int(counts.max()), step):
        outgoing = [_pack(tensors, rows[begin : begin + step]) for rows in leaving]
        width = outgoing[0].shape[1]
        lengths = [min(max(0, count - begin), step) for count in arriving]
        incoming = [torch.empty(length, width, dtype=torch.uint8) for length in lengths]
        world.exchange(outgoing, incoming, "reshard")
        for start, payload in zip(starts, incoming, strict=True):
            _unpack(payload, made, start + begin)
    return made


def row_bytes(tensors: Sequence[Tensor]) -> int:
    """Bytes of all that belongs to one row."""
    return sum(each.shape[1:].numel() * each.element_size() for each in tensors)


def _pack(tensors: Sequence[Tensor], rows: Tensor) -> Tensor:
    """[k, row_bytes] uint8."""
    return torch.cat([_bytes(each[rows]) for each in tensors], 1)


def _unpack(payload: Tensor, into: Sequence[Tensor], first: int) -> None:
    """Write rows [k, row_bytes] to the tensors, from row `first` on."""
    targets = [_bytes(each[first : first + len(payload)]) for each in into]
    columns = torch.split(payload, [each.shape[1] for each in targets], 1)
    for target, column in zip(targets, columns, strict=True):
        target.copy_(column)


def _bytes(rows: Tensor) -> Tensor:
    """[k, w] uint8: the memory of contiguous rows [k, ...]."""
    return rows.view(len(rows), rows.shape[1:].numel()).view(torch.uint8)
