"""The exchange of splats over gloo ranks has the bits of one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def torchrun(script: str, ranks: int) -> subprocess.CompletedProcess[str]:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*launch, f"--nproc-per-node={ranks}", script],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
    )


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_strips_over_ranks(ranks: int) -> None:
    done = torchrun("tests/dist/exchange_ranks.py", ranks)
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in range(ranks):
        assert f"rank {rank} of {ranks}: ok" in done.stdout
