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
from dataclasses import asdict

from tqdm import tqdm

from grendel_odin.config import BROKEN_RUN, BrokenRun, UserError
from grendel_odin.config.files import drop_unfinished
from grendel_odin.parallel.link import Link, Message
from grendel_odin.parallel.roll import Roll, Spot, Verdict

BEAT_S = 0.5
SETTLE_S = 2.0
"""From the first complaint to a verdict, so that the cause can be heard before its effects."""
VERDICT_S = 6.0
GRACE_S = 2.0
"""From a verdict to the end of a process that waits in a collective."""
LAST_S = 60.0
"""The same for one that does something else: it may be writing a file."""


class Watch:
    """The watch of one rank."""

    def __init__(self, rank: int, hosts: Sequence[str], links: Mapping[int, Link]) -> None:
        """`links` are to rank 0, or of rank 0 to all others."""
        self.rank, self.roll, self.links = rank, Roll(hosts), dict(links)
        self.tell: Callable[[str], None] = lambda line: None
        """Receives what ends the run: a log."""
        self.last_words = ""
        """What is worth knowing then: where the last model lies."""
        self.verdict: Verdict | None = None
        self._spot = Spot()
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
            self._judge(self.roll.on_host(complaint, self.rank))
        assert self.verdict is not None
        return self.verdict

    def fail(self, reason: str) -> None:
        """This rank cannot go on: all ranks learn why, before it leaves."""
        text = f"{self.roll.name(self.rank)} failed: {reason}"
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

    # The thread does the rest.

    def _run(self) -> None:
        beat = 0.0
        while not self._closed.is_set():
            open_links = {r: link for r, link in self.links.items() if r not in self.roll.left}
            ready = select.select(list(open_links.values()), [], [], BEAT_S / 2)[0]
            self.roll.left |= {
                r for r, link in open_links.items() if link in ready and self._gone(r)
            }
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
            self._judge(self.roll.gone(rank))
            return True
        self.roll.hear(rank)
        for message in messages:
            if "bye" in message:
                return True
            self._take(rank, message)
        return False

    def _take(self, rank: int, message: Message) -> None:
        if "spot" in message:
            self.roll.hear(rank, Spot(**message["spot"]))
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
        """Rank 0's verdict on the first complaint."""
        if self._complaint is None or time.monotonic() < self._complaint[0] or self.verdict:
            return
        self.roll.hear(0, self._spot)
        self._judge(self.roll.on_all(*self._complaint[1:]))

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
        able = set(range(len(self.roll.hosts))) - set(verdict.mute)
        if self.rank == min(able, default=self.rank):
            # A lost rank 0 may have left its progress bar on the line.
            tqdm.write("\n" * (self.rank > 0) + text, file=sys.stderr)
        self._judged.set()
