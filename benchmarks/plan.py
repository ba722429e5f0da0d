"""Seconds and memory that a plan takes, beside scipy's sparse product: python benchmarks/plan.py

    python benchmarks/plan.py [threads] [images ...]

Synthetic captures: a flight over a square grid; a point may be seen from up to 2 photographs along
the line and 1 across, and is found in about half of them; 600 observations an image, tracks of 6.
Points come in no order, which is the slow case for all (a global reconstruction numbers them so);
figures of the largest capture are also taken with points in the order of the flight, `_in_order`:
an incremental reconstruction comes near to that, and scipy gains most by it.

A plan is graph, partition and both schedules, in units of 4 views. scipy makes the same graph
alone: product, Jaccard weights, strongest edges, symmetric; the two graphs are compared. Each size
runs in a process of its own, three times; the fastest counts. Memory is what the process has at its
highest beyond what it had before the observations were made. The last line is one JSON object.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import machine
from numpy.typing import NDArray
from scipy import sparse

from grendel_odin.odin.partition import partition
from grendel_odin.odin.plan import make_plan
from grendel_odin.odin.plan_summary import summary
from grendel_odin.odin.rlg import Graph
from grendel_odin.odin.rlg_builders import importance
from grendel_odin.odin.settings import Partitioner, PlanSettings

IMAGES = (1_000, 10_000, 50_000)
POINTS_PER_IMAGE, FOUND, REPEATS = 100, 0.42, 3
SETTINGS = PlanSettings(batch=4)

Tracks = tuple[NDArray[np.int64], NDArray[np.int32]]


def grid_flight(images: int, seed: int = 0) -> Tracks:
    """Offsets and views of tracks, in the order in which a flight would find them."""
    draw = np.random.default_rng(seed)
    side = int(np.ceil(np.sqrt(images)))
    across, along = (a.ravel() for a in np.meshgrid([-1, 0, 1], [-2, -1, 0, 1, 2], indexing="ij"))
    views, lengths = [], []
    for first in range(0, images, 2048):
        center = np.repeat(np.arange(first, min(first + 2048, images)), POINTS_PER_IMAGE)
        row, column = center[:, None] // side + across, center[:, None] % side + along
        camera = row * side + column
        inside = (row >= 0) & (column >= 0) & (column < side) & (camera < images)
        seen = inside & (draw.random(camera.shape, np.float32) < FOUND)
        seen &= seen.sum(axis=1, keepdims=True) >= 2
        views.append(camera[seen].astype(np.int32))
        length = seen.sum(axis=1)
        lengths.append(length[length > 0])
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    return offsets, np.concatenate(views)


def without_order(tracks: Tracks) -> Tracks:
    """The same tracks, shuffled."""
    offsets, views = tracks
    lengths = np.diff(offsets)
    order = np.random.default_rng(0).permutation(len(lengths))
    starts = np.concatenate([[0], np.cumsum(lengths[order])]).astype(np.int64)
    place = np.repeat(offsets[:-1][order] - starts[:-1], lengths[order]) + np.arange(len(views))
    return starts, views[place]


def scipy_graph(tracks: Tracks, images: int, edges: int) -> sparse.csr_array:
    """The graph of `importance`, by a sparse product."""
    offsets, views = tracks
    ones = np.ones(len(views), np.int32)
    seen = sparse.csr_array((ones, views, offsets), shape=(len(offsets) - 1, images))
    shared = (seen.T.tocsr() @ seen).tocsr()
    rows = np.repeat(np.arange(images, dtype=np.int32), np.diff(shared.indptr))
    other = rows != shared.indices
    rows, columns, common = rows[other], shared.indices[other], shared.data[other]
    sizes = np.bincount(views, minlength=images)
    weights = (common / (sizes[rows] + sizes[columns] - common)).astype(np.float32)
    order = np.lexsort((columns, -weights, rows))
    starts = np.searchsorted(rows, np.arange(images))
    best = order[np.arange(len(rows)) - starts[rows] < edges]
    graph = sparse.csr_array((weights[best], (rows[best], columns[best])), shape=(images, images))
    return sparse.csr_array(graph.maximum(graph.T))


def memory(key: str) -> float:
    """MB of this process: VmRSS now, or VmHWM at its highest since `reset_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))


def fastest(run: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the fastest of a few calls, and the result of the last."""
    seconds, result = float("inf"), None
    for _ in range(REPEATS):
        result = None  # two results at once would count as memory
        start = time.perf_counter()
        result = run()
        seconds = min(seconds, time.perf_counter() - start)
    return seconds, result


def one(images: int, threads: int, ordered: bool) -> dict[str, Any]:
    """Figures of one size, in this process."""
    names = [f"{number:06d}.jpg" for number in range(images)]
    importance(names[:3], np.array([0, 2], np.int64), np.array([0, 1], np.int32))  # loads all code
    before = memory("VmRSS")
    tracks = grid_flight(images) if ordered else without_order(grid_flight(images))
    observed_mb = sum(array.nbytes for array in tracks) / 2**20
    own_mb = memory("VmRSS") - before - observed_mb  # what making the capture has left behind
    Path("/proc/self/clear_refs").write_text("5")
    graph_s = float("inf")

    def plan() -> Any:
        nonlocal graph_s
        start = time.perf_counter()
        graph = importance(names, *tracks, threads=threads)
        graph_s = min(graph_s, time.perf_counter() - start)
        return make_plan(graph, SETTINGS)

    plan_s, made = fastest(plan)
    peak_mb = memory("VmHWM") - before - max(own_mb, 0.0)
    scipy_s, other = fastest(lambda: scipy_graph(tracks, images, SETTINGS.edges))
    check_same(made.graph, other)
    print(summary(made, [partition(made.graph, SETTINGS.groups, Partitioner.SPECTRAL)]))
    return {
        **{"images": images, "observations": len(tracks[1]), "threads": threads},
        **{"track_length": round(len(tracks[1]) / (len(tracks[0]) - 1), 2)},
        **{"plan_s": round(plan_s, 4), "scipy_s": round(scipy_s, 4)},
        **{"speedup_over_scipy": round(scipy_s / plan_s, 2)},
        **{"peak_mb": round(peak_mb, 1), "observations_mb": round(observed_mb, 1)},
        "steps": {"graph": round(graph_s, 4)}
        | {name: round(seconds, 4) for name, seconds in made.seconds.items()},
    }


def check_same(graph: Graph, other: sparse.csr_array) -> None:
    """Raise AssertionError unless scipy finds the same edges and weights."""
    other.sort_indices()
    assert np.array_equal(graph.starts, other.indptr), "different edges"
    assert np.array_equal(graph.neighbours, other.indices), "different edges"
    assert np.allclose(graph.weights, other.data, rtol=1e-6), "different weights"


def main(threads: int, sizes: list[int]) -> None:
    figures: dict[str, Any] = {"benchmark": "plan", "machine": machine(), "threads": threads}
    for images, order in [*((images, "") for images in sizes), (max(sizes), "_in_order")]:
        words = [sys.executable, __file__, "--one", str(threads), str(images), order]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        *lines, last = done.stdout.strip().splitlines()
        print(f"{images:,} images{order}", *lines, sep="\n", flush=True)
        figures[f"images_{images}{order}"] = json.loads(last)
    print(json.dumps(figures))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(int(sys.argv[3]), int(sys.argv[2]), ordered=bool(sys.argv[4]))))
    else:
        numbers = [int(word) for word in sys.argv[1:]]
        cores = len(os.sched_getaffinity(0))
        main(numbers[0] if numbers else cores, numbers[1:] or list(IMAGES))
