"""Training speed, stage by stage, on real scenes.

    python benchmarks/step.py DATA [threads]

DATA holds the COLMAP scenes caliterra16 (400x301) and caliterra_w800 (800x601). Three cases: the
first 100 iterations of each, and 200,000 primitives at 800x601 with SH degree 3. Prints tables and,
as its last line, a JSON object.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from common import machine, measure
from scipy.spatial import cKDTree

from grendel_odin import _kernels
from grendel_odin.config import bind
from grendel_odin.data.scene import Points
from grendel_odin.model.initialise import initialise
from grendel_odin.optim.adam import Adam
from grendel_odin.pipelines.state import Statistics, TrainingState
from grendel_odin.render.cpu import CpuRenderer
from grendel_odin.render.protocol import Rect, tile_rows
from grendel_odin.train.build import build
from grendel_odin.train.settings import Settings
from grendel_odin.train.trainer import Trainer

ITERATIONS, REPEATS = 100, 5
# Floating-point operations a lane that a row of 16 pixels and a (tile, splat) pair need, counted by
# hand in csrc/raster.cpp (a fused multiply-add is two).
ROW_FLOPS = {"blend": 14, "blend_backward": 38}
PAIR_FLOPS = {"blend": 44, "blend_backward": 85}


@dataclass(frozen=True)
class Case:
    name: str
    scene: str
    primitives: int = 0
    """Points are added near the scene's own until there are so many; 0: none."""
    sh_degree_live: bool = False


CASES = [
    Case("caliterra16", "caliterra16"),
    Case("caliterra_w800", "caliterra_w800"),
    Case("200k, SH 3", "caliterra_w800", primitives=200_000, sh_degree_live=True),
]


def trainer_of(case: Case, data: Path, threads: int, output: str) -> Trainer:
    overrides = [
        f"data.path={data / case.scene}",
        f"output={output}",
        "train.overwrite=true",
        f"train.threads={threads}",
        f"train.sh_degree_interval={1 if case.sh_degree_live else 1000}",
    ]
    trainer = build(bind(Settings, None, overrides))
    if case.primitives:
        points = more_points(trainer.scene.points, case.primitives)
        table = initialise(points.xyz, points.rgb, trainer.settings.model)
        trainer.step.state = TrainingState(
            table, Adam(len(table), threads=threads), Statistics(len(table))
        )
    for view in trainer.scene.train:
        trainer.step.images.get(view)
    return trainer


def more_points(points: Points, wanted: int) -> Points:
    """Points scattered about the given ones, half a neighbour's distance away."""
    draw = np.random.default_rng(0)
    distances = cKDTree(points.xyz).query(points.xyz, 4)[0][:, 1:].mean(1)
    source = draw.integers(0, len(points), wanted - len(points))
    offsets = 0.5 * distances[source, None] * draw.normal(size=(len(source), 3))
    return Points(
        np.concatenate([points.xyz, points.xyz[source] + offsets]),
        np.concatenate([points.rgb, points.rgb[source]]),
        np.zeros(wanted + 1, dtype=np.int64),
        np.zeros(0, dtype=np.int32),
    )


def run(case: Case, data: Path, threads: int) -> dict[str, float]:
    """Iterations a second (best run), ms of each stage in that run, and the kernels' own times."""
    best: dict[str, float] = {"it_per_s": 0.0}
    for repeat in range(REPEATS):
        with tempfile.TemporaryDirectory() as output:
            trainer = trainer_of(case, data, threads, output + "/run")
            units = islice(trainer.units(), 3 + ITERATIONS)
            for unit in islice(units, 3):
                trainer.executor.run(trainer.step.tasks(unit))
            before = dict(trainer.executor.seconds)
            start = time.perf_counter()
            for unit in units:
                trainer.executor.run(trainer.step.tasks(unit))
            rate = ITERATIONS / (time.perf_counter() - start)
            if rate > best["it_per_s"]:
                best = {"it_per_s": rate, "primitives": len(trainer.step.state.table)}
                for stage, seconds in trainer.executor.seconds.items():
                    best[f"{stage.value}_ms"] = 1e3 * (seconds - before[stage]) / ITERATIONS
            if repeat == REPEATS - 1:
                best |= kernels(trainer)
            trainer.close()
    return best


def kernels(trainer: Trainer) -> dict[str, float]:
    """ms of the rendering kernels for the first training view, and their share of the FMA peak."""
    renderer, table, threads = trainer.step.renderer, trainer.step.state.table, trainer.step.threads
    assert isinstance(renderer, CpuRenderer)
    camera = trainer.scene.train[0].camera
    degree = trainer.step.pipeline.live_sh_degree(next(trainer.units()).window)
    splats = renderer.project(table, camera, degree)
    rect = Rect.full(camera)
    image = renderer.render(splats, camera, rect, trainer.step.background)
    state = image.saved.state  # type: ignore[attr-defined]
    constants = renderer._kernel_constants
    gradient = torch.randn_like(image.color) / image.color.numel()
    folded = torch.empty_like(splats.values)
    size = (camera.width, camera.height)
    calls = {
        "bin": lambda: _kernels.bin(
            state, splats.values, splats.keys, camera.height, 0, 0, *size, constants, threads
        ),
        "blend": lambda: _kernels.blend(
            state, constants, trainer.step.background, image.color, image.alpha, None, threads
        ),
        "blend_backward": lambda: _kernels.blend_backward(
            state, constants, image.color, None, gradient, None, None, threads
        ),
        "fold": lambda: _kernels.fold(state, splats.values, folded, threads),
    }
    figures = {f"{name}_ms": measure(call, 0.5)[0] for name, call in calls.items()}
    costs = torch.empty(tile_rows(camera.height), dtype=torch.int64)
    _kernels.tile_row_costs(state, costs)
    rows = int(costs.sum())
    figures |= {"splats": len(splats), "pairs": state.pairs, "rows": rows}
    peak = _kernels.fma_rate(20_000_000, threads)
    for name in ROW_FLOPS:
        flops = ROW_FLOPS[name] * rows + PAIR_FLOPS[name] * state.pairs
        figures[f"{name}_share_of_peak"] = flops / (1e-3 * figures[f"{name}_ms"]) / (2 * peak)
    return figures


def main(data: Path, threads: int) -> None:
    peak = _kernels.fma_rate(50_000_000, threads)
    print(
        f"{machine()}, {threads} threads, {_kernels.instruction_set}: "
        f"{peak / 1e9:.2f} G fused multiply-adds of 16 lanes a second "
        f"({32 * peak / 1e9:.0f} GFLOP/s)"
    )
    results: dict[str, object] = {"benchmark": "step", "machine": machine(), "threads": threads}
    results["fma_per_s"] = peak
    for case in CASES:
        figures = run(case, data, threads)
        print(f"\n{case.name}: {figures['it_per_s']:.1f} it/s")
        for name, value in figures.items():
            print(f"  {name:22s} {value:12.3f}")
        results[case.name] = {name: round(value, 3) for name, value in figures.items()}
    results["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2)
