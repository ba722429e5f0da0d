"""The stages of a unit: what a step changes, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from grendel_odin.config import UserError
from grendel_odin.data.views import View
from grendel_odin.odin.execute import Executor
from grendel_odin.odin.graph import Stage
from grendel_odin.optim.adam import Adam
from grendel_odin.optim.schedule import Rates
from grendel_odin.optim.settings import OptimizerKind, OptimSettings
from grendel_odin.parallel.hybrid import Hybrid
from grendel_odin.parallel.world import ALONE
from grendel_odin.pipelines.densify import DensifySettings
from grendel_odin.pipelines.gs3d import GaussianSplatting
from grendel_odin.pipelines.state import Statistics, TrainingState
from grendel_odin.pipelines.window import Window
from grendel_odin.render import Constants
from grendel_odin.render.cpu import CpuRenderer
from grendel_odin.render.losses import PhotometricLoss
from grendel_odin.render.protocol import Rendering, SplatSums
from grendel_odin.train.step import Step
from grendel_odin.train.unit import Unit
from tests.scenes import random_camera, random_table

ROWS = 80


class Images:
    """Grey photographs."""

    def with_mask(self, view: View) -> tuple[Tensor, None]:
        size = (view.camera.height, view.camera.width)
        return torch.full((3, *size), 128, dtype=torch.uint8), None


class BrokenRenderer(CpuRenderer):
    """Loses its mind in the view with this width."""

    broken_width = 0

    def strip_sums(self, rendering: Rendering, grad_color: Tensor, tops: Tensor) -> SplatSums:
        made = super().strip_sums(rendering, grad_color, tops)
        if rendering.color.shape[2] == self.broken_width:
            made.values[0, 3] = torch.nan
        return made


def make_step(batch_size: int = 1, **densify: Any) -> Step:
    table = random_table(ROWS, seed=4)
    renderer = BrokenRenderer(Constants(), threads=1)
    return Step(
        state=TrainingState(table, Adam(ROWS, OptimizerKind.ADAM, 1), Statistics(ROWS)),
        renderer=renderer,
        sharing=Hybrid(ALONE, renderer),
        loss=PhotometricLoss(0.2, 1),
        images=Images(),  # type: ignore[arg-type]
        pipeline=GaussianSplatting(
            settings=DensifySettings(**densify),
            schedule_scale=1.0,
            sh_degree=3,
            sh_degree_interval=1000,
            max_primitives=0,
            extent=2.0,
            white_background=False,
            seed=0,
            threads=1,
        ),
        rates=Rates(OptimSettings(), batch_size, 2.0),
        background=torch.zeros(3),
        threads=1,
    )


def view(number: int) -> View:
    return View(random_camera(40 + number, 32, seed=number), Path(f"{number}.png"), number)


def unit(*views: int, start: int = 3000, refine: int = 0, reset: int = 0) -> Unit:
    window = Window(start, len(views))
    return Unit(0, window, [view(number) for number in views], refine, reset)


def take(step: Step, unit: Unit) -> None:
    Executor().run(step.tasks(unit))


def test_a_unit_runs_its_stages_in_order() -> None:
    stages = []
    for task in make_step().tasks(unit(0, 1)):
        stages.append(task.stage)
        task.run()
    assert stages == [
        *(Stage.EXTENT, Stage.PROJECT, Stage.PROJECT, Stage.EXCHANGE),
        *(Stage.RENDER, Stage.BACKWARD, Stage.RENDER, Stage.BACKWARD),
        *(Stage.RETURN, Stage.UPDATE, Stage.PUBLISH),
    ]


def test_an_ordinary_unit_moves_every_field_that_was_seen() -> None:
    step = make_step()
    before = step.state.table.values.clone()
    take(step, unit(0))
    moved = step.state.table.values != before
    for field in step.state.table.layout.fields:
        assert moved[:, field.columns].any()
    assert step.state.adam.steps == 1


def test_a_unit_that_densifies_counts_but_takes_no_step() -> None:
    step = make_step()
    before = step.state.table.values.clone()
    take(step, unit(0, refine=1))
    assert torch.equal(step.state.table.values, before)
    assert step.state.adam.steps == 0 and not step.state.adam.m.any()
    assert step.state.statistics.counts.any()


def test_step_on_densify_takes_it() -> None:
    step = make_step(step_on_densify=True)
    before = step.state.table.values.clone()
    take(step, unit(0, refine=1))
    assert not torch.equal(step.state.table.values, before)


def test_a_unit_that_only_resets_leaves_opacity_alone() -> None:
    step, other = make_step(), make_step()
    take(step, unit(0, reset=1))
    take(other, unit(0))
    changed = (step.state.table.values != other.state.table.values).any(0)
    assert changed.nonzero().flatten().tolist() == [10]
    assert torch.equal(step.state.table.values[:, 10], random_table(ROWS, seed=4).values[:, 10])


def test_a_batch_counts_each_view_at_full_magnitude() -> None:
    step, alone = make_step(batch_size=2), make_step()
    take(step, unit(0, 1, refine=1))
    take(alone, unit(0, refine=1))
    take(alone, unit(1, refine=1))
    for name in ("norms", "counts"):
        assert torch.equal(
            getattr(step.state.statistics, name), getattr(alone.state.statistics, name)
        )


def test_statistics_end_with_densification() -> None:
    step = make_step()
    take(step, unit(0, start=15000))
    assert not step.state.statistics.counts.any()


@pytest.mark.parametrize("refine", [0, 1])
def test_a_broken_gradient_names_its_view_and_changes_nothing(refine: int) -> None:
    step = make_step(batch_size=2)
    step.renderer.broken_width = 41  # type: ignore[attr-defined]
    before = step.state.table.values.clone()
    with pytest.raises(UserError, match=r"view random_1.png: the gradient of .* is not finite"):
        take(step, unit(0, 1, refine=refine))
    assert torch.equal(step.state.table.values, before)
    assert not step.state.statistics.counts.any()


def test_a_broken_parameter_names_its_field() -> None:
    step = make_step()
    row = int(step.state.table.ids[7])
    step.state.table.values[7, 4] = torch.inf
    with pytest.raises(UserError, match=f"scales of primitive {row} is not finite"):
        take(step, unit(0))
