"""render.py and metrics.py as a user runs them, on a tiny scene and the reference renderer."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from PIL import Image

import metrics
import render
from grendel_odin.config import bind, dump
from grendel_odin.data.procedural import ProceduralSettings, write_procedural_scene
from grendel_odin.data.scene import load_scene
from grendel_odin.data.settings import DataSettings
from grendel_odin.model.initialise import initialise
from grendel_odin.model.ply import write_ply
from grendel_odin.model.ply_read import read_ply
from grendel_odin.model.settings import ModelSettings
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.report.lpips import HOW_TO_INSTALL, WEIGHTS_VARIABLE
from grendel_odin.report.pictures import read_png
from grendel_odin.train.settings import Settings

ROOT = Path(render.__file__).parent
WIDTH, HEIGHT, VIEWS, TEST_VIEWS = 48, 36, 8, 2
REFERENCE = "renderer.backend=reference"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scene") / "world"
    settings = ProceduralSettings(views=VIEWS, width=WIDTH, height=HEIGHT, points=100)
    write_procedural_scene(path, settings)
    return path


@pytest.fixture(scope="module")
def finished_run(scene: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder as the trainer leaves it, with the initial model under two iterations."""
    run = tmp_path_factory.mktemp("runs") / "run"
    run.mkdir()
    overrides = [f"data.path={scene}", "data.test_every=4", f"output={run}", REFERENCE]
    (run / "cfg.yml").write_text(dump(bind(Settings, None, overrides)))
    points = load_scene(DataSettings(path=str(scene))).points
    table = initialise(points.xyz, points.rgb, ModelSettings())
    for iteration in (5, 20):
        table.field("opacities")[:] = iteration / 10  # the models must differ
        write_ply(run / f"point_cloud/iteration_{iteration}/point_cloud.ply", table)
    return run


