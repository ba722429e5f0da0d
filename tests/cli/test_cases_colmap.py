"""Shared data sets about COLMAP models: read as expected, and trained on as a user would."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates

import train as entry_point
from grendel_odin.data.images import ImageStore
from grendel_odin.data.scene import Scene, load_scene
from grendel_odin.data.settings import DataSettings
from tests.cases import case
from tests.launch import call

CONTROL = "00-plain"
WHOLE = (
    CONTROL,
    "01-subfolders",
    "03-text-crlf-exponents",
    "05-mixed-resolutions",
    "06-simple-radial",
    "07-radial-all-zero",
    "08-fisheye",
    "09-principal-point",
    "19-ids-and-order",
    "21-odd-size-pyramid",
    "23-sparse-without-0",
    "24-rigs-and-frames",
)
"""Sets of which every image is used."""


def load(name: str, **more: Any) -> Scene:
    return load_scene(DataSettings(path=str(case(name)), **more))


def train(name: str, output: Path, *more: str) -> subprocess.CompletedProcess[str]:
    small = ["train.iterations=2", "train.threads=1", f"output={output}", *more]
    return call(entry_point.main, f"data.path={case(name)}", *small)


@pytest.mark.parametrize("name", WHOLE)
def test_all_images_are_found_and_decoded(name: str) -> None:
    scene = load(name)
    expected = json.loads(Path(case(name), "CASE.json").read_text())["expect"]
    assert len(scene.views) == expected["images"]
    assert len(scene.points) > 100
    sizes = {(view.camera.width, view.camera.height) for view in scene.views}
    assert all(list(size) in expected.get("sizes", [list(size)]) for size in sizes)
    names = [view.camera.name for view in scene.test]
    assert names == expected.get("test_names_every_8", names)
    store = ImageStore(scene.views, (0, 0, 0), 10**8, 1)
    for view in scene.views:
        assert tuple(store.get(view).shape) == (3, view.camera.height, view.camera.width)
    store.close()


def test_folders_are_part_of_the_name() -> None:
    scene = load("01-subfolders")
    names = {view.camera.name for view in scene.views}
    assert {"cam_a/0000.jpg", "cam_b/0000.jpg"} <= names
    for view in scene.views:
        assert view.image_path.as_posix().endswith(f"images/{view.camera.name}")


@pytest.mark.parametrize(
    ("name", "most"),
    [("07-radial-all-zero", 4.0), ("06-simple-radial", 4.0), ("09-principal-point", 4.0)],
)
def test_pictures_agree_with_the_control(name: str, most: float) -> None:
    """Same poses as the control: through K, each of its pixels is found again."""
    control, scene = load(CONTROL), load(name)
    misses = [_compared(a, b) for a, b in zip(_pictures(control), _pictures(scene), strict=True)]
    assert float(np.concatenate(misses).mean()) < most


@pytest.mark.parametrize("name", [CONTROL, "06-simple-radial", "08-fisheye", "24-rigs-and-frames"])
def test_points_have_the_colours_of_their_pixels(name: str) -> None:
    scene = load(name)
    misses = []
    for view, (K, image) in zip(scene.views, _pictures(scene), strict=True):
        seen = np.unique(_points_of(scene, view.index))
        pose = view.camera.world_to_camera
        local = scene.points.xyz[seen] @ pose[:3, :3].T + pose[:3, 3]
        pixels = (local / local[:, 2:]) @ K.T
        place = pixels[:, 1::-1].T - 0.5
        inside = np.all((pixels[:, :2] > 1) & (pixels[:, :2] < image.shape[1::-1]), axis=1)
        misses.append(np.abs(_sampled(image, place) - scene.points.rgb[seen])[inside])
    assert float(np.median(np.concatenate(misses))) < 12


def test_the_larger_model_is_taken_and_the_other_named() -> None:
    scene = load("22-two-models")
    assert len(scene.views) == 8
    said = "\n".join(scene.notes)
    assert "sparse/0 has 2" in said
    assert "8 of 10 photos" in said
    other = load("22-two-models", model="sparse/0")
    assert len(other.views) == 2
    assert "sparse/1 has 8" in "\n".join(other.notes)
    assert "2 of 10 photos" in "\n".join(other.notes)


def test_a_fisheye_is_named(tmp_path: Path) -> None:
    assert any("OPENCV_FISHEYE" in note for note in load("08-fisheye").notes)


@pytest.mark.parametrize("factor", [2, 4])
def test_pyramids_with_odd_sizes_scale_by_their_true_size(factor: int) -> None:
    whole = load("21-odd-size-pyramid")
    reduced = load("21-odd-size-pyramid", downscale=factor)
    for full, view in zip(whole.views, reduced.views, strict=True):
        assert f"images_{factor}" in str(view.image_path)
        ratio = view.camera.width / full.camera.width, view.camera.height / full.camera.height
        np.testing.assert_allclose(view.camera.K[0], full.camera.K[0] * ratio[0])
        np.testing.assert_allclose(view.camera.K[1], full.camera.K[1] * ratio[1])


def test_a_cut_model_is_refused_soon_by_file_record_and_offset(tmp_path: Path) -> None:
    before = time.monotonic()
    done = train("29-truncated-model", tmp_path / "run")
    assert time.monotonic() - before < 20  # under 5 s on a quiet machine
    assert done.returncode == 2
    assert "images.bin is cut off in record 6 of 10, which starts at offset" in done.stderr
    assert "points3D.bin is cut off" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["06-simple-radial", "08-fisheye", "22-two-models"])
def test_a_user_can_train_on_it(name: str, tmp_path: Path) -> None:
    done = train(name, tmp_path / "run")
    assert done.returncode == 0, done.stderr


def _pictures(scene: Scene) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """K and [H, W, 3] of each view."""
    store = ImageStore(scene.views, (0, 0, 0), 10**8, 1)
    images = [store.get(view).numpy().transpose(1, 2, 0).astype(float) for view in scene.views]
    store.close()
    return [(view.camera.K, image) for view, image in zip(scene.views, images, strict=True)]


def _sampled(image: NDArray[np.float64], place: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n, 3] between the pixels of an image; place [2, n] holds rows and columns."""
    planes = [map_coordinates(image[..., c], place, order=1, mode="nearest") for c in range(3)]
    return np.stack(planes, axis=1)


def _compared(
    control: tuple[NDArray[np.float64], NDArray[np.float64]],
    other: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> NDArray[np.float64]:
    """Differences at the control's pixels that the other picture shows, too."""
    (K, image), (other_K, other_image) = control, other
    row, column = np.mgrid[0 : image.shape[0], 0 : image.shape[1]].reshape(2, -1)
    pixels = np.stack([column + 0.5, row + 0.5, np.ones(row.size)])
    place = (other_K @ np.linalg.inv(K) @ pixels)[1::-1] - 0.5
    height, width = other_image.shape[:2]
    inside = np.all((place > 0) & (place < np.array([[height - 1], [width - 1]])), axis=0)
    assert inside.mean() > 0.2
    expected = image[row[inside], column[inside]]
    return np.abs(_sampled(other_image, place[:, inside]) - expected).ravel()


def _points_of(scene: Scene, view: int) -> NDArray[np.int64]:
    points = scene.points
    lengths = np.diff(points.track_offsets)
    return np.repeat(np.arange(len(points)), lengths)[points.track_views == view]
