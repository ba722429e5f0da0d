"""Replicated (data-parallel) mode: every rank keeps all rows and renders whole views.

Only gradients travel. Each view's gradient of its visible rows goes, cut into chunks, to the rank
that folds the chunk in the order of views; the folded chunks go to everyone. So all replicas take
the same step, which has the bits of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from grendel_odin import _kernels
from grendel_odin.data.cameras import Camera
from grendel_odin.model.state_hash import lanes, state_sum
from grendel_odin.model.table import BLOCK_WIDTH, ROW_WIDTH, PrimitiveTable
from grendel_odin.parallel.modes import Reduce
from grendel_odin.parallel.sharing import Fold, Share, union
from grendel_odin.parallel.strips import Strip, whole_views
from grendel_odin.parallel.world import World
from grendel_odin.render.protocol import Renderer, RowGradients, Splats, SplatSums, tile_rows


class Replicated:
    """`Sharing` in which every rank keeps every row."""

    def __init__(self, world: World, renderer: Renderer, reduce: Reduce) -> None:
        self.world, self.owners = world, World(twin=not world.is_main)
        self.renderer, self.reduce = renderer, reduce
        self._strips: list[Strip] = []

    def plan(self, costs: Sequence[Tensor]) -> None:
        """Whole views to ranks, the costliest first, each to the rank with the least to do."""
        loads, ranks = [0] * self.world.size, [0] * len(costs)
        totals = [int(cost.sum()) for cost in costs]
        for view in sorted(range(len(costs)), key=lambda view: -totals[view]):
            ranks[view] = loads.index(min(loads))
            loads[ranks[view]] += totals[view]
        self._strips = [
            Strip(view, 0, len(cost), rank)
            for view, (cost, rank) in enumerate(zip(costs, ranks, strict=True))
        ]

    def plan_whole_views(self, cameras: Sequence[Camera]) -> None:
        """See Sharing.plan_whole_views."""
        self._strips = whole_views([tile_rows(camera.height) for camera in cameras])

    def views_here(self) -> Sequence[int]:
        """Those that this rank renders."""
        return self._of(self.world.rank)

    def send(self, cameras: Sequence[Camera], splats: Mapping[int, Splats]) -> list[Share]:
        """See Sharing.send; all splats of a view are here."""
        return [
            Share(self._strips[view], cameras[view], splats[view], [len(splats[view])])
            for view in self.views_here()
        ]

    def take_back(self, shares: Sequence[Share], sums: Sequence[SplatSums]) -> dict[int, Tensor]:
        """See Sharing.take_back."""
        gradients = {}
        for share, each in zip(shares, sums, strict=True):
            everything = torch.arange(len(share.splats), dtype=torch.int32)
            made = self.renderer.gather_sums(share.splats, [(everything, each)])
            gradients[share.strip.view] = made
        return gradients

    def row_gradients(
        self,
        active: Mapping[int, Tensor],
        fold: Fold,
        blank: Callable[[Tensor], RowGradients],
        kept: int,
    ) -> RowGradients:
        """See Sharing.row_gradients: chunks go to those who fold them, and from there to all."""
        rows = self._rows_by_view(active, kept)
        everywhere = union(rows, kept)
        gradients = blank(everywhere)
        own = {}
        for view in self.views_here():
            values = torch.empty(len(rows[view]), ROW_WIDTH)
            own[view] = RowGradients(rows[view], values, gradients.blocks, empty=True)
            fold(view, own[view])
        size, width = self.world.size, BLOCK_WIDTH * gradients.blocks
        bounds = [len(everywhere) * rank // size for rank in range(size + 1)]
        chunk = self._fold_chunk(rows, everywhere, bounds, own, width)
        sizes = [width * (stop - start) for start, stop in pairwise(bounds)]
        pieces = self.world.swap([chunk] * size, sizes, "gradients")
        for piece, (start, stop) in zip(pieces, pairwise(bounds), strict=True):
            gradients.values[start:stop, :width] = piece.view(-1, width)
        gradients.empty = False
        return gradients

    def total(self, rows: Tensor) -> Tensor:
        """See Sharing.total."""
        return torch.stack(self.world.gather_rows(rows)).sum(0, dtype=rows.dtype)

    def check(self, table: PrimitiveTable) -> None:
        """See Sharing.check."""
        of_ranks = self.world.gather_integers(torch.tensor(lanes(state_sum(table))))
        differ = (of_ranks != of_ranks[0]).any(1).nonzero().flatten().tolist()
        if differ:
            raise self.world.agreed(
                f"the models of ranks {', '.join(map(str, differ))} differ from that of rank 0, "
                "though all took the same steps: memory or a processor may be at fault. Next: "
                "train again, from a checkpoint if there is one, on other machines"
            )

    def _of(self, rank: int) -> list[int]:
        """Views that a rank renders."""
        return [strip.view for strip in self._strips if strip.rank == rank]

    def _rows_by_view(self, active: Mapping[int, Tensor], kept: int) -> list[Tensor]:
        """Rows whose gradients travel, ascending, by view; alike on all ranks."""
        views = len(self._strips)
        if self.reduce is Reduce.DENSE:
            return [torch.arange(kept, dtype=torch.int32)] * views
        lengths = torch.zeros(views, dtype=torch.int64)
        for view, rows in active.items():
            lengths[view] = len(rows)
        self.world.sum_disjoint(lengths)
        own = torch.cat([torch.empty(0, dtype=torch.int32), *active.values()])
        numbers = [self._of(rank) for rank in range(self.world.size)]
        sizes = [int(lengths[each].sum()) for each in numbers]
        flats = self.world.swap([own] * self.world.size, sizes, "active rows")
        found: dict[int, Tensor] = {}
        for each, flat in zip(numbers, flats, strict=True):
            found.update(zip(each, torch.split(flat, lengths[each].tolist()), strict=True))
        return [found[view] for view in range(views)]

    def _fold_chunk(
        self,
        rows: Sequence[Tensor],
        everywhere: Tensor,
        bounds: Sequence[int],
        own: Mapping[int, RowGradients],
        width: int,
    ) -> Tensor:
        """This rank's chunk [bounds[rank], bounds[rank + 1]) of all rows, folded by view; flat."""
        ranks, me = range(self.world.size), self.world.rank
        ends = torch.cat([everywhere, everywhere.new_tensor([torch.iinfo(torch.int32).max])])
        cuts = [torch.searchsorted(each, ends[list(bounds)]).tolist() for each in rows]
        outgoing = [
            _flat([each.values[cuts[v][r] : cuts[v][r + 1], :width] for v, each in own.items()])
            for r in ranks
        ]
        lengths = [width * (cut[me + 1] - cut[me]) for cut in cuts]
        sizes = [sum(lengths[view] for view in self._of(rank)) for rank in ranks]
        came: dict[int, Tensor] = {}
        for rank, flat in enumerate(self.world.swap(outgoing, sizes, "gradients")):
            views = self._of(rank)
            parts = torch.split(flat, [lengths[view] for view in views])
            came.update(zip(views, parts, strict=True))
        mine = everywhere[bounds[me] : bounds[me + 1]]
        folded = torch.zeros(len(mine), width)
        for view, each in enumerate(rows):
            some = each[cuts[view][me] : cuts[view][me + 1]]
            _kernels.add_rows(mine, folded, some, came[view].view(-1, width))
        return folded.view(-1)


def _flat(parts: list[Tensor]) -> Tensor:
    return torch.cat([torch.empty(0), *(part.flatten() for part in parts)])
