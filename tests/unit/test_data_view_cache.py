from __future__ import annotations

import gc
import os
import time
from collections import Counter
from pathlib import Path
from threading import Event, Lock, Thread

import pytest
import torch
from data_helpers import view_of
from hypothesis import given, settings
from hypothesis import strategies as st

from grendel_odin.data import view_cache
from grendel_odin.data.node_memory import NodeMemory, new_memory_file, open_memory_file
from grendel_odin.data.scene import View
from grendel_odin.data.view_cache import ViewCache


def _view(index: int, width: int = 4) -> View:
    return view_of(Path(f"{index}.png"), (width, 2), index)


VIEWS = [_view(i) for i in range(8)]
SIZE = VIEWS[0].nbytes


class _Loader:
    """Makes images that tell their view, and counts."""

    def __init__(self) -> None:
        self.loaded: list[int] = []
        self._lock = Lock()

    def __call__(self, view: View, into: torch.Tensor) -> None:
        with self._lock:
            self.loaded.append(view.index)
        into.fill_(1 + view.index)


def _shows(image: torch.Tensor, index: int) -> bool:
    return bool((image == 1 + index).all())


def _settle(cache: ViewCache) -> None:
    """Wait until nothing is queued or decoded any more."""
    cache._pool.submit(time.sleep, 0).result()


def _sharing(ranks: int) -> list[NodeMemory]:
    """Memory as that many processes have it: each opens it for itself."""
    first = new_memory_file()
    files = [first, *(open_memory_file(os.getpid(), first) for _ in range(ranks - 1))]
    return [NodeMemory(file, rank, ranks) for rank, file in enumerate(files)]


_STEP = st.tuples(st.booleans(), st.lists(st.integers(0, 7), min_size=1, max_size=5))


@settings(max_examples=60, deadline=None)
@given(limit=st.integers(0, 200), steps=st.lists(_STEP, max_size=20), workers=st.integers(1, 3))
def test_the_limit_holds_and_images_are_right(
    limit: int, steps: list[tuple[bool, list[int]]], workers: int
) -> None:
    views = [_view(i, width=1 + i) for i in range(8)]
    cache = ViewCache(views, _Loader(), limit, workers)
    held = []
    for ahead, indexes in steps:
        if ahead:
            cache.prefetch(views[i] for i in indexes)
        else:
            for i in indexes:
                image = cache.get(views[i])
                assert image.shape == views[i].shape
                held = [*held[-3:], (image, i)]
                assert all(_shows(*each) for each in held)
        assert 0 <= cache.held_bytes <= limit
    cache.close()
    assert all(_shows(*each) for each in held)


_UNIT = st.lists(st.integers(0, 7), min_size=1, max_size=3, unique=True)


