"""render.py and metrics.py over ranks give what one process gives, from a model of two ranks."""

from __future__ import annotations

import filecmp
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import metrics
import render
from grendel_odin.data.procedural import ProceduralSettings, write_procedural_scene
from tests.launch import on_ranks, torchrun

TEST_VIEWS, VIEWS = 5, 20
"""Neither 2 nor 3 ranks divide the test views."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two ranks."""
    folder = tmp_path_factory.mktemp("runs")
    shape = ProceduralSettings(views=VIEWS, width=64, height=49, points=300)
    write_procedural_scene(folder / "scene", shape)
    words = ("train.iterations=24", "train.schedule_scale=0.02", "data.test_every=4")
    paths = (f"data.path={folder / 'scene'}", f"output={folder / 'run'}")
    done = torchrun(2, "train.py", *paths, *words, "train.batch_size=3", "train.threads=1")
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "run"


def content(path: Path) -> Any:
    return json.loads(path.read_text())


def same_files(a: Path, b: Path) -> int:
    """Number of files in both folders, which hold the same."""
    names = sorted(path.name for path in a.iterdir())
    assert names == sorted(path.name for path in b.iterdir())
    assert filecmp.cmpfiles(a, b, names, shallow=False)[0] == names
    return len(names)


def test_one_process_scores_what_training_did(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = content(run / "summary.json")
    assert (summary["world_size"], summary["num_test_views"]) == (2, TEST_VIEWS)
    assert render.main(["-m", str(run), "-o", str(tmp_path), "--skip_train"]) == 0
    rendered = content(tmp_path / "results.json")["ours_24"]
    assert (rendered["PSNR"], rendered["SSIM"]) == (summary["psnr"], summary["ssim"])
    stats = content(run / "stats/val_step0023.json")["per_view"]
    per_view = content(tmp_path / "per_view.json")["ours_24"]["PSNR"]
    assert {Path(name).stem: each["psnr"] for name, each in stats.items()} == {
        Path(name).stem: psnr for name, psnr in per_view.items()
    }
    assert metrics.main(["-m", str(tmp_path)]) == 0
    assert content(tmp_path / "results.json")["ours_24"] == rendered
    text = (run / "python_ws=2_rk=0.log").read_text()
    assert f"[ITER 24] Evaluating test: L1 {summary['l1']} PSNR {summary['psnr']}\n" in text
    assert text.splitlines()[0] == "bsz: 3"
    assert (run / "python_ws=2_rk=1.log").read_text().count("densify_and_prune. Now num") > 2


def test_ranks_render_every_view_once(run: Path, tmp_path: Path) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    assert render.main(["-m", str(run), "-o", str(alone)]) == 0
    done = on_ranks(3, "render.py", "-m", str(run), "-o", str(together))
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count(f"mean of {TEST_VIEWS}") == 1
    assert done.stdout.count(f"mean of {VIEWS - TEST_VIEWS}") == 1
    for split, count in (("test", TEST_VIEWS), ("train", VIEWS - TEST_VIEWS)):
        for kind in ("renders", "gt"):
            folder = f"{split}/ours_24/{kind}"
            assert same_files(alone / folder, together / folder) == count
    for name in ("results.json", "per_view.json", "results_train.json", "per_view_train.json"):
        assert (alone / name).read_text() == (together / name).read_text()


def test_a_film_over_ranks(run: Path, tmp_path: Path) -> None:
    words = ("-m", str(run), "--path", "ellipse", "--frames", "5")
    assert render.main([*words, "-o", str(tmp_path / "a")]) == 0
    done = on_ranks(2, "render.py", *words, "-o", str(tmp_path / "b"))
    assert done.returncode == 0, done.stderr[-3000:]
    films = [next((tmp_path / name / "videos").iterdir()) for name in ("a", "b")]
    assert films[0].read_bytes() == films[1].read_bytes()


def test_a_wrong_command_line_is_said_once() -> None:
    done = on_ranks(2, "render.py", "-m", "run", "--frames", "many")
    assert done.returncode == 2 and "usage" not in done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_scores_over_ranks_and_the_failure_of_one(run: Path, tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    for folder in (good, bad):
        assert render.main(["-m", str(run), "-o", str(folder), "--skip_train"]) == 0
    expected = (good / "results.json").read_text()
    (good / "results.json").unlink()
    names = sorted((bad / "test/ours_24/gt").iterdir())
    Image.new("RGB", (3, 3)).save(names[1])  # rank 1's
    done = on_ranks(2, "metrics.py", "-m", str(good), str(bad))
    assert (good / "results.json").read_text() == expected
    assert done.stdout.count(f"mean of {TEST_VIEWS}") == 1
    assert done.returncode != 0
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and f"{names[1].name} differ in size" in errors[0]