@pytest.fixture
def run(finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh copy; LPIPS weights are out of sight, the working folder is empty."""
    monkeypatch.delenv(WEIGHTS_VARIABLE, raising=False)
    monkeypatch.setattr("grendel_odin.report.lpips.find_spec", lambda _: None)
    monkeypatch.setattr("grendel_odin.report.video.find_spec", lambda _: None)
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    return Path(shutil.copytree(finished_run, tmp_path / "run"))


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_renders_a_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert render.main(["-m", str(run)]) == 0
    out = capsys.readouterr().out
    assert "mean of 2" in out
    assert "mean of 6" in out
    assert HOW_TO_INSTALL in out
    for split, count in (("test", TEST_VIEWS), ("train", VIEWS - TEST_VIEWS)):
        folder = run / split / "ours_20"
        renders = listing(folder / "renders")
        assert len(renders) == count
        assert renders == listing(folder / "gt")
        with Image.open(folder / "renders" / renders[0]) as image:
            assert (image.size, image.mode) == ((WIDTH, HEIGHT), "RGB")
        assert (folder / "side_by_side.png").is_file()
    results = json.loads((run / "results.json").read_text())
    assert set(results) == {"ours_20"}
    assert 0 < results["ours_20"]["PSNR"] < 40
    assert "LPIPS" not in results["ours_20"]
    per_view = json.loads((run / "per_view.json").read_text())["ours_20"]
    assert sorted(per_view["PSNR"]) == listing(run / "test/ours_20/renders")
    assert (run / "results_train.json").is_file()


def test_truth_is_the_photograph(run: Path, scene: Path) -> None:
    assert render.main(["-m", str(run), "--skip_train"]) == 0
    assert not (run / "train").exists()
    photographs = {path.stem: path for path in (scene / "images").iterdir()}
    for path in (run / "test/ours_20/gt").iterdir():
        assert torch.equal(read_png(path), read_png(photographs[path.stem]))


def test_iteration_and_skip_test(run: Path) -> None:
    assert render.main(["-m", str(run), "--iteration", "5", "--skip_test"]) == 0
    assert (run / "train/ours_5").is_dir()
    assert not (run / "test").exists()
    assert not (run / "results.json").exists()


def test_an_earlier_rendering_leaves_nothing_behind(run: Path) -> None:
    assert render.main(["-m", str(run), "--skip_train"]) == 0
    assert render.main(["-m", str(run), "--skip_train", "data.test_every=8"]) == 0
    assert len(listing(run / "test/ours_20/renders")) == 1
    assert len(listing(run / "test/ours_20/gt")) == 1


def test_metrics_from_disk_equal_those_of_render(run: Path) -> None:
    for iteration in ("5", "20"):
        assert render.main(["-m", str(run), "--skip_train", "--iteration", iteration]) == 0
    names = ("results.json", "per_view.json")
    before = [json.loads((run / name).read_text()) for name in names]
    for name in names:
        (run / name).unlink()
    assert metrics.main(["-m", str(run)]) == 0
    assert [json.loads((run / name).read_text()) for name in names] == before
    assert before[0]["ours_5"]["PSNR"] != before[0]["ours_20"]["PSNR"]


def test_a_ply_alone_renders_as_in_its_run(run: Path, scene: Path) -> None:
    assert render.main(["-m", str(run), "--skip_train"]) == 0
    ply = run / "point_cloud/iteration_20/point_cloud.ply"
    alone = Path(shutil.copy(ply, "foreign.ply"))
    options = ["-s", str(scene), "--skip_train", REFERENCE, "data.test_every=4"]
    assert render.main(["--ply", str(alone), *options]) == 0
    assert render.main(["--ply", str(alone), "-o", "elsewhere", *options]) == 0
    expected = json.loads((run / "results.json").read_text())["ours_20"]
    for output in ("foreign_renders", "elsewhere"):
        assert json.loads(Path(output, "results.json").read_text()) == {"foreign": expected}
        assert Path(output, "test/foreign/renders").is_dir()


@pytest.mark.parametrize("kind", ["interp", "ellipse"])
def test_film(run: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    assert render.main(["-m", str(run), "--path", kind, "--frames", "6"]) == 0
    film = run / f"videos/{kind}_ours_20.gif"
    assert str(film) in capsys.readouterr().out
    with Image.open(film) as image:
        assert image.size == (WIDTH, HEIGHT)
        assert image.n_frames > 1  # type: ignore[attr-defined]
    assert not (run / "test").exists()


def test_overrides_may_stand_anywhere(run: Path) -> None:
    assert (
        render.main([REFERENCE, "-m", str(run), "renderer.background=white", "--skip_train"]) == 0
    )


def fails(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert render.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_user_errors(run: Path, scene: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "it has no cfg.yml" in fails(["-m", "nowhere"], capsys)
    error = fails(["-m", str(run), "--iteration", "7"], capsys)
    assert "no model of --iteration 7. It has: 5, 20" in error
    assert "nothing to render" in fails(["-m", str(run), "--skip_train", "--skip_test"], capsys)
    assert "--frames 0" in fails(["-m", str(run), "--path", "interp", "--frames", "0"], capsys)
    assert "data.path" in fails(["-m", str(run), "data.pth=1"], capsys)
    assert "no_data" in fails(["-m", str(run), "-s", "no_data"], capsys)
    assert "none.ply" in fails(["--ply", "none.ply", "-s", str(scene)], capsys)
    Path("text.ply").write_text("hello")
    assert "text.ply" in fails(["--ply", "text.ply", "-s", str(scene)], capsys)
    shutil.rmtree(run / "point_cloud")
    assert "Next: train first" in fails(["-m", str(run)], capsys)
    assert metrics.main(["-m", str(run)]) == 2
    assert "nothing rendered" in capsys.readouterr().err


def test_output_inside_the_data_folder_is_refused(
    run: Path, scene: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ply = run / "point_cloud/iteration_20/point_cloud.ply"
    arguments = ["--ply", str(ply), "-s", str(scene), "-o", str(scene / "out")]
    assert "never written to" in fails(arguments, capsys)


def test_unwritable_output_is_one_message(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "test").write_text("in the way")
    assert "cannot write" in fails(["-m", str(run), "--skip_train"], capsys)


def test_scripts_exit_with_2_and_one_message(tmp_path: Path) -> None:
    for script in ("render.py", "metrics.py"):
        command = [sys.executable, str(ROOT / script), "-m", str(tmp_path / "none")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert len(done.stderr.strip().split("\n")) == 1


def test_output_of_a_run_can_go_elsewhere(run: Path, tmp_path: Path) -> None:
    before = listing(run)
    assert render.main(["-m", str(run), "-o", str(tmp_path / "out"), "--skip_train"]) == 0
    assert listing(run) == before
    assert (tmp_path / "out" / "results.json").is_file()


def test_a_model_without_primitives_is_refused(
    run: Path, scene: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty, broken = run / "empty.ply", run / "broken.ply"
    write_ply(empty, PrimitiveTable.empty(0))
    content = (run / "point_cloud/iteration_5/point_cloud.ply").read_bytes()
    header, end, rows = content.partition(b"end_header\n")
    broken.write_bytes(header + end + b"\xff" * len(rows))  # not a number, all of them
    for ply in (empty, broken):
        assert render.main(["--ply", str(ply), "-s", str(scene), REFERENCE]) == 2
        error = capsys.readouterr().err
        assert "no finite primitive" in error and "UserWarning" not in error


def test_mistakes_are_told_the_next_step(
    run: Path, scene: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*arguments: str) -> str:
        assert render.main(arguments) == 2
        return capsys.readouterr().err

    ply = str(run / "point_cloud/iteration_5/point_cloud.ply")
    assert "-s DATA" in told("--ply", ply)
    assert "--iteration" in told("--ply", ply, "-s", str(scene), "--iteration", "5")
    assert "-s DATA" in told("-m", str(run), "data.path=gone")
    assert "error: command line: argument --path: invalid choice" in told("--path", "loop")
    assert "render.py --help" in told("--ply", ply, "-m", str(run))
    assert metrics.main(["--mode", "train"]) == 2
    assert "required: -m" in capsys.readouterr().err
    assert metrics.main(["-m", str(tmp_path / "nothing")]) == 2
    assert "no such folder" in capsys.readouterr().err
    assert render.main(["-m", str(run), "--skip_test"]) == 0
    assert metrics.main(["-m", str(run)]) == 2
    assert "--mode train" in capsys.readouterr().err


def test_a_part_of_the_views(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert render.main(["-m", str(run), "--skip_test"]) == 0
    folder, results = run / "train/ours_20", (run / "results_train.json").read_text()
    names = listing(folder / "renders")
    assert len(names) == 6
    shutil.rmtree(folder / "renders")
    capsys.readouterr()
    assert render.main(["-m", str(run), "--skip_test", "--l", "1", "--r", "5"]) == 0
    assert listing(folder / "renders") == names[1:5]
    assert "4 of 6 views: results_train.json is left as it was" in capsys.readouterr().out
    words = ("--sample_freq", "5", "--generate_num", "1", "--distributed_load", "--quiet")
    assert render.main(["-m", str(run), "--skip_test", *words]) == 0
    assert listing(folder / "renders") == names[:5]
    assert (run / "results_train.json").read_text() == results
    assert render.main(["-m", str(run), "--skip_test", "--l", "9"]) == 0
    assert "none of the 6 train views" in capsys.readouterr().out


def test_a_run_of_grendel(run: Path, scene: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has cfg_args and a file for each rank; it renders as one PLY of all rows does."""
    whole, foreign = run / "point_cloud/iteration_20/point_cloud.ply", run.parent / "grendel"
    rows = read_ply(whole)
    folder = foreign / "point_cloud/iteration_19"
    for rank, part in enumerate((slice(0, 31), slice(31, None))):
        share = PrimitiveTable(rows.values[part], rows.ids[part])
        write_ply(folder / f"point_cloud_rk{rank}_ws2.ply", share)
    (foreign / "cfg_args").write_text(
        f"Namespace(sh_degree=3, source_path={str(scene)!r}, model_path='/tmp/gaussian_splatting',"
        " images='images', white_background=True, eval=True)"
    )
    words = (REFERENCE, "--skip_train", "--llffhold", "4")
    assert render.main(["-m", str(foreign), *words]) == 0
    out = capsys.readouterr().out
    assert "one model from the files of 2 ranks" in out and "renderer.constants=inria" in out
    same = ("renderer.constants=inria", "renderer.background=white", "data.test_every=4")
    assert render.main(["--ply", str(whole), "-s", str(scene), "-o", "one", *words[:2], *same]) == 0
    expected = json.loads(Path("one/results.json").read_text())["ours_20"]
    assert json.loads((foreign / "results.json").read_text()) == {"ours_19": expected}
    assert json.loads((foreign / "results_test.json").read_text()) == {"ours_19": expected}
    (folder / "point_cloud_rk0_ws2.ply").unlink()
    assert render.main(["-m", str(foreign), *words]) == 2
    assert "point_cloud_rk0_ws2.ply is missing" in capsys.readouterr().err
