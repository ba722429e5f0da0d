"""Strips, without processes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from grendel_odin.parallel.strips import HALO_SHARE, Strip, cut

COSTS = st.lists(
    st.lists(st.integers(0, 10_000), min_size=1, max_size=20).map(np.array), min_size=1, max_size=5
)


@given(costs=COSTS, ranks=st.integers(1, 40))
def test_strips_cover_every_tile_row_once(costs: list[np.ndarray], ranks: int) -> None:
    strips = cut(costs, ranks)
    seen = [np.zeros(len(cost), dtype=int) for cost in costs]
    for strip in strips:
        assert strip.first < strip.last and strip.rank < ranks
        seen[strip.view][strip.first : strip.last] += 1
    assert all((rows == 1).all() for rows in seen)
    assert [strip.rank for strip in strips] == sorted(strip.rank for strip in strips)


def share_costs(costs: list[np.ndarray], strips: list[Strip], ranks: int) -> np.ndarray:
    total = np.zeros(ranks)
    for strip in strips:
        rows = np.maximum(costs[strip.view], 1)
        total[strip.rank] += rows[strip.first : strip.last].sum()
        if strip.first > 0:
            total[strip.rank] += HALO_SHARE * rows[strip.first - 1]
        if strip.last < len(rows):
            total[strip.rank] += HALO_SHARE * rows[strip.last]
    return total


def best_cut(costs: list[np.ndarray], ranks: int) -> float:
    """Least possible cost of the costliest share, by dynamic programming over all cuts."""
    rows = [(view, row) for view, cost in enumerate(costs) for row in range(len(cost))]
    n = len(rows)

    def cost(first: int, last: int) -> float:
        strips = {}
        for view, row in rows[first:last]:
            old = strips.get(view, (row, row))
            strips[view] = (min(old[0], row), max(old[1], row))
        made = [Strip(view, low, high + 1, 0) for view, (low, high) in strips.items()]
        return float(share_costs(costs, made, 1)[0])

    best = np.full((ranks + 1, n + 1), np.inf)
    best[0, 0] = 0.0
    for rank in range(1, ranks + 1):
        best[rank] = best[rank - 1]
        for last in range(1, n + 1):
            for first in range(last):
                worst = max(best[rank - 1, first], cost(first, last))
                best[rank, last] = min(best[rank, last], worst)
    return float(best[ranks, n])


@given(
    costs=st.lists(
        st.lists(st.integers(50, 150), min_size=4, max_size=8).map(np.array), min_size=1, max_size=2
    ),
    ranks=st.integers(1, 4),
)
def test_cuts_are_near_the_best(costs: list[np.ndarray], ranks: int) -> None:
    worst = share_costs(costs, cut(costs, ranks), ranks).max()
    assert worst <= 1.25 * best_cut(costs, ranks)


def test_views_stay_whole_where_ranks_allow() -> None:
    strips = cut([np.full(19, 100)] * 4, 4)
    assert strips == [Strip(view, 0, 19, view) for view in range(4)]


def test_a_dense_part_gets_a_thinner_strip() -> None:
    strips = cut([np.array([10] * 10 + [100] * 10)], 2)
    assert strips[0].last > 12
