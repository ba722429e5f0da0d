"""Runs the tasks of units as soon as they may run, and knows what each stage has cost and what a
rank has waited for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from grendel_odin.odin import clock as clocks
from grendel_odin.odin.clock import Clock
from grendel_odin.odin.graph import Communication, Event, Stage, Task, Traffic, Urgency
from grendel_odin.odin.mail import Mail
from grendel_odin.odin.transport import Alone, Lost, Transport


@dataclass(frozen=True, slots=True)
class Wait:
    """A time in which a rank had nothing to run, and what ended it."""

    unit: int
    traffic: Traffic
    """The communication that it waited for."""
    rank: int
    """From which the last part of it came."""
    start: float
    seconds: float


class Stuck(RuntimeError):
    """What is left waits for something that nobody will do: an error in the graph."""


class Executor:
    """Of one rank. One loop: post what may be posted, hear what has come, run the most urgent task
    that is ready. It blocks only when there is none."""

    seconds: dict[Stage, float]
    """Seconds spent so far in each stage."""
    waits: list[Wait]
    """So far; whoever reads them may clear them."""
    mail: Mail
    """What tasks send and receive by."""

    def __init__(self, clock: Clock = clocks.real, transport: Transport | None = None) -> None:
        self.seconds = dict.fromkeys(Stage, 0.0)
        self.waits = []
        self.mail = Mail(transport or Alone())
        self._clock = clock
        self._source: Iterator[Task] | None = None
        self._room = 0
        self._ready: list[tuple[int, int, int, Task]] = []
        self._unfinished: set[Task] = set()
        self._serial = 0
        self._blocked_since: float | None = None
        self._cause: tuple[Communication, int] | None = None

    # For the trainer.

    def run(self, tasks: Iterable[Task], in_flight: int = 1) -> None:
        """Run the tasks, begun in the order in which they are given, so many of them at a time.

        The next one is asked for when there is room for it. A task counts as long as any task
        that it has given is left, so units are given as one task each, and with 1 in flight there
        is a barrier after every unit.
        """
        self.start(tasks, in_flight)
        while not self.finished:
            if not self.step() and not self.finished:
                self._wait()

    def start(self, tasks: Iterable[Task], in_flight: int = 1) -> None:
        """`run` for those who call `step` themselves."""
        assert self.finished, "tasks are still running"
        self._source, self._room, self._blocked_since = iter(tasks), in_flight, None

    @property
    def finished(self) -> bool:
        """Whether all has been run, posted and received."""
        return self._source is None and not self._unfinished and self.mail.empty

    def step(self) -> bool:
        """Run one task; whether there was one that is ready. Raises Stuck, Lost."""
        try:
            return self._step()
        except Lost as error:
            raise self.mail.lost(error) from error

    # For tasks.

    def delay(self, task: Task, event: Event) -> None:
        """Make a task that is not ready yet wait for one more event."""
        assert task.waits, "it may have run"
        if not event.done:
            event.followers.append(task)
            task.waits += 1

    def hurry(self, task: Task, urgency: Urgency) -> None:
        """Make a task more urgent than it was."""
        if urgency < task.urgency:
            task.urgency = urgency
            if not task.waits and not task.started:
                self._push(task)

    # The rest is the loop.

    def _step(self) -> bool:
        self._admit()
        for communication in self.mail.post():
            self._happen(communication)
        self._hear()
        task = self._next()
        if task is None:
            self._block()
            return False
        self._unblock()
        self._perform(task)
        return True

    def _wait(self) -> None:
        try:
            self._hear(wait=True)
        except Lost as error:
            raise self.mail.lost(error) from error

    def _admit(self) -> None:
        """Take tasks from the source while there is room."""
        while self._room and self._source is not None:
            task = next(self._source, None)
            if task is None:
                self._source = None
            else:
                self._room -= 1
                self._add(task, None)

    def _add(self, task: Task, parent: Task | None) -> None:
        task.parent = parent
        for event in task.after:
            if not event.done:
                event.followers.append(task)
                task.waits += 1
        task.after = ()  # or every task would hold all those before it
        self._unfinished.add(task)
        if not task.waits:
            self._push(task)

    def _push(self, task: Task) -> None:
        self._serial += 1
        heappush(self._ready, (task.urgency, task.unit, self._serial, task))

    def _next(self) -> Task | None:
        while self._ready:
            task = heappop(self._ready)[3]
            if not task.started:  # else it was hurried, and has another entry
                return task
        return None

    def _perform(self, task: Task) -> None:
        """The time of a task that fails counts, too."""
        task.started = True
        start = self._clock()
        try:
            children = list(task.run() or ())
        finally:
            self.seconds[task.stage] += self._clock() - start
        task.run = _nothing  # lets go of what it holds
        task.parts += len(children)
        for child in children:
            self._add(child, task)
        self._close(task)

    def _close(self, task: Task) -> None:
        """A part of a task is done."""
        part: Task | None = task
        while part is not None:
            part.parts -= 1
            if part.parts:
                return
            self._unfinished.discard(part)
            self._happen(part)
            if part.parent is None:
                self._room += 1
            part = part.parent

    def _happen(self, event: Event) -> None:
        event.done = True
        for task in event.followers:
            task.waits -= 1
            if not task.waits:
                self._push(task)
        event.followers.clear()

    def _hear(self, wait: bool = False) -> None:
        for communication, rank in self.mail.hear(wait):
            self._happen(communication)
            if self._cause is None and self._ready:
                self._cause = communication, rank

    def _block(self) -> None:
        if not self.mail.waits and not self.finished:
            raise Stuck(self.explain())
        self._cause = None
        if self._blocked_since is None:
            self._blocked_since = self._clock()

    def _unblock(self) -> None:
        if self._blocked_since is not None and self._cause is not None:
            communication, rank = self._cause
            start = self._blocked_since
            self.waits.append(
                Wait(communication.unit, communication.traffic, rank, start, self._clock() - start)
            )
        self._blocked_since = None

    def explain(self) -> str:
        """What is left, and what it waits for."""
        tasks = sorted(f"{t.stage.value} of unit {t.unit}" for t in self._unfinished if t.waits)
        parts = [
            f"rank {self.mail.transport.rank} can run nothing",
            *self.mail.explain(),
            f"{len(tasks)} tasks wait: {', '.join(tasks[:8])}",
        ]
        return "; ".join(parts)


def _nothing() -> None:
    """What a task that was run holds."""
