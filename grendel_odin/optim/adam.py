"""Adam over the primitive table, in its dense and its selective form."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from grendel_odin import _kernels
from grendel_odin.model.table import ROW_WIDTH, PrimitiveTable
from grendel_odin.optim.settings import OptimizerKind


class PackedGradients(Protocol):
    """Gradients of the rows that a unit writes (`render.protocol.RowGradients`)."""

    rows: Tensor
    values: Tensor
    blocks: int


class Adam:
    """Moments of a table and the step that uses them.

    `adam` is torch.optim.Adam: a row that the unit did not write has gradient 0, and the bias of
    the moments is corrected by a step count that all rows share. `selective_adam` leaves such rows
    alone, moments included, and corrects no bias (Mallick et al. 2024; gsplat).
    """

    m: Tensor
    """[N, 64] first moments."""
    v: Tensor
    """[N, 64] second moments."""
    steps: int
    """Steps taken, also by rows that came later."""

    def __init__(
        self, rows: int, kind: OptimizerKind = OptimizerKind.ADAM, threads: int = 1
    ) -> None:
        self.m = torch.zeros(rows, ROW_WIDTH)
        self.v = torch.zeros(rows, ROW_WIDTH)
        self.steps = 0
        self.kind = kind
        self.threads = threads

    def step(
        self,
        table: PrimitiveTable,
        gradients: PackedGradients,
        rates: Tensor,
        betas: tuple[float, float],
        eps: float,
        gradient_scale: float,
    ) -> bool:
        """Move the table by one step; whether it is finite. `rates` [64] as from `Rates.columns`.

        Columns of blocks >= gradients.blocks are not touched: gradient and moments are 0 there.
        """
        self.steps += 1
        dense = self.kind is OptimizerKind.ADAM
        correction1, correction2 = (1.0 - b**self.steps if dense else 1.0 for b in betas)
        return _kernels.adam_step(
            values=table.values,
            m=self.m,
            v=self.v,
            gradients=gradients.values,
            rows=gradients.rows,
            rates=rates,
            beta1=betas[0],
            beta2=betas[1],
            eps=eps,
            correction1=correction1,
            correction2=correction2,
            gradient_scale=gradient_scale,
            blocks=gradients.blocks,
            dense=dense,
            threads=self.threads,
        )
