"""How bytes get from rank to rank: through shared memory on one machine, by gloo beyond."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum

import torch
import torch.distributed as dist
from torch import Tensor

from grendel_odin import _kernels
from grendel_odin.config import UserError


class Transport(str, Enum):
    """What ranks on one machine use; between machines it is always the process group."""

    AUTO = "auto"  # shared memory where it can be had
    GLOO = "gloo"  # sockets


class LostRank(UserError):
    """Another rank stopped, or does not answer; nothing can be agreed with it any more."""

    def __init__(self, rank: int, reason: str) -> None:
        super().__init__(f"rank {rank} {reason}")
        self.rank, self.reason = rank, reason


@dataclass(slots=True)
class Wire:
    """The connections of one rank."""

    rank: int
    size: int
    timeout_s: float
    """After which a rank that does nothing counts as lost; may be changed at any time."""
    neighbours: list[int] = field(default_factory=list)
    """Ranks that share the mailbox, this one among them, ascending; none without a mailbox."""
    mailbox: _kernels.Mailbox | None = None
    bytes_sent: int = 0
    """By this rank to others, so far."""

    @property
    def medium(self) -> str:
        """What it goes through, for people."""
        near = len(self.neighbours)
        return "gloo" if near < 2 else "shared memory" + " and gloo" * (near < self.size)

    def exchange(self, outgoing: Sequence[Tensor], incoming: Sequence[Tensor]) -> None:
        """Send outgoing[r] to rank r and fill incoming[r] from it; both know all sizes.

        Receives are posted before sends, so both directions of a link are busy at once; tensors
        without elements are not sent. This rank's own pair is left alone. Raises LostRank.
        """
        far = [r for r in range(self.size) if r != self.rank and r not in self.neighbours]
        try:
            pending = [(r, dist.irecv(incoming[r], r)) for r in far if incoming[r].numel()]
            pending += [(r, dist.isend(outgoing[r], r)) for r in far if outgoing[r].numel()]
        except RuntimeError as error:
            raise LostRank(far[0], f"cannot be reached: {first_line(error)}") from error
        if self.mailbox is not None:
            self._exchange_near(self.mailbox, outgoing, incoming)
        limit = timedelta(seconds=self.timeout_s)
        for r, work in pending:
            try:
                if work is not None:
                    work.wait(limit)
            except RuntimeError as error:
                raise LostRank(r, f"is gone or does not answer: {first_line(error)}") from error

    def _exchange_near(
        self, mailbox: _kernels.Mailbox, outgoing: Sequence[Tensor], incoming: Sequence[Tensor]
    ) -> None:
        lost = mailbox.exchange(
            [_bytes(outgoing[r]) for r in self.neighbours],
            [_bytes(incoming[r]) for r in self.neighbours],
            self.timeout_s,
        )
        if lost >= 0:
            reason = f"is gone or did not answer for {self.timeout_s:g} s"
            raise LostRank(self.neighbours[lost], reason)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.view(-1).view(torch.uint8)


def first_line(error: Exception) -> str:
    """Of an error's text, without its full stop."""
    return str(error).strip().split("\n")[0].rstrip(".")
