"""What the tile rows of views cost by other measures than counts: by the clock, or not at all."""

from __future__ import annotations

from enum import Enum

import torch
from torch import Tensor

from grendel_odin.data.views import View
from grendel_odin.parallel.balance import CountedCosts
from grendel_odin.render.protocol import TILE, tile_rows

LOW, WIDE = (600, 1000), (1080, 1920)
"""Height and width of images too small to be worth balancing; the latter where a rank gets whole
views (Grendel-GS)."""


class Balance(str, Enum):
    """What units are cut by."""

    COUNTED = "counted"  # blended pairs; the same on every machine
    TIMED = "timed"  # seconds that strips took (Grendel), for renderers that cannot count
    EVEN = "even"  # pixels


class EvenCosts(CountedCosts):
    """Every pixel costs the same, whatever was rendered."""

    def learn(self, views: list[View], told: list[Tensor]) -> None:
        """Nothing."""


class TimedCosts(CountedCosts):
    """Nanoseconds by view, as ranks told one another: the time of a strip, even over its rows.

    Zhao et al. 2024, section 4.3, as Grendel-GS has it: running means, no update in the warm-up
    nor for small images. The clocks decide where units are cut, and so speed, not results.
    """

    def __init__(self, decay: float, warmup: int, gated: bool, whole_views: bool) -> None:
        """decay: weight of what was known; warmup: images that teach nothing; gated: whether small
        images teach nothing; whole_views: whether a unit has a view for each rank."""
        super().__init__()
        self.decay, self.warmup, self.gated, self.whole_views = decay, warmup, gated, whole_views
        self._images = 0
        self._pixel = 1.0
        """Cost of a pixel of a view that was not yet rendered."""

    def of(self, view: View) -> Tensor:
        """[T] int64."""
        known = self._known.get(view.index)
        if known is not None:
            return known
        row = max(1, round(self._pixel * TILE * view.camera.width))
        return torch.full((tile_rows(view.camera.height),), row)

    def measure(self, evaluations: Tensor, seconds: float) -> Tensor:
        """[T] int64 of a strip that took so long."""
        return torch.full_like(evaluations, max(1, round(1e9 * seconds / len(evaluations))))

    def learn(self, views: list[View], told: list[Tensor]) -> None:
        """What was measured [T] int64 for the views of a unit that was just rendered."""
        self._images += len(views)
        taught = [
            (view, self._blend(view, costs))
            for view, costs in zip(views, told, strict=True)
            if self._images > self.warmup and not (self.gated and self._small(view))
        ]
        super().learn([view for view, _ in taught], [costs for _, costs in taught])
        if taught:
            pixels = sum(TILE * len(costs) * view.camera.width for view, costs in taught)
            self._pixel = sum(int(costs.sum()) for _, costs in taught) / pixels

    def _blend(self, view: View, measured: Tensor) -> Tensor:
        before = self._latest.get(view.index, self._known.get(view.index))
        if before is None:
            return measured
        return (self.decay * before + (1.0 - self.decay) * measured).long()

    def _small(self, view: View) -> bool:
        limits = [LOW, WIDE] if self.whole_views else [LOW]
        return any(view.camera.height <= h or view.camera.width <= w for h, w in limits)
