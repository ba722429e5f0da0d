"""A foreign trainer in one process: the example, and what happens when hooks come out of turn."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from grendel_odin.odin.admit import Admission, Policy
from grendel_odin.odin.session import Counts, Session
from grendel_odin.odin.shadow import VersionError

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/toy_embedding.py"
BATCHES = 120


@cache
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("toy_embedding", EXAMPLE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def trained(policy: Policy) -> tuple[Tensor, float, Counts]:
    table, loss, counts = example().train(policy, BATCHES)
    return table, loss, counts


def test_quality_has_the_bits_of_barriers() -> None:
    table, loss, counts = trained(Policy.QUALITY)
    barriers = trained(Policy.OFF)
    assert torch.equal(table, barriers[0]) and loss == barriers[1]
    assert barriers[2].barriers == BATCHES and counts.barriers == 0
    assert counts.late == 0 and 0 < counts.conflicts < counts.candidates / 3


def test_throughput_reads_few_rows_late_and_learns_as_well() -> None:
    table, loss, counts = trained(Policy.THROUGHPUT)
    quality = trained(Policy.QUALITY)
    assert not torch.equal(table, quality[0])
    assert 0 < counts.late < counts.conflicts
    assert loss == pytest.approx(quality[1], rel=0.02)
    again = example().train(Policy.THROUGHPUT, BATCHES)
    assert torch.equal(table, again[0])


def test_hogwild_waits_for_nothing() -> None:
    counts = trained(Policy.HOGWILD)[2]
    assert counts.late == counts.conflicts > 0


class Momentum:
    """A state with a step for every row: v = v / 2 + update, x = x - v."""

    def __init__(self, rows: int = 6) -> None:
        self.x, self.v = torch.zeros(rows, 2), torch.zeros(rows, 2)

    def apply(self, rows: Tensor, updates: Tensor) -> None:
        self.v[rows] = self.v[rows] / 2 + updates
        self.x[rows] -= self.v[rows]

    def idle(self, rows: Tensor) -> None:
        self.apply(rows, torch.zeros(len(rows), 2))

    def session(self, policy: Policy = Policy.QUALITY) -> Session:
        return Session([self.x, self.v], self.x, self.apply, Admission(policy), self.idle)


def test_rows_that_a_unit_does_not_write_take_their_step_too() -> None:
    state, plain = Momentum(), Momentum()
    session = state.session()
    writes = [[0, 1, 2], [2, 3], [0, 5], [1, 2, 5]]
    for number, rows in enumerate(writes, 1):
        active, updates = torch.tensor(rows), torch.full((len(rows), 2), 1.0 / number)
        reading = session.begin(active)
        session.publish(number - 1, reading.wait)
        assert torch.equal(session.read(number, active)[0], plain.x[active])
        dense = torch.zeros_like(plain.x)
        dense[active] = updates
        plain.apply(torch.arange(6), dense)
        if number % 2:
            session.publish(number - 1)
        session.finish(number, active, updates)
        session.publish(number - 1)
    session.publish(len(writes))
    assert torch.equal(state.x, plain.x) and torch.equal(state.v, plain.v)


def rows(*numbers: int) -> Tensor:
    return torch.tensor(numbers)


def test_candidates_are_divided() -> None:
    session = Momentum().session()
    session.begin(rows(0, 1, 2, 3))
    session.finish(1, rows(1, 3), torch.ones(2, 2))
    reading = session.begin(rows(0, 1, 2))
    assert reading.now.tolist() == [0, 2] and reading.wait.tolist() == [1]
    assert reading.late.tolist() == []
    with pytest.raises(VersionError, match="unit 2 read row 1 at version 0"):
        session.read(2, rows(0, 1))


def test_without_candidates_there_is_a_barrier_and_it_is_counted() -> None:
    session = Momentum().session(Policy.THROUGHPUT)
    assert session.begin().wait.tolist() == []
    session.finish(1, rows(1, 3), torch.ones(2, 2))
    reading = session.begin()
    assert reading.now.tolist() == [] and reading.wait.tolist() == list(range(6))
    session.publish(1, reading.wait)
    session.read(2, torch.arange(6))
    assert session.counts.barriers == 2


def test_a_row_is_read_late_even_after_its_publication() -> None:
    state = Momentum()
    session = state.session(Policy.HOGWILD)
    session.begin(rows(1))
    session.finish(1, rows(1), torch.ones(1, 2))
    assert session.begin(rows(1, 2)).late.tolist() == [1]
    session.publish(1)
    assert state.x[1].tolist() == [-1.0, -1.0]
    assert session.read(2, rows(1, 2))[0].tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_hooks_out_of_turn() -> None:
    session = Momentum().session()
    with pytest.raises(VersionError, match="unit 1 has not finished"):
        session.publish(1)
    session.begin(rows(0))
    with pytest.raises(VersionError, match="unit 1 has not finished"):
        session.begin(rows(0))
    session.finish(1, rows(0), torch.ones(1, 2))
    session.begin(rows(1))
    session.finish(2, rows(1), torch.ones(1, 2))
    with pytest.raises(VersionError, match="unit 3 began while 1 rows of 1 are staged"):
        session.begin(rows(2))
