from __future__ import annotations

from pathlib import Path
from threading import Event, Lock

import pytest
import torch
from data_helpers import view_of
from hypothesis import given, settings
from hypothesis import strategies as st

from grendel_odin.data.scene import View
from grendel_odin.data.view_cache import ViewCache


def _view(index: int, width: int = 4) -> View:
    return view_of(Path(f"{index}.png"), (width, 2), index)


class _Loader:
    """Makes images that tell their view, and counts."""

    def __init__(self) -> None:
        self.loaded: list[int] = []
        self._lock = Lock()

    def __call__(self, view: View) -> torch.Tensor:
        with self._lock:
            self.loaded.append(view.index)
        shape = (3, view.camera.height, view.camera.width)
        return torch.full(shape, view.index, dtype=torch.uint8)


_STEP = st.tuples(st.booleans(), st.lists(st.integers(0, 7), min_size=1, max_size=5))


@settings(max_examples=60, deadline=None)
@given(limit=st.integers(0, 200), steps=st.lists(_STEP, max_size=20), workers=st.integers(1, 3))
def test_the_limit_holds_and_images_are_right(
    limit: int, steps: list[tuple[bool, list[int]]], workers: int
) -> None:
    views = [_view(i, width=1 + i) for i in range(8)]
    cache = ViewCache(_Loader(), limit, workers)
    for ahead, indexes in steps:
        if ahead:
            cache.prefetch(views[i] for i in indexes)
        else:
            for i in indexes:
                image = cache.get(views[i])
                assert image.nbytes == views[i].nbytes
                assert (image == i).all()
        assert 0 <= cache.reserved_bytes <= limit
    cache.close()
    assert cache.reserved_bytes == 0


def test_least_recently_used_goes_first() -> None:
    loader = _Loader()
    cache = ViewCache(loader, 2 * _view(0).nbytes, 1)
    for i in (0, 1, 0, 2, 0, 1):
        cache.get(_view(i))
    assert loader.loaded == [0, 1, 2, 1]
    cache.close()


def test_prefetched_images_stay_until_used_and_load_once() -> None:
    loader = _Loader()
    cache = ViewCache(loader, 2 * _view(0).nbytes, 1)
    cache.prefetch([_view(0), _view(1), _view(2), _view(3)])
    for i in (0, 1):
        cache.get(_view(i))
    assert loader.loaded == [0, 1]
    cache.prefetch([_view(2), _view(3)])
    cache.get(_view(2))
    cache.get(_view(3))
    assert loader.loaded == [0, 1, 2, 3]
    cache.close()


def test_callers_do_not_queue_behind_what_is_loaded_ahead() -> None:
    gate, started = Event(), Event()

    def load(view: View) -> torch.Tensor:
        if view.index == 0:
            started.set()
            assert gate.wait(20)
        return torch.full((3, 2, 4), view.index, dtype=torch.uint8)

    cache = ViewCache(load, 10**6, 1)
    cache.prefetch([_view(0), _view(1)])
    assert started.wait(20)
    assert (cache.get(_view(1)) == 1).all()  # its turn in the pool has not come
    gate.set()
    assert (cache.get(_view(0)) == 0).all()
    assert cache.reserved_bytes == 2 * _view(0).nbytes
    cache.close()


def test_failures_reach_the_caller_and_free_their_room() -> None:
    def load(view: View) -> torch.Tensor:
        raise ValueError(f"view {view.index}")

    cache = ViewCache(load, 10**6, 1)
    cache.prefetch([_view(0)])
    for i in (0, 1, 0):
        with pytest.raises(ValueError, match=f"view {i}"):
            cache.get(_view(i))
    cache.close()
    assert cache.reserved_bytes == 0


def test_close_leaves_nothing_running() -> None:
    loader = _Loader()
    cache = ViewCache(loader, 10**6, 1)
    cache.prefetch(_view(i) for i in range(50))
    cache.close()
    assert cache.reserved_bytes == 0
    assert len(loader.loaded) <= 50
