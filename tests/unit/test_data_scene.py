from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from data_helpers import TextScene, noise, save
from hypothesis import given
from hypothesis import strategies as st

from grendel_odin.config import UserError
from grendel_odin.data.cameras import Camera
from grendel_odin.data.extent import scene_extent, split
from grendel_odin.data.scene import Points, load_scene
from grendel_odin.data.settings import DataSettings

REPOSITORY = Path(__file__).parents[2]


def _real(name: str) -> Path:
    default = REPOSITORY / "../shared/data"
    folder = Path(os.environ.get("GRENDEL_ODIN_DATA", default)) / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there; GRENDEL_ODIN_DATA names the folder of real scenes")
    return folder.resolve()


def _message(**keys: object) -> str:
    with pytest.raises(UserError) as caught:
        load_scene(DataSettings(**keys))  # type: ignore[arg-type]
    return str(caught.value)


@given(count=st.integers(0, 40), test_every=st.integers(0, 12).filter(lambda n: n != 1))
def test_split_takes_every_nth_from_the_first(count: int, test_every: int) -> None:
    views = list(range(count))
    train, test = split(views, test_every)
    assert sorted(train + test) == views
    assert test == (views[::test_every] if test_every and count != 1 else [])


def _cameras(centers: np.ndarray) -> list[Camera]:
    poses = [np.eye(4) for _ in centers]
    for pose, center in zip(poses, centers, strict=True):
        pose[:3, 3] = -center
    return [Camera("a", 1, 1, np.eye(3), pose) for pose in poses]


def _points(xyz: np.ndarray) -> Points:
    count = len(xyz)
    empty = np.zeros(0, np.int32)
    return Points(xyz, np.zeros((count, 3), np.uint8), np.zeros(count + 1, np.int64), empty)


def test_extent_is_from_the_mean_centre() -> None:
    cameras = _cameras(np.array([[0.0, 0, 0], [4, 0, 0], [2, 6, 0]]))
    assert scene_extent(cameras, _points(np.zeros((1, 3)))) == pytest.approx(1.1 * 4)


def test_extent_has_a_floor() -> None:
    one = _cameras(np.array([[7.0, 0, 0]]))
    assert scene_extent(one, _points(np.array([[7.0, 0, 20]]))) == pytest.approx(2.0)
    assert scene_extent(one, _points(np.zeros((0, 3)))) > 0
    assert scene_extent(one, _points(np.array([[7.0, 0, 0]]))) > 0


def test_scene_keeps_names_with_folders_and_order(tmp_path: Path) -> None:
    names = ["b/0.png", "a/0.png", "c.png", "a/1.png"]
    scene = load_scene(
        DataSettings(
            str(
                TextScene(images=dict.fromkeys(names, 1), points={1: ("0 0 1 1 1 1", "")}).write(
                    tmp_path
                )
            ),
            test_every=3,
        )
    )
    assert [view.camera.name for view in scene.views] == sorted(names)
    assert [view.index for view in scene.views] == [0, 1, 2, 3]
    assert [view.camera.name for view in scene.test] == ["a/0.png", "c.png"]
    assert scene.train[1].image_path == tmp_path / "images" / "b/0.png"
    assert scene.path == tmp_path


def test_the_first_views_of_either_split(tmp_path: Path) -> None:
    path = TextScene().write(tmp_path)
    scene = load_scene(DataSettings(str(path), test_every=3, train_views=2))
    names = [[view.camera.name for view in views] for views in (scene.train, scene.test)]
    assert names == [["01.png", "02.png"], ["00.png", "03.png"]]
    assert [view.index for view in scene.views] == [0, 1, 2, 3]
    assert "data.train_views=2: 2 of 4 views are left out" in scene.notes
    # Points 3, 5, 9 are seen by images 1.., of which 00, 01 and 02 are left.
    whole = load_scene(DataSettings(str(path), test_every=3))
    seen = [track[track < 4].tolist() for track in _tracks(whole.points)]
    assert [track.tolist() for track in _tracks(scene.points)] == seen
    one = load_scene(DataSettings(str(path), test_every=3, test_views=1))
    assert len(one.train) == 4 and [view.camera.name for view in one.test] == ["00.png"]


def _tracks(points: Points) -> list[np.ndarray]:
    return np.split(points.track_views, points.track_offsets[1:-1])


@pytest.mark.parametrize("folder", ["sparse/0", "sparse", "."])
def test_model_folders(tmp_path: Path, folder: str) -> None:
    scene = load_scene(DataSettings(str(TextScene().write(tmp_path / "s", folder))))
    assert len(scene.train) == 5
    assert len(scene.points) == 3


