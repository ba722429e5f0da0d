"""Which candidates multiply where a cap or memory leaves no room for all: largest gradients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grendel_odin.parallel.node import node_key
from grendel_odin.parallel.world import World
from grendel_odin.pipelines.memory import NO_GUARD, MemoryGuard, room_for_growth


@dataclass(frozen=True, slots=True)
class Choice:
    """Who of a rank's candidates multiplies; the counts are of all ranks."""

    chosen: Tensor
    """[n] bool"""
    held_back: int = 0
    """Candidates that the memory of their node left no room for."""
    capped: int = 0
    """Of the others, those that `model.max_primitives` left no room for."""


@dataclass(frozen=True, slots=True)
class Room:
    """What limits growth."""

    max_primitives: int = 0
    """0: no limit."""
    memory: MemoryGuard = NO_GUARD

    def choose(self, ids: Tensor, norms: Tensor, present: int, world: World) -> Choice:
        """Of own candidates [n], by ids and mean gradients; every rank calls it.

        `present` rows are on this rank. Largest gradients come first and equal ones go by id, so
        that on one node the choice is that of one process.
        """
        header = [len(ids), present, node_key(), self.memory.free_bytes()]
        headers = world.gather_integers(torch.tensor(header)).numpy()
        wanted, everywhere = headers[:, :2].sum(0).tolist()
        cap = max(0, self.max_primitives - everywhere) if self.max_primitives else wanted
        rooms = _rooms(headers)
        if wanted <= cap and all(need <= room for need, room in rooms.values()):
            return Choice(torch.ones(len(ids), dtype=torch.bool))
        all_ids = torch.cat(world.gather_rows(ids)).numpy()
        order = np.lexsort((all_ids, -torch.cat(world.gather_rows(norms)).numpy()))
        nodes = np.repeat(headers[:, 2], headers[:, 0])[order]
        fits = np.ones(len(order), np.bool_)
        for node, (_, room) in rooms.items():
            there = nodes == node
            fits &= ~there | (there.cumsum() <= room)
        order = order[fits]
        chosen = torch.from_numpy(np.isin(ids.numpy(), all_ids[order[:cap]]))
        return Choice(chosen, wanted - len(order), max(0, len(order) - cap))


def _rooms(headers: NDArray[np.int64]) -> dict[int, tuple[int, int]]:
    """By node: its number of candidates, and the room for them."""
    rooms = {}
    for node in np.unique(headers[:, 2]).tolist():
        wanted, present, _, free = headers[headers[:, 2] == node].T
        rooms[node] = int(wanted.sum()), room_for_growth(int(free.min()), int(present.sum()))
    return rooms
