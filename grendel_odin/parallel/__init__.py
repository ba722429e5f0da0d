"""Who owns what: process groups, strips of pixels, and the exchange of splats."""

from grendel_odin.parallel.world import World, join_world

__all__ = ["World", "join_world"]
