"""The parallel mode of a run."""

from __future__ import annotations

from grendel_odin.parallel.hybrid import Hybrid
from grendel_odin.parallel.modes import Mode
from grendel_odin.parallel.replicated import Replicated
from grendel_odin.parallel.settings import ParallelSettings
from grendel_odin.parallel.sharing import Sharing
from grendel_odin.parallel.world import World
from grendel_odin.render.protocol import Renderer


def share(settings: ParallelSettings, world: World, renderer: Renderer) -> Sharing:
    """The mode that the settings ask for. One process keeps all rows in either mode."""
    if settings.mode is Mode.REPLICATED and world.size > 1:
        return Replicated(world, renderer, settings.reduce)
    return Hybrid(world, renderer)
