"""Scenes of unusual geometry, from reading to rendering: they train, stay finite, and say what is
unusual. Shared data sets are used where they are there; the others are made on the fly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

import render
import train
from grendel_odin.data.cameras import Camera
from grendel_odin.data.frame import moved
from grendel_odin.data.images import ImageStore
from grendel_odin.data.procedural import ProceduralSettings, write_procedural_scene
from grendel_odin.data.procedural_colmap import Observations, write_model
from grendel_odin.data.scene import load_scene
from grendel_odin.data.settings import DataSettings
from grendel_odin.model.ply_read import read_ply
from tests.cases import case
from tests.scenes import random_camera

ROOT = Path(__file__).resolve().parents[2]
QUICK = ("train.threads=1", "data.workers=1")


def run(scene: Path, output: Path, *overrides: str) -> dict[str, Any]:
    """Train; the summary."""
    words = [f"data.path={scene}", f"output={output}", *QUICK, *overrides]
    assert train.main(words) == 0
    summary: dict[str, Any] = json.loads((output / "summary.json").read_text())
    return summary


def log(output: Path) -> str:
    return (output / "logs/rank_0000.log").read_text()


def write_scene(path: Path, cameras: list[Camera], xyz: NDArray[np.float64], seed: int = 0) -> Path:
    """A COLMAP scene without tracks, with noise for photographs."""
    draw = np.random.default_rng(seed)
    model = path / "sparse/0"
    model.mkdir(parents=True)
    (path / "images").mkdir()
    none = np.zeros(0, np.int64)
    rgb = draw.integers(0, 256, (len(xyz), 3), dtype=np.uint8)
    write_model(model, cameras, xyz, rgb, Observations(none, none, np.zeros((0, 2))))
    for camera in cameras:
        pixels = draw.integers(0, 256, (camera.height, camera.width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path / "images" / camera.name)
    return path


def test_a_shifted_principal_point_costs_no_quality(tmp_path: Path) -> None:
    """All views train: the test views of the crops show what no training view of theirs does."""
    all_views = ("train.iterations=300", "data.test_every=0")
    plain = run(case("00-plain"), tmp_path / "plain", *all_views)
    crops = run(case("09-principal-point"), tmp_path / "crops", *all_views)
    assert crops["train_psnr"] > plain["train_psnr"] - 1
    assert plain["psnr"] is None and plain["num_test_views"] == 0
    assert "5 of 10 images are crops without their principal point" in log(tmp_path / "crops")


def test_survey_coordinates_cost_no_quality_and_export_their_offset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = run(case("00-plain"), tmp_path / "plain", "train.iterations=300")
    scene, output = case("16-geo-referenced"), tmp_path / "utm"
    survey = run(scene, output, "train.iterations=300")
    assert survey["psnr"] == pytest.approx(plain["psnr"], abs=0.1)

    offset = np.array([431236.0, 4582342.0, 314.0])
    told = json.loads((output / "dataparser_transforms.json").read_text())
    np.testing.assert_array_equal(np.array(told["transform"])[:, 3], -offset)
    assert not (tmp_path / "plain/dataparser_transforms.json").exists()
    ply = output / "point_cloud/iteration_300/point_cloud.ply"
    for file in (ply, output / "input.ply"):
        assert b"comment offset 431236 4582342 314\n" in file.read_bytes()[:2000]
    cameras = json.loads((output / "cameras.json").read_text())
    assert np.abs([camera["position"] for camera in cameras]).max() < 10
    world, local = read_ply(ply, np.zeros(3)), read_ply(ply)
    np.testing.assert_allclose(
        world.field("means").numpy(), local.field("means").numpy() + offset, atol=0.5
    )
    assert torch.equal(read_ply(ply, offset).values, local.values)

    assert render.main(["-m", str(output), "--skip_train", *QUICK]) == 0
    alone = ["--ply", str(ply), "-s", str(scene), "-o", str(tmp_path / "alone"), "--skip_train"]
    assert render.main([*alone, *QUICK]) == 0
    for folder in (output, tmp_path / "alone"):
        scores = json.loads((folder / "results.json").read_text())["ours_300"]
        assert scores["PSNR"] == pytest.approx(survey["psnr"], abs=0.01)


def test_a_model_in_the_input_frame_renders_in_a_scene_with_an_offset(tmp_path: Path) -> None:
    """A PLY with another offset, or none, is brought to the scene's frame."""
    cameras = [random_camera(32, 24, seed) for seed in range(4)]
    xyz = np.random.default_rng(0).normal(size=(50, 3))
    shift = np.array([1000.0, -2000.0, 500.0])
    near = write_scene(tmp_path / "near", cameras, xyz)
    far = write_scene(tmp_path / "far", [moved(each, -shift) for each in cameras], xyz + shift)
    run(near, tmp_path / "model", "train.iterations=4")
    ply = tmp_path / "model/point_cloud/iteration_4/point_cloud.ply"
    told = ply.read_bytes().replace(
        b"comment grendel", b"comment offset 1000 -2000 500\ncomment ", 1
    )
    shifted = tmp_path / "iteration_4/point_cloud.ply"
    shifted.parent.mkdir()
    shifted.write_bytes(told)
    scores = []
    for scene, model, out in ((near, ply, "a"), (far, shifted, "b")):
        words = ["--ply", str(model), "-s", str(scene), "-o", str(tmp_path / out)]
        assert render.main([*words, "--skip_train", *QUICK]) == 0
        scores.append(json.loads((tmp_path / out / "results.json").read_text())["ours_4"]["PSNR"])
    assert load_scene(DataSettings(str(far))).offset.any()
    assert scores[0] == pytest.approx(scores[1], abs=1e-2)


