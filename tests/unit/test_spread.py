"""Owners of rows and their move, on ranks that are threads."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from grendel_odin.data.cameras import Camera
from grendel_odin.model.ids import mix64
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.parallel.assign import assign
from grendel_odin.parallel.covisibility import levelled
from grendel_odin.parallel.reshard import CHUNK, reshard, row_bytes
from grendel_odin.parallel.spread import Spread, even_splitters, owners
from grendel_odin.parallel.world import World
from tests.threaded_world import run_on_ranks


@given(st.integers(1, 5).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), st.data())
def test_assignment_keeps_most_splats_local(size: tuple[int, int], data: st.DataObject) -> None:
    ranks, shares = size
    number = st.integers(0, 9)
    rows = data.draw(st.lists(st.lists(number, min_size=shares, max_size=shares), min_size=ranks))
    local = torch.tensor(rows[:ranks], dtype=torch.int64).reshape(ranks, shares)
    chosen = assign(local)
    assert len(set(chosen)) == shares and assign(local.clone()) == chosen
    kept = sum(int(local[rank, share]) for share, rank in enumerate(chosen))
    best = max(
        sum(int(local[rank, share]) for share, rank in enumerate(each))
        for each in permutations(range(ranks), shares)
    )
    assert kept == best


def test_assignment_refuses_more_shares_than_ranks() -> None:
    with pytest.raises(ValueError, match="3 shares"):
        assign(torch.ones(2, 3, dtype=torch.int64))


def table_of(means: Tensor) -> PrimitiveTable:
    table = PrimitiveTable.empty(len(means))
    table.ids = mix64(torch.arange(len(means)))
    table.field("means")[:] = means
    return table


def piece(table: PrimitiveTable, first: int, last: int) -> PrimitiveTable:
    return PrimitiveTable(table.values[first:last].clone(), table.ids[first:last].clone())


def cameras() -> list[Camera]:
    """They look down on a strip of ground, 10 wide and 100 long, each at 20 of it."""
    K = np.array([[50.0, 0, 50], [0, 50.0, 50], [0, 0, 1]])
    poses = []
    for x in range(0, 101, 5):
        pose = np.eye(4)
        pose[:3, 3] = -float(x), -5.0, 10.0
        poses.append(pose)
    return [Camera(f"{i}", 100, 100, K, pose) for i, pose in enumerate(poses)]


def spread_rows(
    table: PrimitiveTable, borders: list[int], spread: Spread
) -> list[tuple[Tensor, PrimitiveTable]]:
    """Owners and rows by rank, where rank r holds rows [borders[r], borders[r + 1])."""

    def run(world: World) -> tuple[Tensor, PrimitiveTable]:
        own = piece(table, borders[world.rank], borders[world.rank + 1])
        return owners(spread, world, own, cameras(), seed=3), own

    return run_on_ranks(len(borders) - 1, run)


GROUND = torch.rand(4000, 3, generator=torch.manual_seed(0)) * torch.tensor([100.0, 10.0, 1.0])


@pytest.mark.parametrize("spread", list(Spread))
@pytest.mark.parametrize("borders", [[0, 4000, 4000, 4000, 4000], [0, 0, 100, 2100, 4000]])
def test_shares_are_even_however_rows_lie_at_first(spread: Spread, borders: list[int]) -> None:
    done = spread_rows(table_of(GROUND), borders, spread)
    counts = torch.bincount(torch.cat([owner for owner, _ in done]), minlength=4).float()
    assert counts.max() <= (1.05 if spread is Spread.COVISIBILITY else 1.001) * counts.mean()


@pytest.mark.parametrize("spread", list(Spread))
@pytest.mark.parametrize(
    "means",
    [
        GROUND[:0],
        GROUND[:1],
        GROUND[:2],
        torch.full((900, 3), 7.0),
        torch.full((900, 3), torch.nan),
        torch.cat([GROUND[:500], torch.tensor([[torch.inf, 0, 0], [1e30, -1e30, torch.nan]])]),
    ],
    ids=["none", "one", "fewer than ranks", "one place", "no numbers", "some no numbers"],
)
def test_odd_rows_have_owners(spread: Spread, means: Tensor) -> None:
    n = len(means)
    done = spread_rows(table_of(means), [0, 0, n // 2, n], spread)
    owner = torch.cat([each for each, _ in done])
    counts = torch.bincount(owner, minlength=3)
    assert len(owner) == n and counts.max() - counts.min() <= max(1, 0.1 * n)


@pytest.mark.parametrize("spread", [Spread.RANDOM, Spread.MORTON, Spread.COVISIBILITY])
def test_owners_do_not_depend_on_where_rows_lie(spread: Spread) -> None:
    """Up to the names of the ranks, which follow what they hold already."""
    table = table_of(GROUND)
    groups = []
    for borders in ([0, 1000, 4000], [0, 3500, 4000]):
        owner = torch.cat([each for each, _ in spread_rows(table, borders, spread)])
        groups.append({tuple((owner == rank).nonzero().flatten().tolist()) for rank in (0, 1)})
    assert groups[0] == groups[1]


def test_neighbours_stay_together() -> None:
    for spread, most in ((Spread.RANDOM, 4.0), (Spread.MORTON, 2.2), (Spread.COVISIBILITY, 1.9)):
        done = spread_rows(table_of(GROUND), [0, 1000, 2000, 3000, 4000], spread)
        x = GROUND[:, 0]
        owner = torch.cat([each for each, _ in done])
        parts = [
            len(set(owner[(x >= left) & (x < left + 20)].tolist())) for left in range(0, 81, 5)
        ]
        assert np.mean(parts) <= most
        if spread is Spread.RANDOM:
            assert min(parts) == 4


def test_a_second_spread_moves_nothing() -> None:
    def run(world: World) -> int:
        moved = piece(table_of(GROUND), 1000 * world.rank, 1000 * (world.rank + 1))
        for _ in range(2):
            owner = owners(Spread.COVISIBILITY, world, moved, cameras(), seed=0)
            away = int((owner != world.rank).sum())
            values, ids = reshard(world, [moved.values, moved.ids], owner)
            moved = PrimitiveTable(values, ids)
        return away

    assert run_on_ranks(4, run) == [0] * 4


@given(st.lists(st.integers(0, (1 << 60) - 1), max_size=200, unique=True), st.integers(1, 9))
@settings(max_examples=20)
def test_splitters_part_codes_evenly(codes: list[int], shares: int) -> None:
    """However few or close they are."""

    def run(world: World) -> Tensor:
        return even_splitters(
            world, torch.tensor(codes[world.rank :: 2], dtype=torch.int64), shares
        )

    first, second = run_on_ranks(2, run)
    assert first.equal(second)
    below = [sum(code < splitter for code in codes) for splitter in first.tolist()]
    assert below == [(k * len(codes)) // shares for k in range(1, shares)]


def test_levelling_moves_cells_until_parts_are_even() -> None:
    rows = np.array([10, 10, 10, 10, 10, 10, 0, 100])
    parts = levelled(np.zeros(8, np.int64), rows, np.zeros((8, 8), np.float32), 2)
    assert sorted(np.bincount(parts, rows)) == [60, 100]  # no cell is cut
    assert levelled(np.zeros(1, np.int64), rows[:1], np.zeros((1, 1), np.float32), 3).shape == (1,)


def rows_of(rank: int, n: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(rank)
    ids = 1000 * rank + torch.arange(n)
    return [
        ids,
        torch.rand(n, 7, generator=draw),
        ids.to(torch.int32),
        torch.rand(n, 2, 3, generator=draw, dtype=torch.float64),
        ids % 2 == 0,
    ]


@pytest.mark.parametrize("lengths", [[5, 0, 9], [0, 0, 0], [0, 40, 0]])
def test_rows_arrive_whole_and_in_order(lengths: list[int]) -> None:
    targets = [torch.arange(n) * 7 % 3 for n in lengths]

    def run(world: World) -> tuple[list[Tensor], int]:
        moved = reshard(world, rows_of(world.rank, lengths[world.rank]), targets[world.rank])
        return moved, world.bytes_sent

    done = run_on_ranks(3, run)
    everything = [rows_of(rank, n) for rank, n in enumerate(lengths)]
    for rank, (moved, _) in enumerate(done):
        for column, got in enumerate(moved):
            wanted = [
                rows[column][to == rank] for rows, to in zip(everything, targets, strict=True)
            ]
            assert got.dtype == wanted[0].dtype and got.equal(torch.cat(wanted))
    left = sum(int((to != rank).sum()) for rank, to in enumerate(targets))
    counts = 3 * 2 * 3 * 8  # the table of counts, from each of three ranks to two others
    assert sum(sent for _, sent in done) == counts + left * row_bytes(everything[0])


def test_many_rows_travel_in_pieces() -> None:
    n = CHUNK + 5

    def run(world: World) -> Tensor:
        ids = torch.arange(n) + n * world.rank
        (moved,) = reshard(world, [ids], torch.full_like(ids, 1 - world.rank))
        return moved

    first, second = run_on_ranks(2, run)
    assert first.equal(torch.arange(n) + n) and second.equal(torch.arange(n))
