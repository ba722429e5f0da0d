"""The logical partition: groups of views, strongly coupled inside and weakly to each other.

Groups are bins of the schedule; they say nothing about who owns rows or renders pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pymetis
from numpy.typing import NDArray
from scipy import sparse

from grendel_odin.odin.rlg import Graph
from grendel_odin.odin.settings import Partitioner
from grendel_odin.odin.spectral import bisections

Matrix = sparse.csr_array
Groups = NDArray[np.int32]

SEEDS, KWAY_SEEDS = 4, 2
"""Runs of METIS on small and large graphs; the best cut is kept. (Those of large graphs differ by
3%, and each takes a tenth of the planning.)"""
METIS_LEAST = 8
"""Connected views a group below which METIS is not called: on subgraphs of a few vertices it has
read beyond its arrays (KarypisLab/METIS#73, #118; inducer/pymetis#17)."""
KWAY_FROM = 5000
"""Views from which METIS cuts into all groups at once: faster, but on small graphs far worse (56%
against 37% of the weight cut on a real capture of 65 views)."""
_METIS_SCALE = 100
"""Weights become integers up to this: wide ratios provoke the same faults."""
BALANCE = 1.05


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Groups of V views."""

    groups: Groups
    """[V] in 0..count - 1; no group is empty."""
    count: int
    method: str
    """What made it: metis, spectral, or blocks (of the given order, where no edge says more)."""
    seed: int
    cut: float
    """Weight of the edges between groups over that of all edges."""
    balance: float
    """Largest group over the size of an even one, rounded up."""
    notes: tuple[str, ...] = ()


def partition(
    graph: Graph, groups: int, method: Partitioner = Partitioner.METIS, seed: int = 0
) -> Partition:
    """Cut the graph into `groups` (fewer if there are fewer views), none above 1.05 of even.

    Views without edges are spread over the smallest groups. Equal seeds give equal groups.
    """
    views = len(graph)
    count = min(groups, views)
    notes = [f"{groups} groups of {views} views: {count} groups of one view"] * (count < groups)
    connected = np.flatnonzero(np.diff(graph.starts))
    matrix = graph.matrix()
    if len(connected) < views:
        matrix = matrix[connected][:, connected]
    made_by, used = "blocks", seed
    if count > 1 and len(connected) >= 2 * count:
        if method is Partitioner.METIS and len(connected) >= METIS_LEAST * count:
            inner, used = _metis(matrix, count, seed)
            made_by = "metis"
        else:
            inner, made_by = bisections(matrix, count, seed), "spectral"
            if method is Partitioner.METIS:
                notes.append(
                    f"{len(connected)} connected views are few for METIS ({METIS_LEAST} a group "
                    "are needed): cut spectrally"
                )
    else:
        inner = _blocks(len(connected), count)
    inner = _balanced(matrix, inner, count, _limit(views, count))
    placed = _spread(inner, connected, views, count)
    return Partition(
        *(placed, count, made_by, used, cut_share(graph, placed)),
        float(np.bincount(placed).max()) / -(-views // count),
        tuple(notes),
    )


def cut_share(graph: Graph, groups: Groups) -> float:
    """Weight of the edges between groups over that of all edges; 0 without edges."""
    rows = np.repeat(groups, np.diff(graph.starts))
    total = float(graph.weights.sum(dtype=np.float64))
    across = float(graph.weights[rows != groups[graph.neighbours]].sum(dtype=np.float64))
    return across / total if total > 0 else 0.0


def _metis(matrix: Matrix, count: int, seed: int) -> tuple[Groups, int]:
    """The best of several cuts, and its seed."""
    kind = pymetis.zero_copy_dtype()
    adjacency = pymetis.CSRAdjacency(matrix.indptr.astype(kind), matrix.indices.astype(kind))
    scaled = np.rint(matrix.data * (_METIS_SCALE / float(matrix.data.max())))
    weights = np.maximum(1, scaled).astype(kind)  # METIS takes positive integers
    recursive = matrix.shape[0] < KWAY_FROM

    def cut(used: int) -> tuple[int, int, Groups]:
        cost, parts = pymetis.part_graph(
            *(count, adjacency),
            eweights=weights,
            recursive=recursive,
            options=pymetis.Options(seed=used),
        )
        return int(cost), used, np.asarray(parts, np.int32)

    runs = SEEDS if recursive else KWAY_SEEDS  # a seed is an int, and 0 and 1 are the same
    tries = [cut(1 + (seed * SEEDS + attempt) % (2**31 - 1)) for attempt in range(runs)]
    sound = [one for one in tries if _is_sound(one[2], matrix.shape[0], count)]
    if not sound:
        raise ValueError(f"METIS has returned no partition of {matrix.shape[0]} views")
    _, used, groups = min(sound, key=lambda one: one[:2])
    return groups, used


def _is_sound(groups: Groups, views: int, count: int) -> bool:
    return groups.shape == (views,) and bool(((groups >= 0) & (groups < count)).all())


def _blocks(views: int, count: int) -> Groups:
    """Even runs of the given order."""
    return (np.arange(views, dtype=np.int64) * count // max(views, 1)).astype(np.int32)


def _limit(views: int, count: int) -> int:
    even = -(-views // count)
    return max(even, int(BALANCE * even))


def _balanced(matrix: Matrix, groups: Groups, count: int, limit: int) -> Groups:
    """Moves views out of groups above the limit, and into empty ones; those that lose least go."""
    groups = groups.copy()
    sizes = np.bincount(groups, minlength=count)
    even = -(-len(groups) // count)
    while len(groups) >= count and (sizes.max() > limit or sizes.min() == 0):
        largest, smallest = int(sizes.argmax()), int(sizes.argmin())
        surplus = min(max(sizes[largest] - limit, 1), max(even - sizes[smallest], 1))
        members = np.flatnonzero(groups == largest)
        inside = (groups == smallest).astype(np.float64) - (groups == largest)
        gain = matrix[members] @ inside
        chosen = members[np.argsort(-gain, kind="stable")[:surplus]]
        groups[chosen] = smallest
        sizes = np.bincount(groups, minlength=count)
    return groups


def _spread(inner: Groups, connected: NDArray[np.int64], views: int, count: int) -> Groups:
    """The groups of the connected views, and of the others so that sizes become even."""
    groups = np.full(views, -1, np.int32)
    groups[connected] = inner
    free = np.flatnonzero(groups < 0)
    sizes = np.bincount(inner, minlength=count)
    if len(free):
        # Water is poured into the lowest cells: the k-th goes where the level is reached first.
        levels = np.concatenate([np.arange(size, size + len(free)) for size in sizes])
        owners = np.repeat(np.arange(count), len(free))
        order = np.lexsort((owners, levels))[: len(free)]
        groups[free] = owners[order]
    return groups
