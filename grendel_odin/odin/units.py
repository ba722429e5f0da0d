"""What units of both modes have in common: they are begun in order, and render slices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from grendel_odin.odin.execute import Executor
from grendel_odin.odin.graph import Event, Exchange, Stage, Task, Traffic, Urgency
from grendel_odin.odin.work import Piece, Work

W = TypeVar("W", bound=Work)


class Unit(Protocol):
    """The tasks of one unit on one rank."""

    @property
    def number(self) -> int:
        """Of the unit."""

    @property
    def told(self) -> Event:
        """What decisions about the next unit need: which rows this one activates, and headers."""

    def open_alone(self) -> Iterator[Task]:
        """All of a unit that overlaps with none."""

    def open(self, before: Any, /) -> Iterator[Task]:
        """All of a unit but the return of its gradients: that depends on the next unit. `before`
        is the unit before, if there is one."""

    def close(self) -> Iterator[Task]:
        """The return of a unit that none follows."""


def begin_in_order(make: Callable[[W], Unit], works: Iterable[W], overlap: bool) -> Iterator[Task]:
    """A task for each unit, to be run with two in flight if they may overlap, else with one: then
    there is a barrier after every unit. The next work is asked for when there is room for it."""
    before: Unit | None = None
    for work in works:
        unit = make(work)
        run = partial(unit.open, before) if overlap else unit.open_alone
        after = [before.told] if before else []
        yield Task(Stage.EXTENT, unit.number, run, after, Urgency.DUTY)
        before = unit
    if before and overlap:
        yield Task(Stage.RETURN, before.number, before.close, urgency=Urgency.DUTY)


class UnitTasks:
    """Makes tasks of work."""

    def __init__(self, executor: Executor, work: Work) -> None:
        self.number = work.number
        self._work, self._executor, self._mail = work, executor, executor.mail
        self._laid_out: Task
        """Slices have become tasks."""
        self._drawn: Task
        """All slices are rendered, and have gone backward."""
        self._unpacked: list[Task] = []
        """All splats that come."""
        self._renders: list[Task] = []
        self._backwards: list[Task] = []

    def _draw(self, after: Sequence[Event], *parts: tuple[Traffic, Event]) -> Iterator[Task]:
        """Slices become tasks; one that no late splat may touch waits for the first part only."""
        self._unpacked = [
            self._pieces(Stage.EXCHANGE, self._work.unpack, part, [come], Urgency.WORK)
            for part, come in parts
        ]
        self._laid_out = self._duty(Stage.RENDER, self._lay_out, after)
        self._drawn = self._duty(
            Stage.RENDER, lambda: [*self._renders, *self._backwards], [self._laid_out]
        )
        yield from (*self._unpacked, self._laid_out, self._drawn)

    def _lay_out(self) -> None:
        work, unpacked = self._work, self._unpacked
        for number in range(work.slices()):
            after = unpacked if len(unpacked) > 1 and work.is_late(number) else unpacked[:1]
            run = partial(work.render, number)
            self._renders.append(Task(Stage.RENDER, self.number, run, after))
        for number in range(work.slices()):
            around = [self._renders[other] for other in work.neighbours(number)]
            run = partial(work.backward, number)
            self._backwards.append(Task(Stage.BACKWARD, self.number, run, around))

    def _hurry_first(self) -> list[Task]:
        """The slices that hold what returns first, which run before others from now on."""
        first = []
        for number, task in enumerate(self._backwards):
            if self._work.returns_first(number):
                first.append(task)
                around = [self._renders[other] for other in self._work.neighbours(number)]
                for each in (task, *around):
                    self._executor.hurry(each, Urgency.RETURN)
        return first

    def _send(self, exchange: Exchange) -> None:
        self._mail.send(exchange, self._work.outgoing(exchange.traffic))

    def _receive(self, exchange: Exchange) -> None:
        self._mail.receive(exchange, self._work.incoming(exchange.traffic))

    def _duty(
        self, stage: Stage, run: Callable[[], Iterable[Task] | None], after: Iterable[Event]
    ) -> Task:
        return Task(stage, self.number, run, after, Urgency.DUTY)

    def _pieces(
        self,
        stage: Stage,
        make: Callable[[Traffic], Iterable[Piece]],
        part: Traffic,
        after: Iterable[Event],
        urgency: Urgency = Urgency.DUTY,
    ) -> Task:
        """A task that is done when all pieces of a part are."""

        def tasks() -> list[Task]:
            return [Task(stage, self.number, piece, urgency=urgency) for piece in make(part)]

        return Task(stage, self.number, tasks, after, urgency)
