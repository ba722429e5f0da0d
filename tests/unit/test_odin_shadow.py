"""The Shadow Graph against a model that keeps every version of everything, and its memory."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from grendel_odin.odin.row_pool import BLOCK_BYTES, RowPool, find, ordered
from grendel_odin.odin.shadow import Shadow, VersionError

ROWS, WIDTH = 12, 3
MB = 1 << 20


class State:
    """A table and a tensor that follows from it; every version that they ever had."""

    def __init__(self, rows: int = ROWS, width: int = WIDTH) -> None:
        self.table = torch.arange(rows * width).reshape(rows, width)
        self.sums = self.table.sum(1, dtype=torch.int32)
        self.history = {0: self.table.clone()}

    def apply(self, rows: Tensor, updates: Tensor) -> None:
        self.table[rows] = self.next(self.table[rows], updates)
        self.sums[rows] = self.table[rows].sum(1, dtype=torch.int32)

    @staticmethod
    def next(values: Tensor, updates: Tensor) -> Tensor:
        """Does not commute: the order of steps shows."""
        return (3 * values + updates) % 1009

    def remember(self, unit: int, rows: Tensor, updates: Tensor) -> None:
        version = self.history[unit - 1].clone()
        version[rows] = self.next(version[rows], updates)
        self.history[unit] = version


def some_of(data: st.DataObject, rows: Tensor) -> Tensor:
    chosen = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    return rows[torch.tensor(chosen, dtype=torch.bool)]


class Trainer:
    """Two units in flight, everything else as hypothesis likes."""

    def __init__(self, data: st.DataObject) -> None:
        self.data, self.state = data, State()
        self.shadow = Shadow([self.state.table, self.state.sums], self.state.table)
        self.active: dict[int, Tensor] = {}
        self.rows = torch.arange(ROWS)

    def publish(self, unit: int, rows: Tensor | None = None) -> None:
        published = self.shadow.publish(unit, self.state.apply, rows)
        if unit + 1 in self.active:
            behind = published[~torch.isin(published, self.active[unit + 1])]
            self.shadow.advance(unit + 1, behind)

    def check(self, unit: int, rows: Tensor, late: Tensor) -> None:
        table, sums = self.shadow.read(unit, rows)
        version = torch.where(torch.isin(rows, late), unit - 2, unit - 1)
        wanted = torch.empty_like(table)
        for place, row in enumerate(rows):
            wanted[place] = self.state.history[int(version[place])][row]
        assert torch.equal(table, wanted)
        assert torch.equal(sums, table.sum(1, dtype=torch.int32))

    def run(self, unit: int) -> None:
        data, shadow = self.data, self.shadow
        candidates = some_of(data, self.rows)
        pending = shadow.staged(unit - 1)
        conflict = candidates[torch.isin(candidates, pending)]
        late = some_of(data, conflict)
        wait = conflict[~torch.isin(conflict, late)]
        shadow.hold(unit, late)
        self.check(unit, candidates[~torch.isin(candidates, wait)], late)
        self.publish(unit - 1, some_of(data, shadow.staged(unit - 1)))
        self.check(unit, candidates[~torch.isin(candidates, wait)], late)
        self.publish(unit - 1, wait)
        self.check(unit, candidates, late)
        self.publish(unit - 1, some_of(data, self.rows))
        self.check(unit, late, late)
        assert shadow._kept.slots - len(shadow._kept._free) <= len(late) == shadow.late_rows
        shadow.release(unit)
        active = some_of(data, candidates)
        updates = torch.randint(0, 100, (len(active), WIDTH))
        self.state.remember(unit, active, updates)
        if data.draw(st.booleans()):
            self.publish(unit - 1)
        shadow.stage(unit, active, updates)
        self.active[unit] = active
        shadow.advance_others(unit, active)
        self.publish(unit - 1)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(1, 7))
def test_every_read_is_of_the_right_version(data: st.DataObject, units: int) -> None:
    trainer = Trainer(data)
    for unit in range(1, units + 1):
        trainer.run(unit)
    trainer.publish(units)
    assert torch.equal(trainer.state.table, trainer.state.history[units])
    assert (trainer.shadow.versions == units).all()
    assert trainer.shadow.idle
    assert len(trainer.shadow._kept._free) == trainer.shadow._kept.slots


def pick(rows: int, count: int, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randperm(rows, generator=draw)[:count].sort().values


@pytest.mark.parametrize("in_flight", [2, 4, 8])
def test_memory_grows_with_staged_and_late_rows_only(in_flight: int) -> None:
    rows, width = 30_000, 64
    state = torch.zeros(rows, width)
    shadow = Shadow([state], state)

    def apply(some: Tensor, updates: Tensor) -> None:
        state[some] += updates

    for unit in range(1, 30):
        oldest = unit - in_flight + 1
        late = pick(rows, 500 + 37 * unit % 400, unit)
        shadow.hold(unit, late, max(oldest - 1, 0))
        seen = shadow.read(unit, late)[0].clone()
        active = pick(rows, 2000 + 91 * unit % 700, -unit)
        shadow.stage(unit, active, torch.full((len(active), width), float(unit)))
        if oldest > 0:
            published = shadow.publish(oldest, apply)
            assert torch.equal(shadow.read(unit, late)[0], seen)
            shadow.advance_others(oldest, published)
            shadow.release(oldest)
        late_bytes, staged_bytes = shadow.row_bytes
        bound = shadow.most_late * late_bytes + shadow.most_staged * staged_bytes + MB
        assert shadow.bytes <= bound
    assert shadow.late_rows > 0 and shadow.staged_rows > 0


def test_copies_are_made_on_publication_and_only_of_rows_that_are_needed() -> None:
    state = State()
    shadow = Shadow([state.table], state.table)
    shadow.stage(1, torch.arange(6), torch.ones(6, WIDTH).long())
    shadow.hold(2, torch.tensor([4, 5, 7]), 0)
    assert shadow._kept.slots == 0
    shadow.publish(1, state.apply, torch.arange(4))
    assert shadow._kept.slots == 0
    shadow.publish(1, state.apply)
    assert shadow._kept.slots - len(shadow._kept._free) == 2
    assert torch.equal(shadow.read(2, torch.tensor([4, 5, 7]))[0], state.history[0][[4, 5, 7]])


def test_rows_that_a_unit_does_not_write_are_kept_aside_too() -> None:
    table = torch.arange(5.0)[:, None].repeat(1, 2)
    shadow = Shadow([table], table)

    def decay(rows: Tensor) -> None:
        table[rows] *= 0.5

    shadow.hold(2, torch.tensor([1, 3]), 0)
    shadow.advance_others(1, torch.tensor([0, 3]), decay)
    assert table[:, 0].tolist() == [0.0, 0.5, 1.0, 3.0, 2.0]
    assert shadow.versions.tolist() == [0, 1, 1, 0, 1]
    assert shadow.read(2, torch.tensor([1, 2, 3]))[0][:, 0].tolist() == [1.0, 1.0, 3.0]
    shadow.advance(1, torch.tensor([3]), decay)
    assert shadow.read(2, torch.tensor([3]))[0][0].tolist() == [3.0, 3.0]
    shadow.release(2)
    with pytest.raises(VersionError, match="at version 0"):
        shadow.read(2, torch.tensor([0]))


def test_a_row_that_is_not_there_yet_cannot_be_read() -> None:
    state = State()
    shadow = Shadow([state.table], state.table)
    shadow.stage(1, torch.tensor([2, 3]), torch.ones(2, WIDTH).long())
    shadow.advance(1, torch.tensor([0, 1, 4]))
    shadow.read(2, torch.tensor([0, 4]))
    with pytest.raises(VersionError, match=r"unit 2 read row 3 at version 0, .* at 1 \(1 such"):
        shadow.read(2, torch.tensor([0, 3]))
    shadow.publish(1, state.apply, torch.tensor([3]))
    shadow.read(2, torch.tensor([0, 3]))


def test_steps_of_a_row_follow_one_another() -> None:
    state = State()
    shadow = Shadow([state.table], state.table)
    shadow.stage(1, torch.tensor([2]), torch.ones(1, WIDTH).long())
    shadow.stage(2, torch.tensor([2]), torch.ones(1, WIDTH).long())
    with pytest.raises(VersionError, match="unit 2 published row 2 at version 0"):
        shadow.publish(2, state.apply)
    assert shadow.staged(2).tolist() == [2]
    shadow.publish(1, state.apply)
    shadow.publish(2, state.apply)
    assert shadow.versions[2] == 2
    with pytest.raises(VersionError, match=r"unit 4 held row 2 at version 2, .* at most 1"):
        shadow.hold(4, torch.tensor([2]), 1)


def test_nothing_may_be_in_flight_at_a_fence() -> None:
    state = State()
    shadow = Shadow([state.table], state.table)
    shadow.stage(1, torch.tensor([2]), torch.ones(1, WIDTH).long())
    with pytest.raises(VersionError, match=r"units \[1\] are in flight"):
        shadow.rebuild([state.table], 1)
    shadow.publish(1, state.apply)
    larger = State(rows=20)
    shadow.rebuild([larger.table], 7)
    assert len(shadow.versions) == 20 and (shadow.versions == 7).all()


def test_rows_must_ascend() -> None:
    with pytest.raises(ValueError, match="ascend, each once"):
        ordered(torch.tensor([1, 1]))
    assert ordered(torch.tensor([1, 2], dtype=torch.int32)).dtype == torch.int64


@given(st.sets(st.integers(0, 20)), st.sets(st.integers(0, 20)))
def test_find(among: set[int], rows: set[int]) -> None:
    wanted = torch.tensor(sorted(rows)).long()
    place, found = find(torch.tensor(sorted(among)).long(), wanted)
    assert found.tolist() == [row in among for row in sorted(rows)]
    assert [sorted(among)[p] for p in place[found]] == sorted(rows & among)


def test_slots_are_used_again() -> None:
    source = torch.arange(400.0).reshape(100, 4)
    pool = RowPool([source])
    first = pool.keep([source], torch.arange(0, 60))
    assert pool.slots == BLOCK_BYTES // pool.row_bytes
    second = pool.keep([source], torch.arange(60, 100))
    before = pool.slots
    pool.give(first)
    third = pool.keep([source], torch.arange(30, 70))
    assert third.tolist() == list(range(40))  # ascending: copies go through memory in order
    assert pool.slots == before and not set(second.tolist()) & set(third.tolist())
    assert torch.equal(pool.tensors[0][second], source[60:])
    assert torch.equal(pool.tensors[0][third], source[30:70])
    fourth = pool.keep([source], torch.arange(100).repeat(500))
    assert torch.equal(pool.tensors[0][third], source[30:70])
    assert torch.equal(pool.tensors[0][fourth], source.repeat(500, 1))
