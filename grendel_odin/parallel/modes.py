"""The parallel modes by name."""

from __future__ import annotations

from enum import Enum


class Mode(str, Enum):
    """What ranks keep."""

    HYBRID = "hybrid"  # each some of the rows (model-parallel)
    REPLICATED = "replicated"  # each all of the rows (data-parallel)


class Reduce(str, Enum):
    """Which rows' gradients travel in replicated mode."""

    PACKED = "packed"  # those that a view sees
    DENSE = "dense"  # all, as in plain data parallelism
