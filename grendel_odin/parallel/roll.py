"""What rank 0 has heard of the others, and what it makes of it when one of them complains."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

SILENT_S = 3.0
"""Without a sign of life: a rank that others wait for is then taken to be stopped."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why the run ends."""

    text: str
    mute: list[int]
    """Ranks that cannot say it."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a rank is: the number and name of its latest collective, and whether it is in it."""

    count: int = 0
    operation: str = "start"
    inside: bool = False


class Roll:
    """The ranks, and when and where each was seen last."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self.hosts = hosts
        self.left = set[int]()
        """Those that have said goodbye."""
        self._spots = [Spot() for _ in hosts]
        self._heard = [time.monotonic() for _ in hosts]

    def hear(self, rank: int, spot: Spot | None = None) -> None:
        """A sign of life, perhaps with the rank's place."""
        self._heard[rank] = time.monotonic()
        self._spots[rank] = spot or self._spots[rank]

    def name(self, rank: int) -> str:
        """A rank with its host."""
        return f"rank {rank} ({self.hosts[rank]})"

    def silence(self, rank: int) -> float:
        """Seconds since the last sign of life."""
        return time.monotonic() - self._heard[rank]

    def gone(self, rank: int) -> Verdict:
        """On a rank whose connection has closed."""
        return Verdict(
            f"{self.name(rank)} is gone without a word: it was killed (by hand, or for want of "
            f"memory), it crashed, or its node went down{self._last_seen(rank)}",
            [rank],
        )

    def on_host(self, complaint: str, own: int) -> Verdict:
        """Of another rank than 0, which hears of rank 0 only and has had no answer from it."""
        if 0 in self.left:
            return Verdict(f"{self.name(0)} ended early", [0])
        if self.silence(0) > SILENT_S:
            return Verdict(self._silent([0]), [0])
        return Verdict(complaint, list(range(own)))

    def on_all(self, accuser: int, complaint: str) -> Verdict:
        """Of rank 0: who has left, or is silent, or else is behind the accuser."""
        ranks, here = range(len(self.hosts)), self._spots[accuser]
        waited = f"; {self.name(accuser)} waited in {here.operation}"
        if left := sorted(self.left):
            return Verdict(f"{self._names(left)} ended early{waited}", left)
        if silent := [rank for rank in ranks if self.silence(rank) > SILENT_S]:
            return Verdict(f"{self._silent(silent)}{waited}", silent)
        if behind := [rank for rank in ranks if _before(self._spots[rank], here)]:
            return Verdict(
                f"{self._names(behind)} lives, but did not come to {here.operation} in time"
                f"{self._last_seen(behind[0])}. If it only needs longer, raise "
                "parallel.step_timeout_s or parallel.timeout_s",
                [],
            )
        return Verdict(f"{self.name(accuser)}, {here.operation}: {complaint}", [])

    def _silent(self, ranks: Sequence[int]) -> str:
        age = max(self.silence(rank) for rank in ranks)
        return (
            f"{self._names(ranks)} gave no sign of life for {age:.0f} s: stopped, hung, or its "
            f"node cannot be reached{self._last_seen(ranks[0])}"
        )

    def _names(self, ranks: Sequence[int]) -> str:
        return ", ".join(map(self.name, ranks))

    def _last_seen(self, rank: int) -> str:
        spot = self._spots[rank]
        if spot == Spot():
            return ""
        return f"; it was last seen {'in' if spot.inside else 'after'} {spot.operation}"


def _before(spot: Spot, other: Spot) -> bool:
    """Whether a rank has yet to come to where another one waits."""
    return (spot.count, spot.inside) < (other.count, other.inside)
