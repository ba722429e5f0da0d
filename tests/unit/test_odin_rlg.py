"""The relative locality graph against plain set arithmetic, and what it makes of bad input."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from grendel_odin.odin.rlg import Evidence, Graph, refresh
from grendel_odin.odin.rlg_builders import computation, geometry, importance, lattice
from grendel_odin.odin.settings import Builder

Tracks = list[list[int]]


def csr(tracks: Tracks) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    lengths = [len(track) for track in tracks]
    views = [view for track in tracks for view in track]
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), np.array(views, np.int32)


def names(count: int) -> list[str]:
    return [f"{number}.jpg" for number in range(count)]


def weights(graph: Graph) -> dict[tuple[int, int], float]:
    """Of each ordered pair; checks what every graph promises."""
    rows = np.repeat(np.arange(len(graph)), np.diff(graph.starts))
    found = {
        (int(u), int(v)): float(w)
        for u, v, w in zip(rows, graph.neighbours, graph.weights, strict=True)
    }
    assert len(found) == len(graph.neighbours) and all(u != v for u, v in found)
    assert list(found) == sorted(found)  # rows in order, neighbours ascend
    assert all(found[v, u] == w and 0 < w <= 1 for (u, v), w in found.items())
    return found


def jaccard(sets: list[set[int]]) -> dict[tuple[int, int], float]:
    pairs = {}
    for u, v in combinations(range(len(sets)), 2):
        if sets[u] & sets[v]:
            pairs[u, v] = pairs[v, u] = len(sets[u] & sets[v]) / len(sets[u] | sets[v])
    return pairs


def strongest(pairs: dict[tuple[int, int], float], views: int, keep: int) -> set[tuple[int, int]]:
    """Edges among the strongest of either end; of equals, those to lower views."""
    kept = set()
    for u in range(views):
        row = sorted((-np.float32(w), v) for (a, v), w in pairs.items() if a == u)
        kept |= {(u, v) for _, v in row[:keep]} | {(v, u) for _, v in row[:keep]}
    return kept


@st.composite
def captures(draw: st.DrawFn) -> tuple[int, Tracks]:
    views = draw(st.integers(1, 12))
    tracks = st.lists(st.sets(st.integers(0, views - 1), max_size=views).map(sorted), max_size=40)
    return views, draw(tracks)


@given(captures(), st.integers(1, 6))
def test_weights_are_jaccard_of_track_sets(capture: tuple[int, Tracks], keep: int) -> None:
    views, tracks = capture
    graph = importance(names(views), *csr(tracks), edges=keep)
    sets = [{number for number, track in enumerate(tracks) if v in track} for v in range(views)]
    expected = jaccard(sets)
    found = weights(graph)
    assert set(found) == strongest(expected, views, keep)
    assert all(w == np.float32(expected[pair]) for pair, w in found.items())
    assert graph.sizes.tolist() == [len(one) for one in sets]
    assert graph.unknown.tolist() == [not one for one in sets]
    assert graph.strength == pytest.approx(sum(expected.values()) / 2, rel=1e-6)


def test_threads_do_not_change_a_bit() -> None:
    draw = np.random.default_rng(0)  # enough entries that every thread has some
    views = (draw.integers(0, 90, 550_000)[:, None] + np.arange(6)).astype(np.int32)
    offsets = np.arange(0, views.size + 1, 6)
    one, three = (
        importance(names(95), offsets, views.ravel(), edges=5, threads=threads)
        for threads in (1, 3)
    )
    assert weights(one) == weights(three) and one.strength == three.strength
    assert one.sizes.sum() == views.size


def test_long_tracks_count_as_short_ones_do() -> None:
    draw = np.random.default_rng(0)
    tracks = [sorted(draw.choice(60, size, replace=False)) for size in draw.integers(0, 60, 500)]
    one = importance(names(60), *csr(tracks), edges=60)
    sets = [{number for number, track in enumerate(tracks) if v in track} for v in range(60)]
    expected = jaccard(sets)
    assert weights(one) == {pair: float(np.float32(w)) for pair, w in expected.items()}


def test_views_that_are_not_planned_for_take_no_edges() -> None:
    tracks = [[0, 1, 2], [0, 1, 2], [0, 2, 3], [1, 3]]
    place = np.array([0, -1, 1, 2], np.int32)
    graph = importance(names(3), *csr(tracks), place, edges=1)
    # Sets of tracks of views 0, 2, 3: {0,1,2}, {0,1,2}, {2,3}.
    assert weights(graph) == {
        **{(0, 1): 1.0, (1, 0): 1.0},
        **{(0, 2): 0.25, (2, 0): 0.25},
    }


def test_unknown_images_and_repeats_are_dropped_and_told() -> None:
    clean = importance(names(3), *csr([[0, 1], [1, 2], [0, 2]]))
    dirty = importance(names(3), *csr([[1, 0, 0, 1], [7, 1, 2], [-1, 2, 0]]))
    assert weights(dirty) == weights(clean)
    assert not clean.notes
    assert "dropped 2 of 10 observations: they name no known view" in dirty.notes
    assert "dropped 2 of 10 observations: repeats in one track" in dirty.notes


def test_views_without_tracks_are_unknown_and_told() -> None:
    graph = importance(names(4), *csr([[0, 1]]))
    assert graph.unknown.tolist() == [False, False, True, True]
    assert graph.notes == ("2 of 4 views have no tracks: what they share is unknown",)
    empty = importance(names(2), *csr([]))
    assert empty.unknown.all() and not len(empty.weights) and empty.mean_weight == 0


def test_arrays_that_are_no_tracks_are_refused() -> None:
    views = np.zeros(3, np.int32)
    for offsets in ([0, 2], [1, 3], [0, 3, 2, 3], []):
        with pytest.raises(ValueError, match="offsets must rise"):
            importance(names(2), np.array(offsets, np.int64), views)
    with pytest.raises(ValueError, match="no views to plan for"):
        importance([], *csr([]))


def test_density_degree_and_kept_weight() -> None:
    graph = importance(names(4), *csr([[0, 1], [0, 1], [1, 2], [0, 2]]), edges=1)
    # Jaccard: 01 2/4, 12 1/4, 02 1/4; view 2 keeps its edge to 0, the lower of equals.
    assert graph.edge_count == 2 and graph.mean_degree == 1.0
    assert graph.density == pytest.approx(2 / 6)
    assert graph.kept == pytest.approx(0.75)
    assert graph.mean_weight == pytest.approx(1.0 / 3)


def test_geometry_compares_points_in_sight() -> None:
    points = np.array([[x, 0.0, 10.0] for x in np.linspace(-9.9, 9.9, 101)])
    poses = np.tile(np.eye(4)[:3], (4, 1, 1))
    poses[1, 0, 3], poses[2, 0, 3] = -5.0, 10.0  # centres at x = 0, 5, -10
    poses[3] = np.diag([1.0, -1.0, -1.0, 1.0])[:3]  # looks the other way
    K = np.tile(np.array([[10.0, 0, 5], [0, 10, 5], [0, 0, 1]]), (4, 1, 1))
    graph = geometry(names(4), poses, K, np.full((4, 2), 10), points)
    sets = [
        set(np.flatnonzero(np.abs(points[:, 0] - center) <= 5).tolist()) for center in (0, 5, -10)
    ] + [set()]
    expected = jaccard(sets)
    assert weights(graph) == {pair: float(np.float32(w)) for pair, w in expected.items()}
    assert graph.builder is Builder.GEOMETRY
    assert graph.notes == ("1 of 4 views have no points in sight: what they share is unknown",)


def test_a_box_becomes_points_that_fill_it() -> None:
    points = lattice(np.array([0.0, 1.0, 2.0]), np.array([1.0, 1.0, 4.0]))
    assert points.shape == (4096, 3)
    assert points.min(axis=0).tolist() == [0, 1, 2] and points.max(axis=0).tolist() == [1, 1, 4]


@given(st.lists(st.tuples(st.integers(0, 4), st.lists(st.integers(0, 9), max_size=8)), max_size=8))
def test_computation_compares_traced_rows(traced: list[tuple[int, list[int]]]) -> None:
    ids = [2**40 + 7 * number for number in range(10)]  # ids are no row numbers
    accesses = ((view, np.array([ids[n] for n in rows], np.int64)) for view, rows in traced)
    graph = computation(names(5), accesses)
    sets: list[set[int]] = [set() for _ in range(5)]
    for view, rows in traced:
        sets[view] |= set(rows)
    expected = jaccard(sets)
    assert weights(graph) == {pair: float(np.float32(w)) for pair, w in expected.items()}


def test_refresh_moves_observed_pairs_and_leaves_others() -> None:
    graph = importance(names(4), *csr([[0, 1], [1, 2], [1, 2], [0, 1, 2]]))
    before = weights(graph)
    pairs = np.array([[0, 1], [1, 0], [0, 3]], np.int32)
    fresh = refresh(graph, Evidence(pairs, np.array([0.2, 0.4, 0.8], np.float32)), blend=0.5)
    after = weights(fresh)
    assert after[0, 1] == pytest.approx(0.5 * before[0, 1] + 0.5 * 0.3)
    assert after[0, 3] == pytest.approx(0.4)
    assert after[1, 2] == before[1, 2] and after[0, 2] == before[0, 2]
    assert graph.unknown[3] and not fresh.unknown.any()
    assert fresh.strength == pytest.approx(
        graph.strength + sum(after.values()) / 2 - sum(before.values()) / 2
    )
    assert weights(graph) == before  # a value


def test_refresh_weighs_overlap_and_gradients_and_can_remove_an_edge() -> None:
    graph = importance(names(2), *csr([[0, 1]]))
    pair = np.array([[0, 1]], np.int32)
    seen = Evidence(pair, np.array([0.2], np.float32), np.array([0.6], np.float32))
    assert weights(refresh(graph, seen, blend=1.0))[0, 1] == pytest.approx(0.4)
    none = Evidence(pair, np.array([0.0], np.float32))
    assert not len(refresh(graph, none, blend=1.0).weights)


def test_evidence_that_does_not_fit_is_refused() -> None:
    graph = importance(names(2), *csr([[0, 1]]))
    with pytest.raises(ValueError, match=r"a view outside of 0\.\.1"):
        refresh(graph, Evidence(np.array([[0, 2]], np.int32), np.array([0.5], np.float32)))
    with pytest.raises(ValueError, match=r"one number in 0\.\.1"):
        refresh(graph, Evidence(np.array([[0, 1]], np.int32), np.array([1.5], np.float32)))
