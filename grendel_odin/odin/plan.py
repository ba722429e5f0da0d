"""The plan: a value that every rank holds alike, made before the first unit."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from grendel_odin.odin._planner import LocalityGraph
from grendel_odin.odin.partition import Partition, partition
from grendel_odin.odin.rlg import Evidence, Graph, refresh
from grendel_odin.odin.schedule import (
    Border,
    Couplings,
    Order,
    couplings,
    cut_units,
    draw_epoch,
    next_border,
    random_order,
)
from grendel_odin.odin.settings import PlanSettings
from grendel_odin.odin.windows import NOMINAL, CostModel, Window, plan_windows, window

T = TypeVar("T")

EPOCHS = 2
"""Epochs whose order a plan spells out: the first, and one border. Later ones follow from it."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Graph, groups, order and windows. Two plans are equal if their hashes are."""

    settings: PlanSettings
    cost: CostModel
    graph: Graph
    partition: Partition
    order: Order
    """[EPOCHS x V] views, in units of settings.batch."""
    coupling: NDArray[np.float32]
    """[units - 1] of each unit but the first with the unit before."""
    conflict: NDArray[np.float32]
    """[units - 1] expected share of a unit's items that the unit before touches."""
    open: NDArray[np.bool_]
    """[units - 1] whether a window is planned there."""
    shuffled: Couplings
    """The couplings of random order, to compare with."""
    seconds: dict[str, float] = field(default_factory=dict)
    """What each step of planning took; no part of the value."""

    @property
    def couplings(self) -> Couplings:
        """Couplings of neighbours in the plan's order."""
        return Couplings.of(self.coupling)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was found, assumed or left out, a line each."""
        return self.graph.notes + self.partition.notes

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """All numbers of the plan, by name."""
        graph = self.graph
        return {
            **{"starts": graph.starts, "neighbours": graph.neighbours, "weights": graph.weights},
            **{"sizes": graph.sizes, "unknown": graph.unknown, "groups": self.partition.groups},
            **{"order": self.order, "coupling": self.coupling, "conflict": self.conflict},
            **{"open": self.open},
        }

    def description(self) -> dict[str, object]:
        """The rest of the plan, as JSON takes it."""
        graph, part = self.graph, self.partition
        return {
            "settings": asdict(self.settings),
            "cost": asdict(self.cost),
            "graph": {
                **{"builder": graph.builder.value, "names": list(graph.names)},
                **{"strength": graph.strength, "notes": list(graph.notes)},
            },
            "partition": {
                **{"count": part.count, "method": part.method, "seed": part.seed},
                **{"cut": part.cut, "balance": part.balance, "notes": list(part.notes)},
            },
            "shuffled": asdict(self.shuffled),
        }

    @property
    def sha256(self) -> str:
        """Of everything but the seconds: equal on all ranks, or they do not have one plan."""
        digest = hashlib.sha256(json.dumps(self.description(), sort_keys=True).encode())
        for name, values in sorted(self.arrays().items()):
            digest.update(f"{name} {values.dtype.str} {values.shape}".encode())
            digest.update(np.ascontiguousarray(values).data)
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    def course(self) -> Course:
        """The plan on its way, from the first epoch on."""
        return Course(self, self.graph)

    def units(self) -> Iterator[list[int]]:
        """Units of different views, for ever; every view comes once an epoch."""
        return self.course().units()

    def window(self, before: list[int], unit: list[int]) -> Window | None:
        """The window between any two units of full size."""
        pair = np.array([*before, *unit], np.int32)
        _, conflict = couplings(self.graph, pair, len(before))
        return window(float(conflict[0]), self.cost, self.settings.windows, self.settings.mode)


@dataclass(slots=True)
class Course:
    """A plan on its way: epoch after epoch, with what was learnt on the way."""

    plan: Plan
    graph: Graph
    """What the epochs to come are drawn from; groups stay those of the plan."""

    def learn(self, evidence: Evidence, blend: float = 0.5) -> None:
        """Epochs that are not drawn yet follow the refreshed weights."""
        self.graph = refresh(self.graph, evidence, blend, self.plan.settings.edges)

    def orders(self) -> Iterator[Order]:
        """The views of every epoch, for ever: those spelt out, then those that follow."""
        plan, border = self.plan, Border()
        spelt = plan.order.reshape(EPOCHS, -1)
        graph, native = plan.graph, plan.graph.native()
        while True:
            if self.graph is not graph:
                graph, native = self.graph, self.graph.native()
            if graph is plan.graph and border.epoch < EPOCHS:
                order = spelt[border.epoch]
                border = next_border(order, plan.settings.batch, border)
            else:
                order, border = draw_epoch(graph, plan.partition, plan.settings, border, native)
            yield order

    def units(self) -> Iterator[list[int]]:
        """Units of different views, for ever; every view comes once an epoch."""
        return cut_units(self.orders(), self.plan.settings.batch)


def make_plan(graph: Graph, settings: PlanSettings, cost: CostModel = NOMINAL) -> Plan:
    """Partition, order and windows for a graph. Raises ValueError if a unit holds more views than
    there are."""
    seconds: dict[str, float] = {}
    groups = _timed(
        seconds,
        "partition",
        lambda: partition(graph, settings.groups, settings.partitioner, settings.seed),
    )
    return plan_order(graph, groups, settings, cost, seconds)


def plan_order(
    graph: Graph,
    groups: Partition,
    settings: PlanSettings,
    cost: CostModel = NOMINAL,
    seconds: dict[str, float] | None = None,
) -> Plan:
    """Order and windows alone: what is made anew when the weights of the graph are refreshed."""
    seconds = {} if seconds is None else seconds
    batch, native = settings.batch, graph.native()
    order = _timed(seconds, "order", lambda: _first_epochs(graph, groups, settings, native))

    def windows() -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_]]:
        coupling, conflict = couplings(graph, order, batch, native)
        return coupling, conflict, plan_windows(conflict, cost, settings.windows, settings.mode)[0]

    found = _timed(seconds, "windows", windows)
    chance = random_order(len(graph), settings.seed, EPOCHS)
    shuffled = Couplings.of(couplings(graph, chance, batch, native)[0])
    return Plan(settings, cost, graph, groups, order, *found, shuffled, seconds)


def _first_epochs(
    graph: Graph, groups: Partition, settings: PlanSettings, native: LocalityGraph
) -> Order:
    border, orders = Border(), []
    for _ in range(EPOCHS):
        order, border = draw_epoch(graph, groups, settings, border, native)
        orders.append(order)
    return np.concatenate(orders)


def _timed(seconds: dict[str, float], name: str, run: Callable[[], T]) -> T:
    start = time.perf_counter()
    result = run()
    seconds[name] = time.perf_counter() - start
    return result
