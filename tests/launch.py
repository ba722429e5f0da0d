"""Starts scripts on several ranks, as a user does, and runs in this process to compare with."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

from grendel_odin.config import bind
from grendel_odin.train.build import build
from grendel_odin.train.settings import Settings

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


def on_ranks(ranks: int, *script: str, timeout_s: float = 110) -> subprocess.CompletedProcess[str]:
    """Run a script to its end on so many ranks of one thread, without the cost of a launcher.

    Output is that of all ranks, by rank; the status is that of the first that failed.
    """
    processes = by_hand(ranks, *script)
    try:
        said = [each.communicate(timeout=timeout_s) for each in processes]
    finally:
        for each in processes:
            each.kill()
    status = next((each.returncode for each in processes if each.returncode), 0)
    out, err = ("".join(texts) for texts in zip(*said, strict=True))
    return subprocess.CompletedProcess(script, status, out, err)


def train_on_ranks(ranks: int, cases: Sequence[Sequence[str]], *shared: str) -> None:
    """Train case after case on ranks that are started once; `shared` words belong to all."""
    words = [",".join(case) for case in cases]
    done = on_ranks(ranks, "tests/dist/training_ranks.py", *words, "--", *shared)
    assert done.returncode == 0, done.stderr[-3000:]


def call(main: Callable[[Sequence[str]], int], *words: str) -> subprocess.CompletedProcess[str]:
    """A command in this process, which saves the seconds that a new one takes to load torch."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(words)
    return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())


def train_here(*words: str) -> None:
    """Train in this process."""
    with closing(build(bind(Settings, None, words))) as trainer:
        trainer.run()


def torchrun_command(ranks: int, *script: str) -> list[str]:
    """To run a script on so many ranks."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*launch, f"--nproc-per-node={ranks}", *script]


def torchrun(ranks: int, *script: str, timeout_s: float = 110) -> subprocess.CompletedProcess[str]:
    """The same by torchrun."""
    return subprocess.run(
        torchrun_command(ranks, *script),
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