@settings(max_examples=40, deadline=None)
@given(
    ranks=st.integers(2, 3),
    limit=st.sampled_from([0, SIZE, 3 * SIZE, 5 * SIZE, 8 * SIZE]),
    units=st.lists(_UNIT, min_size=1, max_size=12),
)
def test_readers_share_a_limit_and_never_lose_what_they_hold(
    ranks: int, limit: int, units: list[list[int]]
) -> None:
    loader = _Loader()
    caches = [ViewCache(VIEWS, loader, limit, 2, memory) for memory in _sharing(ranks)]
    faults: list[str] = []

    def read(rank: int) -> None:
        cache = caches[rank]
        for at, unit in enumerate(units):
            cache.prefetch(VIEWS[i] for each in units[at : at + 3] for i in each)
            images = [(cache.get(VIEWS[i])[:, :1], i) for i in unit if i % ranks != rank]
            if cache.held_bytes > limit or not all(_shows(*each) for each in images):
                faults.append(f"rank {rank}, unit {at}")

    threads = [Thread(target=read, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not faults and not any(thread.is_alive() for thread in threads)
    counts = caches[0].counts
    for cache in caches:
        cache.close()
    assert counts.decoded <= len(loader.loaded)  # a late prefetch may not have been counted yet
    if limit == 8 * SIZE:
        assert max(Counter(loader.loaded).values()) == 1
        assert counts.apart == 0
    if limit == 0:
        assert counts.apart == counts.decoded


def test_least_recently_used_goes_first() -> None:
    loader = _Loader()
    cache = ViewCache(VIEWS, loader, 2 * SIZE, 1)
    for i in (0, 1, 0, 2, 0, 1):
        cache.get(VIEWS[i])
    assert loader.loaded == [0, 1, 2, 1]
    cache.close()


def test_an_image_in_use_stays_until_its_last_slice_is_gone() -> None:
    loader = _Loader()
    cache = ViewCache(VIEWS, loader, 2 * SIZE, 1)
    rows = cache.get(VIEWS[0])[:, 1:]
    for i in (1, 2, 3):
        cache.get(VIEWS[i])
    assert _shows(rows, 0) and loader.loaded == [0, 1, 2, 3]
    cache.get(VIEWS[0])
    assert loader.loaded == [0, 1, 2, 3]
    del rows
    gc.collect()
    for i in (1, 2, 0):
        cache.get(VIEWS[i])
    assert loader.loaded == [0, 1, 2, 3, 1, 2, 0]
    cache.close()


def test_without_room_an_image_is_handed_out_and_not_kept() -> None:
    loader = _Loader()
    cache = ViewCache([*VIEWS, _view(8, width=99)], loader, 2 * SIZE, 1)
    held = [cache.get(VIEWS[i]) for i in range(4)]
    large = cache.get(_view(8, width=99))
    assert all(_shows(image, i) for i, image in enumerate(held)) and _shows(large, 8)
    assert cache.held_bytes == cache.peak_bytes == 2 * SIZE
    assert (cache.counts.decoded, cache.counts.apart) == (5, 3)
    cache.get(VIEWS[0])  # what does not fit has not made others go
    assert cache.counts.decoded == 5
    cache.close()


def test_images_of_the_window_stay_until_it_moves() -> None:
    loader = _Loader()
    cache = ViewCache(VIEWS, loader, 2 * SIZE, 1)
    cache.prefetch(VIEWS[:4])
    _settle(cache)
    assert loader.loaded == [0, 1]
    cache.prefetch(VIEWS[2:4])
    _settle(cache)
    assert loader.loaded == [0, 1, 2, 3]
    for i in (2, 3):
        cache.get(VIEWS[i])
    assert loader.loaded == [0, 1, 2, 3]
    cache.close()


def test_an_image_stays_while_it_is_in_the_window_of_any_rank() -> None:
    loader = _Loader()
    slow, fast = (ViewCache(VIEWS, loader, 2 * SIZE, 1, memory) for memory in _sharing(2))
    for cache in (slow, fast):
        cache.prefetch(VIEWS[:2])
        _settle(cache)
    for _ in range(2):
        fast.prefetch(VIEWS[2:4])
        _settle(fast)
        assert loader.loaded == [0, 1]
    assert _shows(slow.get(VIEWS[0]), 0)
    slow.prefetch(VIEWS[2:4])
    fast.prefetch(VIEWS[2:4])
    _settle(slow)
    _settle(fast)
    assert sorted(loader.loaded) == [0, 1, 2, 3]
    slow.close()
    fast.close()


def test_callers_do_not_queue_behind_what_is_loaded_ahead() -> None:
    gate, started = Event(), Event()

    def load(view: View, into: torch.Tensor) -> None:
        if view.index == 0:
            started.set()
            assert gate.wait(20)
        into.fill_(1 + view.index)

    cache = ViewCache(VIEWS, load, 10**6, 1)
    cache.prefetch(VIEWS[:2])
    assert started.wait(20)
    assert _shows(cache.get(VIEWS[1]), 1)  # its turn in the pool has not come
    gate.set()
    assert _shows(cache.get(VIEWS[0]), 0)
    assert cache.held_bytes == 2 * SIZE
    cache.close()


def test_failures_reach_every_rank_that_asks_and_free_their_room() -> None:
    def load(view: View, into: torch.Tensor) -> None:
        raise ValueError(f"view {view.index}")

    caches = [ViewCache(VIEWS, load, 10**6, 1, memory) for memory in _sharing(2)]
    for cache in caches:
        cache.prefetch(VIEWS[:1])
        for i in (0, 1, 0):
            with pytest.raises(ValueError, match=f"view {i}"):
                cache.get(VIEWS[i])
    for cache in caches:
        _settle(cache)
    assert [cache.held_bytes for cache in caches] == [0, 0]
    for cache in caches:
        cache.close()


def test_nobody_waits_for_ever_for_a_rank_that_does_not_finish(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(view_cache, "PATIENCE", 0.1)
    gate, started = Event(), Event()

    def stuck(view: View, into: torch.Tensor) -> None:
        started.set()
        assert gate.wait(20)

    first, second = _sharing(2)
    other = ViewCache(VIEWS, stuck, 10**6, 1, first)
    cache = ViewCache(VIEWS, _Loader(), 10**6, 1, second)
    other.prefetch(VIEWS[:1])
    assert started.wait(20)
    assert _shows(cache.get(VIEWS[0]), 0)
    assert (cache.own_counts.decoded, cache.own_counts.apart) == (1, 1)
    gate.set()
    other.close()
    cache.close()


def test_a_system_without_memory_means_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, offset: int, length: int) -> None:
        raise OSError("no space left")

    cache = ViewCache(VIEWS, _Loader(), 10**6, 1)
    monkeypatch.setattr(os, "posix_fallocate", full)
    cache.prefetch(VIEWS[:2])
    assert _shows(cache.get(VIEWS[0]), 0)
    _settle(cache)
    assert cache.counts.apart == 1 and cache.held_bytes == 0
    cache.close()


def test_memory_is_returned_when_images_go() -> None:
    views = [_view(i, width=10_000) for i in range(6)]
    memory = NodeMemory.private()
    cache = ViewCache(views, _Loader(), 2 * views[0].nbytes, 1, memory)
    for view in views:
        cache.get(view)
        assert os.fstat(memory.file).st_blocks * 512 <= 2 * views[0].nbytes + 5 * 4096
    cache.close()


def test_close_leaves_nothing_running() -> None:
    loader = _Loader()
    views = [_view(i) for i in range(50)]
    cache = ViewCache(views, loader, 10**6, 1)
    cache.prefetch(views)
    cache.close()
    assert cache.held_bytes == 0
    assert len(loader.loaded) <= 50


def test_only_memory_of_this_program_is_opened(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file, pytest.raises(OSError, match="no memory"):
        open_memory_file(os.getpid(), file.fileno())
    with pytest.raises(OSError):
        open_memory_file(os.getpid(), 999)
