"""The order of views: every view once an epoch, none twice in a unit."""

from __future__ import annotations

from itertools import chain, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grendel_odin.train.sampler import lookahead, permutation, units

VIEWS_AND_BATCH = st.integers(1, 40).flatmap(lambda v: st.tuples(st.just(v), st.integers(1, v)))


@given(VIEWS_AND_BATCH, st.integers(0, 2**40))
def test_every_view_once_an_epoch_and_different_views_in_a_unit(
    case: tuple[int, int], seed: int
) -> None:
    views, size = case
    drawn = list(islice(units(views, size, seed), 5 * views))
    assert all(len(set(unit)) == size for unit in drawn)
    order = list(chain.from_iterable(drawn))
    for epoch in range(len(order) // views):
        seen = order[epoch * views : (epoch + 1) * views]
        assert sorted(seen) == list(range(views))


@given(VIEWS_AND_BATCH, st.integers(0, 1000))
def test_the_same_seed_gives_the_same_order(case: tuple[int, int], seed: int) -> None:
    views, size = case
    first, second = (list(islice(units(views, size, seed), 20)) for _ in range(2))
    assert first == second


def test_epochs_and_seeds_differ() -> None:
    orders = {tuple(permutation(30, seed, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


def test_one_view_at_a_time_follows_the_permutation() -> None:
    drawn = [unit[0] for unit in islice(units(9, 1, 5), 18)]
    assert drawn == permutation(9, 5, 0) + permutation(9, 5, 1)


def test_more_views_than_there_are() -> None:
    with pytest.raises(ValueError, match="unit of 4 different views cannot be drawn from 3"):
        next(units(3, 4, 0))


@given(st.integers(0, 20), st.integers(0, 5))
def test_lookahead_announces_windows_and_keeps_the_order(count: int, depth: int) -> None:
    announced: list[tuple[int, ...]] = []
    for number, item in enumerate(lookahead(range(count), depth, announced.append)):
        assert item == number
        assert announced[-1] == tuple(range(number, min(count, number + depth + 1)))
    assert len(announced) == count
