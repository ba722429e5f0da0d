"""Shared data sets of other formats than COLMAP's, trained on as a user would; and the doctor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import train
from grendel_odin.data import __main__ as doctor
from grendel_odin.data.picture_panel import TEST, TRAIN
from grendel_odin.data.procedural import ProceduralSettings, write_procedural_scene
from grendel_odin.data.scene import load_scene
from grendel_odin.data.settings import DataSettings
from tests.cases import case
from tests.launch import ROOT, call

BLENDER, NERFSTUDIO = "30-blender-transforms", "31-nerfstudio-transforms"


@pytest.mark.parametrize("name", [BLENDER, NERFSTUDIO])
def test_case_trains(name: str, tmp_path: Path) -> None:
    done = call(
        *(train.main, "-c", str(ROOT / "configs/3dgs.yaml"), f"data.path={case(name)}"),
        *(f"output={tmp_path / 'run'}", "train.iterations=20", "data.random_points=500"),
        "train.threads=1",
    )
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads((tmp_path / "run/summary.json").read_text())
    assert (summary["status"], summary["iteration"]) == ("complete", 20)
    assert summary["psnr"] > summary["initial_psnr"]
    log = (tmp_path / "run/logs/rank_0000.log").read_text()
    expected = "images/view_06.jpg" if name == NERFSTUDIO else "500 random ones"
    assert expected in log


def test_blender_case_as_expected() -> None:
    path = case(BLENDER)
    scene = load_scene(DataSettings(path=str(path)))
    expected = json.loads((path / "CASE.json").read_text())["expect"]
    assert (len(scene.train), len(scene.test)) == (expected["images"], expected["test_images"])
    angle = json.loads((path / "transforms_train.json").read_text())["camera_angle_x"]
    for view in scene.views:
        assert view.camera.K[0, 0] == pytest.approx(view.camera.width / 2 / np.tan(angle / 2))
        assert view.camera.K[1, 1] == view.camera.K[0, 0]


def test_nerfstudio_case_as_expected() -> None:
    path = case(NERFSTUDIO)
    scene = load_scene(DataSettings(path=str(path)))
    expected = json.loads((path / "CASE.json").read_text())["expect"]
    assert len(scene.views) == expected["images"]
    sizes = {(view.camera.width, view.camera.height) for view in scene.views}
    assert sizes == set(map(tuple, expected["sizes"]))
    tall = next(view.camera for view in scene.views if view.camera.name == "images/view_07.jpg")
    np.testing.assert_array_equal(tall.K[:2], [[70, 0, 30], [0, 70.7, 40]])
    assert len(scene.points) == 141


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "scene"
    write_procedural_scene(path, ProceduralSettings(views=8, width=64, height=48, points=300))
    return path


def test_doctor_tells_and_draws(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call(doctor.main, str(scene), "downscale=2", "data.test_every=4")
    assert done.returncode == 0, done.stderr
    for part in (
        *("COLMAP model", "8 registered images", "6 to train, 2 to test", "32x24 (from 64x48)"),
        *("300, of which", "a point is seen by", "extent", "data.cache_gb", "scene_check.png"),
    ):
        assert part in done.stdout
    with Image.open(tmp_path / "scene_check.png") as picture:
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    for camera in TRAIN, TEST:
        assert (pixels == camera).all(axis=1).any()


def test_doctor_refuses_as_training_does(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call(doctor.main, str(scene / "images"))
    trained = call(train.main, f"data.path={scene / 'images'}", f"output={tmp_path / 'run'}")
    assert (done.returncode, trained.returncode) == (2, 2)
    assert done.stderr == trained.stderr
    assert not (tmp_path / "scene_check.png").exists()


def test_doctor_writes_nothing_into_the_data(scene: Path) -> None:
    before = sorted(scene.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-m", "grendel_odin.data", str(scene)],
        cwd=scene,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "--picture FILE" in done.stdout
    assert sorted(scene.rglob("*")) == before
