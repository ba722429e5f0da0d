"""Hybrid (model-parallel) exchange: rows are spread over ranks, pixels are cut into strips.

Splats travel only to the ranks whose strips they may touch, and the sums of their gradients travel
back (Zhao et al. 2024, section 4). Results have the bits of one process: strips are whole tile
rows, each is rendered with a forward-only halo of 10 pixel rows for the loss, and sums are folded
in the order of the view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from grendel_odin.data.cameras import Camera
from grendel_odin.parallel.strips import Strip, cut
from grendel_odin.parallel.world import World
from grendel_odin.render.losses import HALO
from grendel_odin.render.protocol import (
    SPLAT_WIDTH,
    TILE,
    Rect,
    Renderer,
    Splats,
    SplatSums,
    tile_rows,
)

PAYLOAD_WIDTH = SPLAT_WIDTH + 1
"""Floats of a splat that travels: its columns and its key."""


@dataclass(slots=True)
class Share:
    """A strip that this rank renders, with the splats that touch it or its halo."""

    strip: Strip
    camera: Camera
    splats: Splats
    """By source rank; `rows` and `radii` did not travel and are empty."""
    counts: list[int]
    """Number of splats from each rank."""

    @property
    def rows(self) -> range:
        """Pixel rows of the strip."""
        return _rows(self.strip, self.camera)

    @property
    def rows_with_halo(self) -> range:
        """Pixel rows that its loss reads."""
        return _rows(self.strip, self.camera, HALO)

    def rect(self, rows: range) -> Rect:
        """Some rows of the view, in full width."""
        return Rect(0, rows.start, self.camera.width, len(rows))


class Hybrid:
    """The exchange of one unit at a time; the calls of a unit come in order, on all ranks alike."""

    def __init__(self, world: World, renderer: Renderer) -> None:
        self.world, self.renderer = world, renderer
        self.bytes_sent = 0
        self._strips: list[Strip] = []
        self._splats: list[Splats] = []
        self._sent: list[Tensor] = []

    def plan(self, costs: Sequence[Tensor]) -> list[Strip]:
        """Cut the unit; costs are those of the tile rows of each view, alike on all ranks.

        Gives the strips of this rank.
        """
        self._strips = cut([cost.numpy() for cost in costs], self.world.size)
        return [strip for strip in self._strips if strip.rank == self.world.rank]

    def plan_whole_views(self, cameras: Sequence[Camera]) -> None:
        """One view for each rank, as an evaluation wants it."""
        self._strips = [
            Strip(number, 0, tile_rows(camera.height), number)
            for number, camera in enumerate(cameras)
        ]

    def send(self, cameras: Sequence[Camera], splats: list[Splats]) -> list[Share]:
        """Splats of own rows, view by view, to the strips that they may touch; gives own strips."""
        self._splats = splats
        if self.world.size == 1:
            self._sent = [torch.arange(len(view), dtype=torch.int32) for view in splats]
            return [
                Share(strip, cameras[strip.view], splats[strip.view], [len(splats[strip.view])])
                for strip in self._strips
            ]
        ranges = [self.renderer.row_ranges(view) for view in splats]
        self._sent = [
            _touching(ranges[strip.view], _rows(strip, cameras[strip.view], HALO))
            for strip in self._strips
        ]
        counts = self.world.gather_integers(torch.tensor([len(sent) for sent in self._sent]))
        payloads = [
            _pack(splats[strip.view], sent)
            for strip, sent in zip(self._strips, self._sent, strict=True)
        ]
        incoming = self._exchange_by_strip(payloads, counts, PAYLOAD_WIDTH)
        shares = []
        for number in self._own():
            strip = self._strips[number]
            pieces = [incoming[rank][number] for rank in range(self.world.size)]
            received = _unpack(torch.cat(pieces))
            lengths = counts[:, number].tolist()
            shares.append(Share(strip, cameras[strip.view], received, lengths))
        return shares

    def tops(self, share: Share) -> Tensor:
        """[M] bool: splats whose first tile row lies in the share, see Renderer.strip_sums."""
        if share.strip.first == 0:
            return torch.ones(len(share.splats), dtype=torch.bool)
        return self.renderer.row_ranges(share.splats)[:, 0] >= share.rows.start

    def take_back(self, shares: Sequence[Share], sums: Sequence[SplatSums]) -> list[Tensor]:
        """Sums of own strips to the owners of their splats; gives gradients [M, 10] by view."""
        size, own = self.world.size, self._own()
        if size == 1:
            return [
                self.renderer.gather_sums(view, [(sent, each)])
                for view, sent, each in zip(self._splats, self._sent, sums, strict=True)
            ]
        counts = {
            number: torch.split(each.counts, share.counts)
            for number, share, each in zip(own, shares, sums, strict=True)
        }
        values = {
            number: torch.split(each.values, [int(part.sum()) for part in counts[number]])
            for number, each in zip(own, sums, strict=True)
        }
        mine = [len(sent) for sent in self._sent]
        returned = self._return_by_strip(
            {number: [part[:, None].float() for part in counts[number]] for number in own},
            [[mine[n] for n in self._of(rank)] for rank in range(size)],
            1,
        )
        numbers = {number: part[:, 0].int() for number, part in returned.items()}
        totals = [[int(numbers[n].sum()) for n in self._of(rank)] for rank in range(size)]
        rows = self._return_by_strip(
            {number: list(values[number]) for number in own}, totals, SPLAT_WIDTH
        )
        gradients = []
        for view, splats in enumerate(self._splats):
            strips = [
                (self._sent[number], SplatSums(numbers[number], rows[number]))
                for number, strip in enumerate(self._strips)
                if strip.view == view
            ]
            gradients.append(self.renderer.gather_sums(splats, strips))
        return gradients

    def _own(self) -> list[int]:
        return self._of(self.world.rank)

    def _of(self, rank: int) -> list[int]:
        """Numbers of a rank's strips."""
        return [number for number, strip in enumerate(self._strips) if strip.rank == rank]

    def _exchange_by_strip(
        self, payloads: list[Tensor], counts: Tensor, width: int
    ) -> list[dict[int, Tensor]]:
        """Payload [n, width] of each strip to its rank; what came, by source rank and strip."""
        own, size = self._own(), self.world.size
        outgoing = [_cat([payloads[n] for n in self._of(rank)], width) for rank in range(size)]
        lengths = [[int(counts[rank, n]) for n in own] for rank in range(size)]
        incoming = self._swap(outgoing, [sum(each) for each in lengths], width)
        return [
            dict(zip(own, torch.split(incoming[rank], lengths[rank]), strict=True))
            for rank in range(size)
        ]

    def _return_by_strip(
        self, parts: dict[int, list[Tensor]], lengths: list[list[int]], width: int
    ) -> dict[int, Tensor]:
        """Rows [n, width] of own strips, by source rank, to these ranks; what came, by strip."""
        size = self.world.size
        outgoing = [_cat([each[rank] for each in parts.values()], width) for rank in range(size)]
        incoming = self._swap(outgoing, [sum(each) for each in lengths], width)
        came = {}
        for rank in range(size):
            pieces = torch.split(incoming[rank], lengths[rank])
            came.update(dict(zip(self._of(rank), pieces, strict=True)))
        return came

    def _swap(self, outgoing: list[Tensor], rows: list[int], width: int) -> list[Tensor]:
        incoming = [torch.empty(n, width) for n in rows]
        incoming[self.world.rank] = outgoing[self.world.rank]
        self.bytes_sent += sum(
            4 * part.numel() for rank, part in enumerate(outgoing) if rank != self.world.rank
        )
        self.world.exchange(outgoing, incoming)
        return incoming


