"""Knows which ranks are still there, and ends the run on all when one is not.

A thread of each rank is connected to that of rank 0. A killed process closes its connection at
once; a stopped one falls silent; one that fails says why. The main threads wait inside
collectives, which can tell neither of these, so these threads find out, say it once, and end their
process if its main thread does not.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from tqdm import tqdm

from grendel_odin.config import BROKEN_RUN, BrokenRun, UserError
from grendel_odin.config.files import drop_unfinished
from grendel_odin.parallel.link import Link, Message

BEAT_S = 0.5
SILENT_S = 3.0
"""Without a sign of life: a rank that others wait for is then taken to be stopped."""
SETTLE_S = 2.0
"""From the first complaint to a verdict, so that the cause can be heard before its effects."""
VERDICT_S = 6.0
GRACE_S = 2.0
"""From a verdict to the end of a process that waits in a collective."""
LAST_S = 60.0
"""The same for one that does something else: it may be writing a file."""


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


class Watch:
    """The watch of one rank."""

    def __init__(self, rank: int, hosts: Sequence[str], links: Mapping[int, Link]) -> None:
        """`links` are to rank 0, or of rank 0 to all others."""
        self.rank, self.hosts, self.links = rank, hosts, dict(links)
        self.tell: Callable[[str], None] = lambda line: None
        """Receives what ends the run: a log."""
        self.last_words = ""
        """What is worth knowing then: where the last model lies."""
        self.verdict: Verdict | None = None
        self._spot = Spot()
        self._spots = {r: Spot() for r in range(len(hosts))}
        self._heard = dict.fromkeys(range(len(hosts)), time.monotonic())
        self._left = set[int]()
        self._complaint: tuple[float, int, str] | None = None
        self._ended = 0.0
        self._judging, self._judged = threading.Lock(), threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    # The main thread calls these.

    @contextmanager
    def inside(self, operation: str) -> Iterator[None]:
        """While entered, this rank is in a collective. Raises BrokenRun where that fails."""
        if self.verdict:
            raise BrokenRun(self.verdict.text)
        self._spot = Spot(self._spot.count + 1, operation, True)
        try:
            yield
        except (RuntimeError, UserError) as error:
            raise BrokenRun(self.explain(str(error)).text) from error
        self._spot = Spot(self._spot.count, operation)

    def explain(self, complaint: str) -> Verdict:
        """Why a collective failed here, which may be news of another failure."""
        if self.rank == 0:
            self._complain(0, complaint)
        else:
            self.links[0].send({"complaint": complaint, **self._sign()})
        if not self._judged.wait(VERDICT_S):
            silence = time.monotonic() - self._heard[0]
            if 0 in self._left:
                self._judge(Verdict(f"{self.name(0)} ended early", [0]))
            elif silence > SILENT_S:
                self._judge(Verdict(self._silent([0], silence), [0]))
            else:
                self._judge(Verdict(complaint, list(range(self.rank))))
        assert self.verdict is not None
        return self.verdict

    def fail(self, reason: str) -> None:
        """This rank cannot go on: all ranks learn why, before it leaves."""
        text = f"{self.name(self.rank)} failed: {reason}"
        if self.rank == 0:
            self._judge(Verdict(text, []))
            return
        self.links[0].send({"failed": text})
        if not self._judged.wait(VERDICT_S):
            self._judge(Verdict(text, list(range(self.rank))))

    def close(self) -> None:
        """Leave in good order, or after the verdict."""
        for link in self.links.values():
            link.send({"bye": True})
        self._closed.set()
        self._thread.join()
        for link in self.links.values():
            link.close()

    def name(self, rank: int) -> str:
        """A rank with its host."""
        return f"rank {rank} ({self.hosts[rank]})"

    # The thread does the rest.

    def _run(self) -> None:
        beat = 0.0
        while not self._closed.is_set():
            open_links = {r: link for r, link in self.links.items() if r not in self._left}
            ready = select.select(list(open_links.values()), [], [], BEAT_S / 2)[0]
            self._left |= {r for r, link in open_links.items() if link in ready and self._gone(r)}
            if time.monotonic() >= beat:
                beat = time.monotonic() + BEAT_S
                for link in open_links.values():
                    link.send(self._sign())
            self._decide()
            limit = GRACE_S if self._spot.inside else LAST_S
            if self.verdict and time.monotonic() > self._ended + limit:
                drop_unfinished()
                os._exit(BROKEN_RUN)

    def _gone(self, rank: int) -> bool:
        """Hears what a rank says; whether it has left."""
        messages = self.links[rank].receive()
        if messages is None:
            self._judge(
                Verdict(
                    f"{self.name(rank)} is gone without a word: it was killed (by hand, or for "
                    f"want of memory), it crashed, or its node went down{self._last_seen(rank)}",
                    [rank],
                )
            )
            return True
        self._heard[rank] = time.monotonic()
        for message in messages:
            if "bye" in message:
                return True
            self._take(rank, message)
        return False

    def _take(self, rank: int, message: Message) -> None:
        if "spot" in message:
            self._spots[rank] = Spot(**message["spot"])
        if "complaint" in message:
            self._complain(rank, message["complaint"])
        if "failed" in message:
            self._judge(Verdict(message["failed"], []))
        if "verdict" in message:
            self._judge(Verdict(**message["verdict"]))

    def _sign(self) -> Message:
        return {"spot": asdict(self._spot)}

    def _complain(self, rank: int, text: str) -> None:
        if self._complaint is None:
            self._complaint = (time.monotonic() + SETTLE_S, rank, text)

    def _decide(self) -> None:
        """Rank 0's verdict on the first complaint: who is silent, or else behind the others."""
        if self._complaint is None or time.monotonic() < self._complaint[0] or self.verdict:
            return
        _, accuser, text = self._complaint
        now = time.monotonic()
        self._spots[0], self._heard[0] = self._spot, now
        here = self._spots[accuser]
        left = sorted(self._left)
        silent = [r for r, heard in self._heard.items() if now - heard > SILENT_S]
        behind = [
            r
            for r, spot in self._spots.items()
            if (spot.count, spot.inside) < (here.count, here.inside)
        ]
        if left:
            verdict = f"{self._names(left)} ended early; {self.name(accuser)} waited in "
            self._judge(Verdict(f"{verdict}{here.operation}", left))
        elif silent:
            age = max(now - self._heard[r] for r in silent)
            verdict = f"{self._silent(silent, age)}; {self.name(accuser)} waited in "
            self._judge(Verdict(f"{verdict}{here.operation}", silent))
        elif behind:
            self._judge(Verdict(self._behind(behind, here.operation), []))
        else:
            self._judge(Verdict(f"{self.name(accuser)}, {here.operation}: {text}", []))

    def _silent(self, ranks: Sequence[int], age: float) -> str:
        return (
            f"{self._names(ranks)} gave no sign of life for {age:.0f} s: stopped, hung, or its "
            f"node cannot be reached{self._last_seen(ranks[0])}"
        )

    def _behind(self, ranks: Sequence[int], operation: str) -> str:
        return (
            f"{self._names(ranks)} lives, but did not come to {operation} in time"
            f"{self._last_seen(ranks[0])}. If it only needs longer, raise parallel.step_timeout_s "
            "or parallel.timeout_s"
        )

    def _names(self, ranks: Sequence[int]) -> str:
        return ", ".join(map(self.name, ranks))

    def _last_seen(self, rank: int) -> str:
        spot = self._spots[rank]
        if spot == Spot():
            return ""
        return f"; it was last seen {'in' if spot.inside else 'after'} {spot.operation}"

    def _judge(self, verdict: Verdict) -> None:
        """The first verdict holds, and is said once: by the lowest rank that can."""
        with self._judging:
            if self.verdict is not None or self._closed.is_set():
                return
            self.verdict, self._ended = verdict, time.monotonic()
        if self.rank == 0:
            for link in self.links.values():
                link.send({"verdict": asdict(verdict)})
        text = f"error: {verdict.text}" + (f". {self.last_words}" if self.last_words else "")
        self.tell(text)
        if self.rank == min(set(range(len(self.hosts))) - set(verdict.mute), default=self.rank):
            tqdm.write(text, file=sys.stderr)
        self._judged.set()
