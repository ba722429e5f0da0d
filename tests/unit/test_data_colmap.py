from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pycolmap
import pytest
from data_helpers import TextScene
from hypothesis import given, settings
from hypothesis import strategies as st

from grendel_odin.data.colmap import Model, read_model


def _read(folder: Path) -> Model:
    model, problems = read_model(folder)
    assert problems == []
    assert model is not None
    return model


def _binary(text: Path, target: Path) -> Path:
    target.mkdir(parents=True)
    pycolmap.Reconstruction(str(text)).write_binary(str(target))
    return target


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TextScene().write(tmp_path_factory.mktemp("scene")) / "sparse/0"


@pytest.fixture(scope="module")
def binary_model(text_model: Path) -> Path:
    return _binary(text_model, text_model.parent / "binary")


def test_cameras_have_full_intrinsics_and_names_in_order(text_model: Path) -> None:
    cameras = _read(text_model).cameras
    assert [camera.name for camera in cameras] == [f"{i:02}.png" for i in range(6)]
    expected = [[20, 0, 8.5], [0, 21, 5.25], [0, 0, 1]]
    np.testing.assert_array_equal(cameras[0].K, expected)
    assert (cameras[0].width, cameras[0].height) == (16, 12)
    np.testing.assert_allclose(cameras[4].center, [4, 0, 0], atol=1e-12)


def test_simple_pinhole_has_one_focal_length(tmp_path: Path) -> None:
    scene = TextScene(cameras={1: "PINHOLE 16 12 20 21 8 6", 4: "SIMPLE_PINHOLE 30 40 33 14 21"})
    scene.images = {"a.png": 1, "cam/b.png": 4}
    scene.points = {1: ("0 0 1 1 1 1", "")}
    cameras = _read(scene.write(tmp_path) / "sparse/0").cameras
    np.testing.assert_array_equal(cameras[1].K, [[33, 0, 14], [0, 33, 21], [0, 0, 1]])
    assert cameras[1].height == 40


def test_points_come_in_id_order_with_tracks_of_view_indexes(text_model: Path) -> None:
    points = _read(text_model).points
    # Ids 3, 5, 9; image ids fall by 3 from 70, so 64 is view 2 and 55 is view 5.
    expected = [[1, 2, 3], [-1, 0.5, 2], [0, 0, 4.000000001]]
    np.testing.assert_array_equal(points.xyz, expected)
    np.testing.assert_array_equal(points.rgb, [[1, 2, 3], [9, 8, 7], [255, 0, 7]])
    assert points.track_offsets.tolist() == [0, 0, 1, 3]
    assert points.track_views.tolist() == [5, 0, 2]
    assert points.xyz.dtype == np.float64
    assert points.rgb.dtype == np.uint8
    assert points.track_offsets.dtype == np.int64
    assert points.track_views.dtype == np.int32


def test_binary_equals_text(text_model: Path, binary_model: Path) -> None:
    text, binary = _read(text_model), _read(binary_model)
    for a, b in zip(text.cameras, binary.cameras, strict=True):
        assert a.name == b.name
        np.testing.assert_array_equal(a.K, b.K)
        np.testing.assert_array_equal(a.world_to_camera, b.world_to_camera)
    for name in ("xyz", "rgb", "track_offsets", "track_views"):
        np.testing.assert_array_equal(getattr(text.points, name), getattr(binary.points, name))


@settings(max_examples=60, deadline=None)
@given(part=st.sampled_from(["cameras", "images", "points3D"]), share=st.floats(0, 0.9999))
def test_a_cut_file_is_named_wherever_it_is_cut(
    binary_model: Path, tmp_path_factory: pytest.TempPathFactory, part: str, share: float
) -> None:
    folder = tmp_path_factory.mktemp("cut") / "0"
    shutil.copytree(binary_model, folder)
    file = folder / f"{part}.bin"
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * len(whole))])
    model, problems = read_model(folder)
    assert model is None
    assert len(problems) == 1
    assert str(file) in problems[0]
    assert "is cut off" in problems[0]


def test_a_cut_file_is_told_with_record_and_offset(binary_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "0"
    shutil.copytree(binary_model, folder)
    cameras = (folder / "cameras.bin").read_bytes()
    (folder / "cameras.bin").write_bytes(cameras[:-1])
    (folder / "points3D.bin").write_bytes(b"")
    _, problems = read_model(folder)
    assert len(problems) == 2
    assert "record 1 of 1, which starts at offset 8" in problems[0]
    assert "0 bytes" in problems[1]


def test_an_unknown_camera_model_is_named(binary_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "0"
    shutil.copytree(binary_model, folder)
    data = bytearray((folder / "cameras.bin").read_bytes())
    data[12:16] = (99).to_bytes(4, "little")
    (folder / "cameras.bin").write_bytes(data)
    assert "unknown camera model 99 in record 1 of 1" in read_model(folder)[1][0]


@pytest.mark.parametrize(
    "camera",
    ["SIMPLE_RADIAL 16 12 20 8 6 0.1", "OPENCV_FISHEYE 16 12 20 20 8 6 0 0 0 0"],
)
def test_distorted_cameras_are_refused_with_remedy(tmp_path: Path, camera: str) -> None:
    scene = TextScene(cameras={1: "PINHOLE 16 12 20 21 8 6", 7: camera})
    scene.images["01.png"] = 7
    model, problems = read_model(scene.write(tmp_path) / "sparse/0")
    assert len(problems) == 1
    assert "camera 7 " in problems[0]
    assert camera.split()[0] in problems[0]
    assert "colmap image_undistorter" in problems[0]
    assert model is not None
    assert len(model.cameras) == 5


def test_empty_model_lists_all_that_it_lacks(tmp_path: Path) -> None:
    folder = TextScene(images={}, points={}).write(tmp_path) / "sparse/0"
    (folder / "images.txt").write_text("")
    _, problems = read_model(folder)
    assert any("no registered image" in problem for problem in problems)
    assert any("no points" in problem for problem in problems)


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("cameras", "1 PINHOLE 16 12 20 21 8\n"),
        ("cameras", "1 NO_SUCH_MODEL 16 12 20 21 8 6\n"),
        ("images", "1 1 0 0 0 0\n\n"),
        ("images", "1 1 0 0 0 0 0 0 5 a.png\n\n"),
        ("points3D", "1 0 0\n"),
        ("points3D", "1 0 0 1 1 1 1 0.5 12345 0\n"),
    ],
)
def test_broken_text_is_refused_not_raised(tmp_path: Path, part: str, text: str) -> None:
    folder = TextScene().write(tmp_path, files=False) / "sparse/0"
    (folder / f"{part}.txt").write_text(text)
    model, problems = read_model(folder)
    assert model is None
    assert str(folder) in problems[0]


def test_repeated_names_and_bad_focal_lengths_are_told(tmp_path: Path) -> None:
    scene = TextScene(cameras={1: "PINHOLE 16 12 0 21 8 6"})
    folder = scene.write(tmp_path) / "sparse/0"
    images = folder / "images.txt"
    images.write_text(images.read_text().replace("05.png", "04.png"))
    _, problems = read_model(folder)
    assert any("twice: 04.png" in problem for problem in problems)
    assert any("focal length" in problem and "00.png" in problem for problem in problems)
