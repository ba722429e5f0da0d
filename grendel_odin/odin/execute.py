"""Runs the tasks of units, and knows what each stage has cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from grendel_odin.odin.graph import Stage, Task

Clock = Callable[[], float]


class Executor:
    """Runs tasks in the order in which they are given."""

    seconds: dict[Stage, float]
    """Seconds spent so far in each stage."""

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self.seconds = dict.fromkeys(Stage, 0.0)
        self._clock = clock

    def run(self, tasks: Iterable[Task]) -> None:
        """Run the tasks one after another; the time of a task that fails counts, too."""
        for task in tasks:
            start = self._clock()
            try:
                task.run()
            finally:
                self.seconds[task.stage] += self._clock() - start
