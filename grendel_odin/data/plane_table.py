"""The layout of the memory that holds decoded images: a table first, then a place for each."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from itertools import accumulate
from math import prod
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from grendel_odin.data.node_memory import NodeMemory

Shape = tuple[int, int, int]


class State(IntEnum):
    """Of an image; memory begins as zeros."""

    ABSENT, BUSY, HELD = range(3)


class Tally(IntEnum):
    """What each rank counts."""

    DECODED, DECODED_BYTES, REUSED, APART = range(4)


class PlaneTable:
    """Arrays in the memory of a node, alike in all processes that share it, and their lock.

    The file is sparse: it has a place for every image, and pages only where one is held.
    """

    state: NDArray[np.uint8]
    """[N] by `State`."""
    stamp: NDArray[np.int64]
    """[N] when the image was last lent."""
    lent: NDArray[np.int32]
    """[N, ranks] requests of a rank whose tensors still exist."""
    wanted: NDArray[np.bool_]
    """[N, ranks] whether the image is in the window of a rank."""
    node: NDArray[np.int64]
    """[3] bytes used, most bytes used at once, and requests so far."""
    tally: NDArray[np.int64]
    """[kinds, ranks] by `Tally`."""

    def __init__(self, shapes: Sequence[Shape], memory: NodeMemory) -> None:
        """`shapes` are [planes, H, W] of uint8; the same on all ranks."""
        ranks, self._memory, self._lock = memory.ranks, memory, Lock()
        head = np.dtype([("node", np.int64, 3), ("tally", np.int64, (len(Tally), ranks))])
        row = np.dtype(
            [
                ("state", np.uint8),
                ("stamp", np.int64),
                ("lent", np.int32, (ranks,)),
                ("wanted", np.bool_, (ranks,)),
            ],
            align=True,
        )
        self.shapes, self.sizes = shapes, [prod(shape) for shape in shapes]
        table = _pages(head.itemsize + row.itemsize * len(shapes))
        *self._starts, end = accumulate(map(_pages, self.sizes), initial=table)
        with self.locked():
            memory.grow(end)
        self._map = mmap.mmap(memory.file, end)
        self._bytes = np.frombuffer(self._map, np.uint8)
        heads, rows = (
            np.frombuffer(self._map, head, 1),
            np.frombuffer(self._map, row, len(shapes), head.itemsize),
        )
        self.node, self.tally = heads["node"][0], heads["tally"][0]
        self.state, self.stamp = rows["state"], rows["stamp"]
        self.lent, self.wanted = rows["lent"], rows["wanted"]

    def planes(self, image: int) -> NDArray[np.uint8]:
        """[planes, H, W]: the place of an image; a new array at each call."""
        start = self._starts[image]
        return self._bytes[start : start + self.sizes[image]].reshape(self.shapes[image])

    def allocate(self, image: int) -> None:
        """Get the pages of an image. Raises OSError if there are none, where a write would kill."""
        os.posix_fallocate(self._memory.file, self._starts[image], self.sizes[image])

    def free(self, image: int) -> None:
        """Return the pages of an image to the system."""
        self._map.madvise(mmap.MADV_REMOVE, self._starts[image], _pages(self.sizes[image]))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone among the threads and ranks of the node; the lock of a rank that dies is freed."""
        shared = self._memory.ranks > 1
        with self._lock:
            if shared:
                fcntl.flock(self._memory.file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                if shared:
                    fcntl.flock(self._memory.file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Leave; the memory goes when nobody has it open and no array of it is in use."""
        os.close(self._memory.file)


def _pages(size: int) -> int:
    """Bytes of the pages that hold so many bytes."""
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
