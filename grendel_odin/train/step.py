"""The stages of one unit, from the rows that it may read to the publication of its step.

Rows and pixels are spread over the ranks of a run; in one process exchange and return hand data
through.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from grendel_odin.data.images import ImageStore
from grendel_odin.model.table import ROW_WIDTH, active_blocks
from grendel_odin.odin.graph import Stage, Task
from grendel_odin.optim.schedule import Rates
from grendel_odin.parallel.balance import CountedCosts
from grendel_odin.parallel.sharing import Share, Sharing, first_rows, halo_splats
from grendel_odin.pipelines.densify import OPACITY
from grendel_odin.pipelines.gs3d import GaussianSplatting
from grendel_odin.pipelines.state import Statistics, TrainingState
from grendel_odin.render.losses import PhotometricLoss
from grendel_odin.render.protocol import (
    Renderer,
    Rendering,
    RowGradients,
    Splats,
    tile_rows,
)
from grendel_odin.train.finite import check_unit
from grendel_odin.train.unit import Unit


@dataclass(slots=True)
class Step:
    """Makes the tasks of units; they share one state."""

    state: TrainingState
    renderer: Renderer
    loss: PhotometricLoss
    images: ImageStore
    pipeline: GaussianSplatting
    sharing: Sharing
    rates: Rates
    background: Tensor
    threads: int
    last_step: str = ""
    """Iteration and views of the latest optimizer step."""
    parameters_finite: bool = False
    """Whether the table is known to be finite; the optimizer's kernel says so of what it writes."""
    costs: CountedCosts = field(default_factory=CountedCosts)
    _rows: Tensor = field(default_factory=lambda: torch.empty(0, ROW_WIDTH))

    def use_threads(self, threads: int) -> None:
        """From now on; results do not depend on it."""
        self.threads = self.renderer.threads = threads
        self.loss.threads = self.state.adam.threads = threads
        torch.set_num_threads(threads)

    def tasks(self, unit: Unit) -> Iterator[Task]:
        """The unit's tasks in an order in which they may run; later ones depend on earlier ones."""

        def task(stage: Stage, run: Callable[[Unit], None]) -> Task:
            return Task(stage, unit.index, partial(run, unit))

        def part(stage: Stage, run: Callable[[Unit, int], None], number: int) -> Task:
            return Task(stage, unit.index, partial(run, unit, number))

        yield task(Stage.EXTENT, self.extent)
        for view in self.sharing.views_here():
            yield part(Stage.PROJECT, self.project, view)
        yield task(Stage.EXCHANGE, self.exchange)
        for number in range(len(unit.shares)):
            yield part(Stage.RENDER, self.render, number)
            yield part(Stage.BACKWARD, self.backward, number)
        yield task(Stage.RETURN, self.return_home)
        yield task(Stage.UPDATE, self.update)
        yield task(Stage.PUBLISH, self.publish)

    def extent(self, unit: Unit) -> None:
        """What the unit reads, all rows up to its SH degree, and who renders what."""
        self.sharing.plan([self.costs.of(view) for view in unit.views])
        unit.sh_degree = self.pipeline.live_sh_degree(unit.window)

    def project(self, unit: Unit, number: int) -> None:
        """Own rows to the splats of one view."""
        camera = unit.views[number].camera
        unit.splats[number] = self.renderer.project(self.state.table, camera, unit.sh_degree)

    def exchange(self, unit: Unit) -> None:
        """Splats travel to the strips that they may touch."""
        cameras = [view.camera for view in unit.views]
        unit.shares = self.sharing.send(cameras, unit.splats)

    def render(self, unit: Unit, number: int) -> None:
        """The pixels of one strip with its halo, and its loss."""
        start, share = time.perf_counter(), unit.shares[number]
        rows, around = share.rows, share.rows_with_halo
        above, below = range(around.start, rows.start), range(rows.stop, around.stop)
        rendering = self._rendering(share, share.splats, rows)
        unit.renderings.append(rendering)
        colors = [*self._halo(share, above), rendering.color, *self._halo(share, below)]
        color = torch.cat(colors, 1) if len(colors) > 1 else rendering.color
        image, mask = self.images.with_mask(unit.views[share.strip.view])
        strip = self.loss.strip(
            color,
            image[:, around.start : around.stop].contiguous(),
            around.start,
            rows,
            share.camera.height,
            None if mask is None else mask[around.start : around.stop],
        )
        unit.strip_losses.append(strip)
        unit.strip_seconds.append(time.perf_counter() - start)

    def _rendering(self, share: Share, splats: Splats, rows: range) -> Rendering:
        return self.renderer.render(splats, share.camera, share.rect(rows), self.background)

    def _halo(self, share: Share, rows: range) -> list[Tensor]:
        """The colours of rows that only the loss reads; none if there are no such rows."""
        if not rows:
            return []
        return [self._rendering(share, halo_splats(self.renderer, share, rows), rows).color]

    def backward(self, unit: Unit, number: int) -> None:
        """The loss of one strip to what it adds to the gradients of its splats."""
        start = time.perf_counter()
        share, grad = unit.shares[number], unit.strip_losses[number].grad
        tops = first_rows(self.renderer, share)
        unit.sums.append(self.renderer.strip_sums(unit.renderings[number], grad, tops))
        unit.strip_seconds[number] += time.perf_counter() - start

    def return_home(self, unit: Unit) -> None:
        """Sums travel to the owners of their splats, who fold them into rows, view by view."""
        self._report(unit)
        unit.splat_gradients = self.sharing.take_back(unit.shares, unit.sums)
        unit.gradients = self.sharing.row_gradients(
            {view: splats.rows for view, splats in unit.splats.items()},
            partial(self.fold, unit),
            partial(self._no_gradients, active_blocks(unit.sh_degree)),
            len(self.state.table),
        )

    def _report(self, unit: Unit) -> None:
        """All ranks learn the losses of the views and what their tile rows cost."""
        sums = [torch.zeros(v.camera.height, 2, dtype=torch.float64) for v in unit.views]
        costs = [
            torch.zeros(tile_rows(view.camera.height), dtype=torch.float64) for view in unit.views
        ]
        for share, rendering, strip, seconds in zip(
            unit.shares, unit.renderings, unit.strip_losses, unit.strip_seconds, strict=True
        ):
            number, rows = share.strip.view, share.rows
            sums[number][rows.start : rows.stop] = strip.row_sums
            cost = self.costs.measure(self.renderer.tile_row_costs(rendering), seconds)
            costs[number][share.strip.first : share.strip.last] = cost.double()
        stops = torch.zeros(self.sharing.world.size, dtype=torch.float64)
        stops[self.sharing.world.rank] = float(unit.stop)
        told = (*sums, *costs, stops)
        joined = self.sharing.world.sum_disjoint(torch.cat([part.flatten() for part in told]))
        *parts, stops = torch.split(joined, [part.numel() for part in told])
        unit.stop = bool(stops.any())
        for view, row_sums in zip(unit.views, parts, strict=False):
            unit.losses.append(self.loss.combine(row_sums.view(-1, 2), view.camera.width))
        self.costs.learn(unit.views, [part.long() for part in parts[len(unit.views) :]])

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

    def _no_gradients(self, blocks: int, rows: Tensor) -> RowGradients:
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
            for number, splats in unit.splats.items():
                camera, gradients_2d = unit.views[number].camera, unit.splat_gradients[number]
                self.state.statistics.add(splats, gradients_2d, camera, self.threads)
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

    def statistics(self) -> Statistics:
        """Of all views, wherever they were dealt with; every rank calls it."""
        own, made = self.state.statistics, Statistics(0)
        made.norms, made.counts = self.sharing.total(own.norms), self.sharing.total(own.counts)
        return made

    def publish(self, unit: Unit) -> None:
        """The step was taken in place, and nobody else reads: publication is immediate."""
