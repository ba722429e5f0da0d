"""The tasks of a unit in replicated mode, and how they wait for those of the unit before.

Every rank has all rows and renders views of its own; what travels is the rows that each unit
activates, then their gradients: to the rank that sums them, and the sums to all. With a window,
rows of unit v that v - 1 does not activate are projected, and tile rows without others rendered,
while gradients of v - 1 travel; those that v waits for go first. All ranks send in one order:
active(v - 1), first(v - 1), rest(v - 1), active(v), ... Without a window all is the rest.

Which rows v waits for follows from active(v - 1), which all ranks know, so no word is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from grendel_odin.odin.execute import Executor
from grendel_odin.odin.graph import Event, Exchange, Gather, Stage, Task, Traffic
from grendel_odin.odin.units import UnitTasks, begin_in_order
from grendel_odin.odin.work import ReplicatedWork


def replicated_units(
    executor: Executor, works: Iterable[ReplicatedWork], overlap: bool
) -> Iterator[Task]:
    """See `begin_in_order`."""
    return begin_in_order(partial(ReplicatedUnit, executor), works, overlap)


class ReplicatedUnit(UnitTasks):
    """`Unit` of replicated mode."""

    def __init__(self, executor: Executor, work: ReplicatedWork) -> None:
        super().__init__(executor, work)
        self._replicated = work
        self._header = Gather(Traffic.ACTIVE_HEADER, self.number)
        self._active, self._first, self._first_sums, self._rest, self._rest_sums = (
            Exchange(each, self.number)
            for each in (
                *(Traffic.ACTIVE, Traffic.FIRST, Traffic.FIRST_SUMS),
                *(Traffic.REST, Traffic.REST_SUMS),
            )
        )
        self._applied: Task
        """All gradients: with its zero steps the unit is published."""
        self._zeroed: list[Task] = []

    @property
    def told(self) -> Event:
        """See Unit."""
        return self._active

    def open_alone(self) -> Iterator[Task]:
        """See Unit."""
        self._work.extent()
        yield from self._project_late([], None)
        yield from self._publish([self._rest_sums], [self._rest_sums])
        yield from self.close()

    def open(self, before: ReplicatedUnit | None) -> Iterator[Task]:
        """See Unit."""
        work = self._work
        work.extent()
        published: list[Event] = []
        if before:
            published = [before._applied, *before._zeroed]
        if before and work.window:
            self._mail.plan(before._first, before._first_sums, before._rest, before._rest_sums)
            early = self._pieces(Stage.PROJECT, work.project, Traffic.EARLY, before._zeroed)
            yield early
            known = [before._active, before._laid_out]
            yield before._duty(Stage.RETURN, before._return_split, known)
            first = before._pieces(
                Stage.UPDATE, before._work.apply, Traffic.FIRST, [before._first_sums]
            )
            self._executor.delay(before._applied, first)
            yield first
            yield from self._project_late([early, first], early)
        else:
            if before:
                yield from before.close()
            yield from self._project_late(published, None)
        yield from self._publish([self._active], [self._active, *published[:1]])

    def _publish(self, at_once: Sequence[Event], later: Sequence[Event]) -> Iterator[Task]:
        """Gradients are applied when they come; other rows take their steps when they may."""
        work = self._work
        self._zeroed = [
            self._pieces(Stage.UPDATE, work.zero_steps, Traffic.FIRST, at_once),
            self._pieces(Stage.UPDATE, work.zero_steps, Traffic.REST, later),
        ]
        self._applied = self._pieces(Stage.UPDATE, work.apply, Traffic.REST, [self._rest_sums])
        yield from (*self._zeroed, self._applied)

    def close(self) -> Iterator[Task]:
        """See Unit."""
        self._mail.plan(self._rest, self._rest_sums)
        yield from self._return(self._rest, self._rest_sums, [self._drawn])

    def _project_late(self, after: Sequence[Event], early: Task | None) -> Iterator[Task]:
        """And what follows from it: the active rows travel, and slices can be rendered."""
        self._mail.plan(self._header, self._active)
        late = self._pieces(Stage.PROJECT, self._work.project, Traffic.LATE, after)
        yield late
        yield self._duty(Stage.EXCHANGE, self._tell, [late])
        yield self._duty(Stage.EXCHANGE, partial(self._receive, self._active), [self._header])
        if early:
            yield from self._draw([early], (Traffic.EARLY, early), (Traffic.LATE, late))
        else:
            yield from self._draw([late], (Traffic.LATE, late))

    def _tell(self) -> None:
        self._mail.gather(self._header, *self._work.header(Traffic.ACTIVE))
        self._send(self._active)

    def _return_split(self) -> Iterator[Task]:
        """The next unit has begun, so what it waits for is known."""
        yield from self._return(self._first, self._first_sums, self._hurry_first())
        yield from self._return(self._rest, self._rest_sums, [self._drawn])

    def _return(self, parts: Exchange, sums: Exchange, after: Sequence[Event]) -> Iterator[Task]:
        """Gradients to who sums them, and the sums to all."""
        work, part = self._replicated, parts.traffic
        yield self._duty(Stage.RETURN, partial(self._receive, parts), [self._active])
        yield self._duty(Stage.RETURN, partial(self._receive, sums), [self._active])
        collected = self._pieces(Stage.RETURN, work.collect, part, [self._active, *after])
        summed = self._pieces(Stage.RETURN, work.sum, part, [parts])
        yield from (collected, summed)
        yield self._duty(Stage.RETURN, partial(self._send, parts), [collected])
        yield self._duty(Stage.RETURN, partial(self._send, sums), [summed])
