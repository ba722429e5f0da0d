"""How communications of all ranks are carried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from grendel_odin.odin.graph import Payload


class Lost(RuntimeError):
    """Another rank is gone or does not answer."""

    def __init__(self, rank: int, reason: str) -> None:
        super().__init__(f"rank {rank} {reason}")
        self.rank, self.reason = rank, reason


class Arrival(NamedTuple):
    """All that a communication, or a message, brings to this rank is here."""

    tag: int
    rank: int
    """From which its last part came."""


class Transport(Protocol):
    """Carries communications. Nothing waits for a send. Tags tell communications apart; those of
    two ranks meet by their tag, whatever else is on its way. Every call may raise Lost."""

    rank: int
    size: int

    def send(self, tag: int, outgoing: Sequence[Payload]) -> None:
        """Start sending outgoing[r] to rank r; its own is left alone."""

    def receive(self, tag: int, incoming: Sequence[Payload]) -> None:
        """Fill incoming[r] with what rank r sends; its own is left alone."""

    def gather(self, tag: int, row: Tensor, rows: Tensor) -> None:
        """Start an all-gather: row [n] of this rank, rows [R, n] to fill."""

    def poll(self) -> Sequence[Arrival]:
        """Receives and gathers that are complete; each is told once. Does not wait."""

    def wait(self) -> Sequence[Arrival]:
        """As `poll`, but waits until there is one."""


class Link(Protocol):
    """Single messages between pairs of ranks: what a network has to offer. A receive is posted
    with the size that is sent; the order of messages with different tags does not matter."""

    rank: int
    size: int

    def post_sends(self, tag: int, data: Mapping[int, Payload]) -> None:
        """Start sending to some peers at once; keeps the data until they are sent."""

    def post_receives(self, tag: int, data: Mapping[int, Payload]) -> None:
        """Fill the data of each peer with a message when it comes."""

    def poll(self) -> Sequence[Arrival]:
        """Received messages; each is told once. Moves what is on its way; does not wait."""

    def wait(self) -> Sequence[Arrival]:
        """As `poll`, but waits until there is one."""


class Alone:
    """`Transport` of a process on its own: nothing travels."""

    rank, size = 0, 1

    def __init__(self) -> None:
        self._complete: list[Arrival] = []

    def send(self, tag: int, outgoing: Sequence[Payload]) -> None:
        """See Transport.send."""

    def receive(self, tag: int, incoming: Sequence[Payload]) -> None:
        """See Transport.receive."""
        self._complete.append(Arrival(tag, 0))

    def gather(self, tag: int, row: Tensor, rows: Tensor) -> None:
        """See Transport.gather."""
        rows[0] = row
        self._complete.append(Arrival(tag, 0))

    def poll(self) -> Sequence[Arrival]:
        """See Transport.poll."""
        told, self._complete = self._complete, []
        return told

    wait = poll
