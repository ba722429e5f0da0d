"""The 3DGS pipeline: when SH bands awaken, rows are densified and opacities are reset."""

from __future__ import annotations

from dataclasses import dataclass

from grendel_odin.parallel.world import ALONE, World
from grendel_odin.pipelines.densify import (
    Densification,
    DensifySettings,
    Rules,
    densify,
    reset_opacity,
)
from grendel_odin.pipelines.memory import NO_GUARD, MemoryGuard
from grendel_odin.pipelines.state import TrainingState
from grendel_odin.pipelines.window import Window, scaled


@dataclass(frozen=True, slots=True)
class GaussianSplatting:
    """Hooks of the trainer; all are functions of the unit's window and of the state."""

    settings: DensifySettings
    schedule_scale: float
    sh_degree: int
    sh_degree_interval: int
    max_primitives: int
    extent: float
    white_background: bool
    seed: int
    threads: int
    world: World = ALONE
    memory: MemoryGuard = NO_GUARD

    def _scaled(self, iteration: int) -> int:
        return scaled(iteration, self.schedule_scale)

    def live_sh_degree(self, window: Window) -> int:
        """SH degree of a unit: one more at each interval, before the unit is rendered."""
        return min(self.sh_degree, window.last // self._scaled(self.sh_degree_interval))

    def collects(self, window: Window) -> bool:
        """Whether the unit counts in the statistics of densification."""
        return window.start < self._scaled(self.settings.stop)

    def refine_marks(self, window: Window) -> int:
        """Number of densifications that fall into the unit."""
        return window.multiples(
            self._scaled(self.settings.refine_every),
            after=self._scaled(self.settings.refine_start_iter),
            before=self._scaled(self.settings.stop),
        )

    def reset_marks(self, window: Window) -> int:
        """Number of opacity resets that fall into the unit."""
        stop = self._scaled(self.settings.reset_stop)
        marks = window.multiples(self._scaled(self.settings.reset_every), before=stop)
        start = self._scaled(self.settings.refine_start_iter)
        # On white, what the background explains must lose its opacity early.
        early = self.white_background and start < stop and bool(window.marks([start]))
        return marks + early

    def refine(self, state: TrainingState, window: Window) -> Densification:
        """Clone, split and prune."""
        rules = Rules(
            self.settings,
            self.extent,
            self.max_primitives,
            prune_large=window.last > self._scaled(self.settings.reset_every),
            memory=self.memory,
        )
        return densify(state, rules, self.seed, window.start, self.threads, self.world)

    def reset(self, state: TrainingState) -> None:
        """Reset opacities."""
        reset_opacity(state, self.settings.prune_opa)