def test_without_points_training_starts_from_random_ones(tmp_path: Path) -> None:
    scene, few = case("13-empty-points"), ("train.iterations=400", "data.random_points=2000")
    done = run(scene, tmp_path / "a", *few)
    assert done["psnr"] > done["initial_psnr"] + 5
    assert "no points: training starts from 2,000 random ones" in log(tmp_path / "a")
    again = run(scene, tmp_path / "b", *few)
    other = run(scene, tmp_path / "c", *few, "seed=1")
    assert again["state_sha256"] == done["state_sha256"] != other["state_sha256"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("15-no-tracks", "the points have no tracks"),
        ("18-view-sees-nothing", "2 of 10 views see no point: view_02.jpg, view_07.jpg"),
        ("28-three-images", "2 training views, 1 test views"),
    ],
)
def test_cases_train_and_say_what_is_unusual(tmp_path: Path, name: str, said: str) -> None:
    done = run(case(name), tmp_path / "run", "train.iterations=60", "train.schedule_scale=0.02")
    assert said in log(tmp_path / "run")
    assert done["psnr"] > done["initial_psnr"] and done["num_primitives"] > 0


def test_a_batch_beyond_the_views_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"data.path={case('28-three-images')}", f"output={tmp_path / 'run'}"]
    assert train.main([*words, "train.batch_size=4"]) == 2
    assert "only 2 training views" in capsys.readouterr().err


@pytest.mark.parametrize("views", [1, 2, 3])
@pytest.mark.parametrize("points", [1, 2, 3])
def test_few_images_and_few_points(tmp_path: Path, views: int, points: int) -> None:
    cameras = [random_camera(32, 24, seed) for seed in range(views)]
    scene = write_scene(tmp_path / "scene", cameras, 0.2 * np.eye(3)[:points])
    done = run(scene, tmp_path / "run", "train.iterations=40", "train.schedule_scale=0.01")
    assert done["num_primitives"] >= 1 and np.isfinite(done["train_psnr"])
    assert f"only {points} points" in log(tmp_path / "run")


