"""The stages of one unit, from the rows that it may read to the publication of its step.

Rows and pixels belong to one process here, so exchange and return hand data through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from grendel_odin.data.images import ImageStore
from grendel_odin.data.views import View
from grendel_odin.model.table import ROW_WIDTH, active_blocks
from grendel_odin.odin.graph import Stage, Task
from grendel_odin.optim.schedule import Rates
from grendel_odin.pipelines.densify import OPACITY
from grendel_odin.pipelines.gs3d import GaussianSplatting
from grendel_odin.pipelines.state import TrainingState
from grendel_odin.pipelines.window import Window
from grendel_odin.render.losses import LossResult, PhotometricLoss
from grendel_odin.render.protocol import (
    Rect,
    Renderer,
    Rendering,
    RowGradients,
    Splats,
    active_rows,
)
from grendel_odin.train.finite import check_unit


@dataclass(slots=True)
class Unit:
    """The views of one optimizer step, and what its stages hand to one another."""

    index: int
    window: Window
    views: list[View]
    refine_marks: int
    """Densifications that fall into the unit: done once, after it."""
    reset_marks: int
    sh_degree: int = 0
    truths: list[Tensor] = field(default_factory=list)
    splats: list[Splats] = field(default_factory=list)
    renderings: list[Rendering] = field(default_factory=list)
    losses: list[LossResult] = field(default_factory=list)
    splat_gradients: list[Tensor] = field(default_factory=list)
    gradients: RowGradients | None = None

    @property
    def names(self) -> str:
        """Its views, for messages."""
        word = "view" if len(self.views) == 1 else "views"
        return f"{word} {', '.join(view.camera.name for view in self.views)}"

    @property
    def loss(self) -> float:
        """Mean loss of a view."""
        return sum(loss.value for loss in self.losses) / len(self.losses)


@dataclass(slots=True)
class Step:
    """Makes the tasks of units; they share one state."""

    state: TrainingState
    renderer: Renderer
    loss: PhotometricLoss
    images: ImageStore
    pipeline: GaussianSplatting
    rates: Rates
    background: Tensor
    threads: int
    last_step: str = ""
    """Iteration and views of the latest optimizer step."""
    parameters_finite: bool = False
    """Whether the table is known to be finite; the optimizer's kernel says so of what it writes."""
    _rows: Tensor = field(default_factory=lambda: torch.empty(0, ROW_WIDTH))

    def tasks(self, unit: Unit) -> list[Task]:
        """The unit's tasks in an order in which they may run."""

        def task(stage: Stage, run: Callable[[Unit], None]) -> Task:
            return Task(stage, unit.index, partial(run, unit))

        def each_view(*stages: tuple[Stage, Callable[[Unit, int], None]]) -> list[Task]:
            return [
                Task(stage, unit.index, partial(run, unit, number))
                for number in range(len(unit.views))
                for stage, run in stages
            ]

        return [
            task(Stage.EXTENT, self.extent),
            *each_view((Stage.PROJECT, self.project)),
            task(Stage.EXCHANGE, self.exchange),
            *each_view((Stage.RENDER, self.render), (Stage.BACKWARD, self.backward)),
            task(Stage.RETURN, self.return_home),
            task(Stage.UPDATE, self.update),
            task(Stage.PUBLISH, self.publish),
        ]

    def extent(self, unit: Unit) -> None:
        """What the unit reads: all rows up to its SH degree, and its images."""
        unit.sh_degree = self.pipeline.live_sh_degree(unit.window)
        unit.truths = [self.images.get(view) for view in unit.views]

    def project(self, unit: Unit, number: int) -> None:
        """Rows to the splats of one view."""
        camera = unit.views[number].camera
        unit.splats.append(self.renderer.project(self.state.table, camera, unit.sh_degree))

    def exchange(self, unit: Unit) -> None:
        """All pixels are here, and so are their splats."""

    def render(self, unit: Unit, number: int) -> None:
        """Splats to the pixels of one view, and its loss."""
        camera = unit.views[number].camera
        rect = Rect.full(camera)
        rendering = self.renderer.render(unit.splats[number], camera, rect, self.background)
        unit.renderings.append(rendering)
        unit.losses.append(self.loss.loss(rendering.color, unit.truths[number]))

    def backward(self, unit: Unit, number: int) -> None:
        """The loss of one view to the gradients of its splats."""
        grad = unit.losses[number].grad
        unit.splat_gradients.append(self.renderer.render_backward(unit.renderings[number], grad))

    def return_home(self, unit: Unit) -> None:
        """Gradients of splats are where their rows are: fold them, view by view."""
        rows = active_rows(unit.splats, len(self.state.table))
        gradients = self._no_gradients(rows, active_blocks(unit.sh_degree))
        for number in range(len(unit.views)):
            self.fold(unit, number, gradients)
        unit.gradients = gradients

    def fold(self, unit: Unit, number: int, into: RowGradients) -> None:
        """Add the gradient of one view to that of rows."""
        self.renderer.project_backward(
            self.state.table,
            unit.views[number].camera,
            unit.sh_degree,
            unit.splats[number],
            unit.splat_gradients[number],
            into,
        )

    def _no_gradients(self, rows: Tensor, blocks: int) -> RowGradients:
        """Empty ones, in memory that is kept from unit to unit: fresh pages are slow."""
        if len(rows) > len(self._rows):
            self._rows = torch.empty(len(rows) + len(rows) // 4, ROW_WIDTH)
        return RowGradients(rows, self._rows[: len(rows)], blocks, empty=True)

    def update(self, unit: Unit) -> None:
        """Statistics and the optimizer's step; neither if a number is not finite.

        A unit that densifies takes no step, and one that only resets opacity leaves opacity
        alone, as in 3DGS, unless `densify.step_on_densify`.
        """
        gradients = unit.gradients
        assert gradients is not None
        check_unit(self, unit, gradients)
        if self.pipeline.collects(unit.window):
            for view, splats, splat_gradients in zip(
                unit.views, unit.splats, unit.splat_gradients, strict=True
            ):
                self.state.statistics.add(splats, splat_gradients, view.camera, self.threads)
        steps = self.pipeline.settings.step_on_densify
        if unit.refine_marks and not steps:
            return
        opacities = self.state.table.values[:, OPACITY]
        before = opacities.clone() if unit.reset_marks and not steps else None
        self.parameters_finite = self.state.adam.step(
            self.state.table,
            gradients,
            self.rates.columns(unit.window.start),
            self.rates.betas,
            self.rates.eps,
            self.rates.gradient_scale,
        )
        if before is not None:
            opacities.copy_(before)
        self.last_step = f"iteration {unit.window.start}, {unit.names}"

    def publish(self, unit: Unit) -> None:
        """The step was taken in place, and nobody else reads: publication is immediate."""