def test_downscale_resizes_at_decode_and_scales_each_axis(tmp_path: Path) -> None:
    cameras = {1: "PINHOLE 17 10 20 21 8.5 5"}
    view = load_scene(DataSettings(str(TextScene(cameras).write(tmp_path)), downscale=3)).train[0]
    assert (view.camera.width, view.camera.height) == (6, 3)
    assert view.file_size == (17, 10)
    expected = [[20 * 6 / 17, 0, 8.5 * 6 / 17], [0, 21 * 0.3, 5 * 0.3], [0, 0, 1]]
    np.testing.assert_allclose(view.camera.K, expected)


def test_downscale_takes_ready_images_at_their_true_size(tmp_path: Path) -> None:
    scene = TextScene({1: "PINHOLE 17 11 20 22 8.5 5.5"})
    scene.write(tmp_path)
    for i, name in enumerate(scene.images):
        save(tmp_path / "images_2" / name, noise(9 if i else 8, 5))
    shutil.rmtree(tmp_path / "images")
    views = load_scene(DataSettings(str(tmp_path), downscale=2)).views
    assert [view.camera.width for view in views] == [8, 9, 9, 9, 9, 9]
    assert views[1].image_path == tmp_path / "images_2" / "01.png"
    assert views[1].camera.K[0, 0] == pytest.approx(20 * 9 / 17)
    assert views[1].camera.K[1, 1] == pytest.approx(10)


def test_ready_images_of_another_shape_are_refused(tmp_path: Path) -> None:
    scene = TextScene()
    scene.write(tmp_path)
    for name in scene.images:
        save(tmp_path / "images_2" / name, noise(6, 8))
    message = _message(path=str(tmp_path), downscale=2)
    assert "images_2/00.png is 6x8" in message
    assert "16x12" in message


def test_nothing_is_written_beside_the_data(tmp_path: Path) -> None:
    TextScene().write(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    load_scene(DataSettings(str(tmp_path), downscale=2))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_all_problems_come_in_one_message(tmp_path: Path) -> None:
    scene = TextScene(cameras={1: "PINHOLE 16 12 20 21 8 6", 2: "SIMPLE_RADIAL 16 12 20 8 6 0"})
    scene.images["03.png"] = 2
    scene.points = {}
    scene.write(tmp_path)
    (tmp_path / "images/01.png").unlink()
    (tmp_path / "images/02.png").write_bytes(b"no picture")
    save(tmp_path / "images/04.png", noise(5, 9))
    message = _message(path=str(tmp_path))
    for part in ("01.png", "02.png cannot be decoded", "is 5x9"):
        assert part in message


@pytest.mark.parametrize("count", [1, 2])
def test_the_training_set_is_never_empty(tmp_path: Path, count: int) -> None:
    scene = TextScene(images={f"{i}.png": 1 for i in range(count)}, points={1: ("0 0 1 1 1 1", "")})
    scene.write(tmp_path)
    scene = load_scene(DataSettings(str(tmp_path)))
    assert len(scene.train) == 1 and len(scene.test) == count - 1
    assert any("one image only" in note for note in scene.notes) == (count == 1)
    assert len(load_scene(DataSettings(str(tmp_path), test_every=0)).train) == count
    assert DataSettings(test_every=1).problems()


def test_paths_that_are_not_scenes(tmp_path: Path) -> None:
    assert "data.path is not set" in _message()
    (tmp_path / "garden").mkdir()
    assert f"did you mean {tmp_path / 'garden'}" in _message(path=str(tmp_path / "gardn"))
    assert "no COLMAP model" in _message(path=str(tmp_path / "garden"))
    (tmp_path / "garden/transforms.json").write_text("{}")
    assert "transforms.json" in _message(path=str(tmp_path / "garden"))
    (tmp_path / "file").write_text("")
    assert "is not a folder" in _message(path=str(tmp_path / "file"))


def test_incomplete_models_and_image_folders(tmp_path: Path) -> None:
    TextScene().write(tmp_path)
    (tmp_path / "sparse/0/points3D.txt").unlink()
    (tmp_path / "images").rename(tmp_path / "image")
    message = _message(path=str(tmp_path))
    assert "lacks points3D.txt" in message
    assert "data.images=image" in message


def test_real_scene_loads_whole_and_soon() -> None:
    folder = _real("caliterra_w400")
    code = (
        "import sys, torch\n"
        "from grendel_odin.data.scene import load_scene\n"
        "from grendel_odin.data.settings import DataSettings\n"
        "s = load_scene(DataSettings(sys.argv[1]))\n"
        "print(len(s.train), len(s.test), len(s.points), len(s.points.track_views))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    train, test, points, seen = map(int, done.stdout.split())
    assert (train, test, points) == (65, 10, 24506)
    assert seen / points > 7
