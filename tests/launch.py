"""Starts a script on several gloo ranks, as a user does."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def free_port() -> int:
    """One that nobody listens to."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def start(words: Sequence[str], **variables: str) -> subprocess.Popen[str]:
    """A command with more environment variables, one thread, and its output in pipes."""
    return subprocess.Popen(
        words,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def by_hand(ranks: int, *script: str, **variables: str) -> list[subprocess.Popen[str]]:
    """Start a script on so many ranks, as srun does: nobody ends the others when one fails."""
    port = str(free_port())
    return [start_rank(rank, ranks, port, *script, **variables) for rank in range(ranks)]


def start_rank(
    rank: int, ranks: int, port: str, *script: str, **variables: str
) -> subprocess.Popen[str]:
    """One of them."""
    place = {"RANK": str(rank), "WORLD_SIZE": str(ranks)}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return start([sys.executable, *script], **place, **meeting, **variables)


def torchrun_command(ranks: int, *script: str) -> list[str]:
    """To run a script on so many ranks."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*launch, f"--nproc-per-node={ranks}", *script]


def torchrun(ranks: int, *script: str, timeout_s: float = 110) -> subprocess.CompletedProcess[str]:
    """Run a script with its arguments on so many ranks of one thread."""
    return subprocess.run(
        torchrun_command(ranks, *script),
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
