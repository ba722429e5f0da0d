"""What is simulated: how much the units of a run compute, send and wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean

from grendel_odin.odin.admit import Policy
from grendel_odin.odin.settings import Mode


@dataclass(frozen=True, slots=True)
class Share:
    """Of a unit's computation in each stage."""

    project: float = 0.12
    unpack: float = 0.03
    render: float = 0.30
    backward: float = 0.37
    apply: float = 0.18
    zero_steps: float = 0.0
    """Dense Adam only."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Units of a run. Shares of rows and tile rows lie in 0..1."""

    ranks: int
    units: int
    mode: Mode = Mode.HYBRID
    communication: float = 0.3
    """S: seconds on the wire as a share of those and computation, both mean over ranks."""
    conflict: Sequence[float] = (0.2,)
    """Of a unit's rows, those that the unit before changes; over and over again."""
    windows: Sequence[bool] = (True,)
    late_tiles: float | None = None
    """Tile rows that late splats may touch; none: twice the share of late rows."""
    first_tiles: float | None = None
    """Tile rows that hold splats to be returned first; none: twice their share."""
    compute_s: float = 0.1
    """Of a unit, on a rank of speed 1."""
    shares: Share = field(default_factory=Share)
    speeds: Sequence[float] = (1.0,)
    """Seconds of a rank as a multiple of compute_s; ranks beyond have 1."""
    imbalance: float = 0.05
    """Standard deviation of a rank's seconds from unit to unit."""
    slices: int = 20
    piece: float = 0.02
    """Longest task of an owner, as a share of compute_s."""
    rate: float = 25e6
    latency_s: float = 0.0005
    header_bytes: int = 4096
    tau: float = 0.2
    gradient_share: float = 0.05
    skew: float = 3.0
    """The lowest x of the rows hold x ** skew of their gradient."""
    seed: int = 0

    def speed(self, rank: int) -> float:
        """See `speeds`."""
        return self.speeds[rank] if rank < len(self.speeds) else 1.0

    @property
    def mean_compute_s(self) -> float:
        """Over ranks."""
        return self.compute_s * mean(self.speed(rank) for rank in range(self.ranks))

    @property
    def bytes_each_way(self) -> float:
        """That a rank sends as splats, and as gradients (replicated: as gradients, and as sums)."""
        wire = self.communication / (1.0 - self.communication) * self.mean_compute_s
        return wire * self.rate / 2

    def waiting(self, unit: int, policy: Policy) -> float:
        """Share of a unit's rows that have to wait for the unit before."""
        conflict = self.conflict[unit % len(self.conflict)]
        if policy is Policy.HOGWILD:
            return 0.0
        if policy is not Policy.THROUGHPUT or not conflict:
            return conflict
        light: float = (self.gradient_share / conflict) ** (1.0 / self.skew)
        return conflict - min(self.tau, conflict * min(light, 1.0))
