"""Windows of units and the marks of schedules in them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grendel_odin.pipelines.densify import DensifySettings
from grendel_odin.pipelines.gs3d import GaussianSplatting
from grendel_odin.pipelines.window import Window, scaled, windows

SIZES = st.integers(1, 300)


@given(st.integers(1, 2000), SIZES)
def test_windows_tile_the_iterations_and_are_all_full(iterations: int, size: int) -> None:
    found = list(windows(iterations, size))
    assert found[0].start == 1
    assert all(b.start == a.last + 1 for a, b in pairwise(found))
    assert all(window.size == size for window in found)
    assert found[-1].start <= iterations <= found[-1].last


@given(st.integers(1, 500), SIZES, st.integers(1, 50), st.integers(0, 300), st.integers(1, 600))
def test_multiples_equal_a_plain_count(
    start: int, size: int, every: int, after: int, before: int
) -> None:
    window = Window(start, size)
    images = range(start, start + size)
    assert window.multiples(every) == sum(t % every == 0 for t in images)
    marks = [t for t in images if t % every == 0 and after < t < before]
    assert window.multiples(every, after, before) == len(marks)


@given(SIZES)
def test_no_mark_is_lost_or_met_twice(size: int) -> None:
    marks = [1, 7, 100, 101, 700, 7]
    found = [mark for window in windows(1000, size) for mark in window.marks(marks)]
    assert found == sorted(set(marks))


@pytest.mark.parametrize("size", [1, 2, 7, 16, 100])
def test_densifications_of_the_default_schedule(size: int) -> None:
    pipeline = make_pipeline()
    marks = [pipeline.refine_marks(window) for window in windows(30000, size)]
    assert sum(marks) == 144  # 600, 700, ... 14900
    resets = [pipeline.reset_marks(window) for window in windows(30000, size)]
    assert sum(resets) == 4  # 3000, 6000, 9000, 12000


def test_batches_longer_than_the_interval_merge_marks() -> None:
    pipeline = make_pipeline()
    marks = [pipeline.refine_marks(window) for window in windows(30000, 200)]
    assert max(marks) == 2 and sum(marks) == 144


def test_default_schedule_at_batch_size_1() -> None:
    pipeline = make_pipeline()
    refined = [w.start for w in windows(30000, 1) if pipeline.refine_marks(w)]
    assert (refined[0], refined[-1]) == (600, 14900)
    assert [w.start for w in windows(30000, 1) if pipeline.reset_marks(w)] == [
        *(3000, 6000, 9000, 12000)
    ]
    assert pipeline.collects(Window(14999, 1)) and not pipeline.collects(Window(15000, 1))


def test_resets_may_go_on_after_densification() -> None:
    settings = DensifySettings(refine_stop_iter=5000, reset_stop_iter=9001)
    pipeline = replace(make_pipeline(), settings=settings)
    refined = [w.start for w in windows(30000, 1) if pipeline.refine_marks(w)]
    assert refined[-1] == 4900
    assert [w.start for w in windows(30000, 1) if pipeline.reset_marks(w)] == [3000, 6000, 9000]


def test_without_densification_nothing_is_done_to_the_table() -> None:
    settings = DensifySettings(enabled=False, reset_stop_iter=9000)
    pipeline = replace(make_pipeline(), settings=settings, white_background=True)
    assert not any(
        pipeline.refine_marks(w) or pipeline.reset_marks(w) or pipeline.collects(w)
        for w in windows(30000, 7)
    )


def test_white_background_resets_early() -> None:
    pipeline = replace(make_pipeline(), white_background=True)
    assert [w.start for w in windows(4000, 1) if pipeline.reset_marks(w)] == [500, 3000]


@given(st.integers(1, 6000), SIZES)
def test_sh_degree_rises_by_the_number_of_marks(start: int, size: int) -> None:
    pipeline, window = make_pipeline(), Window(start, size)
    before = pipeline.live_sh_degree(Window(max(1, start - 1), 1)) if start > 1 else 0
    risen = pipeline.live_sh_degree(window) - before
    assert risen == min(3 - before, window.multiples(1000))


def test_schedule_scale_shrinks_every_interval() -> None:
    pipeline = replace(make_pipeline(), schedule_scale=0.1)
    refined = [w.start for w in windows(3000, 1) if pipeline.refine_marks(w)]
    assert (refined[0], refined[-1], len(refined)) == (60, 1490, 144)
    assert [w.start for w in windows(3000, 1) if pipeline.reset_marks(w)] == [300, 600, 900, 1200]
    degrees = [pipeline.live_sh_degree(Window(t, 1)) for t in (99, 100, 200, 300, 3000)]
    assert degrees == [0, 1, 2, 3, 3]


def test_scaled_is_at_least_one() -> None:
    assert scaled(100, 0.001) == 1
    assert scaled(100, 2.5) == 250


def make_pipeline() -> GaussianSplatting:
    return GaussianSplatting(
        settings=DensifySettings(),
        schedule_scale=1.0,
        sh_degree=3,
        sh_degree_interval=1000,
        max_primitives=0,
        extent=1.0,
        white_background=False,
        seed=0,
        threads=1,
    )
