"""Messages between pairs of ranks by torch.distributed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from queue import Empty, SimpleQueue

import torch.distributed as dist
from torch import Tensor

from grendel_odin.odin.graph import Payload
from grendel_odin.odin.transport import Arrival, Lost

_THREADS = 64
"""More than there are communications at a time: about 14 of two units, sent and received."""
_BLOCKED_S = 1e-4

_Works = Mapping[int, "dist.Work | None"]


class TorchLink:
    """`Link` over the default process group.

    gloo does not say whether a message between two ranks is through unless somebody waits for it,
    and what is sent must be kept until then. So a thread waits for the messages of each tag.
    """

    def __init__(self, timeout_s: float) -> None:
        """A rank that lets others wait for so long counts as lost."""
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._limit = timedelta(seconds=timeout_s)
        self._news: SimpleQueue[Arrival | Lost] = SimpleQueue()
        self._threads = ThreadPoolExecutor(_THREADS, "link")

    def post_sends(self, tag: int, data: Mapping[int, Payload]) -> None:
        """See Link.post_sends."""
        self._threads.submit(self._finish, tag, _post(dist.isend, tag, data), False)

    def post_receives(self, tag: int, data: Mapping[int, Payload]) -> None:
        """See Link.post_receives. Arrivals are told when all of the tag are there."""
        self._threads.submit(self._finish, tag, _post(dist.irecv, tag, data), True)

    def poll(self) -> Sequence[Arrival]:
        """See Link.poll."""
        arrivals = []
        while True:
            try:
                arrivals.append(_checked(self._news.get_nowait()))
            except Empty:
                return arrivals

    def wait(self) -> Sequence[Arrival]:
        """See Link.wait."""
        return [_checked(self._news.get()), *self.poll()]

    def close(self) -> None:
        """Wait until all is sent and has come."""
        self._threads.shutdown()

    def _finish(self, tag: int, works: _Works, tell: bool) -> None:
        """Run by a thread: the rank that it had to wait for last is told last."""
        arrivals: list[Arrival] = []
        for peer, work in works.items():
            start = time.perf_counter()
            try:
                if work is not None:
                    work.wait(self._limit)
            except RuntimeError as error:
                self._news.put(Lost(peer, _reason(error)))
                return
            blocked = time.perf_counter() - start > _BLOCKED_S
            arrivals.insert(len(arrivals) if blocked else 0, Arrival(tag, peer))
        for arrival in arrivals if tell else ():
            self._news.put(arrival)


def _post(post: Callable[..., dist.Work | None], tag: int, data: Mapping[int, Payload]) -> _Works:
    works = {}
    for peer, each in data.items():
        assert isinstance(each, Tensor), "only tensors travel"
        try:
            works[peer] = post(each, peer, tag=tag)
        except RuntimeError as error:
            raise Lost(peer, _reason(error)) from error
    return works


def _checked(news: Arrival | Lost) -> Arrival:
    if isinstance(news, Lost):
        raise news
    return news


def _reason(error: Exception) -> str:
    return f"is gone or does not answer: {str(error).strip().splitlines()[0].rstrip('.')}"
