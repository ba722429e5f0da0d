"""The executor over real ranks: the same values as in one process, and an error for a lost rank."""

from __future__ import annotations

import re

from tests.launch import torchrun


def test_units_over_gloo_and_a_rank_that_dies() -> None:
    done = torchrun(3, "tests/dist/executor_ranks.py")
    for rank in range(3):
        assert f"rank {rank} of 3: ok" in done.stdout, done.stderr[-3000:]
    lost = re.findall(r"rank (\d): rank (\d) is gone or does not answer", done.stdout)
    # The first who finds rank 1 gone goes, too, and may be what the other one sees.
    assert sorted(rank for rank, _ in lost) == ["0", "2"], done.stdout
    assert "1" in [gone for _, gone in lost]
    for rank in (0, 2):
        assert f"rank {rank} was waiting for" in done.stdout
