"""Memory of a node: shared where it can be, each rank its own where it cannot."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import torch
from data_helpers import view_of
from torch import Tensor

from grendel_odin.data.images import ImageStore
from grendel_odin.data.node_memory import NodeMemory, new_memory_file
from grendel_odin.parallel.node import node_key, share_memory
from grendel_odin.parallel.world import ALONE, World


@dataclass
class Scripted:
    """The second of two ranks; the first one says what it is told to."""

    first: list[list[int]]
    rank: int = 1
    size: int = 2
    said: list[list[int]] = field(default_factory=list)

    def gather_integers(self, row: Tensor) -> Tensor:
        self.said.append(row.tolist())
        return torch.stack([torch.tensor(self.first[len(self.said) - 1]), row])


def share(place: list[int], failed: int = 0) -> NodeMemory:
    return share_memory(cast(World, Scripted([place, [failed]])))


def place_of(file: int, process: int | None = None) -> list[int]:
    return [node_key(), process or os.getpid(), file, os.fstat(file).st_ino]


def test_one_process_has_its_own() -> None:
    memory = share_memory(ALONE)
    assert (memory.rank, memory.ranks, memory.split) == (0, 1, 1)


def test_the_memory_of_the_first_rank_is_opened() -> None:
    file = new_memory_file()
    os.ftruncate(file, 10)
    memory = share(place_of(file))
    assert (memory.rank, memory.ranks, memory.split) == (1, 2, 1)
    os.pwrite(file, b"x", 5)
    assert os.pread(memory.file, 1, 5) == b"x"


def test_ranks_of_other_nodes_do_not_count() -> None:
    memory = share([node_key() + 1, *place_of(new_memory_file())[1:]])
    assert (memory.rank, memory.ranks, memory.split) == (0, 1, 1)


def test_where_one_rank_cannot_share_none_does() -> None:
    file, other = new_memory_file(), new_memory_file()
    hidden = place_of(file, process=2**22 + 1)
    another = [*place_of(file)[:3], os.fstat(other).st_ino]
    for memory in (share(hidden), share(another), share(place_of(file), failed=1)):
        assert (memory.rank, memory.ranks, memory.split) == (0, 1, 2)
        store = ImageStore([view_of(Path("a.png"), (10, 10))], (0, 0, 0), 500, 1, memory)
        assert "the 2 ranks of a node cannot share memory" in store.estimate
        store.close()
