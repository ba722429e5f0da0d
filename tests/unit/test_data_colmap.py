from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pycolmap
import pytest
from data_helpers import PINHOLE, TextScene
from hypothesis import given, settings
from hypothesis import strategies as st

from grendel_odin.data.colmap import Model, read_colmap


def _read(folder: Path) -> Model:
    model, problems = read_colmap(folder)
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
    model, problems = read_colmap(folder)
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
    _, problems = read_colmap(folder)
    assert len(problems) == 2
    assert "record 1 of 1, which starts at offset 8" in problems[0]
    assert "0 bytes" in problems[1]


def test_an_unknown_camera_model_is_named(binary_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "0"
    shutil.copytree(binary_model, folder)
    data = bytearray((folder / "cameras.bin").read_bytes())
    data[12:16] = (99).to_bytes(4, "little")
    (folder / "cameras.bin").write_bytes(data)
    assert "unknown camera model 99 of camera 1 in record 1 of 1" in read_colmap(folder)[1][0]


def test_an_empty_model_is_refused_but_one_without_points_is_not(tmp_path: Path) -> None:
    folder = TextScene(images={}, points={}).write(tmp_path / "a") / "sparse/0"
    (folder / "images.txt").write_text("")
    _, problems = read_colmap(folder)
    assert any("no registered image" in problem for problem in problems)
    model = _read(TextScene(points={}).write(tmp_path / "b") / "sparse/0")
    assert len(model.points) == 0
    assert model.points.track_offsets.tolist() == [0]


@pytest.mark.parametrize(
    ("part", "text", "line"),
    [
        ("cameras", "# a\n1 PINHOLE 16 12 20 x 8 6\n", 2),
        ("cameras", "1 PINHOLE 16.5 12 20 20 8 6\n", 1),
        ("images", "1 1 0 0 0 0\n\n", 1),
        ("images", "1 1 0 0 0 0 0 0 1\n\n", 1),
        ("images", "1 1 0 0 0 0 0 0 1 a.png\n1 2 3 4\n", 2),
        ("images", "-1 1 0 0 0 0 0 0 1 a.png\n\n", 1),
        ("points3D", "1 0 0\n", 1),
        ("points3D", "#\n#\n1 0 0 1 1 1 1 0.5\n2 0 0 1 1 1 256 0.5\n", 4),
        ("points3D", "1 0 0 1 1 1 1 0.5 5\n", 1),
        ("points3D", "1 0 0 1 1 1 1 0.5 five 0\n", 1),
        ("points3D", "1 0 0 1 1 1 1 0.5 5 0\n" * 40 + "2 0 0 1 1 1\n", 41),
    ],
)
def test_broken_text_is_refused_by_file_and_line(
    tmp_path: Path, part: str, text: str, line: int
) -> None:
    folder = TextScene().write(tmp_path, files=False) / "sparse/0"
    (folder / f"{part}.txt").write_text(text)
    model, problems = read_colmap(folder)
    assert model is None
    assert f"{folder / part}.txt, line {line}: expected" in problems[0]


def test_parameters_and_cameras_that_lack_are_told(tmp_path: Path) -> None:
    folder = TextScene(cameras={1: "PINHOLE 16 12 20 21 8"}).write(tmp_path, files=False)
    assert "needs 4 parameters, 3 were found" in read_colmap(folder)[1][0]
    (folder / "sparse/0/cameras.txt").write_text("2 PINHOLE 16 12 20 21 8 6\n")
    (problem,) = read_colmap(folder)[1]
    assert "no camera 1" in problem and "00.png" in problem


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_text_as_windows_programs_write_it(tmp_path: Path, ends: str, start: bytes) -> None:
    scene = TextScene(images={"a/IMG 1 (2).png": 1, "b\\ä ö.png": 1, "plain.png": 1})
    scene.points = {5: ("1.5e-002 -2E+003 4e000 1 2 3", "70 0 64 0 67 3 1 1")}
    folder = scene.write(tmp_path, files=False) / "sparse/0"
    for file in folder.iterdir():
        lines = file.read_text().split("\n")
        file.write_bytes(start + ends.join(["# comment", *lines]).encode())
    model = _read(folder)
    assert [camera.name for camera in model.cameras] == [
        "a/IMG 1 (2).png",
        "b/ä ö.png",
        "plain.png",
    ]
    np.testing.assert_array_equal(model.points.xyz, [[0.015, -2000, 4]])
    assert model.points.track_views.tolist() == [0, 1, 2]


@pytest.mark.parametrize("second", ["\n", "1 2 -1 3 4 17\n", ""])
def test_the_second_line_of_an_image_may_be_blank_or_not_there(tmp_path: Path, second: str) -> None:
    folder = TextScene().write(tmp_path, files=False) / "sparse/0"
    lines = [f"{i} 1 0 0 0 0 0 0 1 {i} {i} 3.png\n{second}" for i in (1, 2, 3)]
    (folder / "images.txt").write_text("".join(lines))
    assert [camera.name for camera in _read(folder).cameras] == [
        f"{i} {i} 3.png" for i in (1, 2, 3)
    ]


def test_ids_are_keys_and_no_positions(tmp_path: Path) -> None:
    scene = TextScene(cameras={5: PINHOLE, 4294967294: "PINHOLE 30 40 33 34 14 21"})
    scene.images = {"b.png": 5, "a.png": 4294967294}
    scene.points = {
        (1 << 63) + 5: ("0 0 1 1 1 1", "4294967294 0"),
        7: ("0 0 2 1 1 1", "3 0 4294967294 1"),
    }
    folder = scene.write(tmp_path, files=False) / "sparse/0"
    text = (folder / "images.txt").read_text()
    text = text.replace("70 1 0", "4294967294 1 0").replace("67 1 0", "3 1 0")
    (folder / "images.txt").write_text(text)
    model = _read(folder)
    assert [camera.width for camera in model.cameras] == [30, 16]
    assert model.points.xyz[:, 2].tolist() == [2, 1]
    assert model.points.track_views.tolist() == [0, 1, 1]


def test_ids_that_occur_twice_are_refused(tmp_path: Path) -> None:
    folder = TextScene().write(tmp_path, files=False) / "sparse/0"
    images = (folder / "images.txt").read_text()
    (folder / "images.txt").write_text(images.replace("67 1 0", "70 1 0"))
    assert "images.txt holds the id 70 more than once" in read_colmap(folder)[1][0]


def test_bytes_after_the_last_record_are_told(binary_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "0"
    shutil.copytree(binary_model, folder)
    with (folder / "points3D.bin").open("ab") as file:
        file.write(b"1234567")
    (problem,) = read_colmap(folder)[1]
    assert "points3D.bin has 7 bytes left after its 3 records" in problem


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("/etc/passwd", "absolute"),
        ("C:\\photos\\a.jpg", "absolute"),
        ("\\\\host\\a.jpg", "absolute"),
        ("a/../../b.jpg", "leads out"),
        ("..", "leads out"),
        ("a\x1b[2Jb.jpg", "control"),
        ("x" * 256, "longer"),
    ],
)
def test_hostile_names_are_refused(tmp_path: Path, name: str, fault: str) -> None:
    folder = TextScene().write(tmp_path, files=False) / "sparse/0"
    file = folder / "images.txt"
    file.write_text(file.read_text().replace("03.png", name), encoding="utf-8")
    model, (problem,) = read_colmap(folder)
    assert model is not None and len(model.cameras) == 5
    assert fault in problem
    assert problem.isprintable()


def test_poses_of_images_count_whatever_rigs_say(binary_model: Path, tmp_path: Path) -> None:
    """pycolmap writes rigs.bin and frames.bin, too."""
    assert (binary_model / "rigs.bin").is_file()
    for name in ("rigs.bin", "frames.bin"):
        shutil.copytree(binary_model, tmp_path, dirs_exist_ok=True)
        (tmp_path / name).write_bytes(b"garbage")
    np.testing.assert_allclose(_read(tmp_path).cameras[4].center, [4, 0, 0], atol=1e-12)


def test_repeated_names_and_bad_focal_lengths_are_told(tmp_path: Path) -> None:
    scene = TextScene(cameras={1: "PINHOLE 16 12 0 21 8 6"})
    folder = scene.write(tmp_path) / "sparse/0"
    images = folder / "images.txt"
    images.write_text(images.read_text().replace("05.png", "04.png"))
    _, problems = read_colmap(folder)
    assert any("twice: 04.png" in problem for problem in problems)
    assert any("camera 1 of " in problem and "focal length" in problem for problem in problems)
