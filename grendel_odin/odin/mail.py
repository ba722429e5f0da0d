"""The communications of one rank: what is to be sent in which order, and what has not come."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from torch import Tensor

from grendel_odin.odin.graph import Communication, Exchange, Gather, Payload
from grendel_odin.odin.transport import Lost, Transport


class Mail:
    """All ranks plan the same communications in the same order, and send in that order; a receive
    is posted as soon as its size is known."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._tags = 0
        self._planned: deque[Communication] = deque()
        self._awaited: dict[int, Communication] = {}

    # For tasks.

    def plan(self, *communications: Communication) -> None:
        """These come next in the order; called alike on all ranks."""
        for communication in communications:
            communication.tag, self._tags = self._tags, self._tags + 1
        self._planned.extend(communications)

    def send(self, exchange: Exchange, outgoing: Sequence[Payload]) -> None:
        """What goes to each rank, when it is the exchange's turn."""
        exchange.outgoing = outgoing

    def receive(self, exchange: Exchange, incoming: Sequence[Payload]) -> None:
        """Where to put what comes from each rank; the exchange must be planned."""
        assert exchange.tag >= 0, f"{exchange} is not planned"
        self._awaited[exchange.tag] = exchange
        self.transport.receive(exchange.tag, incoming)

    def gather(self, header: Gather, row: Tensor, rows: Tensor) -> None:
        """Row [n] of this rank and room [R, n] for all, when it is the header's turn."""
        header.row, header.rows = row, rows

    # For the executor.

    @property
    def waits(self) -> bool:
        """Whether something has not come."""
        return bool(self._awaited)

    @property
    def empty(self) -> bool:
        """Whether all that was planned is sent, and all has come."""
        return not (self._planned or self._awaited)

    def post(self) -> list[Communication]:
        """Start what is next in the order, as far as it is there; those that are done by it."""
        done: list[Communication] = []
        while self._planned:
            head = self._planned[0]
            if isinstance(head, Gather) and head.row is not None:
                self._awaited[head.tag] = head
                self.transport.gather(head.tag, head.row, head.rows)
                head.row = None
            elif isinstance(head, Exchange) and head.outgoing is not None:
                self.transport.send(head.tag, head.outgoing)
                head.outgoing = None
                if _half(head):
                    done.append(head)
            else:
                break
            self._planned.popleft()
        return done

    def hear(self, wait: bool = False) -> list[tuple[Communication, int]]:
        """Those that are done by what has come, and from which rank the last part of it came."""
        arrivals = self.transport.wait() if wait else self.transport.poll()
        heard = [(self._awaited.pop(tag), rank) for tag, rank in arrivals]
        return [(each, r) for each, r in heard if isinstance(each, Gather) or _half(each)]

    def lost(self, error: Lost) -> Lost:
        """The same, with what this rank was waiting for."""
        what = ", ".join(map(str, self._awaited.values())) or "nothing"
        return Lost(
            error.rank, f"{error.reason}; rank {self.transport.rank} was waiting for {what}"
        )

    def explain(self) -> list[str]:
        """What has not come, and what is next to be sent but is not there."""
        return [
            *(f"{each} has not come" for each in self._awaited.values()),
            *(f"nothing was given to send as {each}" for each in [*self._planned][:1]),
        ]


def _half(exchange: Communication) -> bool:
    """Sending or receiving is done; whether both are."""
    assert isinstance(exchange, Exchange)
    exchange.halves -= 1
    return not exchange.halves
