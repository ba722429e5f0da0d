"""Replicated mode: gradients of all views, folded in their order on every rank."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grendel_odin.config import UserError
from grendel_odin.model.table import BLOCK_WIDTH, ROW_WIDTH
from grendel_odin.parallel.modes import Reduce
from grendel_odin.parallel.replicated import Replicated
from grendel_odin.parallel.world import World
from grendel_odin.render.cpu import CpuRenderer
from grendel_odin.render.protocol import Constants, RowGradients
from tests.scenes import random_table
from tests.threaded_world import run_on_ranks

KEPT = 40
RENDERER = CpuRenderer(Constants(), 1)
VIEWS = st.lists(st.sets(st.integers(0, KEPT - 1)), min_size=1, max_size=5)


def gradient(view: int, rows: torch.Tensor) -> torch.Tensor:
    """[n, 64] of a view, the same wherever it is computed."""
    draw = torch.Generator().manual_seed(view)
    return torch.randn(KEPT, ROW_WIDTH, generator=draw)[rows.long()]


@settings(max_examples=40, deadline=None)
@given(
    views=VIEWS, ranks=st.integers(1, 4), reduce=st.sampled_from(Reduce), blocks=st.integers(1, 4)
)
def test_every_rank_gets_the_fold_of_all_views(
    views: list[set[int]], ranks: int, reduce: Reduce, blocks: int
) -> None:
    active = [torch.tensor(sorted(each), dtype=torch.int32) for each in views]
    width = BLOCK_WIDTH * blocks
    expected = torch.zeros(KEPT, width)
    for view, rows in enumerate(active):
        expected[rows.long()] += gradient(view, rows)[:, :width]

    def fold(view: int, into: RowGradients) -> None:
        into.values.zero_()
        places = torch.searchsorted(into.rows, active[view])
        into.values[places] += gradient(view, active[view])

    def run(world: World) -> RowGradients:
        mode = Replicated(world, RENDERER, reduce)
        mode.plan([torch.full((3,), 10 + view) for view in range(len(views))])
        own = {view: active[view] for view in mode.views_here()}

        def blank(rows: torch.Tensor) -> RowGradients:
            return RowGradients(rows, torch.full((len(rows), ROW_WIDTH), torch.nan), blocks)

        return mode.row_gradients(own, fold, blank, KEPT)

    seen = sorted(set().union(*views)) if reduce is Reduce.PACKED else list(range(KEPT))
    for made in run_on_ranks(ranks, run):
        assert made.rows.tolist() == seen
        assert torch.equal(made.values[:, :width], expected[made.rows.long()])


@given(costs=st.lists(st.integers(1, 1000), min_size=1, max_size=9), ranks=st.integers(1, 5))
def test_every_view_goes_to_one_rank_and_the_load_is_even(costs: list[int], ranks: int) -> None:
    loads = []
    for rank in range(ranks):
        mode = Replicated(World(rank, ranks), RENDERER, Reduce.PACKED)
        mode.plan([torch.tensor([cost]) for cost in costs])
        loads.append([costs[view] for view in mode.views_here()])
    assert sorted(cost for each in loads for cost in each) == sorted(costs)
    totals = [sum(each) for each in loads]
    assert max(totals) <= sum(costs) / ranks + max(costs)


def test_counts_of_all_ranks_are_added() -> None:
    def run(world: World) -> list[int]:
        mode = Replicated(world, RENDERER, Reduce.PACKED)
        return mode.total(torch.tensor([1, 10 * world.rank], dtype=torch.int32)).tolist()

    assert run_on_ranks(3, run) == [[3, 30]] * 3


def test_replicas_that_differ_are_named() -> None:
    def run(world: World) -> str:
        table = random_table(5, seed=1)
        mode = Replicated(world, RENDERER, Reduce.PACKED)
        mode.check(table)
        table.values[3, 2] += 1e-3 * (world.rank == 2)
        with pytest.raises(UserError) as caught:
            mode.check(table)
        return str(caught.value)

    for text in run_on_ranks(3, run):
        assert text.startswith("the models of ranks 2 differ from that of rank 0")
