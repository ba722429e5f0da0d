"""Strips and launchers, without processes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grendel_odin.config import UserError
from grendel_odin.parallel.strips import HALO_SHARE, Strip, cut
from grendel_odin.parallel.world import find_place, first_host

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


def test_no_launcher_is_one_process() -> None:
    assert find_place({}) is None
    assert find_place({"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_NODELIST": "a"}) is None


def test_torchrun_comes_first() -> None:
    place = find_place(
        {
            "RANK": "3",
            "WORLD_SIZE": "4",
            "LOCAL_RANK": "1",
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "node1",
            "MASTER_PORT": "1234",
            "SLURM_PROCID": "0",
            "SLURM_NTASKS": "2",
        }
    )
    assert place is not None
    assert (place.rank, place.size, place.local_rank, place.local_size) == (3, 4, 1, 2)
    assert (place.address, place.port) == ("node1", 1234)


def test_slurm_without_torchrun() -> None:
    place = find_place(
        {
            "SLURM_PROCID": "5",
            "SLURM_NTASKS": "8",
            "SLURM_NNODES": "2",
            "SLURM_LOCALID": "1",
            "SLURM_NODELIST": "gpu[03-04]",
            "SLURM_JOB_ID": "123456",
        }
    )
    assert place is not None
    assert (place.rank, place.size, place.local_rank, place.local_size) == (5, 8, 1, 4)
    assert (place.address, place.port) == ("gpu03", 23456)


@pytest.mark.parametrize(
    ("nodes", "host"),
    [("a1", "a1"), ("gpu[03-07,12],x", "gpu03"), ("b,c", "b"), ("n-[1,3]", "n-1")],
)
def test_first_host(nodes: str, host: str) -> None:
    assert first_host(nodes) == host


def test_an_empty_node_list_is_refused() -> None:
    with pytest.raises(UserError, match="names no host"):
        first_host("")
