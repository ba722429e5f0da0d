"""Stops a run at the first number that is not finite, before it reaches another parameter."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from grendel_odin import _kernels
from grendel_odin.model.table import BLOCK_WIDTH, ROW_WIDTH, PrimitiveTable
from grendel_odin.render.protocol import RowGradients

if TYPE_CHECKING:
    from grendel_odin.train.step import Step
    from grendel_odin.train.unit import Unit


def check_unit(step: Step, unit: Unit, gradients: RowGradients) -> None:
    """Check what the unit has read and made: parameters, losses, gradients.

    Raises UserError that names view and field where something is not finite.
    """
    blocks, threads = gradients.blocks, step.threads
    fine = (
        all(math.isfinite(loss.value) for loss in unit.losses)
        and first_bad(gradients.values, blocks, threads) is None
        and (step.parameters_finite or first_bad(step.state.table.values, blocks, threads) is None)
    )
    if step.sharing.world.sum_counts(int(not fine)) == [0]:
        return
    finding = step.sharing.world.first_text("" if fine else _finding(step, unit, blocks))
    finding = finding or f"the sum of the gradients of {unit.names} is not finite"
    raise step.sharing.world.agreed(
        f"iteration {unit.window.start}: {finding}: training stops before "
        "this step. Lower the learning rates, or look at that view's image and camera"
    )


def first_bad(values: Tensor, blocks: int, threads: int) -> tuple[int, int] | None:
    """Row and column of the first number of values [n, 64] that is not finite."""
    at: int = _kernels.first_nonfinite(values, BLOCK_WIDTH * blocks, threads)
    return None if at < 0 else divmod(at, ROW_WIDTH)


def _finding(step: Step, unit: Unit, blocks: int) -> str:
    """What is wrong here: the parameters explain the gradients, not the other way round."""
    table = step.state.table
    if (bad := first_bad(table.values, blocks, step.threads)) is not None:
        since = step.last_step or "the start"
        return f"{_place(table, *bad)} is not finite since {since}"
    for number, splats in unit.splats.items():
        view, loss, rows = unit.views[number], unit.losses[number], splats.rows
        alone = RowGradients(rows, torch.zeros(len(rows), ROW_WIDTH), blocks)
        step.fold(unit, number, alone)
        if (bad := first_bad(alone.values, blocks, step.threads)) is not None:
            where = _place(table, int(rows[bad[0]]), bad[1])
            return f"view {view.camera.name}: the gradient of {where} is not finite"
        if not math.isfinite(loss.value):
            return f"view {view.camera.name}: the loss is {loss.value}, not finite"
    return ""


def _place(table: PrimitiveTable, row: int, column: int) -> str:
    """The field of a column and the id of a row."""
    field = next(each for each in reversed(table.layout.fields) if each.start <= column)
    return f"{field.name} of primitive {int(table.ids[row])}"
