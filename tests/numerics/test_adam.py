"""Adam over table rows against torch.optim.Adam and against the formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from grendel_odin import _kernels
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.optim import Adam, OptimizerKind
from grendel_odin.render.protocol import RowGradients

EPS = 1e-15
BETAS = (0.9, 0.999)


def make_table(rows: int, seed: int = 0) -> PrimitiveTable:
    table = PrimitiveTable.empty(rows)
    table.values = torch.randn(rows, 64, generator=torch.Generator().manual_seed(seed))
    return table


def make_rates() -> Tensor:
    return torch.logspace(-5, -1, 64)


def draw_gradients(rows: int, share: float, draw: torch.Generator) -> RowGradients:
    """Gradients of many sizes for a random share of the rows."""
    active = (torch.rand(rows, generator=draw) < share).nonzero().squeeze(1).int()
    values = torch.randn(len(active), 64, generator=draw)
    values *= 10.0 ** torch.randint(-8, 3, (len(active), 1), generator=draw)
    return RowGradients(active, values, 4)


def full(gradients: RowGradients, rows: int) -> Tensor:
    dense = torch.zeros(rows, 64)
    dense[gradients.rows.long()] = gradients.values
    return dense


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("gradient_scale", [1.0, 0.25])
def test_dense_is_torch_adam(share: float, gradient_scale: float) -> None:
    rows, rates, draw = 37, make_rates(), torch.Generator().manual_seed(1)
    table, adam = make_table(rows), Adam(37)
    columns = [column.clone().double() for column in table.values.unbind(1)]
    groups = [{"params": [c], "lr": float(lr)} for c, lr in zip(columns, rates, strict=True)]
    twin = torch.optim.Adam(groups, betas=BETAS, eps=EPS)
    for _ in range(60):
        gradients = draw_gradients(rows, share, draw)
        for column, grad in zip(columns, full(gradients, rows).unbind(1), strict=True):
            column.grad = grad.double() * gradient_scale
        twin.step()
        adam.step(table, gradients, rates, BETAS, EPS, gradient_scale)
    expected = torch.stack(columns, dim=1)
    moved = (expected - make_table(rows).values).abs()
    error = (table.values.double() - expected).abs()
    # A float32 value rounds at each step; the steps themselves agree far better.
    assert (error <= 2e-5 * moved + 60 * 2.0**-24 * expected.abs() + 1e-7).all()
    for ours, name, atol in ((adam.m, "exp_avg", 1e-6), (adam.v, "exp_avg_sq", 1e-12)):
        theirs = torch.stack([twin.state[column][name] for column in columns], dim=1)
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=atol)


def test_selective_moves_listed_rows_only_without_bias_correction() -> None:
    rows, rates, draw = 50, make_rates(), torch.Generator().manual_seed(2)
    table, adam = make_table(rows), Adam(rows, OptimizerKind.SELECTIVE_ADAM)
    value, m, v = table.values.double(), adam.m.double(), adam.v.double()
    for _ in range(30):
        gradients = draw_gradients(rows, 0.4, draw)
        at, g = gradients.rows.long(), 0.5 * gradients.values.double()
        m[at] = BETAS[0] * m[at] + (1 - BETAS[0]) * g
        v[at] = BETAS[1] * v[at] + (1 - BETAS[1]) * g**2
        value[at] -= rates.double() * m[at] / (v[at].sqrt() + EPS)
        before = (table.values.clone(), adam.m.clone(), adam.v.clone())
        adam.step(table, gradients, rates, BETAS, EPS, 0.5)
        absent = torch.ones(rows, dtype=torch.bool)
        absent[at] = False
        for old, new in zip(before, (table.values, adam.m, adam.v), strict=True):
            assert torch.equal(old[absent], new[absent])
    torch.testing.assert_close(table.values.double(), value, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(adam.m.double(), m, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(adam.v.double(), v, rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize("kind", OptimizerKind)
@pytest.mark.parametrize("blocks", [1, 2, 3, 4])
def test_inactive_blocks_are_untouched_and_live_ones_do_not_depend_on_them(
    kind: OptimizerKind, blocks: int
) -> None:
    draw = torch.Generator().manual_seed(3)
    gradients = draw_gradients(20, 0.5, draw)
    live = slice(0, 16 * blocks)
    ends = []
    for count in (blocks, 4):
        table, adam = make_table(20), Adam(20, kind)
        packed = RowGradients(gradients.rows, gradients.values.clone(), count)
        if count == blocks:
            packed.values[:, 16 * blocks :] = float("nan")  # undefined there
        adam.step(table, packed, make_rates(), BETAS, EPS, 1.0)
        ends.append((table.values, adam.m, adam.v))
    for part, whole in zip(*ends, strict=True):
        assert torch.equal(part[:, live], whole[:, live])
    value, m, v = ends[0]
    assert torch.equal(value[:, 16 * blocks :], make_table(20).values[:, 16 * blocks :])
    assert not m[:, 16 * blocks :].any() and not v[:, 16 * blocks :].any()


@pytest.mark.parametrize("kind", OptimizerKind)
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_bits_depend_neither_on_order_nor_on_threads(kind: OptimizerKind, threads: int) -> None:
    rows, draw = 101, torch.Generator().manual_seed(4)
    order = torch.randperm(rows, generator=draw)
    place = torch.argsort(order)
    table, adam = make_table(rows), Adam(rows, kind)
    other, other_adam = make_table(rows), Adam(rows, kind, threads)
    other.values = other.values[order].clone()
    for _ in range(10):
        gradients = draw_gradients(rows, 0.5, draw)
        moved, by_row = place[gradients.rows.long()].int().sort()
        permuted = RowGradients(moved, gradients.values[by_row].contiguous(), 4)
        adam.step(table, gradients, make_rates(), BETAS, EPS, 1.0)
        other_adam.step(other, permuted, make_rates(), BETAS, EPS, 1.0)
    assert torch.equal(table.values[order], other.values)
    assert torch.equal(adam.m[order], other_adam.m)
    assert torch.equal(adam.v[order], other_adam.v)


def test_moments_of_a_long_unseen_row_end_at_zero_not_in_subnormals() -> None:
    table, adam = make_table(1), Adam(1)
    rows = torch.zeros(1, dtype=torch.int32)
    seen = RowGradients(rows, torch.full((1, 64), 1e-3), 4)
    adam.step(table, seen, make_rates(), BETAS, EPS, 1.0)
    nothing = RowGradients(rows[:0], torch.empty(0, 64), 4)
    for _ in range(900):
        adam.step(table, nothing, make_rates(), BETAS, EPS, 1.0)
    assert not adam.m.any() and adam.v.all()
    before = table.values.clone()
    adam.step(table, nothing, make_rates(), BETAS, EPS, 1.0)
    assert torch.equal(before, table.values)


def test_faulty_arguments_are_refused() -> None:
    table, adam = make_table(4), Adam(4)
    for rows in ([2, 1], [1, 1], [-1, 0], [3, 4]):
        gradients = RowGradients(torch.tensor(rows, dtype=torch.int32), torch.zeros(2, 64), 4)
        with pytest.raises(ValueError, match="ascend"):
            adam.step(table, gradients, make_rates(), BETAS, EPS, 1.0)
    with pytest.raises(ValueError, match="blocks"):
        empty = RowGradients(torch.empty(0, dtype=torch.int32), torch.empty(0, 64), 0)
        adam.step(table, empty, make_rates(), BETAS, EPS, 1.0)
    assert torch.equal(table.values, make_table(4).values)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("threads", [1, 2])
def test_first_nonfinite(value: float, threads: int) -> None:
    values = torch.randn(40, 64) * 1e30
    assert _kernels.first_nonfinite(values, 64, threads) == -1
    values[31, 5] = values[12, 40] = values[12, 63] = value
    assert _kernels.first_nonfinite(values, 64, threads) == 12 * 64 + 40
    assert _kernels.first_nonfinite(values, 32, threads) == 31 * 64 + 5
    assert _kernels.first_nonfinite(values[:12], 64, threads) == -1
    assert _kernels.first_nonfinite(values[:0], 64, threads) == -1
