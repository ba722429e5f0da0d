"""Clone, split, prune and reset: outcomes by hand, and independence of the order of rows."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from grendel_odin import _kernels
from grendel_odin.config import UserError
from grendel_odin.model.ids import child_ids
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.optim.adam import Adam
from grendel_odin.optim.settings import OptimizerKind
from grendel_odin.parallel.world import World
from grendel_odin.pipelines.densify import (
    Densification,
    DensifySettings,
    Rules,
    densify,
    logit,
    reset_opacity,
)
from grendel_odin.pipelines.state import UNIT, Statistics, TrainingState
from grendel_odin.render.protocol import Splats
from tests.scenes import random_camera, random_table

RULES = Rules(DensifySettings(), extent=2.0, max_primitives=0, prune_large=False)
EVENT = 600
CLONED, SPLIT, QUIET, FAINT = range(4)


def make_adam(rows: int) -> Adam:
    return Adam(rows, OptimizerKind.ADAM, threads=1)


def fixed(norms: list[float] | Tensor) -> Tensor:
    """As Statistics holds them."""
    return (torch.as_tensor(norms, dtype=torch.float64) / UNIT).round().long()


def make_state() -> TrainingState:
    """Four rows: a small one that moves, a large one that moves, one at rest, a faint one."""
    table = random_table(4, seed=1)
    table.ids = torch.tensor([11, 22, 33, 44])
    table.field("scales")[:] = torch.tensor([[0.01], [0.1], [0.1], [0.01]]).log()
    table.field("opacities")[:] = torch.tensor([0.5, 0.5, 0.5, 0.004]).logit()[:, None]
    state = TrainingState(table, make_adam(4), Statistics(4))
    state.adam.m[:] = torch.arange(1.0, 5.0)[:, None]
    state.adam.v[:] = torch.arange(11.0, 15.0)[:, None]
    state.statistics.norms[:] = fixed([3e-3, 3e-3, 1e-3, 0.0])
    state.statistics.counts[:] = torch.tensor([10, 10, 10, 0], dtype=torch.int32)
    return state


def rows_of(table: PrimitiveTable) -> dict[int, bytes]:
    return {int(i): row.numpy().tobytes() for i, row in zip(table.ids, table.values, strict=True)}


def run(state: TrainingState, rules: Rules = RULES) -> Densification:
    return densify(state, rules, seed=7, event=EVENT, threads=2, world=World())


def test_outcome_of_one_event() -> None:
    state, before = make_state(), make_state()
    done = run(state)
    assert done == Densification(cloned=1, split=1, pruned=1, capped=0, kept_all=False)
    old, ids = before.table, before.table.ids
    clone = child_ids(ids[[CLONED]], EVENT, 0)
    halves = [child_ids(ids[[SPLIT]], EVENT, k) for k in (0, 1)]
    assert state.table.ids.tolist() == [11, 33, *map(int, [clone, *halves])]
    assert torch.equal(state.table.values[2], old.values[CLONED])
    assert torch.equal(state.table.values[:2], old.values[[CLONED, QUIET]])
    shrunk = old.field("scales")[SPLIT] - math.log(1.6)
    for row in (3, 4):
        child = state.table.values[row]
        assert torch.allclose(child[3:6], shrunk)
        assert torch.equal(child[6:], old.values[SPLIT, 6:])
        assert not torch.equal(child[:3], old.values[SPLIT, :3])
    assert torch.equal(state.adam.m[:2], before.adam.m[[CLONED, QUIET]])
    assert torch.equal(state.adam.v[:2], before.adam.v[[CLONED, QUIET]])
    assert not state.adam.m[2:].any() and not state.adam.v[2:].any()
    assert len(state.statistics.norms) == len(state.statistics.counts) == 5
    assert not state.statistics.norms.any() and not state.statistics.counts.any()


def test_thresholds_are_inclusive_as_in_3dgs() -> None:
    state = make_state()
    state.statistics.norms[:] = fixed([2e-4, 0.0, 0.0, 0.0])
    state.statistics.counts[:] = 1
    assert run(state).cloned == 1
    state = make_state()
    state.statistics.norms[CLONED : CLONED + 1] = fixed([1.9e-3])
    assert run(state).cloned == 0


def test_large_rows_are_pruned_only_after_the_first_reset() -> None:
    large = make_state()
    large.table.field("scales")[QUIET, 1] = math.log(0.21)
    assert run(large).pruned == 1
    large = make_state()
    large.table.field("scales")[QUIET, 1] = math.log(0.21)
    assert run(large, replace(RULES, prune_large=True)).pruned == 2
    assert 33 not in large.table.ids


def test_a_cap_lets_the_largest_gradients_grow() -> None:
    state = make_state()
    state.statistics.norms[:] = fixed([3e-3, 4e-3, 0.0, 0.0])
    done = run(state, replace(RULES, max_primitives=5))
    assert (done.cloned, done.split, done.capped) == (0, 1, 1)
    assert run(make_state(), replace(RULES, max_primitives=4)).capped == 2
    assert run(make_state(), replace(RULES, max_primitives=3)).capped == 2


def test_equal_gradients_under_a_cap_go_by_id() -> None:
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        state = permuted(make_state(), torch.tensor(order))
        state.statistics.norms[:], state.statistics.counts[:] = fixed([1.0]), 1
        run(state, replace(RULES, max_primitives=6))
        left = set(state.table.ids.tolist())
        assert int(child_ids(torch.tensor([11]), EVENT, 0)) in left
        assert 22 not in left and 33 in left


def test_never_prunes_the_last_rows() -> None:
    state = make_state()
    state.table.field("opacities")[:] = logit(0.001)
    done = run(state)
    assert done.kept_all and done.pruned == 0
    assert len(state.table) == 6


def test_size_is_ignored_where_hardly_a_row_would_remain() -> None:
    state = make_state()
    state.table.field("scales")[:] = 9.0
    done = run(state, replace(RULES, prune_large=True))
    assert done.kept_large and not done.kept_all
    assert len(state.table) > 0
    state = make_state()
    state.table.field("scales")[0] = 9.0
    assert not run(state, replace(RULES, prune_large=True)).kept_large


def test_children_are_spread_as_the_parent() -> None:
    count = 20000
    parents = random_table(1, seed=3).values.repeat(count, 1)
    parents[:, :3] = 0.0
    ids = torch.arange(count)
    drawn = torch.empty(count, 64)
    _kernels.split_children(parents, ids, drawn, 0, 1, 0, 2)
    w, x, y, z = torch.nn.functional.normalize(parents[0, 6:10].double(), dim=0)
    rotation = torch.stack(
        [
            torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]),
            torch.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]),
            torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]),
        ]
    )
    local = drawn[:, :3].double() @ rotation / parents[0, 3:6].double().exp()
    assert local.mean(0).abs().max() < 0.03
    assert (local.T.cov() - torch.eye(3)).abs().max() < 0.05


def test_draws_depend_on_seed_event_and_child() -> None:
    parents, ids = random_table(5, seed=3).values, torch.arange(5)
    means = []
    for seed, event, k in [(0, 1, 0), (1, 1, 0), (0, 2, 0), (0, 1, 1)]:
        drawn = torch.empty_like(parents)
        _kernels.split_children(parents, ids, drawn, seed, event, k, 1)
        means.append(drawn[:, :3].flatten())
    distances = torch.cdist(torch.stack(means), torch.stack(means))
    assert (distances + torch.eye(4) > 1e-3).all()


@pytest.mark.parametrize("cap", [0, 340])
def test_the_order_of_rows_and_the_thread_count_do_not_matter(cap: int) -> None:
    rules = replace(RULES, max_primitives=cap, prune_large=True)
    state, other = large_state(), permuted(large_state(), torch.randperm(300))
    first = densify(state, rules, seed=7, event=EVENT, threads=1, world=World())
    second = densify(other, rules, seed=7, event=EVENT, threads=2, world=World())
    assert first == second
    assert first.cloned and first.split and first.pruned and bool(cap) == bool(first.capped)
    assert rows_of(state.table) == rows_of(other.table)
    moments = [
        dict(zip(s.table.ids.tolist(), s.adam.m.tolist(), strict=True)) for s in (state, other)
    ]
    assert moments[0] == moments[1]


def large_state() -> TrainingState:
    table = random_table(300, seed=5)
    state = TrainingState(table, make_adam(300), Statistics(300))
    draw = torch.Generator().manual_seed(2)
    state.adam.m[:] = torch.randn(300, 64, generator=draw)
    table.field("scales")[:] -= 2.0 * torch.rand(300, 1, generator=draw)
    state.statistics.norms[:] = fixed(torch.rand(300, generator=draw) * 4e-3)
    state.statistics.counts[:] = torch.randint(0, 12, (300,), generator=draw).int()
    return state


def permuted(state: TrainingState, order: Tensor) -> TrainingState:
    table = PrimitiveTable(state.table.values[order], state.table.ids[order])
    other = TrainingState(table, make_adam(len(order)), Statistics(len(order)))
    other.adam.m[:], other.adam.v[:] = state.adam.m[order], state.adam.v[order]
    other.statistics.norms[:] = state.statistics.norms[order]
    other.statistics.counts[:] = state.statistics.counts[order]
    return other


def test_colliding_ids_stop_the_run() -> None:
    state = make_state()
    state.table.ids[QUIET] = child_ids(state.table.ids[[CLONED]], EVENT, 0)
    with pytest.raises(UserError, match="same 64-bit id"):
        run(state)


def test_reset_limits_opacity_and_forgets_its_moments() -> None:
    state = make_state()
    reset_opacity(state, prune_opa=0.005)
    expected = torch.tensor([0.01, 0.01, 0.01, 0.004])
    assert torch.allclose(state.table.field("opacities").squeeze(1).sigmoid(), expected)
    assert not state.adam.m[:, 10].any() and not state.adam.v[:, 10].any()
    assert state.adam.m[:, 9].all() and state.adam.m[:, 11].all()


def test_statistics_of_a_view() -> None:
    statistics = Statistics(5)
    camera = random_camera(40, 20, seed=1)
    gradients = torch.zeros(2, 10)
    gradients[:, :2] = torch.tensor([[0.25, 0.75], [0.0, 1.0]])
    rows = torch.tensor([1, 4]).int()
    splats = Splats(torch.zeros(2, 10), torch.zeros(2).int(), rows, torch.ones(2, 2).int())
    for _ in range(2):
        statistics.add(splats, gradients, camera, threads=2)
    norm = math.hypot(20 * 0.25, 10 * 0.75)
    assert statistics.counts.tolist() == [0, 2, 0, 0, 2]
    assert statistics.norms.tolist() == [0, 2 * int(fixed([norm])), 0, 0, 2 * int(fixed([10.0]))]
    assert statistics.mean_norms().tolist() == pytest.approx([0.0, norm, 0.0, 0.0, 10.0])


def test_a_row_out_of_range_is_refused() -> None:
    splats = Splats(
        *(torch.zeros(1, 10), torch.zeros(1).int(), torch.tensor([5]).int()),
        torch.ones(1, 2, dtype=torch.int32),
    )
    with pytest.raises(ValueError, match="out of range"):
        Statistics(5).add(splats, torch.zeros(1, 10), random_camera(8, 8, 0), threads=1)
