"""How many threads to use while other programs want the cores, too.

Threads wait for each other several times a step. If one of them does not get a core, all stand
still for a slice of the scheduler, and two threads are slower than one. Results do not depend on
the number of threads, so it may change at any time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from grendel_odin.parallel.world import World
from grendel_odin.train.settings import TrainSettings

SPAN = 0.5
"""Seconds from one look at the clocks to the next."""
RETRY = 8
"""Looks after which all threads are tried again."""
ENOUGH = 0.85
"""Share of its threads' time that a process gets on a machine of its own."""


def use_threads(settings: TrainSettings, world: World) -> int:
    """From now on; gives their number: this rank's share of the cores, unless the settings say."""
    threads = settings.threads or world.cores or max(1, settings.thread_count() // world.local_size)
    torch.set_num_threads(threads)
    return threads


class ThreadGovernor:
    """Uses as many threads as there are cores to be had, up to a limit."""

    def __init__(
        self,
        limit: int,
        wall: Callable[[], float] = time.perf_counter,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        self.limit = self.threads = limit
        self._wall, self._cpu = wall, cpu
        self._looks = 0
        self._since = (wall(), cpu())

    def look(self) -> bool:
        """Look at the clocks, now and then; whether `threads` has changed."""
        wall, cpu = self._wall(), self._cpu()
        spent, used = wall - self._since[0], cpu - self._since[1]
        if spent < SPAN:
            return False
        self._since = (wall, cpu)
        self._looks += 1
        before, cores = self.threads, used / spent
        if cores < ENOUGH * self.threads:
            self.threads = max(1, round(cores))
            self._looks = 0
        elif self._looks >= RETRY:
            self.threads = self.limit
            self._looks = 0
        return self.threads != before
