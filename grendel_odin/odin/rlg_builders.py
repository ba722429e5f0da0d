"""Three ways to know beforehand what views share. All count items of sets; they differ in what an
item is: a track, a point in the frustum, a row that a traced view has activated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from grendel_odin.odin import _planner
from grendel_odin.odin.rlg import Graph, names_of
from grendel_odin.odin.settings import Builder

SAMPLES = 4096
"""Points that stand for a scene's geometry."""


def importance(
    names: Sequence[str],
    offsets: NDArray[np.int64],
    views: NDArray[np.int32],
    place: NDArray[np.int32] | None = None,
    edges: int = 32,
    threads: int = 1,
) -> Graph:
    """Jaccard weights of track sets: two views are coupled as their tracks are.

    names: of the V vertices. offsets [P + 1], views [M]: track p is seen by
    views[offsets[p] : offsets[p + 1]]. place [W]: the vertex of each of W views, -1 for views that
    are not planned for; none: views are vertices. Entries that name no view, and repeats, are
    left out with a note. Raises ValueError if the arrays are no tracks or there are no vertices.
    """
    return _graph(names, offsets, views, place, Builder.IMPORTANCE, edges, threads)


def geometry(
    names: Sequence[str],
    world_to_camera: NDArray[np.float64],
    K: NDArray[np.float64],
    sizes: NDArray[np.int64],
    points: NDArray[np.float64],
    edges: int = 32,
    threads: int = 1,
) -> Graph:
    """Jaccard weights of the points in each frustum, for scenes without tracks.

    world_to_camera [V, 3, 4], K [V, 3, 3], sizes [V, 2] (width, height), points [N, 3]; for points
    that are only known to lie in a box see `lattice`. Coarse: it does not know what hides what.
    """
    step = max(1, -(-len(points) // SAMPLES))
    sampled = np.asarray(points, np.float64)[::step]
    seen = [
        _inside(pose, intrinsics, size, sampled)
        for pose, intrinsics, size in zip(world_to_camera, K, sizes, strict=True)
    ]
    which, views = np.nonzero(np.array(seen, bool).reshape(len(seen), len(sampled)).T)
    offsets = np.searchsorted(which, np.arange(len(sampled) + 1)).astype(np.int64)
    return _graph(names, offsets, views.astype(np.int32), None, Builder.GEOMETRY, edges, threads)


def lattice(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
    """[N, 3] points that fill a box evenly, SAMPLES at most."""
    side = round(SAMPLES ** (1 / 3))
    axes = [np.linspace(a, b, side) for a, b in zip(low, high, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)


def computation(
    names: Sequence[str],
    accesses: Iterable[tuple[int, NDArray[np.int64]]],
    edges: int = 32,
    threads: int = 1,
) -> Graph:
    """Jaccard weights of traced rows.

    accesses: pairs of (view, ids of the rows that it has activated), in any order; a view that
    comes more than once has all of them. Faithful to the moment of the trace, and dear.
    """
    traced = [(view, np.unique(ids)) for view, ids in accesses]
    ids = np.concatenate([np.zeros(0, np.int64), *(ids for _, ids in traced)])
    owners = np.repeat([view for view, _ in traced] or [0], [len(ids) for _, ids in traced] or [0])
    rows, item = np.unique(ids, return_inverse=True)
    order = np.lexsort((owners, item))
    offsets = np.searchsorted(item[order], np.arange(len(rows) + 1)).astype(np.int64)
    views = owners[order].astype(np.int32)
    return _graph(names, offsets, views, None, Builder.COMPUTATION, edges, threads)


def _graph(
    names: Sequence[str],
    offsets: NDArray[np.int64],
    views: NDArray[np.int32],
    place: NDArray[np.int32] | None,
    builder: Builder,
    edges: int,
    threads: int,
) -> Graph:
    count = len(names)
    kept_names = names_of(count, names)
    if place is None:
        place = np.arange(count, dtype=np.int32)
    place = np.ascontiguousarray(place, np.int32)
    offsets, views = np.ascontiguousarray(offsets, np.int64), np.ascontiguousarray(views, np.int32)
    notes: list[str] = []
    found = _planner.overlaps(offsets, views, place, count, edges, threads)
    if found[0]:
        offsets, views, notes = _tidy(offsets, views, len(place))
        found = _planner.overlaps(offsets, views, place, count, edges, threads)
    _, starts, neighbours, weights, sizes, strengths = found
    unknown = sizes == 0
    if alone := int(unknown.sum()):
        notes.append(
            f"{alone:,} of {count:,} views have no {_ITEMS[builder]}: what they share is unknown"
        )
    strength = float(strengths.sum()) / 2
    return Graph(
        kept_names, builder, starts, neighbours, weights, sizes, unknown, strength, tuple(notes)
    )


_ITEMS = {
    Builder.IMPORTANCE: "tracks",
    Builder.GEOMETRY: "points in sight",
    Builder.COMPUTATION: "traced rows",
}


def _tidy(
    offsets: NDArray[np.int64], views: NDArray[np.int32], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], list[str]]:
    """Items whose views are known, ascending and without repeats; and notes on what was not so."""
    notes: list[str] = []
    items = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    named = (views >= 0) & (views < count)
    if unknown := int((~named).sum()):
        notes.append(f"dropped {unknown:,} of {len(views):,} observations: they name no known view")
    keys = items[named] * count + views[named]
    distinct = np.unique(keys)
    if repeated := len(keys) - len(distinct):
        notes.append(f"dropped {repeated:,} of {len(views):,} observations: repeats in one track")
    found = distinct // max(count, 1)
    starts = np.searchsorted(found, np.arange(len(offsets))).astype(np.int64)
    return starts, (distinct % max(count, 1)).astype(np.int32), notes


def _inside(
    pose: NDArray[np.float64],
    K: NDArray[np.float64],
    size: NDArray[np.int64],
    points: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """[N] whether a camera has the points in front of it and within its image."""
    camera = points @ pose[:3, :3].T + pose[:3, 3]
    pixels = camera @ K.T
    depth = camera[:, 2]
    inside: NDArray[np.bool_] = (
        (depth > 0)
        & (pixels[:, :2] >= 0).all(axis=1)
        & (pixels[:, :2] <= depth[:, None] * size).all(axis=1)
    )
    return inside
