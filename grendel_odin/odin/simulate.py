"""How a schedule would go: the executor and the graph of a mode with units that only take time.

What is modelled: bytes and computation by stage, ranks of different speed, the share of rows in
conflict with the unit before, tile rows that wait for late splats or return gradients first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from grendel_odin.odin.admit import Policy
from grendel_odin.odin.clock import VirtualClock
from grendel_odin.odin.graph import Stage, Traffic
from grendel_odin.odin.hybrid import hybrid_units
from grendel_odin.odin.network import Speed
from grendel_odin.odin.replicated import replicated_units
from grendel_odin.odin.settings import Mode
from grendel_odin.odin.work import Piece
from grendel_odin.odin.workload import Workload
from grendel_odin.odin.world import World

_COUNT_BYTES = 2 / 44
"""How many sums a splat returns, as a share of the splat."""
_ID_BYTES = 4 / 240
"""Of an active row, as a share of its gradient."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds of a unit."""

    unit_s: float
    compute_s: float
    """Mean over ranks."""
    busiest_s: float
    """Computation of the rank that has most."""
    exposed_s: float
    """Blocked, mean over ranks."""
    causes: dict[Traffic, float]
    """The same by what was waited for."""


@dataclass(frozen=True, slots=True)
class Size:
    """`Payload` without content."""

    nbytes: int

    def copy_(self, other: object, /) -> None:
        """Nothing to take over."""


class _Model:
    """Draws that all works of a simulation share."""

    def __init__(self, load: Workload, policy: Policy) -> None:
        self.load, self.policy = load, policy
        draw = np.random.default_rng(load.seed)
        shape = (load.units, load.ranks)
        self.seconds = load.compute_s * draw.normal(1.0, load.imbalance, shape).clip(0.5)
        self.seconds *= [load.speed(rank) for rank in range(load.ranks)]
        self.top = draw.random((2, *shape)) < 0.5
        """Whether late, and first, tile rows are the upper ones."""
        self.header = torch.zeros(load.header_bytes // 8, dtype=torch.int64)
        self.headers = self.header.new_zeros(load.ranks, len(self.header))
        self._bytes_to_each = load.bytes_each_way / max(load.ranks - 1, 1)

    def parcels(self, share: float) -> list[Size]:
        """That much of what a rank sends, evenly to the others."""
        return [Size(int(share * self._bytes_to_each))] * self.load.ranks


class _Work:
    """`Work` that moves the clock."""

    def __init__(self, model: _Model, clock: VirtualClock, rank: int, number: int) -> None:
        load, self._model, self._clock = model.load, model, clock
        self.number, self._rank = number, rank
        self.window = load.windows[number % len(load.windows)]
        self._waiting = model.load.waiting(number, model.policy) if self.window else 1.0
        last = number + 1 >= load.units
        follows = not last and load.windows[(number + 1) % len(load.windows)]
        overlaps = model.policy is not Policy.OFF
        self._first = load.waiting(number + 1, model.policy) if follows and overlaps else 0.0
        if number == 0 or not overlaps:
            self._waiting = 1.0
        self._seconds = float(model.seconds[number, rank])
        self._shares = load.shares

    def extent(self) -> None:
        """See Work."""

    def project(self, part: Traffic) -> Iterable[Piece]:
        """See Work."""
        return self._pieces(self._shares.project * self._rows(part))

    def header(self, part: Traffic) -> tuple[Tensor, Tensor]:
        """See Work."""
        return self._model.header, self._model.headers

    def outgoing(self, part: Traffic) -> Sequence[Size]:
        """See Work."""
        return self._model.parcels(self._rows(part))

    incoming = outgoing

    def unpack(self, part: Traffic) -> Iterable[Piece]:
        """See Work."""
        return self._pieces(self._shares.unpack * self._rows(part))

    def slices(self) -> int:
        """See Work."""
        return self._model.load.slices

    def neighbours(self, number: int) -> Iterable[int]:
        """See Work."""
        return range(max(0, number - 1), min(self.slices(), number + 2))

    def is_late(self, number: int) -> bool:
        """See Work."""
        return self._among(0, number, self._waiting, self._model.load.late_tiles)

    def returns_first(self, number: int) -> bool:
        """See Work."""
        return self._among(1, number, self._first, self._model.load.first_tiles)

    def render(self, number: int) -> None:
        """See Work."""
        self._compute(self._shares.render / self.slices())

    def backward(self, number: int) -> None:
        """See Work."""
        self._compute(self._shares.backward / self.slices())

    def apply(self, part: Traffic) -> Iterable[Piece]:
        """See Work."""
        return self._pieces(self._shares.apply * self._rows(part))

    def collect(self, part: Traffic) -> Iterable[Piece]:
        """See ReplicatedWork: counted as `apply`."""
        return ()

    def sum(self, part: Traffic) -> Iterable[Piece]:
        """See ReplicatedWork: counted as `apply`."""
        return ()

    def zero_steps(self, part: Traffic) -> Iterable[Piece]:
        """See Work."""
        return self._pieces(self._shares.zero_steps / 2)

    def _rows(self, part: Traffic) -> float:
        """Share of a unit's rows in a part."""
        if part is Traffic.EARLY:
            return 1.0 - self._waiting
        if part is Traffic.LATE:
            return self._waiting
        if part in (Traffic.FIRST, Traffic.FIRST_SUMS):
            return self._first
        if part in (Traffic.REST, Traffic.REST_SUMS):
            return 1.0 - self._first
        return _COUNT_BYTES if part is Traffic.COUNTS else _ID_BYTES

    def _among(self, which: int, number: int, rows: float, tiles: float | None) -> bool:
        """Whether a slice is one of the upper, or lower, ones that make up a share of all."""
        load = self._model.load
        count = round((min(1.0, 2.0 * rows) if tiles is None else tiles) * load.slices)
        top = self._model.top[which, self.number, self._rank]
        return number < count if top else number >= load.slices - count

    def _compute(self, share: float) -> None:
        self._clock.advance(share * self._seconds)

    def _pieces(self, share: float) -> Sequence[Piece]:
        count = max(1, round(share / self._model.load.piece))
        if count > 1:
            return [partial(self._compute, share / count)] * count
        self._compute(share)
        return ()


def simulate(load: Workload, policy: Policy, exact: bool | None = None) -> Outcome:
    """Run the units; networks of 8 ranks and more are coarse unless it is said."""
    exact = load.ranks < 8 if exact is None else exact
    world, model = (
        World(load.ranks, Speed(load.rate, load.latency_s), exact),
        _Model(load, policy),
    )
    overlap = policy is not Policy.OFF
    for rank, (executor, clock) in enumerate(zip(world.executors, world.clocks, strict=True)):
        works = map(partial(_Work, model, clock, rank), range(load.units))
        units = hybrid_units if load.mode is Mode.HYBRID else replicated_units
        executor.start(units(executor, works, overlap), 2 if overlap else 1)
    world.run()
    scale = 1.0 / (load.ranks * load.units)
    compute = [sum(executor.seconds[stage] for stage in Stage) for executor in world.executors]
    causes = dict.fromkeys(Traffic, 0.0)
    for executor in world.executors:
        for wait in executor.waits:
            causes[wait.traffic] += wait.seconds * scale
    return Outcome(
        world.now / load.units,
        sum(compute) * scale,
        max(compute) / load.units,
        sum(causes.values()),
        causes,
    )
