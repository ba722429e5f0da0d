"""What the tile rows of views cost, counted: the ground on which units are cut into strips."""

from __future__ import annotations

import torch
from torch import Tensor

from grendel_odin.data.views import View
from grendel_odin.render.protocol import TILE, tile_rows

PIXEL_COST = 0.7
"""Cost of the loss for one pixel, in evaluations of a row of 16 pixels by the blend kernels."""


class CountedCosts:
    """Costs by view: pixels until a view was rendered, then what it cost last.

    Counted, not timed, and alike on all ranks, so that a cut never depends on a clock. What unit n
    teaches is used from unit n + 2 on, whatever the schedule of stages (a fixed planning lag).
    """

    def __init__(self) -> None:
        self._known: dict[int, Tensor] = {}
        self._latest: dict[int, Tensor] = {}

    def of(self, view: View) -> Tensor:
        """[T] int64."""
        pixels = torch.full(
            (tile_rows(view.camera.height),), int(PIXEL_COST * TILE * view.camera.width)
        )
        blending = self._known.get(view.index)
        return pixels if blending is None else pixels + blending

    def learn(self, views: list[View], evaluations: list[Tensor]) -> None:
        """Evaluations [T] int64 of the views of a unit that was just rendered."""
        self._known |= self._latest
        self._latest = dict(zip((view.index for view in views), evaluations, strict=True))
