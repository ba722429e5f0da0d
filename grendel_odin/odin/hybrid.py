"""The tasks of a unit in hybrid mode, and how they wait for those of the unit before.

With a window, rows of unit v that v - 1 does not change are projected and sent (early) while v - 1
is rendered; v - 1 returns the gradients of rows that v waits for before the others (first, rest);
their owners apply and publish them, project them and send them (late). Tile rows that no late splat
may touch are rendered meanwhile. All ranks send in one order: early(v), first(v - 1), late(v),
rest(v - 1), early(v + 1), ... Without a window all of v - 1 is its rest, and all of v is late.
Before first, or rest, counts say how many sums each splat returns.

With two units in flight, all of v - 2 is applied before any task of v runs, so what is pending for
v is what v - 1 activates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from grendel_odin.odin.execute import Executor
from grendel_odin.odin.graph import Event, Exchange, Gather, Stage, Task, Traffic
from grendel_odin.odin.units import UnitTasks, begin_in_order
from grendel_odin.odin.work import Work


def hybrid_units(executor: Executor, works: Iterable[Work], overlap: bool) -> Iterator[Task]:
    """See `begin_in_order`."""
    return begin_in_order(partial(HybridUnit, executor), works, overlap)


class HybridUnit(UnitTasks):
    """`Unit` of hybrid mode."""

    def __init__(self, executor: Executor, work: Work) -> None:
        super().__init__(executor, work)
        self._early_header = Gather(Traffic.EARLY_HEADER, self.number)
        self._late_header = Gather(Traffic.LATE_HEADER, self.number)
        self._early, self._late, self._counts, self._first, self._rest = (
            Exchange(each, self.number)
            for each in (
                *(Traffic.EARLY, Traffic.LATE, Traffic.COUNTS),
                *(Traffic.FIRST, Traffic.REST),
            )
        )
        self._projected: Task
        """All rows, so that the active ones are known."""
        self._applied: Task
        """All gradients: with its zero steps the unit is published."""
        self._zeroed: list[Task] = []

    @property
    def told(self) -> Event:
        """See Unit."""
        return self._late_header

    def open_alone(self) -> Iterator[Task]:
        """See Unit."""
        self._work.extent()
        self._mail.plan(self._late_header, self._late, self._counts, self._rest)
        yield from self._project_late([])
        yield from self._show(self._late_header, self._late)
        yield from self._return_all()
        yield self._pieces(Stage.UPDATE, self._work.zero_steps, Traffic.FIRST, [self._rest])
        yield self._pieces(Stage.UPDATE, self._work.zero_steps, Traffic.REST, [self._rest])

    def open(self, before: HybridUnit | None) -> Iterator[Task]:
        """See Unit."""
        self._work.extent()
        published: list[Event] = []
        if before:
            published = [before._applied, *before._zeroed]
        if before and self._work.window:
            yield from self._overlap(before)
        else:
            if before:
                self._mail.plan(before._counts, before._rest)
                yield from before._return_all()
            self._mail.plan(self._late_header, self._late)
            yield from self._project_late(published)
            yield from self._show(self._late_header, self._late)
        zero_steps, waits = self._work.zero_steps, [self._projected, *published[:1]]
        self._zeroed = [
            self._pieces(Stage.UPDATE, zero_steps, Traffic.FIRST, waits[:1]),
            self._pieces(Stage.UPDATE, zero_steps, Traffic.REST, waits),
        ]
        yield from self._zeroed

    def close(self) -> Iterator[Task]:
        """See Unit."""
        self._mail.plan(self._counts, self._rest)
        yield from self._return_all()

    def _overlap(self, before: HybridUnit) -> Iterator[Task]:
        """With a window: project what is not pending, and what is when it comes back."""
        work = self._work
        self._mail.plan(self._early_header, self._early, before._counts, before._first)
        self._mail.plan(self._late_header, self._late, before._rest)
        early = self._pieces(Stage.PROJECT, work.project, Traffic.EARLY, before._zeroed)
        first = before._pieces(Stage.UPDATE, before._work.apply, Traffic.FIRST, [before._first])
        self._executor.delay(before._applied, first)
        yield from (early, first)
        send_early = self._duty(Stage.EXCHANGE, self._send_early, [early])
        yield send_early
        yield before._expect_counts()
        expect = [send_early, before._counts]
        yield before._duty(Stage.RETURN, partial(before._receive, before._first), expect)
        yield before._duty(Stage.RETURN, partial(before._receive, before._rest), expect)
        yield self._duty(Stage.EXCHANGE, partial(self._receive, self._early), [self._early_header])
        yield from self._project_late([early, first])
        yield from self._show(self._early_header, self._early, self._late)
        known = [self._early, before._laid_out, *before._unpacked]
        yield before._duty(Stage.RETURN, before._return_split, known)

    def _project_late(self, after: Sequence[Event]) -> Iterator[Task]:
        """And what follows from it: late splats travel and come; gradients come and are applied."""
        work = self._work
        self._projected = self._pieces(Stage.PROJECT, work.project, Traffic.LATE, after)
        yield self._projected
        yield self._duty(Stage.EXCHANGE, self._send_late, [self._projected])
        yield self._duty(Stage.EXCHANGE, partial(self._receive, self._late), [self._late_header])
        self._applied = self._pieces(Stage.UPDATE, work.apply, Traffic.REST, [self._rest])
        yield self._applied

    def _show(self, header: Gather, *splats: Exchange) -> Iterator[Task]:
        """Splats that come are drawn; how many sums each will return is told beforehand."""
        yield from self._draw([header], *((each.traffic, each) for each in splats))
        send_counts = partial(self._send, self._counts)
        yield self._duty(Stage.RETURN, send_counts, self._unpacked)

    def _send_early(self) -> None:
        self._mail.gather(self._early_header, *self._work.header(Traffic.EARLY))
        self._send(self._early)

    def _send_late(self) -> None:
        self._mail.gather(self._late_header, *self._work.header(Traffic.LATE))
        self._send(self._late)

    def _return_split(self) -> Iterator[Task]:
        """Early splats of the next unit have come, and with them the word what to return first."""
        first = self._duty(Stage.RETURN, partial(self._send, self._first), self._hurry_first())
        yield first
        yield self._duty(Stage.RETURN, partial(self._send, self._rest), [self._drawn, first])

    def _expect_counts(self) -> Task:
        return self._duty(Stage.RETURN, partial(self._receive, self._counts), [self._late_header])

    def _return_all(self) -> Iterator[Task]:
        """Without a window all gradients are the rest."""
        yield self._expect_counts()
        yield self._duty(Stage.RETURN, partial(self._receive, self._rest), [self._counts])
        whole = [self._drawn, *self._unpacked]  # late splats may touch none of the slices
        yield self._duty(Stage.RETURN, partial(self._send, self._rest), whole)
