"""A rank is killed, hangs, fails or starts from something else: all end, and one says why."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.launch import by_hand, free_port, start, start_rank, torchrun_command

LIMIT_S = 60.0
"""For a test to end on a busy machine; the time-outs of the runs are shorter."""


def endless(scene: Path, output: Path, *more: str) -> list[str]:
    """A run that goes on until something happens to it; its first model is saved early."""
    return [
        *(f"data.path={scene}", f"output={output}", "train.iterations=1000000"),
        *("train.save_iterations=[5]", "parallel.step_timeout_s=4", "train.threads=1", *more),
    ]


@contextmanager
def ended(processes: list[subprocess.Popen[str]]) -> Iterator[None]:
    """Leaves none behind."""
    try:
        yield
    finally:
        for each in processes:
            each.kill()
            each.communicate()


def wait_for_steps(output: Path) -> None:
    """Until a few units have been done after the first saved model."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        path = output / "metrics.jsonl"
        if path.exists():
            done = [json.loads(line)["iteration"] for line in path.read_text().splitlines()]
            if max(done, default=0) >= 20:
                return
        time.sleep(0.1)
    raise AssertionError("training did not begin")


def errors(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("error:")]


def check_end(
    processes: list[subprocess.Popen[str]], output: Path, lost: int, *texts: str
) -> dict[int, str]:
    """All but the lost rank end with status 1; one says why, the logs of all do; gives stderr."""
    said = {}
    for rank, each in enumerate(processes):
        if rank != lost:
            said[rank] = each.communicate(timeout=LIMIT_S)[1]
            assert each.returncode == 1, said[rank]
            assert "Traceback" not in said[rank]
            log = (output / "logs" / f"rank_{rank:04d}.log").read_text()
            assert all(text in log for text in texts), log
    model = output / "point_cloud/iteration_5/point_cloud.ply"
    speaker = min(said)
    (line,) = errors(said[speaker])
    assert all(text in line for text in texts) and str(model) in line
    assert not any(errors(text) for rank, text in said.items() if rank != speaker)
    assert model.is_file() and not list(output.rglob("*.tmp"))
    return said


def test_a_killed_rank_ends_all(scene: Path, tmp_path: Path) -> None:
    output, lost = tmp_path / "run", 1
    processes = by_hand(3, "train.py", *endless(scene, output))
    with ended(processes):
        wait_for_steps(output)
        processes[lost].send_signal(signal.SIGKILL)
        check_end(processes, output, lost, f"rank {lost} (", "gone without a word")


def test_a_stopped_rank_is_named_with_the_operation(scene: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    processes = by_hand(2, "train.py", *endless(scene, output))
    with ended(processes):
        wait_for_steps(output)
        processes[1].send_signal(signal.SIGSTOP)
        texts = ("rank 1 (", "gave no sign of life", "rank 0 (", " waited in ")
        check_end(processes, output, 1, *texts)


def test_an_exception_on_one_rank_ends_all(scene: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    processes = by_hand(2, "tests/dist/failing_rank.py", *endless(scene, output), FAILS="1")
    with ended(processes):
        reason = "failed: MemoryError: no 7 GB are left"
        check_end(processes, output, 1, "rank 1 (", reason)
        own = processes[1].communicate(timeout=LIMIT_S)[1]
        assert processes[1].returncode == 1 and "MemoryError: no 7 GB are left" in own
        log = (output / "logs/rank_0001.log").read_text()
        assert "Traceback" in log and "failing_rank.py" in log and reason in log


def test_torchrun_and_a_killed_rank(scene: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    launcher = start(torchrun_command(2, "train.py", *endless(scene, output)))
    with ended([launcher]):
        wait_for_steps(output)
        ranks = [rank_of(launcher.pid, rank) for rank in (0, 1)]
        os.kill(ranks[0], signal.SIGKILL)
        try:
            said = launcher.communicate(timeout=LIMIT_S)[1]
        finally:
            with suppress(ProcessLookupError):
                os.kill(ranks[1], signal.SIGKILL)
    assert launcher.returncode == 1
    (line,) = errors(said)
    assert "rank 0 (" in line and "gone without a word" in line and "iteration_5" in line
    assert "rank 0 (" in (output / "logs/rank_0001.log").read_text()


def rank_of(launcher: int, rank: int) -> int:
    """The process of a rank among the children of torchrun."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    for child in children:
        variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        if f"RANK={rank}".encode() in variables:
            return int(child)
    raise AssertionError(f"no rank {rank} among {children}")


def test_sigterm_ends_a_run_with_its_model_saved(scene: Path, tmp_path: Path) -> None:
    # Started by srun, and ended by it when the time is over.
    output = tmp_path / "run"
    step = {"SLURM_STEP_ID": "0", "SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_NUM_TASKS": "2"}
    step |= {"SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_TASKS_PER_NODE": "2"}
    words = [sys.executable, "train.py", *endless(scene, output)]
    ranks = [{"SLURM_PROCID": rank, "SLURM_LOCALID": rank} for rank in ("0", "1")]
    processes = [start(words, **step, **rank) for rank in ranks]
    with ended(processes):
        wait_for_steps(output)
        for each in processes:
            each.send_signal(signal.SIGTERM)
        said = [each.communicate(timeout=LIMIT_S)[1] for each in processes]
    assert [each.returncode for each in processes] == [130, 130], said
    summary = json.loads((output / "summary.json").read_text())
    assert summary["world_size"] == 2
    assert summary["status"] == "interrupted" and summary["iteration"] >= 20
    name = f"point_cloud/iteration_{summary['iteration']}/point_cloud.ply"
    assert (output / name).is_file()


def test_another_configuration_on_one_rank(scene: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    words, port = ("train.py", *endless(scene, output)), str(free_port())
    first, second = start_rank(0, 2, port, *words), start_rank(1, 2, port, *words, "seed=7")
    with ended([first, second]):
        said = [each.communicate(timeout=LIMIT_S)[1] for each in (first, second)]
    assert (first.returncode, second.returncode) == (2, 2), said
    (line,) = errors(said[0])
    assert "configuration" in line and "rank 1 (" in line and "seed=7 against seed=0" in line
    assert not errors(said[1]) and not output.exists()


def test_bad_settings_and_a_wrong_interface_are_said_once(scene: Path, tmp_path: Path) -> None:
    words = endless(scene, tmp_path / "run", "train.iterations=many")
    processes = by_hand(2, "train.py", *words)
    wrong = by_hand(2, "train.py", *words, GLOO_SOCKET_IFNAME="^lo,docker0")
    with ended([*processes, *wrong]):
        said = [each.communicate(timeout=LIMIT_S)[1] for each in [*processes, *wrong]]
    assert [each.returncode for each in [*processes, *wrong]] == [2, 2, 2, 2], said
    assert len(errors(said[0])) == 1 and "train.iterations" in said[0]
    assert len(errors(said[2])) == 1 and "no interface '^lo' here" in said[2]
    assert not errors(said[1]) and not errors(said[3])
