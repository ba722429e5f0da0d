"""The hash of a model's state: any order, any bit."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grendel_odin.model.state_hash import state_sha256, state_sum, sum_sha256, used_columns
from grendel_odin.model.table import GAUSSIAN, PrimitiveTable
from tests.scenes import random_table


def part(table: PrimitiveTable, rows: torch.Tensor) -> PrimitiveTable:
    return PrimitiveTable(table.values[rows], table.ids[rows])


def copy(table: PrimitiveTable) -> PrimitiveTable:
    return PrimitiveTable(table.values.clone(), table.ids.clone())


@given(st.permutations(range(20)), st.integers(0, 20))
def test_order_and_spread_do_not_matter(order: list[int], cut: int) -> None:
    table = random_table(20, 1)
    rows = torch.tensor(order)
    assert state_sha256(part(table, rows)) == state_sha256(table)
    parts = state_sum(part(table, rows[:cut])) + state_sum(part(table, rows[cut:]))
    assert sum_sha256(parts) == state_sha256(table)


@settings(max_examples=60)
@given(st.integers(0, 9), st.integers(0, GAUSSIAN.floats - 1), st.integers(0, 31))
def test_any_flipped_bit_shows(row: int, used: int, bit: int) -> None:
    table = random_table(10, 2)
    changed = copy(table)
    column = int(used_columns(GAUSSIAN)[used])
    words = changed.values.view(torch.int32)
    words[row, column] ^= 1 << bit if bit < 31 else -(1 << 31)
    assert state_sha256(changed) != state_sha256(table)


def test_ids_rows_and_fields_matter() -> None:
    table = random_table(10, 3)
    digests = {state_sha256(table), state_sha256(part(table, torch.arange(9)))}
    renamed = copy(table)
    renamed.ids[0] += 1
    exchanged = PrimitiveTable(table.values, table.ids.flip(0))
    swapped = copy(table)
    swapped.values[:, [0, 1]] = table.values[:, [1, 0]]
    digests |= {state_sha256(renamed), state_sha256(exchanged), state_sha256(swapped)}
    assert len(digests) == 5


def test_opposite_changes_do_not_cancel() -> None:
    table = random_table(2, 4)
    changed = copy(table)
    words = changed.values.view(torch.int32)
    words[0, 5] += 1
    words[1, 5] -= 1
    assert state_sha256(changed) != state_sha256(table)


def test_unused_columns_do_not_matter() -> None:
    table = random_table(5, 5)
    changed = copy(table)
    changed.values[:, 61:] = 7.0
    changed.values[:, 14:16] = 7.0
    assert state_sha256(changed) == state_sha256(table)


def test_known_values_hold_on_every_platform() -> None:
    table = PrimitiveTable.empty(3)
    table.ids = torch.arange(3)
    table.values[:, :10] = torch.arange(30).reshape(3, 10).float()
    assert state_sha256(PrimitiveTable.empty(0)) == sum_sha256(0)
    assert state_sha256(table) == "4d75a7988f15d65458271afa9a3a550016f226e584148d0583c2192dab0fb8a5"


def test_chunks_add_up() -> None:
    table = random_table(40_000, 6, degree=0)
    halves = torch.arange(40_000).split(20_000)
    assert state_sum(table) == sum(state_sum(part(table, rows)) for rows in halves) % (1 << 128)
