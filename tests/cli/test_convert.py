"""convert.py as a user calls it: photos to a data set that can be trained on."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import convert
from grendel_odin.data.cameras import Camera
from grendel_odin.data.procedural import ProceduralSettings, write_procedural_scene
from grendel_odin.data.procedural_survey import look_at
from grendel_odin.data.procedural_world import World
from grendel_odin.data.scene import load_scene
from grendel_odin.data.settings import DataSettings

ROOT = Path(__file__).resolve().parents[2]
WIDTH, HEIGHT, FOCAL = 320, 240, 288.0
PHOTOS = 8


def take_photos(folder: Path) -> np.ndarray:
    """An arc around the procedural world, near enough to one another; gives the centres [n, 3]."""
    world = World.build(np.random.default_rng(0))
    K = np.array([[FOCAL, 0, WIDTH / 2], [0, FOCAL, HEIGHT / 2], [0, 0, 1]])
    folder.mkdir(parents=True)
    centers = []
    for number in range(PHOTOS):
        angle = 0.12 * number
        center = np.array([3.6 * np.cos(angle), 3.6 * np.sin(angle), 1.2 + 0.05 * number])
        pose = look_at(center, np.array([0.0, 0.0, 0.5]), 0.0)
        name = f"photo_{number}.png"
        photo = world.photograph(Camera(name, WIDTH, HEIGHT, K, pose))
        Image.fromarray(photo).save(folder / name)
        centers.append(center)
    return np.array(centers)


def test_photos_become_a_data_set(tmp_path: Path) -> None:
    centers = take_photos(tmp_path / "input")
    (tmp_path / "input" / "Thumbs.db").write_text("litter")
    words = ["--no_gpu", "--camera", "SIMPLE_PINHOLE", "--resize", "--magick_executable", "magick"]
    done = subprocess.run(
        [sys.executable, "convert.py", "-s", str(tmp_path), *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert f"{PHOTOS} of {PHOTOS} photos placed" in done.stdout
    assert "--magick_executable have no effect" in done.stdout
    scene = load_scene(DataSettings(str(tmp_path)))
    cameras = [view.camera for view in scene.views]
    assert [camera.name for camera in cameras] == [f"photo_{n}.png" for n in range(PHOTOS)]
    assert cameras[0].K[0, 0] == pytest.approx(FOCAL, rel=0.1)
    assert len(scene.points) > 50
    # The model has a frame and a scale of its own: ratios of distances remain.
    found = np.array([camera.center for camera in cameras])
    spread = distances(found) / distances(centers)
    assert spread.std() < 0.05 * spread.mean()
    for factor in (2, 4, 8):
        with Image.open(tmp_path / f"images_{factor}" / "photo_3.png") as image:
            assert image.size == (WIDTH // factor, HEIGHT // factor)
    small = load_scene(DataSettings(str(tmp_path), downscale=4))
    assert small.views[0].camera.width == WIDTH // 4


def distances(centers: np.ndarray) -> np.ndarray:
    first, second = np.triu_indices(len(centers), 1)
    apart: np.ndarray = np.linalg.norm(centers[first] - centers[second], axis=1)
    return apart


def test_a_given_model_is_straightened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, scene = tmp_path / "source", tmp_path / "scene"
    write_procedural_scene(source, ProceduralSettings(views=4, width=48, height=32, points=200))
    shutil.copytree(source / "images", scene / "input")
    shutil.copytree(source / "sparse", scene / "distorted" / "sparse")
    assert convert.main(["-s", str(scene), "--skip_matching"]) == 0
    before, after = (load_scene(DataSettings(str(path))) for path in (source, scene))
    for one, other in zip(before.views, after.views, strict=True):
        np.testing.assert_allclose(one.camera.K, other.camera.K)
        np.testing.assert_allclose(one.camera.world_to_camera, other.camera.world_to_camera)
    assert not [path for path in scene.iterdir() if path.name.startswith(".")]
    capsys.readouterr()
    assert convert.main(["-s", str(scene), "--skip_matching"]) == 2
    assert "already has images, sparse; move them away" in capsys.readouterr().err


def test_what_is_in_the_way_is_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert.main(["-s", str(tmp_path / "none")]) == 2
    assert "no such folder; -s names the one" in capsys.readouterr().err
    assert convert.main(["-s", str(tmp_path)]) == 2
    assert "put the photos there" in capsys.readouterr().err
    (tmp_path / "input").mkdir()
    (tmp_path / "input/a.jpg").write_text("no photo")
    assert convert.main(["-s", str(tmp_path), "--camera", "PINHOL", "--skip_matching"]) == 2
    error = capsys.readouterr().err
    assert "holds 1 photos; at least 3 are needed" in error
    assert "a.jpg cannot be decoded" in error
    assert "--camera PINHOL: no model of COLMAP; one of SIMPLE_PINHOLE" in error
    assert "--skip_matching takes the model in" in error


def test_photos_without_texture_leave_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "input").mkdir()
    for number in range(3):
        Image.new("RGB", (64, 48), (90, 90, 90)).save(tmp_path / f"input/{number}.png")
    assert convert.main(["-s", str(tmp_path), "--no_gpu"]) == 2
    assert "they need texture, overlap" in capsys.readouterr().err
    names = {path.name for path in tmp_path.rglob("*")}
    assert names == {"input", "0.png", "1.png", "2.png", "distorted", "database.db"}
