"""Communications of all ranks, made of messages between two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from grendel_odin.odin.graph import Payload
from grendel_odin.odin.transport import Arrival, Link

_STEPS = 32
"""Tags of messages that belong to one communication."""
_FAN = 8
"""Ranks among which a gather takes one step: every further step waits until the ranks between two
tasks look what has come, and queues behind what they have sent since."""


def gather_steps(size: int) -> int:
    """Of an all-gather of so many ranks."""
    steps, held = 0, 1
    while held < size:
        steps, held = steps + 1, held * _FAN
    return steps


@dataclass(slots=True)
class _Circle:
    """An all-gather in ceil(log8 R) steps, for any R (after Bruck et al. 1997): a rank that has the
    rows of h ranks, from its own on, gets those of the next 7 h from 7 ranks."""

    rows: Tensor
    ring: Tensor
    """[R, n]: the own row, then those of the ranks that follow."""
    held: int = 1
    missing: int = 0
    """Messages of this step."""


class Messages:
    """`Transport` made of messages over a link."""

    def __init__(self, link: Link) -> None:
        self.rank, self.size, self._link = link.rank, link.size, link
        self._missing: dict[int, int] = {}
        self._circles: dict[int, _Circle] = {}
        self._complete: list[Arrival] = []

    def send(self, tag: int, outgoing: Sequence[Payload]) -> None:
        """See Transport.send."""
        data = {peer: outgoing[peer] for peer in self._peers() if outgoing[peer].nbytes}
        if data:
            self._link.post_sends(tag * _STEPS, data)

    def receive(self, tag: int, incoming: Sequence[Payload]) -> None:
        """See Transport.receive."""
        data = {peer: incoming[peer] for peer in self._peers() if incoming[peer].nbytes}
        if data:
            self._missing[tag] = len(data)
            self._link.post_receives(tag * _STEPS, data)
        else:
            self._complete.append(Arrival(tag, self.rank))

    def gather(self, tag: int, row: Tensor, rows: Tensor) -> None:
        """See Transport.gather."""
        circle = self._circles[tag] = _Circle(rows, torch.empty_like(rows))
        circle.ring[0] = row
        self._go_round(tag, circle, self.rank)

    def poll(self) -> Sequence[Arrival]:
        """See Transport.poll."""
        self._take(self._link.poll())
        return self._told()

    def wait(self) -> Sequence[Arrival]:
        """See Transport.wait."""
        while not self._complete:
            self._take(self._link.wait())
        return self._told()

    def _told(self) -> Sequence[Arrival]:
        told, self._complete = self._complete, []
        return told

    def _peers(self) -> list[int]:
        """The next rank first, so that ranks do not all send to the same one."""
        return [(self.rank + far) % self.size for far in range(1, self.size)]

    def _take(self, arrivals: Sequence[Arrival]) -> None:
        for number, peer in arrivals:
            tag = number // _STEPS
            if circle := self._circles.get(tag):
                circle.missing -= 1
                if not circle.missing:
                    circle.held = min(_FAN * circle.held, self.size)
                    self._go_round(tag, circle, peer)
                continue
            self._missing[tag] -= 1
            if not self._missing[tag]:
                del self._missing[tag]
                self._complete.append(Arrival(tag, peer))

    def _go_round(self, tag: int, circle: _Circle, peer: int) -> None:
        held, size = circle.held, self.size
        if held == size:
            circle.rows.copy_(circle.ring.roll(self.rank, 0))
            del self._circles[tag]
            self._complete.append(Arrival(tag, peer))
            return
        number = tag * _STEPS + held.bit_length()
        outgoing: dict[int, Payload] = {}
        incoming: dict[int, Payload] = {}
        for far in range(held, min(_FAN * held, size), held):
            stop = min(far + held, size)
            incoming[(self.rank + far) % size] = circle.ring[far:stop].view(-1)
            outgoing[(self.rank - far) % size] = circle.ring[: stop - far].view(-1)
        circle.missing = len(incoming)
        self._link.post_receives(number, incoming)
        self._link.post_sends(number, outgoing)
