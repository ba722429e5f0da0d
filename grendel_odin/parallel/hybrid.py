"""Hybrid (model-parallel) exchange: rows are spread over ranks, pixels are cut into strips.

Splats travel only to the ranks whose strips they may touch, and the sums of their gradients travel
back (Zhao et al. 2024, section 4). Results have the bits of one process: strips are whole tile
rows, each is rendered with a forward-only halo of 10 pixel rows for the loss, and sums are folded
in the order of the view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from grendel_odin.data.cameras import Camera
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.parallel import parcel
from grendel_odin.parallel.assign import assign
from grendel_odin.parallel.sharing import Fold, Share, pixel_rows, union
from grendel_odin.parallel.strips import Strip, cut, whole_views
from grendel_odin.parallel.world import World
from grendel_odin.render.losses import HALO
from grendel_odin.render.protocol import (
    SPLAT_WIDTH,
    Renderer,
    RowGradients,
    Splats,
    SplatSums,
    tile_rows,
)


class Hybrid:
    """`Sharing` in which every rank keeps the rows that it owns, and no others."""

    def __init__(self, world: World, renderer: Renderer) -> None:
        self.world = self.owners = world
        self.renderer = renderer
        self._strips: list[Strip] = []
        self._views = 0
        self._fixed = False
        self._splats: Mapping[int, Splats] = {}
        self._sent: list[Tensor] = []

    def plan(self, costs: Sequence[Tensor]) -> None:
        """Cut the unit into one share for each rank; who gets which is seen when splats are."""
        self._strips = cut([cost.numpy() for cost in costs], self.world.size)
        self._views, self._fixed = len(costs), False

    def plan_whole_views(self, cameras: Sequence[Camera]) -> None:
        """See Sharing.plan_whole_views."""
        self._strips = whole_views([tile_rows(camera.height) for camera in cameras])
        self._views, self._fixed = len(cameras), True

    def views_here(self) -> Sequence[int]:
        """All of the unit."""
        return range(self._views)

    def send(self, cameras: Sequence[Camera], splats: Mapping[int, Splats]) -> list[Share]:
        """See Sharing.send."""
        self._splats = splats
        if self.world.size == 1:
            self._sent = [_everything(splats[strip.view]) for strip in self._strips]
            return [
                Share(strip, cameras[strip.view], splats[strip.view], [len(splats[strip.view])])
                for strip in self._strips
            ]
        ranges = {view: self.renderer.row_ranges(each) for view, each in splats.items()}
        self._sent = [
            parcel.touching(ranges[strip.view], pixel_rows(strip, cameras[strip.view], HALO))
            for strip in self._strips
        ]
        counts = self.world.gather_integers(torch.tensor([len(sent) for sent in self._sent]))
        if not self._fixed:
            self._give_out(counts)
        outgoing = [self._pack(rank) for rank in range(self.world.size)]
        own = self._own()
        lengths: list[list[int]] = counts[:, own].tolist()
        sizes = [parcel.WIDTH * sum(each) for each in lengths]
        incoming = self.world.swap(outgoing, sizes, "exchange")
        parcels = [
            torch.split(flat, [parcel.WIDTH * n for n in each])
            for flat, each in zip(incoming, lengths, strict=True)
        ]
        return [
            Share(
                self._strips[number],
                cameras[self._strips[number].view],
                parcel.unpack([each[place] for each in parcels]),
                [each[place] for each in lengths],
            )
            for place, number in enumerate(own)
        ]

    def take_back(self, shares: Sequence[Share], sums: Sequence[SplatSums]) -> dict[int, Tensor]:
        """See Sharing.take_back."""
        returned = list(sums) if self.world.size == 1 else self._return(shares, sums)
        gradients = {}
        for view, splats in self._splats.items():
            strips = [
                (self._sent[number], returned[number])
                for number, strip in enumerate(self._strips)
                if strip.view == view
            ]
            gradients[view] = self.renderer.gather_sums(splats, strips)
        return gradients

    def row_gradients(
        self,
        active: Mapping[int, Tensor],
        fold: Fold,
        blank: Callable[[Tensor], RowGradients],
        kept: int,
    ) -> RowGradients:
        """See Sharing.row_gradients: all is here already."""
        gradients = blank(union(list(active.values()), kept))
        for view in active:
            fold(view, gradients)
        return gradients

    def total(self, rows: Tensor) -> Tensor:
        """See Sharing.total: every view was gathered by the owner of its rows."""
        return rows

    def check(self, table: PrimitiveTable) -> None:
        """See Sharing.check: no row is kept twice."""

    def _give_out(self, counts: Tensor) -> None:
        """Shares to the ranks that hold most of their splats; counts [R, S] by rank and strip."""
        places = torch.tensor([strip.rank for strip in self._strips])
        local = counts.new_zeros(self.world.size, int(places.max()) + 1)
        ranks = assign(local.index_add_(1, places, counts))
        self._strips = [replace(strip, rank=ranks[strip.rank]) for strip in self._strips]

    def _own(self) -> list[int]:
        return self._of(self.world.rank)

    def _of(self, rank: int) -> list[int]:
        """Numbers of a rank's strips."""
        return [number for number, strip in enumerate(self._strips) if strip.rank == rank]

    def _pack(self, rank: int) -> Tensor:
        """What a rank's strips get from here, strip after strip."""
        numbers = self._of(rank)
        lengths = [parcel.WIDTH * len(self._sent[number]) for number in numbers]
        flat = torch.empty(sum(lengths))
        for number, part in zip(numbers, torch.split(flat, lengths), strict=True):
            splats = self._splats[self._strips[number].view]
            parcel.pack(splats, self._sent[number], part)
        return flat

    def _return(self, shares: Sequence[Share], sums: Sequence[SplatSums]) -> list[SplatSums]:
        """Sums of own strips to the owners of their splats; gives those of own splats by strip."""
        ranks, mine = range(self.world.size), [len(sent) for sent in self._sent]
        parts = [
            torch.split(each.counts, share.counts) for share, each in zip(shares, sums, strict=True)
        ]
        outgoing = [_cat([each[rank] for each in parts], torch.int16) for rank in ranks]
        lengths = [[mine[number] for number in self._of(rank)] for rank in ranks]
        numbers = self.world.swap(outgoing, [sum(each) for each in lengths], "return")

        values = [
            torch.split(each.values.view(-1), [SPLAT_WIDTH * int(n.sum()) for n in part])
            for part, each in zip(parts, sums, strict=True)
        ]
        totals = [SPLAT_WIDTH * int(each.sum()) for each in numbers]
        outgoing = [_cat([each[rank] for each in values], torch.float32) for rank in ranks]
        rows = self.world.swap(outgoing, totals, "return")

        returned: dict[int, SplatSums] = {}
        for rank in ranks:
            counts = [part.int() for part in torch.split(numbers[rank], lengths[rank])]
            widths = [SPLAT_WIDTH * int(part.sum()) for part in counts]
            flats = torch.split(rows[rank], widths)
            for number, count, flat in zip(self._of(rank), counts, flats, strict=True):
                returned[number] = SplatSums(count, flat.view(-1, SPLAT_WIDTH))
        return [returned[number] for number in range(len(self._strips))]


def _everything(splats: Splats) -> Tensor:
    return torch.arange(len(splats), dtype=torch.int32)


def _cat(parts: list[Tensor], dtype: torch.dtype) -> Tensor:
    return torch.cat([torch.empty(0, dtype=dtype), *(part.to(dtype) for part in parts)])
