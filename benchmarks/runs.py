"""Whole training runs on several ranks, as a user starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def train(ranks: int, output: Path, words: Sequence[str]) -> dict[str, Any]:
    """The summary of a run on so many ranks of one thread; SystemExit if it fails."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    fixed = [f"output={output}", "train.overwrite=true", "train.threads=1"]
    done = subprocess.run(
        [sys.executable, *launch, "train.py", *fixed, *words],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{ranks} ranks, {' '.join(words)}:\n{done.stderr[-3000:]}")
    content: dict[str, Any] = json.loads((output / "summary.json").read_text())
    return content