def _rows(strip: Strip, camera: Camera, halo: int = 0) -> range:
    """Pixel rows of a strip, and so many more on either side as far as the view goes."""
    bottom = min(TILE * strip.last, camera.height)
    return range(max(0, TILE * strip.first - halo), min(camera.height, bottom + halo))


def _touching(ranges: Tensor, rows: range) -> Tensor:
    """[m] int32: positions of the splats that may touch some of the rows."""
    touches = (ranges[:, 0] < rows.stop) & (ranges[:, 1] >= rows.start)
    return touches.nonzero().squeeze(1).int()


def _pack(splats: Splats, positions: Tensor) -> Tensor:
    """[m, 11]: columns and the bits of the key."""
    keys = splats.keys[positions.long()].view(torch.float32)
    return torch.cat([splats.values[positions.long()], keys[:, None]], 1)


def _unpack(payload: Tensor) -> Splats:
    return Splats(
        payload[:, :SPLAT_WIDTH].contiguous(),
        payload[:, SPLAT_WIDTH].contiguous().view(torch.int32),
        rows=torch.empty(0, dtype=torch.int32),
        radii=torch.empty(0, 2, dtype=torch.int32),
    )


def _cat(parts: list[Tensor], width: int) -> Tensor:
    return torch.cat([torch.empty(0, width), *parts])
