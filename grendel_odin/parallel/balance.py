"""What the tile rows of views cost, counted: the ground on which units are cut into strips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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

    def measure(self, evaluations: Tensor, seconds: float) -> Tensor:
        """[T] int64: what ranks tell of a strip that took so many evaluations, and so long."""
        return evaluations

    def memory(self) -> dict[str, Tensor]:
        """What is known, as int64 tensors that `recall` takes back."""
        return {
            f"{name}.{part}": values
            for name, costs in (("known", self._known), ("latest", self._latest))
            for part, values in (
                ("views", torch.tensor(list(costs), dtype=torch.int64)),
                ("rows", torch.tensor([len(each) for each in costs.values()], dtype=torch.int64)),
                ("costs", torch.cat([torch.empty(0, dtype=torch.int64), *costs.values()])),
            )
        }

    def recall(self, memory: Mapping[str, Tensor], views: Sequence[View]) -> None:
        """Take `memory` back; what was learnt of a view at another size is left out."""
        sizes = {view.index: tile_rows(view.camera.height) for view in views}
        for name, costs in (("known", self._known), ("latest", self._latest)):
            rows = memory[f"{name}.rows"].tolist()
            parts = torch.split(memory[f"{name}.costs"], rows)
            for view, part in zip(memory[f"{name}.views"].tolist(), parts, strict=True):
                if sizes.get(view) == len(part):
                    costs[view] = part

    def learn(self, views: list[View], evaluations: list[Tensor]) -> None:
        """Evaluations [T] int64 of the views of a unit that was just rendered."""
        self._known |= self._latest
        self._latest = dict(zip((view.index for view in views), evaluations, strict=True))
