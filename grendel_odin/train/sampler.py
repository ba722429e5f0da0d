"""The order in which views are trained on: seeded permutations, one an epoch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def permutation(views: int, seed: int, epoch: int) -> list[int]:
    """The order of one epoch."""
    order: list[int] = np.random.default_rng([seed, epoch]).permutation(views).tolist()
    return order


def units(views: int, batch_size: int, seed: int) -> Iterator[list[int]]:
    """Units of `batch_size` different views, for ever; every view comes once an epoch.

    Epochs continue across units: a unit that begins in one epoch ends in the next, where views
    that it already holds are put off to a later unit.
    """
    if not 1 <= batch_size <= views:
        raise ValueError(f"a unit of {batch_size} different views cannot be drawn from {views}")
    epochs = count()
    left: list[int] = []
    while True:
        unit, left = left[:batch_size], left[batch_size:]
        if len(unit) < batch_size:
            order = permutation(views, seed, next(epochs))
            fresh = [view for view in order if view not in unit][: batch_size - len(unit)]
            unit += fresh
            left = [view for view in order if view not in fresh]
        yield unit


def lookahead(
    items: Iterable[T], depth: int, announce: Callable[[Sequence[T]], object]
) -> Iterator[T]:
    """The same items; before each, it and the `depth` that come after it are announced."""
    waiting: deque[T] = deque()
    for item in items:
        waiting.append(item)
        if len(waiting) > depth:
            announce(tuple(waiting))
            yield waiting.popleft()
    while waiting:
        announce(tuple(waiting))
        yield waiting.popleft()
