"""Which images a unit covers, and which marks of a schedule fall among them.

Iterations count images, from 1. A unit of B views covers the images [start, start + B), so a
mark is met by the unit that holds it, whatever B is. One unit may hold several marks of one kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """The images [start, start + size) of one unit."""

    start: int
    size: int

    @property
    def last(self) -> int:
        """The last image of the unit."""
        return self.start + self.size - 1

    def multiples(self, every: int, after: int = 0, before: int | None = None) -> int:
        """Number of multiples of `every` in the window, strictly between `after` and `before`."""
        low = max(self.start - 1, after)
        high = self.last if before is None else min(self.last, before - 1)
        return max(0, high // every - low // every)

    def marks(self, iterations: Iterable[int]) -> list[int]:
        """The iterations that fall into the window, ascending, each once."""
        return sorted({mark for mark in iterations if self.start <= mark <= self.last})


def windows(iterations: int, size: int, done: int = 0) -> Iterator[Window]:
    """The units of a run that has `done` so many images already. All are full: the last one may
    reach beyond `iterations`."""
    for start in range(done + 1, iterations + 1, size):
        yield Window(start, size)


def scaled(iteration: int, scale: float) -> int:
    """A mark or an interval of a schedule that is stretched by `scale`; at least 1."""
    return max(1, round(iteration * scale))
