"""One unit of training, as it goes through its stages."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from grendel_odin.data.views import View
from grendel_odin.parallel.sharing import Share
from grendel_odin.pipelines.window import Window
from grendel_odin.render.losses import LossFigures, StripResult
from grendel_odin.render.protocol import Rendering, RowGradients, Splats, SplatSums


@dataclass(slots=True)
class Unit:
    """The views of one optimizer step, and what its stages hand to one another."""

    index: int
    window: Window
    views: list[View]
    refine_marks: int
    """Densifications that fall into the unit: done once, after it."""
    reset_marks: int
    stop: bool = False
    """Whether a rank was asked to stop (Ctrl-C); alike on all ranks once the unit has run."""
    sh_degree: int = 0
    splats: dict[int, Splats] = field(default_factory=dict)
    """Of own rows, by view: of all views, or of those that are dealt with here."""
    shares: list[Share] = field(default_factory=list)
    """Strips that this rank renders; the next three have an entry for each."""
    renderings: list[Rendering] = field(default_factory=list)
    strip_losses: list[StripResult] = field(default_factory=list)
    strip_seconds: list[float] = field(default_factory=list)
    """Render, loss and backward."""
    sums: list[SplatSums] = field(default_factory=list)
    losses: list[LossFigures] = field(default_factory=list)
    """By view, alike on all ranks."""
    splat_gradients: dict[int, Tensor] = field(default_factory=dict)
    """Of `splats`."""
    gradients: RowGradients | None = None

    @property
    def loss(self) -> float:
        """Mean loss of a view."""
        return sum(loss.value for loss in self.losses) / len(self.losses)

    @property
    def names(self) -> str:
        """Of its views."""
        return ", ".join(f"view {view.camera.name}" for view in self.views)
