"""The test of rows that may be visible after a step: what it costs, and how tight it is.

    python benchmarks/bounds.py DATA [threads]

DATA holds the COLMAP scene caliterra_w400. Cost: against the projection of the same rows, for
100,000 and 1,000,000 of them. Tightness: in a training run, rows that are visible in the view of
the next unit once the step is taken, as a share of those that the test had named before it; of all
rows, and of those that the unit wrote. Prints tables and, as its last line, a JSON object.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch
from common import machine, measure
from step import Case, trainer_of

from grendel_odin.model.table import PrimitiveTable
from grendel_odin.optim.adam import Adam
from grendel_odin.render.bounds import NextStep, VisibilityBound
from grendel_odin.train.trainer import Trainer

SCENE, WARM_UP, UNITS = "caliterra_w400", (30, 600), 60


def bound_of(trainer: Trainer) -> VisibilityBound:
    """Of the step that the trainer takes next."""
    step, adam = trainer.step, trainer.step.state.adam
    coming = NextStep.of(adam.kind, adam.steps + 1, step.rates, adam.steps)
    return VisibilityBound(step.state.table, adam, coming, step.renderer.constants, step.threads)


def cost(trainer: Trainer, rows: int) -> dict[str, float]:
    """Least ms of a call."""
    table, adam = trainer.step.state.table, trainer.step.state.adam
    take = torch.arange(rows) % len(table)
    many = PrimitiveTable(table.values[take], torch.arange(rows), table.layout)
    moments = Adam(rows, adam.kind)
    moments.m, moments.v = adam.m[take], adam.v[take]
    bound = replace(bound_of(trainer), table=many, moments=moments)
    blind = replace(bound, moments=None)
    cameras = [view.camera for view in trainer.scene.train[:8]]
    renderer = trainer.step.renderer
    tenth = torch.arange(0, rows, 10, dtype=torch.int32)
    calls = {
        "project, SH 0": lambda: renderer.project(many, cameras[0], 0),
        "1 view": lambda: bound(cameras[:1]),
        "1 view, any history": lambda: blind(cameras[:1]),
        "8 views, any history": lambda: blind(cameras),
        "4 views": lambda: bound(cameras[:4]),
        "8 views": lambda: bound(cameras),
        "1 view, every 10th row": lambda: bound(cameras[:1], tenth),
    }
    return {name: measure(call)[0] for name, call in calls.items()}


def tightness(trainer: Trainer, warm_up: int) -> dict[str, float]:
    """Means over units. The share visible, too, for a test that does not look at the moments, and
    for one that knows of no step (which would miss rows)."""
    step, sums = trainer.step, torch.zeros(8, dtype=torch.float64)
    units = list(islice(trainer.units(), warm_up + UNITS + 1))
    for unit in units[:warm_up]:
        trainer.executor.run(step.tasks(unit))
    for unit, following in zip(units[warm_up:-1], units[warm_up + 1 :], strict=True):
        cameras = [view.camera for view in following.views]
        bound = bound_of(trainer)
        still = replace(bound, step=replace(bound.step, rates=torch.zeros(64)))(cameras).any
        blind = replace(bound, moments=None)(cameras).any
        flagged = bound(cameras).any
        trainer.executor.run(step.tasks(unit))
        visible = torch.zeros(len(flagged), dtype=torch.bool)
        for camera in cameras:
            visible[step.renderer.project(step.state.table, camera, 0).rows.long()] = True
        assert unit.gradients is not None and not (visible & ~flagged).any()
        written = torch.zeros_like(visible)
        written[unit.gradients.rows.long()] = True
        named = [flagged, blind, still, visible]
        counts = [*named, *(rows & written for rows in named)]
        sums += torch.tensor([float(rows.sum()) for rows in counts], dtype=torch.float64)
    figures = {}
    for title, (exact, history, unmoved, seen) in {"all": sums[:4], "written": sums[4:]}.items():
        figures[f"{title} rows: named"] = float(exact) / (UNITS * len(step.state.table))
        figures[f"{title} rows: visible of them"] = float(seen / exact)
        figures[f"{title} rows: with any history"] = float(seen / history)
        figures[f"{title} rows: with no step"] = float(seen / unmoved)
    return figures


def main(data: Path, threads: int) -> None:
    print(f"{machine()}, {threads} threads, load {os.getloadavg()[0]:.1f}")
    results: dict[str, object] = {"benchmark": "bounds", "machine": machine(), "threads": threads}
    for warm_up in WARM_UP:
        with tempfile.TemporaryDirectory() as output:
            case = Case(SCENE, SCENE, primitives=100_000)
            trainer = trainer_of(case, data, threads, output + "/run")
            tables = {f"tightness after {warm_up} units": tightness(trainer, warm_up)}
            if warm_up == WARM_UP[-1]:
                for rows in (100_000, 1_000_000):
                    tables[f"{rows} rows, ms"] = cost(trainer, rows)
            trainer.close()
        for title, table in tables.items():
            print(f"\n{title}")
            for name, value in table.items():
                print(f"  {name:32s} {value:8.3f}")
        results |= {title: {n: round(x, 3) for n, x in t.items()} for title, t in tables.items()}
    print(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
