"""The bound of a step and of visibility after it: searches for steps that break them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

from grendel_odin.data.cameras import Camera
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.optim import Adam, OptimizerKind, OptimSettings, Rates
from grendel_odin.render.bounds import (
    NextStep,
    VisibilityBound,
    assert_invisible,
    step_bound,
    visible_planes,
    within_history,
)
from grendel_odin.render.cpu import CpuRenderer
from grendel_odin.render.protocol import INRIA, Box, Constants, RowGradients
from grendel_odin.render.reference import ReferenceRenderer
from tests.scenes import random_camera, random_table

KINDS = list(OptimizerKind)
CONSTANTS = {
    "gsplat": Constants(),
    "antialiased": replace(Constants(), antialiased=True, near=0.01),
    "inria": INRIA,
}
NUMBERS = (1, 2, 10, 1000)


def make_rates(
    batch: int = 1, betas: tuple[float, float] = (0.9, 0.999), means_lr: float = 1e-2
) -> Rates:
    means = {"means_lr": means_lr, "means_lr_final": means_lr}
    return Rates(OptimSettings(beta1=betas[0], beta2=betas[1], **means), batch, extent=1.0)


def draw_moments(rows: int, rates: Rates, draw: Generator) -> tuple[Tensor, Tensor]:
    """[rows, 64] moments after histories of many kinds: steady, alternating, one spike, unseen."""
    shape = (rows, 12)  # columns; the others stay at zero
    m, v = torch.zeros(2, *shape, dtype=torch.float64)
    beta1, beta2 = rates.betas
    size = 10.0 ** (torch.rand(shape, generator=draw, dtype=torch.float64) * 12 - 10)
    bias = torch.randint(-1, 2, shape, generator=draw)
    spike = torch.rand(shape, generator=draw) < 0.3
    unseen = torch.rand(rows, 1, generator=draw) < 0.2
    length = torch.randint(0, 30, (rows, 1), generator=draw)
    for step in range(30):
        noise = torch.randn(shape, generator=draw, dtype=torch.float64)
        g = size * (bias + 0.3 * noise) * torch.where(spike & (step != 27), 0.0, 1.0)
        g = torch.where(unseen | (step < length), 0.0, g)
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
    moments = torch.nn.functional.pad(torch.stack([m, v]).float(), (0, 52))
    first, second = moments * (moments.abs() >= 2.0**-120)
    return first.contiguous(), second.contiguous()


def worst_gradient(wanted: Tensor, m: Tensor, v: Tensor, betas: tuple[float, float]) -> Tensor:
    """The gradient that moves elements farthest in the directions `wanted` (signs)."""
    beta1, beta2 = betas
    towards = -wanted
    best = (1 - beta1) * beta2 * v.double() / ((1 - beta2) * beta1 * m.double())
    far = towards * (1.0 + 1e6 * (m.double().abs() + v.double().sqrt()))
    helpful = (m.sign() == towards) & best.isfinite() & (best != 0)
    return torch.where(helpful, best, far).float()


@dataclass(slots=True)
class Trial:
    """A table with moments, and the step that it is about to take."""

    table: PrimitiveTable
    adam: Adam
    rates: Rates

    @staticmethod
    def make(
        table: PrimitiveTable, kind: OptimizerKind, number: int, rates: Rates, draw: Generator
    ) -> Trial:
        adam = Adam(len(table), kind)
        if number > 1:
            adam.m, adam.v = draw_moments(len(table), rates, draw)
        adam.steps = number - 1
        return Trial(table, adam, rates)

    @property
    def next_step(self) -> NextStep:
        return NextStep.of(self.adam.kind, self.adam.steps + 1, self.rates, 0)

    def step(self, gradient: Tensor) -> None:
        packed = RowGradients(torch.arange(len(self.table), dtype=torch.int32), gradient, 4)
        rates, eps = self.rates.columns(0), self.rates.eps
        self.adam.step(self.table, packed, rates, self.rates.betas, eps, 1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.9, 0.9), (0.0, 0.5), (0.99, 0.9), (0.5, 0.0)])
@pytest.mark.parametrize("batch", [1, 4, 64])
def test_no_gradient_moves_an_element_beyond_the_bound(
    kind: OptimizerKind, number: int, betas: tuple[float, float], batch: int
) -> None:
    draw = Generator().manual_seed(number + batch)
    rates = make_rates(batch, betas)
    for style in range(4):
        trial = Trial.make(random_table(200, style), kind, number, rates, draw)
        if style == 3:  # no history leads here
            trial.adam.m = torch.randn(200, 64, generator=draw) * 1e-3
            trial.adam.v *= 10.0 ** torch.randint(-30, 3, (200, 64), generator=draw)
        m, v, before = trial.adam.m, trial.adam.v, trial.table.values.double()
        bound = step_bound(m.double(), v.double(), trial.next_step)
        assert torch.allclose(step_bound(m, v, trial.next_step).double(), bound, rtol=1e-5)
        wanted = torch.randint(0, 2, (200, 64), generator=draw) * 2.0 - 1.0
        factor = [1.0, 0.0, 10.0 ** (torch.rand(200, 64, generator=draw) * 8 - 4), 1.0][style]
        gradient = worst_gradient(wanted, m, v, rates.betas) * factor
        trial.step(gradient)
        moved = (trial.table.values.double() - before).abs()
        rounding = 2.0**-24 * trial.table.values.double().abs()
        assert (moved <= bound + rounding).all()


def test_the_bound_of_a_step_is_attained() -> None:
    draw = Generator().manual_seed(3)
    trial = Trial.make(PrimitiveTable.empty(300), OptimizerKind.ADAM, 1000, make_rates(), draw)
    m, v = trial.adam.m.clone(), trial.adam.v.clone()
    bound = step_bound(m, v, trial.next_step)
    trial.step(worst_gradient(-m.sign(), m, v, trial.rates.betas))
    seen = (v > 1e-18) & (m != 0) & (trial.rates.columns(0) > 0)  # where eps is nothing
    share = (trial.table.values.abs() / bound)[seen]
    assert share.min() > 0.9999 and share.max() <= 1.0


def test_largest_step_of_any_history_at_the_usual_betas() -> None:
    """7.27 learning rates, after gradients that grow by beta2 / beta1 a step."""
    step = NextStep.of(OptimizerKind.SELECTIVE_ADAM, 1, make_rates(), 0)
    assert step.history == pytest.approx(7.27, abs=0.01)
    trial = Trial.make(
        random_table(1, 0), OptimizerKind.SELECTIVE_ADAM, 1, make_rates(), Generator()
    )
    for number in range(300):
        trial.step(torch.full((1, 64), 1e-10 * (0.999 / 0.9) ** number))
    assert within_history(trial.adam.m, trial.adam.v, step)
    reached = step_bound(trial.adam.m, trial.adam.v, step)[0, 10] / 0.05
    assert 7.265 < float(reached) <= step.history


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [1, 4, 64])
def test_no_history_leads_beyond_its_bound(kind: OptimizerKind, batch: int) -> None:
    """Gradients that grow, fall below what the kernel keeps, stop, or turn at random."""
    draw, rates = Generator().manual_seed(batch), make_rates(batch)
    trial = Trial.make(random_table(300, 0), kind, 1, rates, draw)
    growth = 10.0 ** (torch.randn(300, 64, generator=draw) * 0.3)
    size = 10.0 ** (torch.rand(300, 64, generator=draw) * 30 - 25)
    for number in range(200):
        step, before = trial.next_step, trial.table.values.double()
        turn = torch.randn(300, 64, generator=draw).sign() if number % 50 > 40 else 1.0
        trial.step((size * turn).clamp(-1e10, 1e10) * (torch.rand(300, 1, generator=draw) < 0.9))
        size = torch.where(size > 1e10, 1e-25, size * growth)
        assert within_history(trial.adam.m, trial.adam.v, step)
        after = trial.table.values.double()
        bound = step.rates.double() * step.history + 2.0**-24 * after.abs()
        assert ((after - before).abs() <= bound).all()


def test_moments_of_other_betas_are_known() -> None:
    m, v = torch.tensor([[1.0, 7.2]]), torch.tensor([[1.0, 1.0]])
    kind = OptimizerKind.ADAM
    assert within_history(m, v, NextStep.of(kind, 9, make_rates(), 0))
    assert not within_history(m, v, NextStep.of(kind, 9, make_rates(batch=64), 0))
    assert NextStep.of(kind, 9, make_rates(betas=(0.9, 0.8)), 0).history == math.inf


def test_bias_factor_and_a_hopeless_eps() -> None:
    first = NextStep.of(OptimizerKind.ADAM, 1, make_rates(betas=(0.9, 0.9)), 0)
    zero = torch.zeros(1, 64)
    ratio = step_bound(zero, zero, first)[0, :3] / make_rates().columns(0)[:3]
    assert ratio.tolist() == pytest.approx([1.0] * 3, rel=1e-4)  # the first step is lr, always
    rates = make_rates()
    rates.eps = 1e-19  # below what the kernel's moments resolve
    bound = step_bound(zero, zero, NextStep.of(OptimizerKind.ADAM, 1, rates, 0))
    assert bound[0, :11].isinf().all()


@dataclass(frozen=True, slots=True)
class Setting:
    """What a search for a row that becomes visible unforeseen is about."""

    seed: int
    size: tuple[int, int]
    focal: tuple[float, float]
    """In widths and heights of the image."""
    center: tuple[float, float]
    """Principal point, likewise."""
    constants: str
    kind: OptimizerKind
    number: int
    batch: int
    means_lr: float
    scale: float
    """log10 of the mean size of rows."""
    away: float
    """Distance of camera and rows from the origin of the world."""


SETTINGS = st.builds(
    Setting,
    seed=st.integers(0, 2**31),
    size=st.tuples(st.integers(1, 300), st.integers(1, 300)),
    focal=st.tuples(st.floats(0.1, 8.0), st.floats(0.1, 8.0)),
    center=st.tuples(st.floats(-0.4, 1.4), st.floats(-0.4, 1.4)),
    constants=st.sampled_from(sorted(CONSTANTS)),
    kind=st.sampled_from(KINDS),
    number=st.sampled_from(NUMBERS),
    batch=st.sampled_from([1, 4, 16]),
    means_lr=st.sampled_from([1e-6, 1e-3, 1e-1]),
    scale=st.floats(-3.0, 1.5),
    away=st.sampled_from([0.0, 30.0, 3000.0]),
)


def make_camera(case: Setting) -> Camera:
    (width, height), (fx, fy), (cx, cy) = case.size, case.focal, case.center
    camera = random_camera(width, height, case.seed)
    K = np.array([[fx * width, 0, cx * width], [0, fy * height, cy * height], [0, 0, 1.0]])
    place = camera.world_to_camera.copy()
    place[:3, 3] += place[:3, :3] @ (case.away * np.array([0.6, -0.8, 0.3]))
    return replace(camera, K=K, world_to_camera=place)


def make_trial(case: Setting, camera: Camera, rows: int) -> tuple[Trial, Tensor]:
    """Rows beside the planes of a camera, on both sides, and the gradient that draws them in."""
    draw = Generator().manual_seed(case.seed)
    rates = make_rates(case.batch, means_lr=case.means_lr)
    trial = Trial.make(random_table(rows, case.seed), case.kind, case.number, rates, draw)
    table, constants = trial.table, CONSTANTS[case.constants]

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(rows, generator=draw, dtype=torch.float64)

    pose = torch.from_numpy(camera.world_to_camera)
    planes = torch.from_numpy(visible_planes(camera, constants))
    side = torch.randint(0, 5, (rows,), generator=draw)
    axis = ((side - 1).clamp(min=0) // 2).clamp(max=1)

    # Extreme shapes, half of them with the longest axis along the image axis that it must reach.
    largest = math.log(10.0) * (case.scale + uniform(-1.0, 1.0))
    squeeze = torch.stack([0 * largest, uniform(0.0, 14.0), uniform(0.0, 14.0)], dim=1)
    table.field("scales")[:] = (largest[:, None] - squeeze).float()
    depth = constants.near * (1.0 + 10.0 ** uniform(-5.0, 4.0))
    clamp = [(camera.K[i, 2], n - camera.K[i, 2], n) for i, n in enumerate(case.size)]
    limits = torch.tensor([[-c - 0.15 * n, d + 0.15 * n] for c, d, n in clamp])
    limits = limits / torch.tensor([[camera.K[0, 0]], [camera.K[1, 1]]])
    slope = torch.where(side % 2 == 1, limits[axis, 0], limits[axis, 1])
    along = torch.zeros(rows, 3, dtype=torch.float64)
    along[torch.arange(rows), axis] = 1.0
    along[:, 2] = -slope
    along = torch.nn.functional.normalize(along, dim=1) @ pose[:3, :3]
    turn = torch.cat([1 + along[:, :1], 0 * along[:, :1], -along[:, 2:], along[:, 1:2]], dim=1)
    aligned = uniform(0.0, 1.0) < 0.5
    table.field("quats")[aligned] = turn.float()[aligned]
    table.field("opacities")[:] = uniform(-6.0, 12.0).float()[:, None]

    # On a random ray, then along the plane's normal to about where the step decides.
    corner = limits[:, 0] + (limits[:, 1] - limits[:, 0]) * torch.stack(
        [uniform(-0.1, 1.1), uniform(-0.1, 1.1)], dim=1
    )
    local = torch.cat([corner * depth[:, None], depth[:, None]], dim=1)
    normal, offset, _, extent = planes[side].split([3, 1, 1, 1], dim=1)
    bound = step_bound(trial.adam.m, trial.adam.v, trial.next_step)[:, :6].double()
    scale = table.field("scales").double()
    reach = extent[:, 0] * (scale + bound[:, 3:]).max(1).values.exp() * uniform(0.7, 1.01)
    reach = reach + (normal.abs() * bound[:, :3]).sum(1) * uniform(-0.5, 1.2)
    facing = normal @ pose[:3, :3].T  # in camera space; its image axis takes the row to the plane
    shift = (facing * local).sum(1) + offset[:, 0] - (normal @ pose[:3, :3].T) @ pose[:3, 3]
    pull = torch.where(side == 0, 2, axis)
    component = facing.gather(1, pull[:, None])[:, 0]
    local[torch.arange(rows), pull] -= (shift + reach) / component
    means = (local - pose[:3, 3]) @ pose[:3, :3]
    table.field("means")[:] = means.float()

    wanted = torch.randint(0, 2, (rows, 64), generator=draw) * 2.0 - 1.0
    wanted[:, :3] = normal.sign().float()
    wanted[:, 3:6] = 1.0
    wanted[:, 10] = 1.0
    gradient = worst_gradient(wanted, trial.adam.m, trial.adam.v, rates.betas)
    gradient[aligned, 6:10] = 0.0
    gradient[uniform(0.0, 1.0) < 0.1] = 0.0  # rows that the unit did not see
    return trial, gradient


def seen_after(case: Setting, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """[rows] bool: flagged, flagged as if nothing moved, and visible to a projector."""
    camera, constants = make_camera(case), CONSTANTS[case.constants]
    trial, gradient = make_trial(case, camera, rows)
    step = trial.next_step
    still = replace(step, rates=torch.zeros(64))
    flagged, unmoved, flagged_blindly = (
        VisibilityBound(trial.table, moments, move, constants, 1)([camera]).any
        for moments, move in ((trial.adam, step), (trial.adam, still), (None, step))
    )
    assert within_history(trial.adam.m, trial.adam.v, step)
    assert not (flagged & ~flagged_blindly).any()
    visible = torch.zeros(rows, dtype=torch.bool)
    for moves in (False, True):
        if moves:
            trial.step(gradient)
        for renderer in (CpuRenderer(constants, 1), ReferenceRenderer(constants)):
            visible[renderer.project(trial.table, camera, 0).rows.long()] = True
    return flagged, unmoved, visible


@settings(max_examples=150, deadline=None)
@given(SETTINGS)
def test_no_row_becomes_visible_unforeseen(case: Setting) -> None:
    flagged, _, visible = seen_after(case, 1000)
    missed = (visible & ~flagged).nonzero()[:, 0]
    assert len(missed) == 0, f"{len(missed)} of {int(visible.sum())} rows, e.g. {missed[:3]}"


@pytest.mark.parametrize("constants", sorted(CONSTANTS))
def test_the_search_finds_rows_that_the_step_decides_about(constants: str) -> None:
    """The search would be blind if it drew rows that are far outside, or visible anyway."""
    decided = hidden = 0
    for seed, number in enumerate(NUMBERS):
        kind = KINDS[seed % 2]
        case = Setting(
            seed, (90, 60), (0.7, 0.9), (0.4, 0.7), constants, kind, number, 1, 0.1, 0, 0
        )
        flagged, still, visible = seen_after(case, 1000)
        assert not (visible & ~flagged).any()
        decided += int((visible & ~still).sum())
        hidden += int((~flagged).sum())
    assert decided > 100 and hidden > 100


def expected_margins(trial: Trial, camera: Camera, constants: Constants) -> Tensor:
    """[N, 5] float64: how far rows reach over the planes, written in camera space, unrounded."""
    rows = trial.table.values.double()
    bound = step_bound(trial.adam.m.double(), trial.adam.v.double(), trial.next_step)
    rotation = torch.from_numpy(camera.world_to_camera[:3, :3])
    local = rows[:, :3] @ rotation.T + torch.from_numpy(camera.world_to_camera[:3, 3])
    scale = (rows[:, 3:6] + bound[:, 3:6]).max(1).values.exp()
    width, height = camera.width, camera.height
    fx, fy, cx, cy = (float(camera.K[i, j]) for i, j in ((0, 0), (1, 1), (0, 2), (1, 2)))
    margins = [local[:, 2] - constants.near + bound[:, :3] @ rotation[2].abs()]
    left, right = (cx + 0.15 * width) / fx, (width - cx + 0.15 * width) / fx
    top, bottom = (cy + 0.15 * height) / fy, (height - cy + 0.15 * height) / fy
    opacity_box = constants.box is Box.OPACITY
    blur = 3.34 * math.sqrt(0.3) if opacity_box else 3.01 * math.sqrt(0.3 + math.sqrt(0.1))
    ends = [float(n) if opacity_box else -(-n // 16) * 16 + 0.5 for n in (width, height)]
    for axis, sign, edge, focal, clamp, across in (
        (0, 1, cx, fx, left, max(top, bottom)),
        (0, -1, ends[0] - cx, fx, right, max(top, bottom)),
        (1, 1, cy, fy, top, max(left, right)),
        (1, -1, ends[1] - cy, fy, bottom, max(left, right)),
    ):
        slope = (edge + blur + 1.0625) / focal
        if opacity_box:
            extent = 3.34 * math.sqrt(1 + clamp**2)
        else:
            extent = 3.01 * max(fx, fy) / focal * math.sqrt(1 + clamp**2 + across**2)
        normal = sign * rotation[axis] + slope * rotation[2]
        inside = sign * local[:, axis] + slope * local[:, 2]
        margins.append(inside + bound[:, :3] @ normal.abs() + extent * scale)
    return torch.stack(margins, dim=1)


@pytest.mark.parametrize("constants", sorted(CONSTANTS))
@pytest.mark.parametrize("kind", KINDS)
def test_kernel_is_the_formula(constants: str, kind: OptimizerKind) -> None:
    draw = Generator().manual_seed(1)
    for seed in range(5):
        trial = Trial.make(random_table(999, seed), kind, 10, make_rates(means_lr=0.03), draw)
        camera = random_camera(75, 53, seed)
        bound = VisibilityBound(trial.table, trial.adam, trial.next_step, CONSTANTS[constants], 1)
        flagged = bound([camera]).any
        margins = expected_margins(trial, camera, CONSTANTS[constants]).min(1).values
        assert not (flagged & (margins < -1e-3)).any()
        assert not (~flagged & (margins >= 0)).any()
        assert 100 < int(flagged.sum()) < 980


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_views_subsets_and_threads_agree(threads: int) -> None:
    draw = Generator().manual_seed(2)
    trial = Trial.make(random_table(2500, 7), OptimizerKind.ADAM, 10, make_rates(), draw)
    cameras = [random_camera(75, 53, seed) for seed in range(3)]
    step, constants = trial.next_step, Constants()
    single = VisibilityBound(trial.table, trial.adam, step, constants, 1)
    bound = replace(single, threads=threads)
    found = bound(cameras)
    blind = replace(bound, moments=None)([*cameras, cameras[0]])
    assert blind.views[:3].sum() > found.views.sum()
    assert not (found.views & ~blind.views[:3]).any()
    assert torch.equal(blind.views[3], blind.views[0])
    assert torch.equal(found.views, torch.stack([single([camera]).any for camera in cameras]))
    assert torch.equal(found.any, found.views.any(0))
    for count in (0, 1, 17, 1500):
        rows = torch.randperm(2500, generator=draw)[:count].int()
        part = bound(cameras, rows)
        assert torch.equal(part.views, found.views[:, rows.long()])
        assert torch.equal(part.any, found.any[rows.long()])
    nothing = bound([])
    assert nothing.views.shape == (0, 2500) and not nothing.any.any()


def test_broken_numbers_are_flagged_and_broken_arguments_refused() -> None:
    trial = Trial.make(
        random_table(6, 1), OptimizerKind.ADAM, 2, make_rates(), Generator().manual_seed(0)
    )
    camera = random_camera(75, 53, 0)
    trial.table.field("means")[:] = torch.tensor([1e4, 0.0, 0.0])  # far outside
    trial.table.field("scales")[:] = -3.0
    bound = VisibilityBound(trial.table, trial.adam, trial.next_step, Constants(), 1)
    trial.adam.m[0, 1] = math.nan
    trial.adam.v[1, 4] = math.nan
    trial.adam.m[2, 0] = trial.adam.m[3, 3] = 1e30  # its square is no float32
    trial.table.values[4, 2] = math.nan
    assert bound([camera]).any.tolist() == [True] * 5 + [False]
    for rows in ([6], [-1]):
        with pytest.raises(ValueError, match="out of range"):
            bound([camera], torch.tensor(rows, dtype=torch.int32))


def test_assert_invisible() -> None:
    table, camera = random_table(400, 3), random_camera(75, 53, 3)
    renderer = CpuRenderer(Constants(), 1)
    seen = renderer.project(table, camera, 0).rows
    unseen = torch.ones(400, dtype=torch.bool)
    unseen[seen.long()] = False
    hidden = unseen.nonzero()[:, 0].int()
    assert_invisible(renderer, table, camera, hidden)
    assert_invisible(renderer, table, camera, hidden[:0])
    mixed = torch.cat([hidden[:5], seen[7:9]])
    with pytest.raises(AssertionError, match=r"2 of 7 rows are visible in random_3\.png") as error:
        assert_invisible(renderer, table, camera, mixed)
    assert str(int(table.ids[seen[7]])) in str(error.value)
