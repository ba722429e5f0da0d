"""The executor over real ranks: the same values as in one process, and an error for a lost rank."""

from __future__ import annotations

from tests.launch import torchrun


def test_units_over_gloo_and_a_rank_that_dies() -> None:
    done = torchrun(3, "tests/dist/executor_ranks.py")
    for rank in range(3):
        assert f"rank {rank} of 3: ok" in done.stdout, done.stderr[-3000:]
    for rank in (0, 2):
        assert f"rank {rank}: rank 1 is gone or does not answer" in done.stdout, done.stdout
        assert f"rank {rank} was waiting for" in done.stdout
