"""The dynamic data schedule: which of the next few units runs next.

The one that waits for the fewest rows and loads ranks most evenly, by integers from headers: all
ranks choose alike, and a run repeats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import islice
from typing import Generic, TypeVar

from torch import Tensor

T = TypeVar("T")

OWNER_SHARE = Fraction(1, 4)
"""Of a unit's computation, what is done by the owners of rows: it is as uneven as the rows are."""


def choose(candidates: Tensor, conflicts: Tensor, passed: Sequence[int], patience: int) -> int:
    """Place of the next unit among those ahead.

    candidates, conflicts: [R, L] rows of each rank that a unit may read, and that it would wait
    for; passed: how often each was passed over, in planned order.
    """
    if not passed or passed[0] >= patience:
        return 0
    costs = [cost(candidates[:, ahead], conflicts[:, ahead]) for ahead in range(len(passed))]
    return costs.index(min(costs))


def cost(candidates: Tensor, conflicts: Tensor) -> Fraction:
    """Share of a unit's rows that it waits for, and by which the busiest rank exceeds the mean."""
    rows = int(candidates.sum())
    excess = len(candidates) * int(candidates.max()) - rows
    return (int(conflicts.sum()) + OWNER_SHARE * excess) / max(rows, 1)


class Dispatcher(Generic[T]):
    """Hands out units; none comes more than `look_ahead` places later than planned."""

    def __init__(
        self, units: Iterator[T], look_ahead: int, waiting: Sequence[tuple[T, int]] = ()
    ) -> None:
        """units: in planned order, without those that are waiting (see `waiting`)."""
        self._units = units
        self._look_ahead = look_ahead
        self._waiting = list(waiting)

    @property
    def waiting(self) -> list[tuple[T, int]]:
        """Units that were drawn and not handed out, and how often each was passed over."""
        return list(self._waiting)

    def ahead(self) -> list[T]:
        """The next units in planned order, at most `look_ahead`: what headers tell of."""
        missing = max(self._look_ahead - len(self._waiting), 0)
        self._waiting += [(unit, 0) for unit in islice(self._units, missing)]
        return [unit for unit, _ in self._waiting]

    def next(self, candidates: Tensor, conflicts: Tensor) -> tuple[T, int]:
        """The best unit and its place in `ahead`; evidence [R, L] on these as in `choose`."""
        self.ahead()
        passed = [count for _, count in self._waiting]
        place = choose(candidates, conflicts, passed, self._look_ahead)
        return self._take(place), place

    def first(self) -> T:
        """The next unit in planned order. Raises StopIteration after the last."""
        if not self.ahead():
            raise StopIteration
        return self._take(0)

    def _take(self, place: int) -> T:
        unit, _ = self._waiting.pop(place)
        self._waiting[:place] = [(each, count + 1) for each, count in self._waiting[:place]]
        return unit
