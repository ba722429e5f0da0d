"""How much communication a schedule would hide, in virtual time: python benchmarks/simulate.py

    python benchmarks/simulate.py [--mode M] [--share S] [--conflict C ...]
                                  [--ranks R ...] [--units N]

The executor and the graph of a mode run units that only take time, over a network that only
takes time. Conflict varies around the means that are asked for (0.2 is sparse, 0.5 dense), or is
what a plan expects of its order for a synthetic flight; windows are opened where the plan's cost
model sees a gain. Speed-up and hidden share are against `off`, whose computation and bytes are the
same; the limit of the speed-up is min(1 / (1 - S), 1 / S), for ranks that are always even. At last
1,000 units of 64 ranks are timed. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from common import machine
from numpy.typing import NDArray
from plan import grid_flight

from grendel_odin.odin.admit import Policy
from grendel_odin.odin.plan import make_plan
from grendel_odin.odin.rlg_builders import importance
from grendel_odin.odin.schedule import couplings
from grendel_odin.odin.settings import Mode, PlanSettings, Windows
from grendel_odin.odin.simulate import Outcome, simulate
from grendel_odin.odin.windows import CostModel, plan_windows
from grendel_odin.odin.workload import Workload


def planned_conflict(units: int) -> NDArray[np.float64]:
    """Of each unit with the unit before, in the planned order of a flight over 100 images."""
    names = [f"{number:06d}.jpg" for number in range(100)]
    plan = make_plan(importance(names, *grid_flight(len(names))), PlanSettings(batch=4))
    order = np.array([*islice(plan.units(), units)], np.int32).ravel()
    return couplings(plan.graph, order, 4)[1].astype(np.float64)


def drawn_conflict(units: int, mean: float) -> NDArray[np.float64]:
    """Between half and one and a half times the mean."""
    return mean * np.random.default_rng(0).uniform(0.5, 1.5, units - 1).clip(0.0, 1.0)


def scheduled(load: Workload, conflict: NDArray[np.float64]) -> Workload:
    """With windows where they are expected to save time."""
    each_way, ranks = load.bytes_each_way, load.ranks
    cost = CostModel.counted(
        each_way, each_way, load.mean_compute_s, load.rate, load.latency_s, ranks
    )
    opened, _ = plan_windows(conflict.astype(np.float32), cost, Windows.AUTO, load.mode)
    return replace(
        load, conflict=[1.0, *conflict.tolist()], windows=[False, *map(bool, opened.tolist())]
    )


def table(load: Workload, name: str) -> dict[str, dict[str, float]]:
    """One line for each policy; gives the figures."""
    figures: dict[str, dict[str, float]] = {}
    baseline = None
    for policy in (Policy.OFF, Policy.QUALITY, Policy.THROUGHPUT):
        outcome = simulate(load, policy)
        baseline = baseline or outcome
        found = figures[policy.value] = compare(outcome, baseline)
        causes = sorted(outcome.causes.items(), key=lambda item: -item[1])
        named = ", ".join(f"{each.value} {1e3 * s:.2f}" for each, s in causes if s >= 1e-5)
        print(
            f"{load.ranks:5} {name:>8}  {policy.value:10} {1e3 * outcome.unit_s:8.2f} "
            f"{found['speedup']:8.3f} {found['hidden_share']:7.1%} {found['exposed_ms']:8.2f}  "
            f"{named}"
        )
    return figures


def compare(outcome: Outcome, baseline: Outcome) -> dict[str, float]:
    """What is told of a policy."""
    return {
        "unit_ms": round(1e3 * outcome.unit_s, 3),
        "exposed_ms": round(1e3 * outcome.exposed_s, 3),
        "speedup": round(baseline.unit_s / outcome.unit_s, 4),
        "hidden_share": round(1.0 - outcome.exposed_s / baseline.exposed_s, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--mode", type=Mode, choices=Mode, default=Mode.HYBRID, metavar="M")
    parser.add_argument("--share", type=float, default=0.3, metavar="S")
    parser.add_argument("--conflict", type=float, nargs="+", default=[0.2, 0.5], metavar="C")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8, 64], metavar="R")
    parser.add_argument("--units", type=int, default=100, metavar="N")
    args = parser.parse_args()
    limit = min(1.0 / (1.0 - args.share), 1.0 / args.share)
    print(f"communication share {args.share:g}: the limit of the speed-up is {limit:.3f}")
    print("ranks conflict  policy      unit ms speed-up  hidden  exposed  by cause (ms a unit)")
    figures: dict[str, Any] = {"benchmark": "simulate", "machine": machine(), "share": args.share}
    figures["mode"] = args.mode.value
    figures["limit"] = round(limit, 4)
    conflicts = {f"{mean:g}": drawn_conflict(args.units, mean) for mean in args.conflict}
    conflicts["planned"] = planned_conflict(args.units)
    for ranks in args.ranks:
        load = Workload(ranks, args.units, args.mode, args.share)
        load = replace(load, slices=8) if ranks > 8 else load
        for name, conflict in conflicts.items():
            figures[f"ranks_{ranks}_conflict_{name}"] = table(scheduled(load, conflict), name)
    start = time.perf_counter()
    large = Workload(64, 1000, args.mode, args.share, slices=4, piece=1.0)
    simulate(scheduled(large, drawn_conflict(large.units, 0.2)), Policy.QUALITY)
    figures["seconds_for_64_ranks_1000_units"] = round(time.perf_counter() - start, 1)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
