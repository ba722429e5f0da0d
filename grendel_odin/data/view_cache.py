"""A cache of decoded images, bounded in bytes, that loads ahead on a few threads.

Processes that share its memory decode each image once: whoever comes first claims it, and the
others wait for it or go on to the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from grendel_odin.data.node_memory import NodeMemory
from grendel_odin.data.plane_table import Tally
from grendel_odin.data.shared_planes import Claim, SharedPlanes
from grendel_odin.data.views import View

_POLL = 2e-4
"""Seconds from one look at an image that another rank decodes to the next."""
PATIENCE = 10.0
"""Seconds after which a rank decodes for itself what another one has not."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What a cache has done so far, for one rank or for all of a node."""

    decoded: int
    decoded_bytes: int
    reused: int
    """Requests answered from what was held or on its way."""
    apart: int
    """Of those decoded: handed out to one rank and not kept, for lack of room."""


class ViewCache:
    """Images in a window, those that ranks use next, stay until all windows have moved on.

    Others go when room is needed, least recently used first. Held and claimed images together
    never pass the limit. An image that finds no room is handed out without being kept. On top come
    such images and the scratch of the decodes that run (in each rank one a worker and one in the
    caller).
    """

    def __init__(
        self,
        views: Sequence[View],
        load: Callable[[View, Tensor], object],
        limit: int,
        workers: int,
        memory: NodeMemory | None = None,
    ) -> None:
        """`load` fills uint8 [planes, H, W] of a view; ranks that share memory list alike views."""
        self._memory = memory or NodeMemory.private()
        self._load = load
        self._numbers = {view.index: number for number, view in enumerate(views)}
        self._planes = SharedPlanes([view.shape for view in views], limit, self._memory)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="images")
        self._queued: set[int] = set()

    @property
    def held_bytes(self) -> int:
        """Bytes of the images that are held or on their way."""
        return self._planes.used

    @property
    def peak_bytes(self) -> int:
        """Most bytes held or on their way at once."""
        return self._planes.peak

    @property
    def own_counts(self) -> Counts:
        """Of this rank."""
        return Counts(*self._planes.tally[:, self._memory.rank].tolist())

    @property
    def counts(self) -> Counts:
        """Of all ranks that share the memory."""
        return Counts(*self._planes.tally.sum(1).tolist())

    def get(self, view: View) -> Tensor:
        """The image of a view, not to be written to; its memory is free when no tensor uses it.

        It is decoded here unless it is there, or another thread or rank is at it.
        """
        number, deadline = self._numbers[view.index], time.monotonic() + PATIENCE
        while True:
            found = self._planes.claim(number)
            if isinstance(found, Tensor):
                self._planes.count(Tally.REUSED)
                return found
            if found is Claim.YOURS and self._decode(number, view):
                return self._planes.publish_and_lend(number)
            if found is not Claim.BUSY or time.monotonic() > deadline:
                return self._decode_apart(view)
            time.sleep(_POLL)

    def prefetch(self, views: Iterable[View]) -> None:
        """Move the window of this rank to these views; the one needed first comes first.

        They are loaded in the background as far as there is room that no window needs.
        """
        window = {self._numbers[view.index]: view for view in views}
        for number in self._planes.want(window):
            if number not in self._queued:
                self._queued.add(number)
                self._pool.submit(self._load_ahead, number, window[number])

    def close(self) -> None:
        """Ends the threads and lets all images go."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._planes.close()

    def _load_ahead(self, number: int, view: View) -> None:
        """Decode an image of the window, unless someone has. Faults are left for `get` to tell."""
        self._queued.discard(number)
        if not self._planes.wants(number):
            return
        if self._planes.claim_ahead(number) is Claim.YOURS:
            with suppress(Exception):
                if self._decode(number, view):
                    self._planes.publish(number)

    def _decode(self, number: int, view: View) -> bool:
        """Decode a claimed image into its place; False if the system has no memory for it."""
        try:
            planes = self._planes.blank(number)
        except OSError:
            self._planes.give_up(number)
            return False
        try:
            self._load(view, planes)
        except BaseException:
            self._planes.give_up(number)
            raise
        self._count(view)
        return True

    def _decode_apart(self, view: View) -> Tensor:
        planes = torch.empty(view.shape, dtype=torch.uint8)
        self._load(view, planes)
        self._count(view)
        self._planes.count(Tally.APART)
        return planes

    def _count(self, view: View) -> None:
        self._planes.count(Tally.DECODED)
        self._planes.count(Tally.DECODED_BYTES, view.nbytes)
