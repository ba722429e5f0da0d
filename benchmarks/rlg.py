"""How well three graphs foretell what views share: python benchmarks/rlg.py SCENE [PLY]

The truth is the overlap (Jaccard) of the rows that two training views activate: of the model in
PLY, or of the model that training starts from. Every graph keeps all of its edges; its weights are
ranked against the truth over all pairs of views (Spearman). `computation` is a trace of the first
model. The true conflict is the share of a unit's rows that the unit before activates, in the order
that a plan makes from the graph (units of 4 views). The last line is one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import machine
from numpy.typing import NDArray
from scipy import stats

from grendel_odin.data.scene import load_scene
from grendel_odin.data.settings import DataSettings
from grendel_odin.model.initialise import initialise
from grendel_odin.model.ply_read import read_ply
from grendel_odin.model.settings import ModelSettings
from grendel_odin.odin.plan import make_plan
from grendel_odin.odin.rlg import Graph
from grendel_odin.odin.rlg_builders import computation
from grendel_odin.odin.schedule import Couplings, couplings
from grendel_odin.odin.settings import Builder, PlanSettings
from grendel_odin.render import make_renderer
from grendel_odin.render.settings import RendererSettings, for_depth
from grendel_odin.report.table import text_table
from grendel_odin.train.planning import scene_graph
from grendel_odin.train.trace import trace_rows


def upper(graph: Graph) -> NDArray[np.float64]:
    """Weights of all pairs of views."""
    above: NDArray[np.float64] = graph.matrix().toarray()[np.triu_indices(len(graph), 1)]
    return above


def timed(run: Callable[[], Graph]) -> tuple[float, Graph]:
    """Seconds of the second call, and its result."""
    run()
    start = time.perf_counter()
    graph = run()
    return time.perf_counter() - start, graph


def main(path: str, ply: str | None) -> None:
    scene = load_scene(DataSettings(path=path))
    names = [view.camera.name for view in scene.train]
    edges = len(names)
    renderer = make_renderer(for_depth(RendererSettings(), scene.depth), 1)
    first = initialise(scene.points.xyz, scene.points.rgb, ModelSettings())
    last = read_ply(Path(ply), scene.offset) if ply else first
    truth = computation(names, trace_rows(last, renderer, scene.train), edges)
    rows, figures = [], {}
    for builder in Builder:
        wanted = PlanSettings(builder=builder, edges=edges, batch=min(4, edges))
        seconds, graph = timed(
            lambda wanted=wanted: scene_graph(  # type: ignore[misc]
                scene, wanted, 1, trace_rows(first, renderer, scene.train)
            )
        )
        plan = make_plan(graph, wanted)
        live = Couplings.of(couplings(truth, plan.order, wanted.batch)[1])
        found: dict[str, Any] = {
            "density": round(graph.density, 3),
            "build_s": round(seconds, 4),
            "rank_correlation": round(float(stats.spearmanr(upper(graph), upper(truth))[0]), 3),
            "true_conflict": round(live.mean, 3),
        }
        figures[builder.value] = found
        rows.append([builder.value, *map(str, found.values())])
    chance = Couplings.of(
        couplings(truth, np.random.default_rng(0).permutation(edges).astype(np.int32), 4)[1]
    )
    print(f"{Path(path).name}: {edges} views, {len(last):,} rows, true density {truth.density:.3f}")
    head = ["graph", "density", "build s", "rank correlation", "true conflict of its order"]
    print(text_table(head, [*rows, ["(random)", "", "", "", f"{chance.mean:.3f}"]]))
    told = {"benchmark": "rlg", "machine": machine(), "scene": Path(path).name, "ply": ply or ""}
    print(json.dumps({**told, **figures, "random_conflict": round(chance.mean, 3)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
