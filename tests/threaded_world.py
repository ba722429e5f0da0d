"""Ranks that are threads of one process: collectives without launching anything."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from torch import Tensor

from grendel_odin.parallel.wire import Wire
from grendel_odin.parallel.world import ALONE, World

T = TypeVar("T")


class _Threads(Wire):
    """A wire whose other ends are threads."""

    def __init__(
        self, rank: int, barrier: threading.Barrier, boxes: list[Sequence[Tensor]]
    ) -> None:
        super().__init__(rank, len(boxes), 10.0)
        self.barrier, self.boxes = barrier, boxes

    def exchange(self, outgoing: Sequence[Tensor], incoming: Sequence[Tensor]) -> None:
        self.boxes[self.rank] = outgoing
        self.barrier.wait(10.0)
        for rank, into in enumerate(incoming):
            if rank != self.rank:
                source = self.boxes[rank][self.rank]
                assert source.shape == into.shape and source.dtype == into.dtype
                into.copy_(source)
        self.barrier.wait(10.0)


def run_on_ranks(size: int, run: Callable[[World], T]) -> list[T]:
    """What `run` returns on each of so many ranks; all ranks enter the same collectives."""
    if size == 1:
        return [run(ALONE)]
    barrier = threading.Barrier(size)
    boxes: list[Sequence[Tensor]] = [[]] * size

    def start(rank: int) -> T:
        wire = _Threads(rank, barrier, boxes)
        try:
            return run(World(rank, size, rank, size, wire))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(start, range(size)))
