"""train.py as a user types it, on a scene of ten small photographs."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import train as entry_point
from grendel_odin.config import UserError, bind
from grendel_odin.data.procedural import ProceduralSettings, write_procedural_scene
from grendel_odin.model.ply_read import read_ply
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.train.build import build
from grendel_odin.train.progress import Status
from grendel_odin.train.settings import Settings
from tests.launch import ROOT, call

FAST = (
    *("train.iterations=60", "train.schedule_scale=0.02", "train.threads=2"),
    "model.max_primitives=1500",
)
"""Densifies at 12, 14, ..., resets opacity only at 60, reaches SH degree 3 at 60."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "scene"
    write_procedural_scene(path, ProceduralSettings(views=10, width=64, height=48, points=400))
    return path


@pytest.fixture(scope="module")
def run(scene: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("runs") / "first"
    marks = ("train.save_iterations=[20,60]", "train.eval_iterations=[30]")
    words = [sys.executable, "train.py", *command(scene, output, *FAST, *marks)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert f"model: {output}/point_cloud/iteration_60/point_cloud.ply" in done.stdout
    return output


def command(scene: Path, output: Path, *overrides: str) -> list[str]:
    config = str(ROOT / "configs/3dgs.yaml")
    return ["-c", config, f"data.path={scene}", f"output={output}", *overrides]


def train(scene: Path, output: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    return call(entry_point.main, *command(scene, output, *overrides))


def summary(output: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((output / "summary.json").read_text())
    return content


def events(output: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == kind]


def test_the_run_folder_is_complete(run: Path) -> None:
    names = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    assert names == {
        *("cfg.yml", "cfg_args", "args.json", "cameras.json", "input.ply", "order.txt"),
        "environment.json",
        *("metrics.jsonl", "summary.json", "logs/rank_0000.log", "python_ws=1_rk=0.log"),
        *(f"stats/val_step{step:04d}.json" for step in (0, 29, 59)),
        *(f"point_cloud/iteration_{i}/point_cloud.ply" for i in (20, 60)),
    }
    cameras = json.loads((run / "cameras.json").read_text())
    assert len(cameras) == 10 and set(cameras[0]) == {
        *("id", "img_name", "width", "height", "position", "rotation", "fy", "fx")
    }
    assert (run / "cfg_args").read_text().startswith("Namespace(sh_degree=3, source_path='/")
    assert (run / "input.ply").read_bytes().startswith(b"ply\nformat binary_little_endian 1.0\n")


def test_summary_holds_the_figures(run: Path) -> None:
    figures = summary(run)
    expected = {
        **{"status": "complete", "iteration": 60, "num_test_views": 2, "world_size": 1},
        **{"batch_size": 1, "seed": 0, "sh_degree": 3, "threads": 2, "pipeline": "3dgs"},
    }
    assert {key: figures[key] for key in expected} == expected
    assert figures["psnr"] > figures["initial_psnr"] > 5
    assert 0 < figures["ssim"] < 1 and 0 < figures["l1"] < 1
    assert len(figures["state_sha256"]) == 64
    assert figures["wall_s"] > figures["train_wall_s"] > sum(figures["stage_seconds"].values()) / 2
    assert math.isclose(figures["views_per_s"], 60 / figures["train_wall_s"])
    assert 50 < figures["peak_rss_mb"] < 10000
    table = read_ply(run / "point_cloud/iteration_60/point_cloud.ply")
    assert len(table) == figures["num_primitives"]


def test_metrics_have_the_events(run: Path) -> None:
    assert [line["iteration"] for line in events(run, "train")] == [10, 20, 30, 40, 50, 60]
    assert [line["iteration"] for line in events(run, "eval")] == [0, 30, 60]
    densified = events(run, "densify")
    # The last iteration would be one, too; it takes its step instead.
    assert [line["iteration"] for line in densified] == list(range(12, 60, 2))
    counts = [line["num_primitives"] for line in densified]
    for line, before in zip(densified[1:], counts, strict=False):
        grown = line["cloned"] + line["split"] - line["pruned"]
        assert line["num_primitives"] == before + grown


def test_the_same_bits_from_the_saved_settings_on_one_thread(run: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    saved = ("-c", str(run / "cfg.yml"), f"output={again}")
    done = call(entry_point.main, *saved, "train.threads=1")
    assert done.returncode == 0, done.stderr
    assert summary(again)["state_sha256"] == summary(run)["state_sha256"]


def test_a_batch_merges_marks_and_says_so(scene: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    done = train(
        *(scene, output, *FAST, "train.batch_size=8", "densify.reset_every=1500"),
        *("train.save_iterations=[17,18]", "model.sh_degree=2"),
    )
    assert done.returncode == 0, done.stderr
    figures = summary(output)
    # Units start at 1, 9, ..., 57; marks 12, 14, ..., 56 lie in six of them. The reset is at 30.
    assert [line["merged"] for line in events(output, "densify")] == [2, 3, 3, 3, 3, 3]
    assert [line["iteration"] for line in events(output, "reset_opacity")] == [32]
    assert figures["merged_densifications"] == 17 and figures["iteration"] == 60
    assert figures["sh_degree"] == 2
    saved = sorted(path.name for path in (output / "point_cloud").iterdir())
    assert saved == ["iteration_17", "iteration_18", "iteration_60"]


def test_without_test_views_the_training_slice_is_scored(scene: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    options = ("data.test_every=0", "model.max_primitives=420", "renderer.background=white")
    done = train(scene, output, *FAST, *options)
    assert done.returncode == 0, done.stderr
    figures = summary(output)
    assert figures["num_test_views"] == 0 and figures["psnr"] is None
    assert figures["train_psnr"] > 5
    assert max(line["num_primitives"] for line in events(output, "densify")) <= 420
    assert "model.max_primitives=420 limits growth" in done.stdout


def test_the_memory_guard_limits_growth_and_says_so_once(scene: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    done = train(scene, output, *FAST, "train.iterations=20", "model.memory_limit=0.001")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("memory guard: 12: ") == done.stdout.count("memory guard") == 1
    assert "growth limited to 0 of " in done.stdout
    lines = events(output, "densify")
    assert len(lines) > 1 and all(line["held_back"] and not line["cloned"] for line in lines)


def test_what_cannot_be_written_in_mid_run_does_not_end_it(scene: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    words = (f"data.path={scene}", f"output={output}", "train.iterations=12", "train.threads=1")
    marks = ("train.save_iterations=[4]", "train.eval_iterations=[6]", "train.checkpoint_every=8")
    with closing(build(bind(Settings, None, [*words, *marks]))) as trainer:
        (output / "stats").write_text("in the way")
        (output / "checkpoints").write_text("in the way")
        (output / "point_cloud").mkdir()
        (output / "point_cloud/iteration_4").write_text("in the way")
        assert trainer.run() is Status.COMPLETE
    log = (output / "logs/rank_0000.log").read_text()
    lost = ("0: cannot write", "4: ", "6: cannot write", "8: cannot write", "12: cannot write")
    for line in lost:
        assert re.search(rf" warning: {line}.*[^.]; training goes on", log), line
    assert summary(output)["psnr"] > 5
    assert (output / "point_cloud/iteration_12/point_cloud.ply").is_file()


@pytest.mark.parametrize("mark", ["train.save_iterations=[4]", "train.checkpoint_every=4"])
def test_replicas_that_differ_end_the_run_at_its_next_file(
    scene: Path, tmp_path: Path, mark: str
) -> None:
    def differ(table: PrimitiveTable) -> None:
        raise UserError("the models differ")

    words = (f"data.path={scene}", f"output={tmp_path / 'run'}", mark)
    short = ("train.iterations=12", "train.threads=1")
    with closing(build(bind(Settings, None, [*words, *short]))) as trainer:
        trainer.step.sharing.check = differ  # type: ignore[method-assign]
        with pytest.raises(UserError, match="the models differ"):
            trainer.run()
    found = summary(tmp_path / "run")
    assert (found["status"], found["iteration"]) == ("failed", 4)


def test_a_run_is_not_overwritten_unless_asked(scene: Path, tmp_path: Path) -> None:
    output, short = tmp_path / "run", ("train.iterations=2", "train.threads=2")
    assert train(scene, output, *short).returncode == 0
    (output / "notes.txt").write_text("mine")
    refused = train(scene, output, *short)
    assert refused.returncode == 2
    assert "already holds a run" in refused.stderr and "train.overwrite=true" in refused.stderr
    replaced = train(scene, output, "train.iterations=3", "train.overwrite=true", short[1])
    assert replaced.returncode == 0, replaced.stderr
    assert not (output / "point_cloud" / "iteration_2").exists()
    assert (output / "point_cloud" / "iteration_3").exists()
    assert (output / "notes.txt").read_text() == "mine"


BAD = [
    ("train.iteration=10", ["unknown key", "train.iterations"]),
    ("train.iterations=0", ["train.iterations", "0", ">= 1"]),
    ("train.batch_size=99", ["train.batch_size=99", "8 training views"]),
    ("seed=x", ["seed", "x"]),
    ("data.path=", ["data.path is not given"]),
    ("data.path=/nonexistent/scene", ["/nonexistent/scene"]),
    ("data.images=pictures", ["pictures"]),
    ("output=", ["output is not given"]),
    ("output=/dev/null/run", ["/dev/null"]),
    ("output=tests", ["no run of this program"]),
    ("renderer.backend=cuda", ["renderer.backend=cuda"]),
    ("pipeline=4dgs", ["pipeline", "4dgs", "3dgs"]),
]


@pytest.mark.parametrize(("override", "words"), BAD, ids=[override for override, _ in BAD])
def test_bad_input_is_one_message(
    *,
    scene: Path,
    tmp_path: Path,
    override: str,
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    assert entry_point.main(command(scene, tmp_path / "run", override)) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert all(word in error for word in words), error
    assert not (tmp_path / "run").exists()


def test_every_problem_of_the_settings_at_once(tmp_path: Path) -> None:
    done = train(tmp_path, tmp_path, "train.iteration=10", "train.batch_size=0")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "train.iteration" in done.stderr and "train.batch_size" in done.stderr


def test_output_in_the_data_folder_is_refused(scene: Path) -> None:
    done = train(scene, scene / "run")
    assert done.returncode == 2 and "never written to" in done.stderr
    assert not (scene / "run").exists()


def test_numbers_that_are_not_finite_stop_the_run(scene: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    done = train(scene, output, *FAST, "optim.sh0_lr=1e38")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "sh0 of primitive 0 is not finite since iteration 1, view view_" in done.stderr
    assert summary(output)["status"] == "failed"


def test_help_explains_the_keys(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        entry_point.main(["--help"])
    text = capsys.readouterr().out
    assert end.value.code == 0
    for key in ("data.path", "train.schedule_scale", "densify.grow_grad2d", "optim.means_lr"):
        assert key in text


def test_ctrl_c_ends_at_the_next_unit_with_a_model(scene: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    process = subprocess.Popen(
        [
            *(sys.executable, "train.py"),
            *command(scene, output, "train.iterations=1000000", "train.threads=2"),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for_training(output, process)
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130 and "Traceback" not in errors
    figures = summary(output)
    assert figures["status"] == "interrupted" and figures["psnr"] is None
    ply = output / f"point_cloud/iteration_{figures['iteration']}/point_cloud.ply"
    assert len(read_ply(ply)) == figures["num_primitives"]


def wait_for_training(output: Path, process: subprocess.Popen[str]) -> None:
    """Until two lines of training metrics are there."""
    for _ in range(600):
        if (output / "metrics.jsonl").exists() and len(events(output, "train")) > 1:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    raise AssertionError("training did not begin")


FLAGS = [
    (["--schedule_scale", "2"], ["'--schedule_scale'", "train.schedule_scale=VALUE"]),
    (["--data.path=scene"], ["'--data.path'", "data.path=scene"]),
    (["--iteratoins", "60"], ["'--iteratoins'", "Did you mean --iterations?"]),
    (["--xyzzy"], ["'--xyzzy'", "key=value", "--help"]),
]


@pytest.mark.parametrize(("words", "expected"), FLAGS, ids=[words[0] for words, _ in FLAGS])
def test_flags_are_told_their_setting(
    words: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry_point.main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and all(word in error for word in expected), error
