"""What training changes: the table, the optimizer's moments, the statistics, row by row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from grendel_odin import _kernels
from grendel_odin.config import UserError
from grendel_odin.data.cameras import Camera
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.optim.adam import Adam
from grendel_odin.parallel.reshard import reshard, row_bytes
from grendel_odin.parallel.world import World
from grendel_odin.render.protocol import Splats

UNIT = 2.0**-40
"""Of the sums of norms."""


class Statistics:
    """What densification knows about each row since the last event.

    All integers: sums over views do not depend on the order of the views, nor on who adds them.
    """

    norms: Tensor
    """[N] int64: sum over views of the norm of the 2D mean's gradient, in NDC units x UNIT."""
    counts: Tensor
    """[N] int32: views in which the row was visible."""

    def __init__(self, rows: int) -> None:
        self.reset(rows)

    def reset(self, rows: int) -> None:
        """Forget everything; from now on there are `rows` rows."""
        self.norms = torch.zeros(rows, dtype=torch.int64)
        self.counts = torch.zeros(rows, dtype=torch.int32)

    def add(self, splats: Splats, gradients: Tensor, camera: Camera, threads: int) -> None:
        """Add one view: gradients [M, 10] of its splats, from the loss of this view alone."""
        _kernels.accumulate_statistics(
            *(splats.rows, gradients, camera.width, camera.height),
            *(UNIT, self.norms, self.counts, threads),
        )

    def mean_norms(self) -> Tensor:
        """[N] float64: mean norm over the views that saw a row; 0 if there was none."""
        return self.norms.double() * UNIT / self.counts.clamp(min=1)


@dataclass(slots=True)
class TrainingState:
    """Everything that has a row for each primitive; the rows correspond."""

    table: PrimitiveTable
    adam: Adam
    statistics: Statistics

    def rebuild(self, keep: Tensor, values: Tensor, ids: Tensor) -> None:
        """Keep the rows `keep` [n] and append new ones, which start with zero moments.

        Statistics begin anew. Raises UserError if two primitives would have the same id.
        """
        all_ids = _rebuilt(self.table.ids, keep, ids)
        if torch.unique(all_ids).numel() != all_ids.numel():
            raise UserError(
                "densification gave two primitives the same 64-bit id; "
                "run again with another `seed`"
            )
        zeros = torch.zeros(1, 1).expand_as(values)
        self.table.values = _rebuilt(self.table.values, keep, values)
        self.table.ids = all_ids
        self.adam.m = _rebuilt(self.adam.m, keep, zeros)
        self.adam.v = _rebuilt(self.adam.v, keep, zeros)
        self.statistics.reset(len(self.table))

    def reshard(self, world: World, owners: Tensor) -> int:
        """Move rows, with all that belongs to them, to their owners [N]; gives bytes of a row.

        Every rank calls it.
        """
        table, adam, statistics = self.table, self.adam, self.statistics
        rows = [table.values, table.ids, adam.m, adam.v, statistics.norms, statistics.counts]
        moved = reshard(world, rows, owners)
        table.values, table.ids, adam.m, adam.v, statistics.norms, statistics.counts = moved
        return row_bytes(rows)


def _rebuilt(rows: Tensor, keep: Tensor, new: Tensor) -> Tensor:
    """rows[keep] and then new, each copied once."""
    made = rows.new_empty(len(keep) + len(new), *rows.shape[1:])
    torch.index_select(rows, 0, keep, out=made[: len(keep)])
    made[len(keep) :] = new
    return made
