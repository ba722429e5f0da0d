"""Command lines as users of Grendel-GS have them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from grendel_odin.data.procedural import ProceduralSettings, write_procedural_scene

ROOT = Path(__file__).resolve().parents[2]


def test_a_call_of_grendel_runs_quietly_and_keeps_its_notes(tmp_path: Path) -> None:
    scene, run = tmp_path / "scene", tmp_path / "run"
    write_procedural_scene(scene, ProceduralSettings(views=10, width=64, height=48, points=400))
    line = (
        f"-s {scene} -m {run} --iterations 24 --bsz 2 --num_train_cameras 7 --quiet --enable_timer "
        "--stop_update_param --distributed_save --test_iterations -1 --save_iterations 12"
    )
    done = subprocess.run(
        [sys.executable, "train.py", *line.split(), "train.threads=1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "" and "loss" not in done.stderr
    figures = json.loads((run / "summary.json").read_text())
    assert (figures["iteration"], figures["batch_size"]) == (24, 2)
    # Without --eval there is no test view; what is not updated scores as it did.
    assert figures["num_test_views"] == 0 and figures["num_primitives"] == 400
    assert figures["train_psnr"] == figures["initial_psnr"]
    assert sorted(path.name for path in (run / "point_cloud").iterdir()) == [
        *("iteration_12", "iteration_24")
    ]
    log = (run / "logs/rank_0000.log").read_text()
    assert "without effect: --enable_timer, --distributed_save (docs/coming-from" in log
    assert "data.test_every=0: without --eval all views are trained on" in log
    assert "data.train_views=7: 3 of 10 views are left out" in log
    assert "7 training views, 0 test views" in log
