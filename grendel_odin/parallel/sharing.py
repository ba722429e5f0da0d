"""What a parallel mode decides: who owns rows, who renders which pixels, and what travels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from grendel_odin import _kernels
from grendel_odin.data.cameras import Camera
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.parallel.parcel import pick, touching
from grendel_odin.parallel.strips import Strip
from grendel_odin.parallel.world import World
from grendel_odin.render.losses import HALO
from grendel_odin.render.protocol import TILE, Rect, Renderer, RowGradients, Splats, SplatSums

Fold = Callable[[int, RowGradients], None]
"""Adds the gradient of a view, by its number, to that of rows."""


@dataclass(slots=True)
class Share:
    """A strip that this rank renders, with the splats that touch it or its halo."""

    strip: Strip
    camera: Camera
    splats: Splats
    counts: list[int]
    """Number of splats from each rank; they lie one rank behind the other."""

    @property
    def rows(self) -> range:
        """Pixel rows of the strip."""
        return pixel_rows(self.strip, self.camera)

    @property
    def rows_with_halo(self) -> range:
        """Pixel rows that its loss reads."""
        return pixel_rows(self.strip, self.camera, HALO)

    def rect(self, rows: range) -> Rect:
        """Some rows of the view, in full width."""
        return Rect(0, rows.start, self.camera.width, len(rows))


class Sharing(Protocol):
    """A parallel mode. The calls of a unit come in order, on all ranks alike."""

    world: World
    owners: World
    """The ranks among which the rows are spread: each row belongs to one of them."""

    def plan(self, costs: Sequence[Tensor]) -> None:
        """Give the pixels of a unit to ranks.

        costs: those of the tile rows of each view, alike on all ranks.
        """

    def plan_whole_views(self, cameras: Sequence[Camera]) -> None:
        """One view for each rank in order, as an evaluation wants it; at most one a rank."""

    def views_here(self) -> Sequence[int]:
        """Numbers of the views into which this rank projects its rows."""

    def send(self, cameras: Sequence[Camera], splats: Mapping[int, Splats]) -> list[Share]:
        """Splats by view to whom they may touch; gives the strips of this rank."""

    def take_back(self, shares: Sequence[Share], sums: Sequence[SplatSums]) -> dict[int, Tensor]:
        """Sums of own strips to where their splats are from: gradients [M, 10] by view."""

    def row_gradients(
        self,
        active: Mapping[int, Tensor],
        fold: Fold,
        blank: Callable[[Tensor], RowGradients],
        kept: int,
    ) -> RowGradients:
        """Gradients of the unit for the rows that this rank keeps, folded in the order of views.

        active: rows that are visible in each of `views_here`; `blank` makes empty gradients for
        some of the rows; kept: number of rows that this rank keeps.
        """

    def total(self, rows: Tensor) -> Tensor:
        """[N] of integers that every rank has gathered from its views: what all have, in sum."""

    def check(self, table: PrimitiveTable) -> None:
        """Raise UserError if ranks that should keep equal rows do not."""


def pixel_rows(strip: Strip, camera: Camera, halo: int = 0) -> range:
    """Pixel rows of a strip, and so many more on either side as far as the view goes."""
    bottom = min(TILE * strip.last, camera.height)
    return range(max(0, TILE * strip.first - halo), min(camera.height, bottom + halo))


def union(rows: Sequence[Tensor], total: int) -> Tensor:
    """[A] int32, ascending: the rows, out of `total`, that any of the views has."""
    if len(rows) == 1:
        return rows[0]
    made = torch.empty(min(total, sum(len(each) for each in rows)), dtype=torch.int32)
    return made[: _kernels.unite(list(rows), total, made)]


def first_rows(renderer: Renderer, share: Share) -> Tensor:
    """[M] bool: splats whose first tile row lies in the share, see Renderer.strip_sums."""
    if share.strip.first == 0:
        return torch.ones(len(share.splats), dtype=torch.bool)
    return renderer.row_ranges(share.splats)[:, 0] >= share.rows.start


def halo_splats(renderer: Renderer, share: Share, halo: range) -> Splats:
    """Splats that may touch the rows of a halo: few of those of the share."""
    return pick(share.splats, touching(renderer.row_ranges(share.splats), halo))
