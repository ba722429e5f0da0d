"""Cuts the pixels of a unit into strips of tile rows, one share for each rank, by cost.

The tile rows of all views of a unit are laid end to end and cut into contiguous shares so that the
costliest share is as cheap as possible (Zhao et al. 2024, section 4.3, without its assertions: a
cut that would be too thin merges, and ranks beyond the rows get nothing). A share that begins or
ends inside a view also renders a halo there, which is counted, so views stay whole where they can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

HALO_SHARE = 0.22
"""Cost of a halo against that of the tile row that it reaches into: 10 of 16 rows, and blending
without its backward pass is about a third of the whole."""


@dataclass(frozen=True, slots=True)
class Strip:
    """Tile rows [first, last) of one view of a unit, and the rank that renders them."""

    view: int
    first: int
    last: int
    rank: int


def cut(costs: Sequence[NDArray[np.int64]], ranks: int) -> list[Strip]:
    """Strips of a unit by view, from the top of each view to its bottom.

    costs: for each view the cost of its tile rows, counted in any unit. Every rank has at most one
    contiguous share, which may span views.
    """
    rows = np.concatenate([np.maximum(cost, 1) for cost in costs]).astype(np.float64)
    borders = np.cumsum([0, *(len(cost) for cost in costs)])
    if ranks == 1:
        return _strips([(0, len(rows))], borders)
    low, high = float(rows.max()), float(rows.sum())
    shares = _shares(rows, borders, high)
    for _ in range(60):
        middle = 0.5 * (low + high)
        attempt = _shares(rows, borders, middle)
        if len(attempt) <= ranks:
            shares, high = attempt, middle
        else:
            low = middle
        if high - low < 1e-3 * high:
            break
    return _strips(shares, borders)


def _shares(
    rows: NDArray[np.float64], borders: NDArray[np.int64], limit: float
) -> list[tuple[int, int]]:
    """Greedy contiguous shares [first, last) whose costs stay within the limit where they can."""
    inside = np.ones(len(rows) + 1, dtype=bool)
    inside[borders] = False
    shares, first = [], 0
    while first < len(rows):
        cost = rows[first] + HALO_SHARE * rows[first - 1] * inside[first]
        last = first + 1
        best = last
        while last < len(rows) and cost + rows[last] <= limit:
            cost += rows[last]
            last += 1
            below = HALO_SHARE * rows[last] if last < len(rows) and inside[last] else 0.0
            if cost + below <= limit:
                best = last
        shares.append((first, best))
        first = best
    return shares


def _strips(shares: list[tuple[int, int]], borders: NDArray[np.int64]) -> list[Strip]:
    strips = []
    for rank, (first, last) in enumerate(shares):
        for view, (start, end) in enumerate(pairwise(borders)):
            top, bottom = max(first, int(start)), min(last, int(end))
            if top < bottom:
                strips.append(Strip(view, top - int(start), bottom - int(start), rank))
    return strips
