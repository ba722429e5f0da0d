"""All ranks of a run in one process, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from grendel_odin.odin.clock import VirtualClock
from grendel_odin.odin.execute import Executor, Stuck
from grendel_odin.odin.messages import Messages
from grendel_odin.odin.network import CoarseTransport, ExactLink, Network, Speed
from grendel_odin.odin.transport import Transport


class World:
    """Executors that are stepped in the order of their clocks. Their tasks move the clocks."""

    executors: Sequence[Executor]
    """By rank; each is to be started before `run`."""
    clocks: Sequence[VirtualClock]

    def __init__(self, size: int, speed: Speed, exact: bool = True) -> None:
        self.clocks = [VirtualClock() for _ in range(size)]
        self.network = Network(self.clocks, speed, self._wake)
        self.executors = [
            Executor(clock, self._transport(rank, exact)) for rank, clock in enumerate(self.clocks)
        ]
        self._queue: list[tuple[float, int]] = []
        self._lost: int | None = None

    def _transport(self, rank: int, exact: bool) -> Transport:
        if exact:
            return Messages(ExactLink(self.network, rank))
        return CoarseTransport(self.network, rank)

    @property
    def now(self) -> float:
        """When the last rank has finished what it does."""
        return max(clock.now for clock in self.clocks)

    def lose(self, rank: int) -> None:
        """It does nothing any more; the others notice when they have nothing left to do."""
        self._lost = rank

    def run(self) -> None:
        """Until all that the executors were given is done. Raises Stuck, Lost."""
        for rank, clock in enumerate(self.clocks):
            self._wake(rank, clock.now)
        queue, clocks, executors = self._queue, self.clocks, self.executors
        while queue:
            time, rank = heappop(queue)
            clock = clocks[rank]
            if clock.now > time or rank == self._lost:  # a busy rank looks when it is done
                continue
            clock.now = time
            if executors[rank].step():
                heappush(queue, (clock.now, rank))
        self.network.lost = self._lost
        for rank, executor in enumerate(executors):
            if rank != self._lost and not executor.finished:
                executor.step()
                raise Stuck(executor.explain())

    def _wake(self, rank: int, time: float) -> None:
        """A rank has something to look at then."""
        heappush(self._queue, (time, rank))
