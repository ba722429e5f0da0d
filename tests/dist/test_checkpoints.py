"""A resumed run equals an uninterrupted one, whatever stopped it, on any number of ranks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from grendel_odin.train.checkpoint import complete, iteration_of
from tests.launch import ROOT, on_ranks, train_here

FAST = (
    *("train.iterations=60", "train.schedule_scale=0.02", "train.threads=1"),
    *("densify.reset_every=1000", "train.eval_iterations=[31]", "model.max_primitives=900"),
)
"""Densifies at 12, 14, ...; resets opacity at 20 and 40; SH degree 1 at 20, 2 at 40, 3 at 60."""
SAME = ("state_sha256", "num_primitives", "psnr", "train_psnr", "initial_psnr", "status")


def words(scene: Path, output: Path, *overrides: str) -> list[str]:
    return [f"data.path={scene}", f"output={output}", *FAST, *overrides]


def alone(scene: Path, output: Path, *overrides: str) -> None:
    train_here(*words(scene, output, *overrides))


@pytest.fixture(scope="module")
def uninterrupted(scene: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("runs") / "whole"
    alone(scene, output)
    return output


def figures(output: Path) -> dict[str, Any]:
    content = json.loads((output / "summary.json").read_text())
    return {key: content[key] for key in SAME}


def metrics(output: Path) -> list[dict[str, Any]]:
    """The lines that do not speak of time."""
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("train_wall_s", None)
    return [line for line in lines if line["event"] not in ("checkpoint", "redistribute")]


def test_ranks_may_change_at_a_checkpoint(scene: Path, tmp_path: Path, uninterrupted: Path) -> None:
    first = tmp_path / "first"
    until_25 = ("train.iterations=25", "train.checkpoint_iterations=[25]")
    done = on_ranks(2, "train.py", *words(scene, first, *until_25))
    assert done.returncode == 0, done.stderr[-3000:]
    names = {path.name for path in (first / "checkpoints/iteration_25").iterdir()}
    assert names == {
        *("manifest.json", "costs.safetensors"),
        *(f"rank_000{rank}_of_0002.safetensors" for rank in (0, 1)),
    }
    # On three ranks to 41, which is between densifications; then one finishes it.
    second = tmp_path / "second"
    until_41 = ("train.iterations=41", "train.checkpoint_every=41", f"train.resume={first}")
    done = on_ranks(3, "train.py", *words(scene, second, *until_41))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "continuing at iteration 25 of 41" in done.stdout
    alone(scene, second, "train.resume=auto")
    assert figures(second) == figures(uninterrupted)
    assert json.loads((second / "summary.json").read_text())["resumed_at"] == [25, 41]
    late = [line for line in metrics(uninterrupted) if line["iteration"] > 41]
    assert [line for line in metrics(second) if line["iteration"] > 41] == late
    ply = "point_cloud/iteration_60/point_cloud.ply"
    assert (second / ply).read_bytes() == (uninterrupted / ply).read_bytes()


def test_a_batch_goes_on_within_an_epoch(scene: Path, tmp_path: Path) -> None:
    # 8 views in units of 3: units cross epochs. Iteration 29 lies in the unit that ends at 30.
    batch = ("train.batch_size=3", "optim.kind=selective_adam", "renderer.background=white")
    alone(scene, tmp_path / "run", *batch, "train.checkpoint_iterations=[29]")
    named = f"train.resume={tmp_path / 'run/checkpoints/iteration_30'}"
    alone(scene, tmp_path / "again", *batch, named)
    assert figures(tmp_path / "again") == figures(tmp_path / "run")
    late = [line for line in metrics(tmp_path / "run") if line["iteration"] > 30]
    assert metrics(tmp_path / "again") == late


def test_replicas_share_a_checkpoint(scene: Path, tmp_path: Path, uninterrupted: Path) -> None:
    replicated = ("parallel.mode=replicated", "train.iterations=25", "train.checkpoint_every=25")
    done = on_ranks(2, "train.py", *words(scene, tmp_path / "run", *replicated))
    assert done.returncode == 0, done.stderr[-3000:]
    manifest = json.loads((tmp_path / "run/checkpoints/iteration_25/manifest.json").read_text())
    rows = [each["rows"] for each in manifest["content"]["files"]]
    assert max(rows) - min(rows) <= 1 and sum(rows) > 400
    alone(scene, tmp_path / "run", "train.resume=auto")
    assert figures(tmp_path / "run") == figures(uninterrupted)


def start(scene: Path, output: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "train.py", *words(scene, output)),
            *("train.checkpoint_every=9", "train.resume=auto"),
        ],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_stopped_run_goes_on(
    scene: Path, tmp_path: Path, uninterrupted: Path, number: signal.Signals
) -> None:
    output = tmp_path / "run"
    first = start(scene, output)
    until = time.monotonic() + 60
    while not any(iteration_of(each) >= 27 for each in complete(output / "checkpoints")):
        assert time.monotonic() < until and first.poll() is None
        time.sleep(0.002)
    first.send_signal(number)
    said, _ = first.communicate(timeout=60)
    assert "train.resume=auto: no checkpoint in" in said
    if number == signal.SIGTERM:
        stopped = json.loads((output / "summary.json").read_text())["iteration"]
        assert (output / f"checkpoints/iteration_{stopped}/manifest.json").is_file()
    second = start(scene, output)
    said, _ = second.communicate(timeout=60)
    assert second.returncode == 0 and "continuing at iteration" in said, said
    assert figures(output) == figures(uninterrupted)
    assert metrics(output) == metrics(uninterrupted)
    names = [path.name for path in complete(output / "checkpoints")]
    assert names[0] == "iteration_60" and len(names) == 2
