"""A network in virtual time, exact or coarse.

A message takes latency + bytes/rate. A rank has one link out and one link in, first come, first
served; the messages of a communication share it. The exact network carries every message with its
data; the coarse one knows a single event for each communication and rank, and sizes only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, NamedTuple

from torch import Tensor

from grendel_odin.odin.clock import VirtualClock
from grendel_odin.odin.graph import Payload
from grendel_odin.odin.messages import gather_steps
from grendel_odin.odin.transport import Arrival, Lost


@dataclass(frozen=True, slots=True)
class Speed:
    """Of every link."""

    rate: float
    """Bytes a second."""
    latency_s: float = 0.0


class _Delivery(NamedTuple):
    key: int
    content: Any
    room: Any


class _Inbox:
    """Of one rank: what is on its way to it, what has come, and what it wants."""

    def __init__(self) -> None:
        self.due: list[tuple[float, int, Any]] = []
        self._here: dict[int, Any] = {}
        self._wanted: dict[int, Any] = {}
        self._told: list[_Delivery] = []

    def want(self, key: int, room: Any = None) -> None:
        if key in self._here:
            self._told.append(_Delivery(key, self._here.pop(key), room))
        else:
            self._wanted[key] = room

    def poll(self, now: float) -> list[_Delivery]:
        while self.due and self.due[0][0] <= now:
            _, key, content = heappop(self.due)
            if key in self._wanted:
                self._told.append(_Delivery(key, content, self._wanted.pop(key)))
            else:
                self._here[key] = content
        told, self._told = self._told, []
        return told


class Network:
    """What all ranks share."""

    def __init__(
        self, clocks: Sequence[VirtualClock], speed: Speed, wake: Callable[[int, float], None]
    ) -> None:
        self.clocks, self.speed = clocks, speed
        self.inboxes = [_Inbox() for _ in clocks]
        self.lost: int | None = None
        """A rank that is gone, once it is noticed."""
        self.coming: dict[int, _Meeting] = {}
        self._wake = wake
        self._out_free = [0.0] * len(clocks)
        self._in_free = [0.0] * len(clocks)

    def leave(self, source: int, nbytes: float) -> tuple[float, float]:
        """Bytes enter the link out of a rank: when they begin to leave, and when they have left."""
        begin = max(self.clocks[source].now, self._out_free[source])
        self._out_free[source] = begin + nbytes / self.speed.rate
        return begin, self._out_free[source]

    def enter(self, target: int, nbytes: float, began: float, left: float) -> float:
        """What left in between enters the link into a rank: when it is there."""
        begin = max(began + self.speed.latency_s, self._in_free[target])
        self._in_free[target] = begin + nbytes / self.speed.rate
        return max(self._in_free[target], left + self.speed.latency_s)

    def deliver(self, target: int, time: float, key: int, content: object) -> None:
        """Something will have come to a rank."""
        heappush(self.inboxes[target].due, (time, key, content))
        self._wake(target, time)

    def poll(self, rank: int) -> list[_Delivery]:
        """What has come to a rank and is wanted there."""
        if self.lost is not None:
            raise Lost(self.lost, "does not answer")
        return self.inboxes[rank].poll(self.clocks[rank].now)


class ExactLink:
    """`Link` of one rank."""

    def __init__(self, network: Network, rank: int) -> None:
        self.rank, self.size, self._network = rank, len(network.clocks), network

    def post_sends(self, tag: int, data: Mapping[int, Payload]) -> None:
        """See Link.post_sends. Messages that are sent at once share the link, and end together."""
        began, left = self._network.leave(self.rank, sum(each.nbytes for each in data.values()))
        for peer, each in data.items():
            time = self._network.enter(peer, each.nbytes, began, left)
            self._network.deliver(peer, time, tag * self.size + self.rank, each)

    def post_receives(self, tag: int, data: Mapping[int, Payload]) -> None:
        """See Link.post_receives."""
        for peer, each in data.items():
            self._network.inboxes[self.rank].want(tag * self.size + peer, each)

    def poll(self) -> Sequence[Arrival]:
        """See Link.poll."""
        arrivals = []
        for key, content, room in self._network.poll(self.rank):
            room.copy_(content)
            arrivals.append(Arrival(*divmod(key, self.size)))
        return arrivals

    def wait(self) -> Sequence[Arrival]:
        """Virtual ranks do not wait: World.run steps them."""
        raise RuntimeError("a virtual rank cannot wait")


class _Meeting:
    """A communication that some ranks have not begun."""

    def __init__(self, size: int) -> None:
        self.begun = 0
        self.began = float("inf")
        self.left = [0.0] * size
        self.nbytes = [0.0] * size
        """To each rank."""


class CoarseTransport:
    """`Transport` of one rank; contents are not carried."""

    def __init__(self, network: Network, rank: int) -> None:
        self.rank, self.size, self._network = rank, len(network.clocks), network

    def send(self, tag: int, outgoing: Sequence[Payload]) -> None:
        """See Transport.send."""
        self._begin(tag, [part.nbytes for part in outgoing], hops=1)

    def receive(self, tag: int, incoming: Sequence[Payload]) -> None:
        """See Transport.receive."""
        self._network.inboxes[self.rank].want(tag)

    def gather(self, tag: int, row: Tensor, rows: Tensor) -> None:
        """See Transport.gather."""
        self._network.inboxes[self.rank].want(tag)
        self._begin(tag, [row.nbytes] * self.size, hops=gather_steps(self.size))

    def poll(self) -> Sequence[Arrival]:
        """See Transport.poll."""
        return [Arrival(key, rank) for key, rank, _ in self._network.poll(self.rank)]

    def wait(self) -> Sequence[Arrival]:
        """Virtual ranks do not wait: World.run steps them."""
        raise RuntimeError("a virtual rank cannot wait")

    def _begin(self, tag: int, sizes: list[int], hops: int) -> None:
        sizes[self.rank] = 0
        network = self._network
        meeting = network.coming.get(tag)
        if meeting is None:
            meeting = network.coming[tag] = _Meeting(self.size)
        meeting.begun += 1
        began, meeting.left[self.rank] = network.leave(self.rank, sum(sizes))
        meeting.began = min(meeting.began, began)
        meeting.nbytes = [a + b for a, b in zip(meeting.nbytes, sizes, strict=True)]
        if meeting.begun == self.size:
            del network.coming[tag]
            self._end(tag, meeting, hops)

    def _end(self, tag: int, meeting: _Meeting, hops: int) -> None:
        """All have sent: when the last part is there is known."""
        network, left = self._network, meeting.left
        last = max(range(self.size), key=left.__getitem__)
        more = (hops - 1) * network.speed.latency_s
        for target, nbytes in enumerate(meeting.nbytes):
            time = network.enter(target, nbytes, meeting.began, left[last]) + more
            network.deliver(target, time, tag, last)
