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

from grendel_odin import _kernels

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
    begins = np.zeros(len(rows) + 1, dtype=np.uint8)
    begins[borders] = 1
    ends = _kernels.cut(rows, begins, HALO_SHARE, ranks)
    strips, view = [], 0
    for rank, (first, last) in enumerate(pairwise([0, *ends])):
        while first < last:
            start, stop = int(borders[view]), min(last, int(borders[view + 1]))
            strips.append(Strip(view, first - start, stop - start, rank))
            view += stop == borders[view + 1]
            first = stop
    return strips


def whole_views(rows: Sequence[int]) -> list[Strip]:
    """Each view, by its number of tile rows, as one strip for the rank of its number."""
    return [Strip(view, 0, count, view) for view, count in enumerate(rows)]
