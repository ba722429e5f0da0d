"""The integers of tests/toy_rows.py where every rank has all rows, and slices of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor

from grendel_odin.odin.graph import Traffic
from grendel_odin.odin.work import Piece
from tests.toy_rows import Toy, step

ACTIVE, EARLY, FIRST, REST = Traffic.ACTIVE, Traffic.EARLY, Traffic.FIRST, Traffic.REST
SUMS = {Traffic.FIRST_SUMS: FIRST, Traffic.REST_SUMS: REST}


class Replica:
    """All rows, on one rank."""

    def __init__(self, toy: Toy, rank: int, spend: Callable[[], None]) -> None:
        self.toy, self.rank, self.spend = toy, rank, spend
        self.values = list(range(1, toy.rows + 1))
        self.versions = [-1] * toy.rows
        self.works: list[ReplicaWork] = []

    def work(self, number: int) -> ReplicaWork:
        self.works.append(ReplicaWork(self, number))
        return self.works[-1]

    def take_step(self, unit: int, row: int, gradient: int) -> None:
        assert self.versions[row] == unit - 1, "a row takes every step once, in order"
        self.versions[row] = unit
        self.values[row] = step(self.values[row], gradient)


class ReplicaWork:
    """`ReplicatedWork` of one unit and rank."""

    def __init__(self, here: Replica, number: int) -> None:
        self.toy, self.here, self.number, self.me = here.toy, here, number, here.rank
        self.window = self.toy.windows[number]
        self.own = {row for row in self.toy.active[number] if self.renderer(row) == self.me}
        self.read: dict[int, int] = {}
        self.lying: dict[int, dict[int, int]] = {}
        self.rendered: set[int] = set()
        self.gradients: dict[int, int] = {}
        self.sums: dict[int, int] = {}
        self.sent: dict[Traffic, Sequence[Tensor]] = {}
        self.room: dict[Traffic, list[Tensor]] = {}
        self.lengths = torch.empty(0)

    def renderer(self, row: int) -> int:
        return self.toy.place(self.number, row) // self.toy.slices

    def came(self, part: Traffic) -> list[list[int]]:
        """By rank."""
        parts = list(self.room[part])
        parts[self.me] = self.sent[part][self.me]
        numbers = [each.tolist() for each in parts]
        assert all(number >= 0 for each in numbers for number in each), "not filled yet"
        return numbers

    def changed(self) -> set[int]:
        """By the unit before, on any rank."""
        before = self.here.works[self.number - 1] if self.number else None
        return {row for each in before.came(ACTIVE) for row in each} if before else set()

    def waited(self) -> set[int]:
        return self.changed() & self.toy.possible[self.number] if self.window else set()

    def extent(self) -> None:
        oldest = min(self.here.versions, default=self.number)
        assert oldest >= self.number - 2, "two units are in flight at most"

    def project(self, part: Traffic) -> Iterable[Piece]:
        late = self.own & self.changed() if self.window else self.own

        def project_one(row: int) -> None:
            assert self.here.versions[row] == self.number - 1, "read at a wrong version"
            self.read[row] = self.here.values[row]

        return self.pieces(self.own - late if part is EARLY else late, project_one)

    def unpack(self, part: Traffic) -> Iterable[Piece]:
        for row, value in self.read.items():
            self.lying.setdefault(self.toy.place(self.number, row), {})[row] = value
        return ()

    def slices(self) -> int:
        return self.toy.slices

    def index(self, number: int) -> int:
        return self.me * self.toy.slices + number

    def neighbours(self, number: int) -> Iterable[int]:
        return range(max(0, number - 1), min(self.toy.slices, number + 2))

    def holds(self, rows: set[int], number: int) -> bool:
        return any(self.toy.place(self.number, row) == self.index(number) for row in rows)

    def is_late(self, number: int) -> bool:
        return self.holds(self.waited(), number)

    def returns_first(self, number: int) -> bool:
        return self.holds(self.first_rows() & self.own, number)

    def render(self, number: int) -> None:
        self.here.spend()
        splats = dict(self.lying.get(self.index(number), {}))
        for row in splats:
            self.gradients[row] = self.toy.gradient(self.number, row, splats)
        self.rendered.add(number)

    def backward(self, number: int) -> None:
        self.here.spend()
        assert self.rendered >= set(self.neighbours(number))

    def first_rows(self) -> set[int]:
        """That the next unit waits for."""
        after = self.here.works[self.number + 1 :]
        return after[0].waited() if after and after[0].window else set()

    def rows(self, part: Traffic, rank: int, summed_by: int) -> list[int]:
        """Rows of a part that a rank activates and another one sums."""
        rows, first = set(self.came(ACTIVE)[rank]), self.first_rows()
        rows = rows & first if part is FIRST else rows - first
        return sorted(row for row in rows if self.toy.owner(row) == summed_by)

    def header(self, part: Traffic) -> tuple[Tensor, Tensor]:
        self.lengths = torch.full((self.toy.ranks, 1), -9)
        return torch.tensor([len(self.own)]), self.lengths

    def outgoing(self, part: Traffic) -> Sequence[Tensor]:
        ranks = range(self.toy.ranks)
        if part is ACTIVE:
            numbers = [sorted(self.own) for _ in ranks]
        elif part in SUMS:
            mine = self.summed_rows(SUMS[part], self.me)
            numbers = [[self.sums[row] for row in mine] for _ in ranks]
        else:
            numbers = [[self.gradients[r] for r in self.rows(part, self.me, to)] for to in ranks]
        self.sent[part] = [torch.tensor(each, dtype=torch.int64) for each in numbers]
        return self.sent[part]

    def summed_rows(self, part: Traffic, rank: int) -> list[int]:
        return sorted(row for of in range(self.toy.ranks) for row in self.rows(part, of, rank))

    def incoming(self, part: Traffic) -> Sequence[Tensor]:
        ranks = range(self.toy.ranks)
        if part is ACTIVE:
            sizes = self.lengths[:, 0].tolist()
        elif part in SUMS:
            sizes = [len(self.summed_rows(SUMS[part], rank)) for rank in ranks]
        else:
            sizes = [len(self.rows(part, rank, self.me)) for rank in ranks]
        self.room[part] = [torch.full((size,), -9) for size in sizes]
        return self.room[part]

    def collect(self, part: Traffic) -> Iterable[Piece]:
        rows = self.own & self.first_rows() if part is FIRST else self.own - self.first_rows()
        assert rows <= self.gradients.keys(), "slices are missing"
        return [self.here.spend]

    def sum(self, part: Traffic) -> Iterable[Piece]:
        for rank, values in enumerate(self.came(part)):
            self.sums.update(zip(self.rows(part, rank, self.me), values, strict=True))
        return [self.here.spend]

    def apply(self, part: Traffic) -> Iterable[Piece]:
        sums = Traffic.FIRST_SUMS if part is FIRST else Traffic.REST_SUMS
        gradients: dict[int, int] = {}
        for rank, values in enumerate(self.came(sums)):
            gradients.update(zip(self.summed_rows(part, rank), values, strict=True))

        def apply_one(row: int) -> None:
            self.here.take_step(self.number, row, gradients[row])

        return self.pieces(gradients, apply_one)

    def zero_steps(self, part: Traffic) -> Iterable[Piece]:
        active = {row for each in self.came(ACTIVE) for row in each}
        inactive, changed = set(range(self.toy.rows)) - active, self.changed()
        rows = inactive & changed if part is REST else inactive - changed
        return self.pieces(rows, lambda row: self.here.take_step(self.number, row, 0))

    def pieces(self, rows: Iterable[int], run: Callable[[int], None]) -> list[Piece]:
        """One for every few rows."""

        def piece(some: Sequence[int]) -> None:
            self.here.spend()
            for row in some:
                run(row)

        listed = sorted(rows)
        return [partial(piece, listed[i : i + 3]) for i in range(0, len(listed), 3)]