def test_a_scene_of_a_hundredth_of_a_unit_is_not_culled_by_the_near_plane(tmp_path: Path) -> None:
    cameras, xyz = [random_camera(48, 36, i) for i in range(5)], np.random.default_rng(0)
    cloud = xyz.normal(size=(300, 3))
    for size, name in ((1.0, "plain"), (1e-3, "tiny")):
        scaled = [moved(each, (1 - size) * each.center) for each in cameras]
        write_scene(tmp_path / name, scaled, size * cloud)
        run(tmp_path / name, tmp_path / f"run_{name}", "train.iterations=100")
    scores = [
        json.loads((tmp_path / f"run_{name}/summary.json").read_text())["train_psnr"]
        for name in ("plain", "tiny")
    ]
    assert scores[1] == pytest.approx(scores[0], abs=0.5)
    assert "near plane" in log(tmp_path / "run_tiny")
    assert "near plane" not in log(tmp_path / "run_plain")


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    views=st.integers(1, 5),
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    power=st.floats(-6, 6),
    shift=st.tuples(*3 * [st.floats(-1e7, 1e7)]),
    points=st.integers(0, 30),
    spread=st.sampled_from([0.0, 1e-6, 1.0, 1e3, 1e9]),
    broken=st.booleans(),
)
def test_any_geometry_trains_and_stays_finite(
    tmp_path_factory: pytest.TempPathFactory,
    views: int,
    sizes: tuple[int, int],
    power: float,
    shift: tuple[float, float, float],
    points: int,
    spread: float,
    broken: bool,
) -> None:
    size, origin = 10.0**power, np.array(shift)
    cameras = []
    for seed in range(views):
        camera = random_camera(*sizes, seed)
        camera = moved(camera, (1 - size) * camera.center)
        cameras.append(moved(camera, -origin))
    xyz = np.random.default_rng(points).normal(size=(points, 3)) * spread * size + origin
    if broken and points:
        xyz[0] = np.nan
    folder = tmp_path_factory.mktemp("any")
    scene = write_scene(folder / "scene", cameras, xyz)
    done = run(scene, folder / "run", "train.iterations=3", "data.random_points=100")
    assert done["status"] == "complete" and np.isfinite(done["train_psnr"])
    (ply,) = (folder / "run").glob("point_cloud/*/point_cloud.ply")
    assert len(read_ply(ply)) == done["num_primitives"] > 0


@pytest.mark.parametrize("downscale", [1, 2])
def test_points_project_onto_their_colours_in_loaded_images(tmp_path: Path, downscale: int) -> None:
    """Files, cameras and points belong together: never a silently wrong picture."""
    path = tmp_path / "scene"
    write_procedural_scene(path, ProceduralSettings(views=8, width=160, height=120, points=600))
    scene = load_scene(DataSettings(str(path), downscale=downscale))
    store = ImageStore(scene.views, (0.0, 0.0, 0.0), 10**9, 1)
    right, wrong = [], []
    for view in scene.views:
        error = colour_error(view.camera, store.get(view), scene, view.index)
        right.append(error)
        neighbour = scene.views[(view.index + 1) % len(scene.views)]
        wrong.append(colour_error(view.camera, store.get(neighbour), scene, view.index))
    store.close()
    assert max(right) < 20 < min(wrong)


def colour_error(camera: Camera, image: torch.Tensor, scene: Any, index: int) -> float:
    """Median difference, in levels, of the points that a view sees from its pixels there."""
    points = scene.points
    owner = np.repeat(np.arange(len(points)), np.diff(points.track_offsets))
    rows = owner[points.track_views == index]
    local = points.xyz[rows] @ camera.world_to_camera[:3, :3].T + camera.world_to_camera[:3, 3]
    xyw = local @ camera.K.T
    x, y = np.floor(xyw[:, :2] / xyw[:, 2:]).astype(int).T
    inside = (x >= 0) & (y >= 0) & (x < camera.width) & (y < camera.height)
    assert inside.mean() > 0.95
    pixels = image.numpy()[:, y[inside], x[inside]].T.astype(float)
    return float(np.median(np.abs(pixels - points.rgb[rows[inside]])))
