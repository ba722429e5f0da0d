"""What a plan is made by."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Builder(str, Enum):
    """Where the weights of the relative locality graph come from."""

    IMPORTANCE = "importance"  # tracks that two views share
    GEOMETRY = "geometry"  # points that lie in both frusta
    COMPUTATION = "computation"  # traced rows that both views activate


class Partitioner(str, Enum):
    """What cuts the graph into groups."""

    METIS = "metis"
    SPECTRAL = "spectral"


class UnitShape(str, Enum):
    """Where the views of one unit come from; their coupling is neither sought nor avoided."""

    SCATTERED = "scattered"  # the groups take turns at every view
    COMPACT = "compact"  # all of one group; the groups take turns at every unit


class Windows(str, Enum):
    """Between which units overlap is planned."""

    AUTO = "auto"  # where the cost model expects a gain
    ALWAYS = "always"
    OFF = "off"


class Mode(str, Enum):
    """Who holds rows and pixels."""

    HYBRID = "hybrid"  # rows are spread, splats travel
    REPLICATED = "replicated"  # every rank has all rows, gradients are reduced


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """Equal settings, seeds and graphs give equal plans."""

    batch: int = 1
    """Views of a unit."""
    builder: Builder = Builder.IMPORTANCE
    edges: int = 32
    """Strongest edges that each view keeps; an edge stays if either end keeps it."""
    groups: int = 4
    partitioner: Partitioner = Partitioner.METIS
    unit: UnitShape = UnitShape.SCATTERED
    windows: Windows = Windows.AUTO
    mode: Mode = Mode.HYBRID
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("batch", "edges", "groups"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: at least 1 is needed")
