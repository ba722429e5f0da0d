"""Headers: what goes in comes out, on every rank, and merged figures are exact sums."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from grendel_odin.odin.gradient_bins import (
    BINS,
    LOWEST,
    UNKNOWN,
    bins_of,
    histogram,
    running_mean,
    step_sizes,
    unknown_sizes,
    weigh,
)
from grendel_odin.odin.header import (
    Alarm,
    EarlyHeader,
    LateHeader,
    Shape,
    pack_bits,
    unpack_bits,
)
from grendel_odin.parallel.world import World
from tests.threaded_world import run_on_ranks


def random_late(shape: Shape, draw: torch.Generator) -> LateHeader:
    def some(*size: int) -> Tensor:
        return torch.randint(0, 1 << 40, size, generator=draw)

    binned = (shape.look_ahead, BINS)
    return LateHeader(
        *(some(shape.pieces), some(shape.look_ahead), some(*binned), some(*binned)),
        *(some(BINS), some(shape.tile_rows), torch.randint(0, 8, (1,), generator=draw)),
    )


@pytest.mark.parametrize("look_ahead", [0, 1, 4])
def test_late_header_there_and_back(look_ahead: int) -> None:
    shape = Shape(pieces=3, look_ahead=look_ahead, tile_rows=7)
    header = random_late(shape, torch.Generator().manual_seed(look_ahead))
    words = header.pack()
    assert words.dtype == torch.int64 and words.shape == (sum(shape.late),)
    again = LateHeader.unpack(words, shape)
    assert all(
        torch.equal(getattr(header, name), getattr(again, name)) for name in header.__slots__
    )


@given(st.integers(1, 5), st.integers(0, 200), st.randoms())
def test_early_header_there_and_back(pieces: int, tile_rows: int, random: Random) -> None:
    shape = Shape(pieces, 0, tile_rows)
    touched = torch.tensor([random.random() < 0.5 for _ in range(tile_rows)], dtype=torch.bool)
    header = EarlyHeader(torch.arange(pieces), touched)
    words = header.pack()
    assert words.shape == (sum(shape.early),)
    again = EarlyHeader.unpack(torch.stack([words, words]), shape)
    assert torch.equal(again.touched, torch.stack([touched, touched]))
    assert again.rows.tolist() == [list(range(pieces))] * 2


def test_bits_take_a_64th_of_a_word() -> None:
    bits = torch.zeros(130, dtype=torch.bool)
    bits[[0, 63, 64, 129]] = True
    words = pack_bits(bits)
    assert words.tolist() == [1 - (1 << 63), 1, 2]
    assert torch.equal(unpack_bits(words, 130), bits)


def test_a_header_is_small() -> None:
    assert 8 * sum(Shape(pieces=8, look_ahead=4, tile_rows=68).late) < 5600
    assert 8 * sum(Shape(pieces=8, look_ahead=0, tile_rows=68).late) < 1200
    assert 8 * sum(Shape(pieces=8, look_ahead=4, tile_rows=68).early) == 80


def test_alarms_of_any_rank_are_alarms_of_all() -> None:
    shape = Shape(2, 0, 0)
    told = [Alarm(0), Alarm.MEMORY, Alarm.STOP | Alarm.MEMORY]
    rows = [
        LateHeader(
            *(torch.zeros(2).long(), torch.zeros(0).long(), *torch.zeros(2, 0, BINS).long()),
            *(torch.zeros(BINS).long(), torch.zeros(0).long(), torch.tensor([int(each)])),
        ).pack()
        for each in told
    ]
    assert LateHeader.unpack(torch.stack(rows), shape).alarm == Alarm.STOP | Alarm.MEMORY
    assert LateHeader.unpack(torch.stack(rows[:1]), shape).alarm == Alarm(0)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_rank_gets_the_headers_of_all(size: int) -> None:
    shape = Shape(pieces=size, look_ahead=2, tile_rows=5)
    headers = [random_late(shape, torch.Generator().manual_seed(rank)) for rank in range(size)]

    def run(world: World) -> LateHeader:
        return LateHeader.unpack(world.gather_integers(headers[world.rank].pack()), shape)

    for gathered in run_on_ranks(size, run):
        for rank, header in enumerate(headers):
            assert torch.equal(gathered.counts[rank], header.counts)
            assert torch.equal(gathered.work[rank], header.work)
        assert torch.equal(gathered.conflicts, torch.stack([h.conflicts for h in headers]))


def exact(size: float) -> Fraction:
    return Fraction(float(size)) / Fraction(2) ** (LOWEST - 23)


floats = st.floats(0.0, 7.875, width=32, allow_subnormal=False)


@given(st.lists(floats, max_size=40), st.integers(0, 40))
def test_sums_of_sizes_are_exact_however_rows_are_spread(sizes: list[float], cut: int) -> None:
    def sums(part: list[float]) -> Tensor:
        return histogram(*bins_of(torch.tensor(part)))[1]

    whole = sums(sizes)
    assert torch.equal(whole, sums(sizes[:cut]) + sums(sizes[cut:]))
    counted = [exact(size) for size in sizes if size >= 2.0**LOWEST]
    assert weigh(whole.tolist()) == sum(counted, Fraction(0))


def test_bins_by_powers_of_two() -> None:
    low = 2.0**LOWEST
    values = [0.0, low / 2, low, 2 * low, 3 * low, 7.9, 8.0, torch.inf, torch.nan]
    bins, mantissas = bins_of(torch.tensor(values))
    assert bins.tolist() == [0, 0, 0, 1, 1, UNKNOWN - 1, UNKNOWN, UNKNOWN, UNKNOWN]
    assert (mantissas[[0, 1, 6, 7, 8]] == 0).all() and (mantissas[2:6] >= 1 << 23).all()


@settings(max_examples=30)
@given(st.integers(1, 70), st.integers(0, 2**31))
def test_means_do_not_depend_on_the_place_of_a_row(rows: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    means, gradients = torch.rand(rows, generator=draw), torch.randn(rows, 64, generator=draw)
    rates = torch.rand(64, generator=draw)
    whole = running_mean(means, step_sizes(gradients, rates))
    for row in range(rows):
        alone = running_mean(means[row : row + 1], step_sizes(gradients[row : row + 1], rates))
        assert alone[0] == whole[row]


def test_the_first_size_of_a_row_is_its_mean() -> None:
    means = unknown_sizes(2)
    assert (bins_of(means)[0] == UNKNOWN).all()
    means = running_mean(means, torch.tensor([1.0, 2.0]))
    assert means.tolist() == [1.0, 2.0]
    assert running_mean(means, torch.tensor([9.0, 2.0])).tolist() == [2.0, 2.0]
