"""The exchange of splats over ranks has the bits of one process, through memory and by gloo."""

from __future__ import annotations

import pytest

from grendel_odin.parallel.world import ALONE
from tests.dist.exchange_ranks import check_all
from tests.launch import on_ranks


def test_strips_in_one_process() -> None:
    check_all(ALONE)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_strips_over_ranks(ranks: int) -> None:
    done = on_ranks(ranks, "tests/dist/exchange_ranks.py")
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in range(ranks):
        for medium in ("shared memory", "gloo"):
            assert f"rank {rank} of {ranks}: ok through {medium}\n" in done.stdout
