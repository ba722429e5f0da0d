"""Decoded images that the ranks of a node share, each decoded by the first that claims it.

An image is never given up while a rank holds a tensor of it. Ranks announce windows: the images
that they use next. Decoding ahead makes room only from images outside of all windows. Windows move
at each unit, so an image stays until all ranks have begun a later unit; that needs no message.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grendel_odin.data.node_memory import NodeMemory
from grendel_odin.data.plane_table import PlaneTable, Shape, State, Tally


class Claim(Enum):
    """What a rank learns when it wants an image."""

    HELD = "it is there"
    BUSY = "another thread or rank decodes it"
    YOURS = "there is room; decode it"
    NO_ROOM = "there is no room for it now"


class SharedPlanes:
    """Images by number: claimed, decoded, published, lent, given up."""

    def __init__(self, shapes: Sequence[Shape], limit: int, memory: NodeMemory) -> None:
        """`shapes` are [planes, H, W] of uint8; at most `limit` bytes are held on the node."""
        self._table, self._limit = PlaneTable(shapes, memory), limit
        self._rank, self._ranks = memory.rank, memory.ranks
        self._window = np.empty(0, np.intp)
        self._returned: deque[int] = deque()

    @property
    def used(self) -> int:
        """Bytes of the images that are held or being decoded."""
        return int(self._table.node[0])

    @property
    def peak(self) -> int:
        """Most bytes that were `used` at once."""
        return int(self._table.node[1])

    @property
    def tally(self) -> NDArray[np.int64]:
        """[kinds, ranks]: what each rank has counted so far, by `Tally`."""
        return self._table.tally

    def count(self, kind: Tally, by: int = 1) -> None:
        """Add to this rank's tally."""
        with self._locked():
            self.tally[kind, self._rank] += by

    def want(self, images: Iterable[int]) -> list[int]:
        """Move this rank's window. Returns those in it that nobody has or decodes."""
        window = np.fromiter(images, np.intp)
        with self._locked():
            wanted = self._table.wanted[:, self._rank]
            wanted[self._window], wanted[window] = False, True
            self._window = window
            lacking: list[int] = window[self._table.state[window] == State.ABSENT].tolist()
        return lacking

    def wants(self, image: int) -> bool:
        """Whether an image is in this rank's window."""
        return bool(self._table.wanted[image, self._rank])

    def claim(self, image: int) -> Claim | Tensor:
        """The image if it is there: it stays as long as any tensor shares its memory."""
        with self._locked():
            claim = self._claim(image, ahead=False)
            return self._lend(image) if claim is Claim.HELD else claim

    def claim_ahead(self, image: int) -> Claim:
        """As `claim`, for later: no image of a window makes room."""
        with self._locked():
            return self._claim(image, ahead=True)

    def blank(self, image: int) -> Tensor:
        """Memory to decode a claimed image into. Raises OSError if the system has none left."""
        self._table.allocate(image)
        return torch.from_numpy(self._table.planes(image))

    def publish(self, image: int) -> None:
        """A claimed image is complete; everyone may read it."""
        with self._locked():
            self._table.state[image] = State.HELD
            self._touch(image)

    def publish_and_lend(self, image: int) -> Tensor:
        """As `publish` and then `claim`, without a moment in between."""
        with self._locked():
            self._table.state[image] = State.HELD
            return self._lend(image)

    def give_up(self, image: int) -> None:
        """Return the memory of an image that is claimed."""
        with self._locked():
            self._give_up(image)

    def close(self) -> None:
        """Leave. Memory goes when all ranks have left and no tensor of it is in use."""
        self.want([])
        if self._ranks == 1:
            with self._locked():
                for image in self._evictable(ahead=True):
                    self._give_up(image)
        self._table.close()

    def _claim(self, image: int, ahead: bool) -> Claim:
        table = self._table
        if table.state[image] == State.HELD:
            return Claim.HELD
        if table.state[image] == State.BUSY:
            return Claim.BUSY
        if not self._make_room(table.sizes[image], ahead):
            return Claim.NO_ROOM
        table.state[image] = State.BUSY
        table.node[0] += table.sizes[image]
        table.node[1] = max(table.node[:2])
        return Claim.YOURS

    def _make_room(self, size: int, ahead: bool) -> bool:
        """Give images up, but none if that would not be enough."""
        lacking = self.used + size - self._limit
        if lacking <= 0:
            return True
        images = self._evictable(ahead)
        freed = list(accumulate(self._table.sizes[image] for image in images))
        if not freed or freed[-1] < lacking:
            return False
        for image in images[: bisect_left(freed, lacking) + 1]:
            self._give_up(image)
        return True

    def _evictable(self, ahead: bool) -> list[int]:
        """Those outside of all windows and least recently used first."""
        table = self._table
        wanted = np.asarray(table.wanted.any(1))
        free = (table.state == State.HELD) & ~table.lent.any(1)
        images = np.flatnonzero(free & ~wanted if ahead else free)
        order: list[int] = images[np.lexsort((table.stamp[images], wanted[images]))].tolist()
        return order

    def _give_up(self, image: int) -> None:
        self._table.state[image] = State.ABSENT
        self._table.node[0] -= self._table.sizes[image]
        self._table.free(image)

    def _lend(self, image: int) -> Tensor:
        self._touch(image)
        self._table.lent[image, self._rank] += 1
        planes = self._table.planes(image)
        # A tensor keeps `planes` for all slices and views of itself, so it dies with the last one.
        # That may happen inside of a locked section, so the return is only noted.
        weakref.finalize(planes, self._returned.append, image).atexit = False
        return torch.from_numpy(planes)

    def _touch(self, image: int) -> None:
        self._table.node[2] += 1
        self._table.stamp[image] = self._table.node[2]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._table.locked():
            while self._returned:
                self._table.lent[self._returned.popleft(), self._rank] -= 1
            yield
