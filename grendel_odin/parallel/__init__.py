"""Who owns what: process groups, strips of pixels, and the exchange of splats."""

from grendel_odin.parallel.launch import join_world
from grendel_odin.parallel.world import ALONE, World

__all__ = ["ALONE", "World", "join_world"]
