"""The plan as a user meets it: --plan-only, odin.order, replay and resume."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grendel_odin.data.procedural import ProceduralSettings, write_procedural_scene
from grendel_odin.odin.plan_files import load_plan

ROOT = Path(__file__).resolve().parents[2]
SHORT = ("train.iterations=24", "train.batch_size=2", "train.threads=1", "train.eval_iterations=[]")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "scene"
    write_procedural_scene(path, ProceduralSettings(views=12, width=48, height=33, points=200))
    return path


def call(scene: Path, output: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "train.py", f"data.path={scene}", f"output={output}", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)


def train(scene: Path, output: Path, *words: str) -> dict[str, Any]:
    done = call(scene, output, *SHORT, *words)
    assert done.returncode == 0, done.stderr
    content: dict[str, Any] = json.loads((output / "summary.json").read_text())
    return content


def test_a_plan_alone_is_printed_and_written(scene: Path, tmp_path: Path) -> None:
    done = call(scene, tmp_path / "run", "--plan-only", "train.batch_size=2")
    assert done.returncode == 0, done.stderr
    plan = load_plan(tmp_path / "run" / "plan")
    assert f"sha256    {plan.sha256}" in done.stdout
    assert plan.settings.batch == 2 and len(plan.graph) == 10
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"plan"}
    later = train(scene, tmp_path / "run", "odin.order=plan")
    assert later["status"] == "complete"
    assert load_plan(tmp_path / "run" / "plan") == plan


def test_an_order_is_repeated_and_survives_a_checkpoint(scene: Path, tmp_path: Path) -> None:
    first, again, resumed = (tmp_path / name for name in ("first", "again", "resumed"))
    planned = train(scene, first, "odin.order=plan", "train.checkpoint_iterations=[12]")
    repeated = train(scene, again, f"odin.order={first}", "odin.groups=2")
    assert repeated["state_sha256"] == planned["state_sha256"]
    checkpoint = f"train.resume={first / 'checkpoints' / 'iteration_12'}"
    continued = train(scene, resumed, "odin.order=plan", checkpoint)
    assert continued["state_sha256"] == planned["state_sha256"]
    orders = {(path / "order.txt").read_text() for path in (first, again, resumed)}
    assert len(orders) == 1 and len(orders.pop().splitlines()) == 13


def test_an_order_that_cannot_be_had_is_one_message(scene: Path, tmp_path: Path) -> None:
    done = call(scene, tmp_path / "run", *SHORT, "odin.order=nowhere")
    assert done.returncode == 2
    assert "odin.order=nowhere: cannot read" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
