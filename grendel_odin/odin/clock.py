"""Clocks: what time it is for one rank."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]
"""Seconds since some moment."""

real: Clock = time.perf_counter


@dataclass(slots=True)
class VirtualClock:
    """A clock that stands still unless it is moved: by tasks, as long as they would take, and by
    the world while its rank is blocked."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """What a task does instead of computing."""
        self.now += seconds
