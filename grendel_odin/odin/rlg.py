"""The relative locality graph: how much any two views share, before anything has run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from grendel_odin.odin import _planner
from grendel_odin.odin.settings import Builder


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A symmetric weighted graph in compressed rows; V vertices (views), E entries (twice the
    edges), neighbours ascending, no loops."""

    names: tuple[str, ...]
    builder: Builder
    starts: NDArray[np.int64]
    """[V + 1]"""
    neighbours: NDArray[np.int32]
    """[E]"""
    weights: NDArray[np.float32]
    """[E] in (0, 1]."""
    sizes: NDArray[np.int32]
    """[V] number of items (tracks, points, rows) of each view."""
    unknown: NDArray[np.bool_]
    """[V] views of which nothing is known. There weight 0 says: validate, not: independent."""
    strength: float
    """Sum of the weights of all edges, also of those that were too weak to be kept."""
    notes: tuple[str, ...] = ()
    """What was found and left out, a line each."""

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def edge_count(self) -> int:
        """Number of edges."""
        return len(self.neighbours) // 2

    @property
    def mean_degree(self) -> float:
        """Edges of a view."""
        return len(self.neighbours) / len(self)

    @property
    def density(self) -> float:
        """Share of the pairs of views that have an edge."""
        pairs = len(self) * (len(self) - 1) // 2
        return self.edge_count / pairs if pairs else 0.0

    @property
    def kept(self) -> float:
        """Share of the total weight that the kept edges hold."""
        total = float(self.weights.sum(dtype=np.float64)) / 2
        return min(1.0, total / self.strength) if self.strength > 0 else 1.0

    @property
    def mean_weight(self) -> float:
        """Expected weight of two views drawn at random among the known."""
        known = int((~self.unknown).sum())
        return self.strength / (known * (known - 1) / 2) if known > 1 else 0.0

    def matrix(self) -> sparse.csr_array:
        """[V, V] weights."""
        return sparse.csr_array(
            (self.weights, self.neighbours, self.starts), shape=(len(self),) * 2
        )

    def native(self) -> _planner.LocalityGraph:
        """For the C++ loops. A view of which nothing is known counts as coupled to every other
        as two random views are."""
        return _planner.LocalityGraph(
            *(self.starts, self.neighbours, self.weights, self.sizes, self.unknown),
            self.mean_weight,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What a run has seen of pairs of views, each pair any number of times."""

    pairs: NDArray[np.int32]
    """[E, 2]"""
    overlaps: NDArray[np.float32]
    """[E] in 0..1: rows active in both over rows active in either."""
    gradients: NDArray[np.float32] | None = None
    """[E] in 0..1: share of the summed |lr x gradient| of the first that falls on rows of both."""


def refresh(graph: Graph, evidence: Evidence, blend: float = 0.5, edges: int = 32) -> Graph:
    """The graph with the weights of the observed pairs moved towards what was observed.

    The observed weight is the overlap, or its mean with the gradients' share where that is given.
    Views of an observed pair are no longer unknown. The strongest `edges` of each view are kept.
    Raises ValueError for evidence that does not fit.
    """
    observed, seen = _observed(graph, evidence)
    old = graph.matrix().astype(np.float64)
    change = blend * (observed - old.multiply(seen))
    fresh = sparse.csr_array(old + change)
    fresh.eliminate_zeros()
    fresh.sort_indices()
    starts, neighbours, weights = _planner.strongest(
        fresh.indptr.astype(np.int64),
        fresh.indices.astype(np.int32),
        np.clip(fresh.data, 0.0, 1.0).astype(np.float32),
        edges,
    )
    unknown = graph.unknown.copy()
    unknown[evidence.pairs] = False
    strength = max(0.0, graph.strength + float(change.sum()) / 2)
    return replace(
        graph,
        starts=starts,
        neighbours=neighbours,
        weights=weights,
        unknown=unknown,
        strength=strength,
    )


def _observed(graph: Graph, evidence: Evidence) -> tuple[sparse.csr_array, sparse.csr_array]:
    """[V, V] symmetric: the mean weight that was observed of a pair, and 1 where a pair was."""
    pairs = np.asarray(evidence.pairs, np.int64).reshape(-1, 2)
    values = np.asarray(evidence.overlaps, np.float64)
    if evidence.gradients is not None:
        values = 0.5 * (values + np.asarray(evidence.gradients, np.float64))
    if values.shape != (len(pairs),) or not ((values >= 0) & (values <= 1)).all():
        raise ValueError("evidence: overlaps and gradients are one number in 0..1 for each pair")
    if len(pairs) and (pairs.min() < 0 or pairs.max() >= len(graph)):
        raise ValueError(f"evidence names a view outside of 0..{len(graph) - 1}")
    different = pairs[:, 0] != pairs[:, 1]
    (u, v), values = pairs[different].T, values[different]
    rows, columns = np.concatenate([u, v]), np.concatenate([v, u])
    shape = (len(graph),) * 2
    both = np.concatenate([values, values])
    mean = sparse.csr_array((both, (rows, columns)), shape=shape)
    seen = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)
    mean.data /= seen.data  # sums over how often; both have the same pattern
    seen.data[:] = 1.0
    return mean, seen


def names_of(count: int, names: Sequence[str]) -> tuple[str, ...]:
    """The names, checked for their number. Raises ValueError."""
    if len(names) != count:
        raise ValueError(f"{len(names)} names for {count} views")
    if not count:
        raise ValueError("there are no views to plan for")
    return tuple(names)
