"""Cameras and points as people have them: stray, far away, few, none, not finite."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from grendel_odin.data.cameras import Camera
from grendel_odin.data.extent import scene_extent, seen, stray_cameras, view_depth
from grendel_odin.data.frame import Placed, find_offset, moved, place
from grendel_odin.data.random_start import random_start
from grendel_odin.data.tidy import camera_problems, select, tidy_points
from grendel_odin.data.views import Model, Points
from tests.scenes import random_camera

NONE = np.zeros((0, 3))
UTM = np.array([431_234.5, 4_582_345.25, 312.0])


def points_at(xyz: NDArray[np.float64], tracks: bool = False) -> Points:
    """Points; with tracks, the first camera sees all of them."""
    count = len(xyz)
    rgb = np.arange(3 * count, dtype=np.int64).reshape(-1, 3).astype(np.uint8)
    if not tracks:
        return Points(xyz, rgb, np.zeros(count + 1, np.int64), np.zeros(0, np.int32))
    return Points(xyz, rgb, np.arange(count + 1), np.zeros(count, np.int32))


def ring(count: int = 12) -> list[Camera]:
    """Cameras at distance 4 that look at the origin."""
    return [random_camera(80, 60, seed) for seed in range(count)]


def looking_down(centers: NDArray[np.float64]) -> list[Camera]:
    poses = np.tile(np.eye(4), (len(centers), 1, 1))
    poses[:, :3, 3] = -centers
    K = np.array([[50.0, 0, 25], [0, 50, 25], [0, 0, 1]])
    return [Camera(f"{i}.png", 50, 50, K, pose) for i, pose in enumerate(poses)]


def put(cameras: list[Camera], points: Points, count: int = 500) -> Placed:
    return place(Model(cameras, points), count, seed=0)


def cloud(count: int = 200, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=(count, 3))


def test_without_strays_the_extent_is_that_of_3dgs() -> None:
    cameras = ring()
    centers = np.array([camera.center for camera in cameras])
    plain = 1.1 * np.linalg.norm(centers - centers.mean(0), axis=1).max()
    assert scene_extent(cameras, points_at(cloud())) == pytest.approx(plain)


@pytest.mark.parametrize("strays", [1, 2])
def test_stray_cameras_do_not_set_the_extent(strays: int) -> None:
    cameras = ring(24)
    wild = [moved(camera, np.full(3, 5000.0 * (k + 1))) for k, camera in enumerate(cameras)]
    mixed = wild[:strays] + cameras[strays:]
    points = points_at(cloud())
    assert scene_extent(mixed, points) == pytest.approx(scene_extent(cameras[strays:], points))
    placed = put(mixed, points)
    assert not placed.offset.any()
    assert any(f"{strays} of 24 cameras stand far" in note for note in placed.model.notes)


def test_a_second_standpoint_is_no_stray() -> None:
    centers = np.zeros((10, 3))
    centers[9, 0] = 3.0
    centers[:9] += 1e-3 * cloud(9)
    assert not stray_cameras(centers, cloud() + np.array([0, 0, 4])).any()
    assert not stray_cameras(np.zeros((10, 3)), NONE).any()


def test_points_that_are_no_use_are_dropped_and_counted() -> None:
    xyz = np.concatenate(
        [cloud(50), [[np.nan, 0, 0], [0, np.inf, 0], [1e9, 0, 0], [900, 0, 0]], np.zeros((2, 3))]
    )
    points, notes = tidy_points(points_at(xyz, tracks=True), cloud(8))
    kept = [*range(50), 53, 54, 55]
    np.testing.assert_array_equal(points.xyz, xyz[kept])
    np.testing.assert_array_equal(points.rgb, points_at(xyz).rgb[kept])
    assert len(points.track_views) == points.track_offsets[-1] == len(kept)
    text = "\n".join(notes)
    for part in ("dropped 2 of 56 points: not", "1 of 54 points lie far", "dropped 1 of 54"):
        assert part in text
    assert "1 of 53 points repeat" in text


def test_select_keeps_tracks_with_their_points() -> None:
    empty, rgb = np.zeros((3, 3)), np.zeros((3, 3), np.uint8)
    points = Points(empty, rgb, np.array([0, 2, 2, 5]), np.array([4, 7, 1, 2, 3], np.int32))
    kept = select(points, np.array([True, False, True]))
    assert kept.track_offsets.tolist() == [0, 2, 5]
    assert kept.track_views.tolist() == [4, 7, 1, 2, 3]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"world_to_camera": np.full((4, 4), np.nan)}, "not finite"),
        ({"world_to_camera": np.diag([2.0, 2, 2, 1])}, "no rotation"),
        ({"world_to_camera": np.diag([1.0, 1, -1, 1])}, "no rotation"),
        ({"K": np.diag([-5.0, 5, 1])}, "unusable intrinsics"),
        ({"width": 0}, "unusable intrinsics"),
    ],
)
def test_unusable_cameras_are_refused_by_name(change: dict[str, object], reason: str) -> None:
    cameras = ring(3)
    cameras[1] = replace(cameras[1], name="b/c 1.jpg", **change)  # type: ignore[arg-type]
    (problem,) = camera_problems(cameras)
    assert "b/c 1.jpg" in problem and reason in problem
    assert put(cameras, points_at(NONE)).problems == [problem]


def test_far_coordinates_lose_a_round_offset_and_nothing_else() -> None:
    near = put(ring(), points_at(cloud()))
    far_cameras = [moved(camera, -UTM) for camera in ring()]
    far = put(far_cameras, points_at(cloud() + UTM))
    assert not near.offset.any() and far.offset.any()
    assert np.abs(far.offset - UTM).max() < 5 and (far.offset == np.round(far.offset)).all()
    shift = far.offset - UTM
    np.testing.assert_allclose(far.model.points.xyz, near.model.points.xyz - shift, atol=2e-9)
    for a, b in zip(near.model.cameras, far.model.cameras, strict=True):
        np.testing.assert_allclose(b.center, a.center - shift, atol=1e-8)
        np.testing.assert_array_equal(b.world_to_camera[:3, :3], a.world_to_camera[:3, :3])
    assert far.depth == pytest.approx(near.depth)
    assert any("431235" in note or "431234" in note for note in far.model.notes)


def test_the_offset_begins_at_64_scene_sizes() -> None:
    centers = np.array([[-1.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, -1, 0]])
    assert not find_offset(centers + np.array([60, 0, 0]), NONE).any()
    assert find_offset(centers + np.array([70, 0, 0]), NONE).tolist() == [70, 0, 0]
    small = find_offset(1e-3 * centers + np.array([0.7, 0, 0]), NONE)
    assert small == pytest.approx([0.7, 0, 0])


def test_random_points_lie_where_the_cameras_look() -> None:
    cameras = ring()
    points, note = random_start(cameras, 3000, seed=5)
    assert len(points) == 3000 and "3,000 random" in note and "seed 5" in note
    shares = [seen(camera, points.xyz)[0].mean() for camera in cameras]
    assert min(shares) > 0.3
    assert np.median(np.linalg.norm(points.xyz, axis=1)) < 4
    again, other = random_start(cameras, 3000, seed=5)[0], random_start(cameras, 3000, seed=6)[0]
    np.testing.assert_array_equal(again.xyz, points.xyz)
    assert (other.xyz != points.xyz).any()


@pytest.mark.parametrize("kind", ["parallel", "outward", "one", "one place"])
def test_every_view_sees_random_points(kind: str) -> None:
    if kind == "parallel":
        cameras = looking_down(10.0 * np.stack(np.mgrid[0:4, 0:4, 0:1], -1).reshape(-1, 3))
    elif kind == "one":
        cameras = looking_down(np.zeros((1, 3)))
    else:
        turned = [
            replace(camera, world_to_camera=np.diag([-1.0, 1, -1, 1]) @ camera.world_to_camera)
            for camera in ring()
        ]
        cameras = turned
        if kind == "one place":
            cameras = [moved(camera, camera.center) for camera in turned]
    points, _ = random_start(cameras, 2000, seed=0)
    assert np.isfinite(points.xyz).all()
    assert all(seen(camera, points.xyz)[0].sum() > 20 for camera in cameras)
    depth = view_depth(cameras, points.xyz)
    if kind == "parallel":  # 10 apart, a quarter of a picture that is as wide as it is far
        assert 20 < depth < 80


def test_notes_name_views_that_see_nothing_and_crops_without_a_principal_point() -> None:
    cameras = ring(4)
    away = np.diag([-1.0, 1, -1, 1]) @ cameras[2].world_to_camera
    cameras[2] = replace(cameras[2], world_to_camera=away)
    K = cameras[1].K.copy()
    K[0, 2] -= 90
    cameras[1] = replace(cameras[1], K=K)
    text = "\n".join(put(cameras, points_at(0.1 * cloud())).model.notes)
    assert "random_2.png" in text.split("see no point: ")[1].split("\n")[0]
    assert f"1 of 4 images are crops without their principal point: {cameras[1].name}" in text
    assert "no tracks" in text
    few = put(ring(3), points_at(np.zeros((1, 3)), tracks=True))
    assert any("only 1 points" in note for note in few.model.notes)
    assert not any("see no point" in note for note in few.model.notes)  # whatever the tracks say


scale = st.floats(-9, 9).map(lambda power: 10.0**power)


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 9),
    size=scale,
    shift=arrays(np.float64, 3, elements=st.floats(-1e7, 1e7)),
    xyz=arrays(np.float64, st.tuples(st.integers(0, 8), st.just(3)), elements=st.floats()),
)
def test_any_cameras_and_points_can_be_placed(
    count: int, size: float, shift: NDArray[np.float64], xyz: NDArray[np.float64]
) -> None:
    cameras = []
    for camera in ring(count):
        pose = camera.world_to_camera.copy()
        pose[:3, 3] *= size
        cameras.append(moved(replace(camera, world_to_camera=pose), -shift))
    placed = put(cameras, points_at(xyz), count=50)
    assert not placed.problems and len(placed.model.points) > 0
    assert np.isfinite(placed.model.points.xyz.astype(np.float32)).all()
    extent = scene_extent(placed.model.cameras, placed.model.points)
    assert np.isfinite(extent) and extent > 0 and np.isfinite(placed.depth)
