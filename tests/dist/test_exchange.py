"""The exchange of splats over gloo ranks has the bits of one process."""

from __future__ import annotations

import pytest

from tests.launch import torchrun


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_strips_over_ranks(ranks: int) -> None:
    done = torchrun(ranks, "tests/dist/exchange_ranks.py")
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in range(ranks):
        assert f"rank {rank} of {ranks}: ok" in done.stdout
