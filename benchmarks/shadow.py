"""Memory and time of the Shadow Graph beside a copy of the state for each unit in flight.

    python benchmarks/shadow.py [rows ...]

A state is a table and two moments of 64 floats a row. Units read and write 5% of the rows, a
stretch that moves through the table by a twentieth of its length from one unit to the next (so
neighbours share nearly all rows: a hard case). A unit is begun, its updates are staged, and the
oldest of K units in flight is published. A tenth of what it reads is read late.

The copy is what a unit needs without versions: the whole state, taken when it begins. Staged
updates take the same memory either way and are told apart; staging them is part of the time of the
Shadow Graph alone. Neither time has the computing and applying of updates. Of the copies one is
made and timed; their memory is counted, since most would not fit. The last line is one JSON object.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from common import machine
from torch import Tensor

from grendel_odin.odin.shadow import Shadow

ROWS, IN_FLIGHT = (10_000, 100_000, 1_000_000), (2, 4, 8, 16)
WIDTH, ACTIVE, LATE = 64, 0.05, 0.1
UNITS = 12
"""That are timed, after as many as are in flight."""


@dataclass
class Figures:
    """Of one number of rows and units in flight."""

    rows: int
    in_flight: int
    staged_mb: float
    """Updates that wait for their publication; either way."""
    shadow_mb: float
    """All other buffers of the Shadow Graph: old rows, indices, free slots."""
    copies_mb: float
    """Copies of the state."""
    shadow_ms: float
    """Of a unit: to hold, stage, publish, keep aside, read late rows, raise versions."""
    copy_ms: float

    @property
    def memory(self) -> float:
        """How many times more the copies take."""
        return self.copies_mb / self.shadow_mb

    @property
    def cost(self) -> float:
        """How many times longer copying takes."""
        return self.copy_ms / self.shadow_ms


def touched(rows: int, unit: int) -> Tensor:
    """Ascending rows of a unit."""
    count = int(ACTIVE * rows)
    first = count * unit // 20
    return ((first + torch.arange(count)) % rows).sort().values


class Units:
    """Units that go through the Shadow Graph, `in_flight` at a time."""

    def __init__(self, state: list[Tensor], in_flight: int) -> None:
        self.state, self.in_flight, self.unit = state, in_flight, 0
        self.shadow = Shadow(state[:1], state[0])
        self.apply_s = 0.0

    def apply(self, rows: Tensor, updates: Tensor) -> None:
        """What would be done anyhow; its time is taken off."""
        start = time.perf_counter()
        self.state[0].index_add_(0, rows, updates)
        self.apply_s += time.perf_counter() - start

    def next(self, updates: Tensor) -> float:
        """Seconds of one more unit."""
        self.unit += 1
        self.apply_s = 0.0
        unit, shadow, published = self.unit, self.shadow, self.unit - self.in_flight
        rows = touched(len(self.state[0]), unit)
        late = rows[: int(LATE * len(rows))]
        start = time.perf_counter()
        shadow.hold(unit, late, max(published, 0))
        shadow.stage(unit, rows, updates)
        if published + 1 > 0:
            active = shadow.publish(published + 1, self.apply)
            shadow.advance_others(published + 1, active)
            shadow.read(unit, late)  # once more, as a backward pass does
            shadow.release(published + 1)
        return time.perf_counter() - start - self.apply_s


def measure(rows: int, in_flight: int) -> Figures:
    """Both ways, interleaved."""
    state = [torch.zeros(rows, WIDTH) for _ in range(3)]
    updates = torch.ones(int(ACTIVE * rows), WIDTH)
    copy = [torch.zeros_like(each) for each in state]
    units, shadow_s, copy_s = Units(state, in_flight), [], []
    for number in range(in_flight + UNITS):
        seconds = units.next(updates)
        start = time.perf_counter()
        for into, source in zip(copy, state, strict=True):
            into.copy_(source)
        taken = time.perf_counter() - start
        if number >= in_flight:
            shadow_s.append(seconds)
            copy_s.append(taken)
    staged = in_flight * updates.nbytes
    copies = in_flight * sum(each.nbytes for each in state)
    return Figures(
        *(rows, in_flight, staged / 2**20),
        *((units.shadow.bytes - staged) / 2**20, copies / 2**20),
        *(1e3 * statistics.median(shadow_s), 1e3 * statistics.median(copy_s)),
    )


def main() -> None:
    torch.set_num_threads(1)
    sizes = [int(word) for word in sys.argv[1:]] or ROWS
    print(f"{machine()}, 1 thread, torch {torch.__version__}")
    print("     rows   K  staged MB  shadow MB  copies MB  times  shadow ms  copy ms  times")
    made = []
    for rows in sizes:
        for in_flight in IN_FLIGHT:
            each = measure(rows, in_flight)
            made.append(each)
            print(
                f"{rows:9,} {in_flight:3} {each.staged_mb:10.1f} {each.shadow_mb:10.2f} "
                f"{each.copies_mb:10.1f} {each.memory:6.1f} {each.shadow_ms:10.2f} "
                f"{each.copy_ms:8.2f} {each.cost:6.1f}"
            )
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of the process: {peak_mb:.0f} MB ({Path(__file__).name})")
    figures = [asdict(each) | {"memory": each.memory, "cost": each.cost} for each in made]
    print(json.dumps({"active": ACTIVE, "late": LATE, "figures": figures}))


if __name__ == "__main__":
    main()
