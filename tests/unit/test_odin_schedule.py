"""Orders of views: each once an epoch, units of different ones, neighbours little coupled."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from grendel_odin.odin.partition import partition
from grendel_odin.odin.plan import Plan, make_plan
from grendel_odin.odin.rlg import Graph
from grendel_odin.odin.schedule import (
    Border,
    Couplings,
    couplings,
    cut_units,
    draw_epoch,
    next_border,
    random_order,
)
from grendel_odin.odin.settings import PlanSettings, UnitShape
from tests.unit.test_odin_partition import graph_of, graphs, ring


def pair_weights(graph: Graph) -> NDArray[np.float64]:
    """[V, V] as the schedule counts them: 1 for the same view, the mean where nothing is known."""
    full = graph.matrix().toarray().astype(np.float64)
    full[graph.unknown, :] = full[:, graph.unknown] = np.float32(graph.mean_weight)
    np.fill_diagonal(full, 1.0)
    return full


@st.composite
def cases(draw: st.DrawFn) -> tuple[Graph, PlanSettings]:
    graph = draw(graphs())
    return graph, PlanSettings(
        batch=draw(st.integers(1, min(len(graph), 9)) | st.just(len(graph))),
        groups=draw(st.integers(1, 12)),
        unit=draw(st.sampled_from(UnitShape)),
        seed=draw(st.integers(0, 2**40)),
    )


@settings(deadline=None, max_examples=200)
@given(cases())
def test_every_view_once_an_epoch_and_different_views_in_a_unit(
    case: tuple[Graph, PlanSettings],
) -> None:
    graph, wanted = case
    plan, views, batch = make_plan(graph, wanted), len(graph), wanted.batch
    drawn = list(islice(plan.units(), -(-5 * views // batch)))
    assert all(len(unit) == batch == len(set(unit)) for unit in drawn)
    line = list(chain.from_iterable(drawn))
    for epoch in range(len(line) // views):
        assert sorted(line[epoch * views : (epoch + 1) * views]) == list(range(views))
    assert drawn == list(islice(make_plan(graph, wanted).units(), len(drawn)))


@settings(deadline=None)
@given(cases())
def test_couplings_and_conflicts_are_sums_over_pairs(case: tuple[Graph, PlanSettings]) -> None:
    graph, wanted = case
    plan = make_plan(graph, wanted)
    full = pair_weights(graph)
    units = [plan.order[i : i + wanted.batch] for i in range(0, len(plan.order), wanted.batch)]
    expected = [full[np.ix_(a, b)].sum() for a, b in pairwise(units)]
    assert plan.coupling == pytest.approx(np.array(expected), rel=1e-5, abs=1e-6)
    shared = 2 * full / (1 + full)  # sets of equal size
    conflict = [np.minimum(shared[np.ix_(a, b)].sum(axis=0), 1).mean() for a, b in pairwise(units)]
    assert plan.conflict == pytest.approx(np.array(conflict), rel=1e-5, abs=1e-6)


def test_conflict_counts_the_share_of_the_later_unit() -> None:
    graph = graph_of(np.array([[0.0, 0.25], [0.25, 0.0]]))
    graph.sizes[:] = [10, 40]  # |A and B| = 0.25 x 50 / 1.25 = 10
    for order, share in (([0, 1], 0.25), ([1, 0], 1.0)):
        _, conflict = couplings(graph, np.array(order, np.int32), 1)
        assert conflict.tolist() == pytest.approx([share])


def plans(graph: Graph, batch: int, unit: UnitShape = UnitShape.SCATTERED) -> list[Plan]:
    return [make_plan(graph, PlanSettings(batch=batch, unit=unit, seed=seed)) for seed in range(4)]


@pytest.mark.parametrize("unit", UnitShape)
@pytest.mark.parametrize("batch", [1, 4])
def test_neighbours_share_far_less_than_at_random(batch: int, unit: UnitShape) -> None:
    for plan in plans(ring(97, 16), batch, unit):
        assert plan.couplings.mean <= plan.shuffled.mean / 3
        assert plan.couplings.high <= plan.shuffled.high / 2
        assert plan.couplings.most <= plan.shuffled.most / 2


def test_exchanges_mend_the_end_of_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = ring(97, 30)
    mended = plans(graph, 4)
    monkeypatch.setattr("grendel_odin.odin.schedule.ROUNDS", 0)
    for plan, greedy in zip(mended, plans(graph, 4), strict=True):
        assert plan.couplings.most < greedy.couplings.most
        assert plan.couplings.high < greedy.couplings.high


def test_groups_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grendel_odin.odin.schedule.ROUNDS", 0)  # exchanges may cross groups
    graph = ring(96, 4)
    arcs = replace(partition(graph, 4), groups=np.repeat(np.arange(4, dtype=np.int32), 24))
    order, _ = draw_epoch(graph, arcs, PlanSettings(batch=4, unit=UnitShape.SCATTERED), Border())
    units = arcs.groups[order].reshape(-1, 4).tolist()
    assert all(sorted(unit) == [0, 1, 2, 3] for unit in units)
    order, _ = draw_epoch(graph, arcs, PlanSettings(batch=4, unit=UnitShape.COMPACT), Border())
    units = arcs.groups[order].reshape(-1, 4).tolist()
    assert all(len(set(unit)) == 1 for unit in units)
    assert [unit[0] for unit in units[:8]] == 2 * [unit[0] for unit in units[:4]]


def test_groups_of_unequal_size_run_out_together() -> None:
    graph = graph_of(np.zeros((60, 60)))
    groups = np.repeat(np.arange(3, dtype=np.int32), [30, 20, 10])
    parts = replace(partition(graph, 3), groups=groups)
    order, _ = draw_epoch(graph, parts, PlanSettings(), Border())
    thirds = groups[order].reshape(3, 20)
    assert all(
        np.bincount(one).tolist() == pytest.approx([10, 20 / 3, 10 / 3], abs=1) for one in thirds
    )


def test_seeds_and_epochs_differ() -> None:
    graph = ring(40, 3)
    orders = set()
    for seed in range(3):
        orders |= {
            tuple(order.tolist())
            for order in islice(make_plan(graph, PlanSettings(seed=seed)).course().orders(), 4)
        }
    assert len(orders) == 12


def test_views_of_which_nothing_is_known_are_not_taken_for_independent() -> None:
    matrix = ring(20, 2).matrix().toarray()
    matrix[7, :] = matrix[:, 7] = 0
    graph = graph_of(matrix)
    assert graph.unknown[7]
    coupling, _ = couplings(graph, np.array([3, 7, 12], np.int32), 1)
    assert coupling.tolist() == pytest.approx([graph.mean_weight] * 2)


def test_borders() -> None:
    border = next_border(np.array([4, 2, 0, 3, 1], np.int32), 2, Border())
    assert border == Border(1, (0, 3), (1,))
    assert next_border(np.array([0, 4, 2, 3, 1], np.int32), 2, border) == Border(2, (3, 1), ())
    # A unit that takes all views: the last whole unit stays the one before until it is full.
    assert next_border(np.array([1, 0], np.int32), 3, Border(0, (5,), ())) == Border(
        1, (5,), (1, 0)
    )


def test_units_are_cut_across_epochs() -> None:
    orders = iter([np.arange(3, dtype=np.int32), np.arange(3, 6, dtype=np.int32)])
    assert list(cut_units(orders, 2)) == [[0, 1], [2, 3], [4, 5]]


def test_random_order_and_quantiles() -> None:
    order = random_order(7, 1, 3)
    assert [sorted(order[i : i + 7].tolist()) for i in (0, 7, 14)] == [list(range(7))] * 3
    assert Couplings.of(np.zeros(0, np.float32)) == Couplings(0.0, 0.0, 0.0)
    assert Couplings.of(np.arange(11, dtype=np.float32)) == Couplings(5.0, 9.0, 10.0)


def test_a_unit_larger_than_the_scene_is_refused() -> None:
    with pytest.raises(ValueError, match="unit of 4 different views cannot be drawn from 3"):
        make_plan(ring(3, 1), PlanSettings(batch=4))
