"""A model of integers that is trained as Gaussians are: rows with owners, splats in slices, steps
that depend on the exact values that were read. A read at a wrong version changes the result."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from grendel_odin.odin.graph import Traffic
from grendel_odin.odin.work import Piece

EARLY, LATE, FIRST, REST = Traffic.EARLY, Traffic.LATE, Traffic.FIRST, Traffic.REST
COUNTS = Traffic.COUNTS
PRIME = 2_147_483_647
INVISIBLE = -1


@dataclass(frozen=True)
class Toy:
    """What each unit sees."""

    ranks: int
    slices: int
    """Of each rank."""
    rows: int
    active: list[set[int]]
    """By unit."""
    possible: list[set[int]]
    """Supersets of `active`, known before rows are read."""
    windows: list[bool]

    @classmethod
    def drawn(cls, seed: int, ranks: int, units: int, rows: int, overlap: bool) -> Toy:
        draw = random.Random(seed)
        density, spare = draw.choice([0.0, 0.1, 0.4, 0.8, 1.0]), draw.choice([0.0, 0.3])
        active = [{r for r in range(rows) if draw.random() < density} for _ in range(units)]
        possible = [each | {r for r in range(rows) if draw.random() < spare} for each in active]
        windows = [overlap and unit > 0 and draw.random() < 0.8 for unit in range(units)]
        return cls(ranks, draw.randrange(1, 4), rows, active, possible, windows)

    def place(self, unit: int, row: int) -> int:
        """Slice, of those of all ranks, that a row lies in."""
        return (row * 7919 + unit * 104_729) % (self.ranks * self.slices)

    def owner(self, row: int) -> int:
        return row * 31 // 7 % self.ranks

    def gradient(self, unit: int, row: int, splats: dict[int, int]) -> int:
        """Of a row, from all splats of its slice."""
        return sum((r + 1) * value for r, value in splats.items()) * (row + 3 + unit) % PRIME

    def train(self) -> list[int]:
        """What one process makes of the rows."""
        values = list(range(1, self.rows + 1))
        for unit, active in enumerate(self.active):
            lying: dict[int, dict[int, int]] = {}
            for row in active:
                lying.setdefault(self.place(unit, row), {})[row] = values[row]
            for row in range(self.rows):
                splats = lying.get(self.place(unit, row), {}) if row in active else {}
                values[row] = step(values[row], self.gradient(unit, row, splats))
        return values


def step(value: int, gradient: int) -> int:
    return (value * 48_271 + gradient + 11) % PRIME


class ToyRank:
    """The rows of one rank."""

    def __init__(self, toy: Toy, rank: int, spend: Callable[[], None]) -> None:
        """`spend` lets some time go by, in every piece of work."""
        self.toy, self.rank, self.spend = toy, rank, spend
        self.values = {row: row + 1 for row in range(toy.rows) if toy.owner(row) == rank}
        self.versions = dict.fromkeys(self.values, -1)
        self.works: list[ToyWork] = []

    def work(self, number: int) -> ToyWork:
        self.works.append(ToyWork(self, number))
        return self.works[-1]

    def take_step(self, unit: int, row: int, gradient: int) -> None:
        assert self.versions[row] == unit - 1, "a row takes every step once, in order"
        self.versions[row] = unit
        self.values[row] = step(self.values[row], gradient)


class ToyWork:
    """`Work` of one unit and rank. Rows are own rows unless they are said to have come."""

    def __init__(self, here: ToyRank, number: int) -> None:
        self.toy, self.here, self.number, self.me = here.toy, here, number, here.rank
        self.window = self.toy.windows[number]
        self.active = self.toy.active[number] & here.values.keys()
        before = self.toy.active[number - 1] & here.values.keys() if number else set()
        self.changed = before
        """By the unit before."""
        self.waited = before & self.toy.possible[number] if self.window else set()
        """That the unit before returns first."""
        self.read: dict[int, int] = {}
        self.sent: list[list[int]] = [[] for _ in range(self.toy.ranks)]
        """By the rank that their splats went to, early ones first."""
        self.own: dict[Traffic, Tensor] = {}
        self.room: dict[Traffic, list[Tensor]] = {}
        self.headers: dict[Traffic, Tensor] = {}
        self.lying: dict[int, dict[int, int]] = {}
        """Splats that have come, by slice and row."""
        self.rendered: set[int] = set()
        self.gradients: dict[int, int] = {}
        """Of splats that have come, by row."""

    def extent(self) -> None:
        oldest = min(self.here.versions.values(), default=self.number)
        assert oldest >= self.number - 2, "two units are in flight at most"

    # Splats.

    def to_send(self, part: Traffic) -> list[int]:
        """Late: all that wait, whether they turn out to be visible or not."""
        if part is EARLY:
            return sorted(self.active - self.changed)
        return sorted(self.waited if self.window else self.active)

    def target(self, row: int) -> int:
        return self.toy.place(self.number, row) // self.toy.slices

    def project(self, part: Traffic) -> Iterable[Piece]:
        def project_one(row: int) -> None:
            assert self.here.versions[row] == self.number - 1, "read at a wrong version"
            self.read[row] = self.here.values[row] if row in self.active else INVISIBLE

        return self.pieces(self.to_send(part), project_one)

    def header(self, part: Traffic) -> tuple[Tensor, Tensor]:
        row = torch.zeros(self.toy.ranks * (1 + self.toy.slices), dtype=torch.int64)
        for each in self.to_send(part):
            row[self.target(each)] += 1
        for each in self.waited:
            row[self.toy.ranks + self.toy.place(self.number, each)] = 1
        self.headers[part] = torch.full((self.toy.ranks, len(row)), -9)
        return row, self.headers[part]

    def counts(self, part: Traffic) -> list[int]:
        """Of splats that come here."""
        return self.headers[part][:, self.me].tolist() if part in self.headers else self.none()

    def none(self) -> list[int]:
        return [0] * self.toy.ranks

    def came(self, part: Traffic) -> list[Tensor]:
        """By rank."""
        parts = list(self.room[part])
        parts[self.me] = self.own[part]
        return parts

    def rows_from(self, rank: int) -> list[int]:
        """Of splats that came from a rank."""
        rows: list[int] = []
        for part in (EARLY, LATE):
            if part in self.headers:
                rows += self.came(part)[rank][: 2 * self.counts(part)[rank] : 2].tolist()
        return rows

    def unpack(self, part: Traffic) -> Iterable[Piece]:
        for rank, flat in enumerate(self.came(part)):
            splats = flat[: 2 * self.counts(part)[rank]].view(-1, 2).tolist()
            for row, value in splats:
                assert row >= 0, "not filled yet"
                if value != INVISIBLE:
                    self.lying.setdefault(self.toy.place(self.number, row), {})[row] = value
        return ()

    # Pixels.

    def slices(self) -> int:
        return self.toy.slices

    def index(self, number: int) -> int:
        return self.me * self.toy.slices + number

    def neighbours(self, number: int) -> Iterable[int]:
        return range(max(0, number - 1), min(self.toy.slices, number + 2))

    def is_late(self, number: int) -> bool:
        return bool(self.headers[EARLY][:, self.toy.ranks + self.index(number)].any())

    def render(self, number: int) -> None:
        self.here.spend()
        splats = self.lying.get(self.index(number), {})
        for row in splats:
            self.gradients[row] = self.toy.gradient(self.number, row, splats)
        assert number not in self.rendered
        self.rendered.add(number)

    def backward(self, number: int) -> None:
        self.here.spend()
        assert self.rendered >= set(self.neighbours(number))

    # Gradients.

    def follower(self) -> ToyWork | None:
        """The unit that this one overlaps with, if it has begun."""
        after = self.here.works[self.number + 1 :]
        return after[0] if after and after[0].window else None

    def bits_from(self, rank: int) -> list[bool]:
        """Whether each splat that came from a rank is to be returned first."""
        follower, rows = self.follower(), self.rows_from(rank)
        if follower is None:
            return [False] * len(rows)
        flat = follower.came(EARLY)[rank]
        return [bool(bit) for bit in flat[2 * follower.counts(EARLY)[rank] :]]

    def returns_first(self, number: int) -> bool:
        return any(
            bit and self.toy.place(self.number, row) == self.index(number)
            for rank in range(self.toy.ranks)
            for row, bit in zip(self.rows_from(rank), self.bits_from(rank), strict=True)
        )

    def outgoing(self, part: Traffic) -> Sequence[Tensor]:
        pack = self.pack_splats if part in (EARLY, LATE) else self.pack_gradients
        parts = [
            self.pack_counts(rank) if part is COUNTS else pack(part, rank)
            for rank in range(self.toy.ranks)
        ]
        self.own[part] = parts[self.me]
        return parts

    def pack_splats(self, part: Traffic, rank: int) -> Tensor:
        rows = [row for row in self.to_send(part) if self.target(row) == rank]
        flat = [number for row in rows for number in (row, self.read[row])]
        if part is EARLY:
            before = self.here.works[self.number - 1]
            flat += [int(row in self.waited) for row in before.sent[rank]]
        self.sent[rank] += rows
        return torch.tensor(flat, dtype=torch.int64)

    def sums(self, row: int) -> int:
        """How many numbers a splat returns: known to who renders it, not to its owner."""
        return 1 + (row + self.number) % 3

    def pack_counts(self, rank: int) -> Tensor:
        return torch.tensor([self.sums(row) for row in self.rows_from(rank)], dtype=torch.int64)

    def pack_gradients(self, part: Traffic, rank: int) -> Tensor:
        pairs = zip(self.rows_from(rank), self.bits_from(rank), strict=True)
        rows = [row for row, bit in pairs if bit == (part is FIRST)]
        flat = [
            self.gradients.get(row, 0) if i == 0 else 1
            for row in rows
            for i in range(self.sums(row))
        ]
        return torch.tensor(flat, dtype=torch.int64)

    def incoming(self, part: Traffic) -> Sequence[Tensor]:
        ranks = range(self.toy.ranks)
        if part in (EARLY, LATE):
            sizes = [2 * count for count in self.counts(part)]
        elif part is COUNTS:
            sizes = [len(sent) for sent in self.sent]
        else:
            sizes = [sum(self.returned(part, rank).values()) for rank in ranks]
        if part is EARLY:
            before = self.here.works[self.number - 1]
            sizes = [size + len(before.rows_from(rank)) for rank, size in enumerate(sizes)]
        self.room[part] = [torch.full((size,), -9) for size in sizes]
        return self.room[part]

    def returned(self, part: Traffic, rank: int) -> dict[int, int]:
        """Rows whose gradients come from a rank, and how many numbers each."""
        follower, counts = self.follower(), self.came(COUNTS)[rank].tolist()
        first = follower.waited if follower else set()
        pairs = zip(self.sent[rank], counts, strict=True)
        return {row: count for row, count in pairs if (row in first) == (part is FIRST)}

    def apply(self, part: Traffic) -> Iterable[Piece]:
        gradients: dict[int, int] = {}
        for rank, flat in enumerate(self.came(part)):
            counts = self.returned(part, rank)
            for row, sums in zip(counts, flat.split(list(counts.values())), strict=True):
                gradients[row] = int(sums.sum()) - counts[row] + 1

        def apply_one(row: int) -> None:
            self.here.take_step(self.number, row, gradients[row])

        return self.pieces([row for row in gradients if row in self.active], apply_one)

    def zero_steps(self, part: Traffic) -> Iterable[Piece]:
        assert self.read.keys() >= set(self.to_send(LATE)), "active rows are not known yet"
        inactive = self.here.values.keys() - self.active
        rows = inactive & self.changed if part is REST else inactive - self.changed
        return self.pieces(rows, lambda row: self.here.take_step(self.number, row, 0))

    def pieces(self, rows: Iterable[int], run: Callable[[int], None]) -> list[Piece]:
        """One for every few rows."""

        def piece(some: Sequence[int]) -> None:
            self.here.spend()
            for row in some:
                run(row)

        listed = sorted(rows)
        return [partial(piece, listed[i : i + 3]) for i in range(0, len(listed), 3)]
