"""Who owns what: process groups, strips of pixels, and the exchange of splats."""

from grendel_odin.parallel.world import ALONE, World, join_world

__all__ = ["ALONE", "World", "join_world"]
