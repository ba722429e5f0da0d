"""The dynamic data schedule: least conflict, best balance, and nobody is forgotten."""

from __future__ import annotations

from itertools import count, islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grendel_odin.odin.dispatch import Dispatcher, choose


def test_the_least_conflict_wins_and_the_planned_order_breaks_ties() -> None:
    candidates = torch.tensor([[50, 50, 50, 50], [50, 50, 50, 50]])
    conflicts = torch.tensor([[10, 4, 9, 4], [0, 4, 0, 4]])
    assert choose(candidates, conflicts, [0] * 4, 4) == 1
    assert choose(candidates, torch.zeros_like(conflicts), [0] * 4, 4) == 0


def test_balance_counts_beside_conflict() -> None:
    # One rank has 90 of 100 rows: 0.8 above the mean, a quarter of which counts as waiting rows.
    candidates = torch.tensor([[90, 50], [10, 50]])
    assert choose(candidates, torch.tensor([[0, 19], [0, 0]]), [0, 0], 4) == 1
    assert choose(candidates, torch.tensor([[0, 20], [0, 0]]), [0, 0], 4) == 0
    assert choose(candidates, torch.tensor([[0, 21], [0, 0]]), [0, 0], 4) == 0


def test_patience_ends() -> None:
    candidates, conflicts = torch.tensor([[9, 9]]), torch.tensor([[9, 0]])
    assert choose(candidates, conflicts, [3, 0], 4) == 1
    assert choose(candidates, conflicts, [4, 0], 4) == 0


def test_units_without_candidates_are_an_ordinary_case() -> None:
    candidates, conflicts = torch.tensor([[3, 0], [3, 0]]), torch.tensor([[1, 0], [0, 0]])
    assert choose(candidates, conflicts, [0, 0], 2) == 1


@given(
    st.integers(1, 5),
    st.integers(1, 3),
    st.lists(st.integers(0, 2**32 - 1), min_size=30, max_size=30),
)
def test_no_unit_comes_much_later_or_earlier_than_planned(
    look_ahead: int, ranks: int, seeds: list[int]
) -> None:
    dispatcher, order = Dispatcher(count(), look_ahead), []
    for seed in seeds:
        draw = torch.Generator().manual_seed(seed)
        ahead = dispatcher.ahead()
        assert len(ahead) == look_ahead
        candidates = torch.randint(1, 100, (ranks, look_ahead), generator=draw)
        conflicts = torch.randint(0, 100, (ranks, look_ahead), generator=draw)
        unit, place = dispatcher.next(candidates, conflicts)
        assert ahead[place] == unit
        order.append(unit)
    for position, unit in enumerate(order):
        assert unit - look_ahead < position + 1 <= unit + look_ahead + 1
    assert len(set(order)) == len(order)


def test_a_unit_that_always_looks_bad_is_passed_over_look_ahead_times() -> None:
    dispatcher, order = Dispatcher(count(), 3), []
    for _ in range(8):
        bad = torch.tensor([[9 * (unit == 0) for unit in dispatcher.ahead()]])
        order.append(dispatcher.next(torch.full((1, 3), 10), bad)[0])
    assert order == [1, 2, 3, 0, 4, 5, 6, 7]


def test_a_resumed_dispatcher_goes_on_as_it_would_have() -> None:
    def evidence(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        draw = torch.Generator().manual_seed(step)
        return torch.full((2, 4), 50), torch.randint(0, 50, (2, 4), generator=draw)

    whole = Dispatcher(count(), 4)
    for step in range(9):
        whole.next(*evidence(step))
    drawn = 9 + len(whole.waiting)
    resumed = Dispatcher(islice(count(), drawn, None), 4, whole.waiting)
    for step in range(9, 20):
        assert whole.next(*evidence(step)) == resumed.next(*evidence(step))


def test_the_end_of_a_finite_order() -> None:
    dispatcher = Dispatcher(iter("abc"), 2)
    assert dispatcher.first() == "a"
    assert dispatcher.next(torch.tensor([[5, 5]]), torch.tensor([[5, 0]])) == ("c", 1)
    assert dispatcher.next(torch.tensor([[5, 5]]), torch.tensor([[5, 0]])) == ("b", 0)
    with pytest.raises(StopIteration):
        dispatcher.first()
