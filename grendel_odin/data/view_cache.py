"""A cache of decoded images, bounded in bytes, that loads ahead on a few threads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock

from torch import Tensor

from grendel_odin.data.views import View


@dataclass(slots=True)
class Counts:
    """What a cache has done so far."""

    decoded: int = 0
    decoded_bytes: int = 0
    reused: int = 0
    """Requests answered from what was held or on its way."""
    peak_bytes: int = 0
    """Most bytes held or on their way at once."""


class ViewCache:
    """Least recently used images go first; those loaded ahead stay until they are used.

    Decoded and announced images together never pass the limit. An image that does not fit is
    handed out without being kept. On top come the images that callers hold and the scratch of the
    decodes that run (one in each worker, one in the caller).
    """

    def __init__(self, load: Callable[[View], Tensor], limit: int, workers: int) -> None:
        self._load = load
        self._limit = limit
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="images")
        self._lock = Lock()
        self._images: OrderedDict[int, Tensor] = OrderedDict()
        self._pending: dict[int, Future[Tensor]] = {}
        self._ahead: set[int] = set()
        self._reserved = 0
        self.counts = Counts()

    @property
    def reserved_bytes(self) -> int:
        """Bytes of the images that are held or on their way."""
        return self._reserved

    def get(self, view: View) -> Tensor:
        """The image of a view; loaded by the caller unless a worker is at it already."""
        with self._lock:
            self._ahead.discard(view.index)
            if view.index in self._images:
                self.counts.reused += 1
                self._images.move_to_end(view.index)
                return self._images[view.index]
            future = self._pending.get(view.index)
            waits = future is not None and not future.cancel()
            if future is None:
                room = self._reserve(view.nbytes, spare_ahead=False)
            elif not waits:
                del self._pending[view.index]
                room = True
        if future is not None and waits:
            image = future.result()
            with self._lock:
                self.counts.reused += 1
                self._ahead.discard(view.index)
            return image
        return self._load_reserved(view) if room else self._decode(view)

    def prefetch(self, views: Iterable[View]) -> None:
        """Loads views in the background, in this order, as far as the limit allows."""
        with self._lock:
            for view in views:
                if view.index in self._images:
                    self._ahead.add(view.index)
                elif view.index not in self._pending:
                    if not self._reserve(view.nbytes, spare_ahead=True):
                        return
                    self._ahead.add(view.index)
                    self._pending[view.index] = self._pool.submit(self._load_reserved, view)

    def close(self) -> None:
        """Ends the threads and lets all images go."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            self._images.clear()
            self._pending.clear()
            self._ahead.clear()
            self._reserved = 0

    def _load_reserved(self, view: View) -> Tensor:
        """Loads a view for which room has been reserved, and keeps it."""
        try:
            image = self._decode(view)
        except BaseException:
            with self._lock:
                self._pending.pop(view.index, None)
                self._ahead.discard(view.index)
                self._reserved -= view.nbytes
            raise
        with self._lock:
            self._pending.pop(view.index, None)
            if view.index in self._images:  # another thread was faster
                self._reserved -= view.nbytes
            return self._images.setdefault(view.index, image)

    def _decode(self, view: View) -> Tensor:
        image = self._load(view)
        with self._lock:
            self.counts.decoded += 1
            self.counts.decoded_bytes += image.nbytes
        return image

    def _reserve(self, nbytes: int, spare_ahead: bool) -> bool:
        """Makes room by dropping images, oldest first; False if that is not enough."""
        if self._reserved + nbytes > self._limit:
            self._drop([i for i in self._images if i not in self._ahead], nbytes)
            if not spare_ahead:
                self._drop(list(self._images), nbytes)
        if self._reserved + nbytes > self._limit:
            return False
        self._reserved += nbytes
        self.counts.peak_bytes = max(self.counts.peak_bytes, self._reserved)
        return True

    def _drop(self, candidates: list[int], nbytes: int) -> None:
        for index in candidates:
            if self._reserved + nbytes <= self._limit:
                return
            self._reserved -= self._images.pop(index).nbytes
            self._ahead.discard(index)
