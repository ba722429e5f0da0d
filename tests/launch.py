"""Starts a script on several gloo ranks, as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def torchrun(ranks: int, *script: str, timeout_s: float = 110) -> subprocess.CompletedProcess[str]:
    """Run a script with its arguments on so many ranks of one thread."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*launch, f"--nproc-per-node={ranks}", *script],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
