"""Straightened images show what a pinhole camera would have seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from data_helpers import TextScene, save
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates
from torch import Tensor

from grendel_odin.config import UserError
from grendel_odin.data.cameras import Camera
from grendel_odin.data.images import ImageStore
from grendel_odin.data.lens import LensError, LensModel
from grendel_odin.data.scene import Scene, load_scene
from grendel_odin.data.settings import DataSettings
from grendel_odin.data.undistort import ColmapLens, straighten

WIDTH, HEIGHT = 96, 72
DEPTH = 4.0
RADIAL = (80.0, 47.0, 37.0)
BOTH = (80.0, 82.0, 47.0, 37.0)
WIDE = (44.0, 45.0, 47.0, 37.0)
LENSES = {
    "PINHOLE": BOTH,
    "SIMPLE_PINHOLE": RADIAL,
    "SIMPLE_RADIAL": (*RADIAL, -0.15),
    "RADIAL": (*RADIAL, 0.12, -0.05),
    "OPENCV": (*BOTH, -0.1, 0.03, 0.004, -0.006),
    "FULL_OPENCV": (*BOTH, 0.1, 0.02, 0.003, 0.002, 0.01, 0.05, 0.01, 0.0),
    "OPENCV_FISHEYE": (*WIDE, 0.02, -0.004, 0.001, 0.0),
    "SIMPLE_RADIAL_FISHEYE": (44.0, 47.0, 37.0, 0.02),
    "RADIAL_FISHEYE": (44.0, 47.0, 37.0, 0.02, -0.01),
    "THIN_PRISM_FISHEYE": (*WIDE, 0.02, 0.0, 0.001, 0.002, 0.0, 0.0, 0.001, 0.001),
    "FOV": (*BOTH, 0.8),
}


def _color(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """[..., 3] smooth colours of the plane z = DEPTH, in [0, 255]."""
    waves = [np.sin(1.3 * x + 0.4), np.cos(1.1 * y - 0.7 * x), np.sin(0.9 * x + 1.2 * y)]
    return 127.5 + 120 * np.stack(waves, axis=-1)


def _photo(lens: LensModel, shift: float, width: int, height: int) -> NDArray[np.uint8]:
    """What a camera at x = shift sees of the plane, ray by ray, at any size."""
    x, y = np.meshgrid(
        (np.arange(width) + 0.5) * lens.width / width,
        (np.arange(height) + 0.5) * lens.height / height,
    )
    rays = DEPTH * lens.unproject(np.column_stack([x.ravel(), y.ravel()]))
    colors = np.nan_to_num(_color(rays[:, 0] + shift, rays[:, 1]))
    return np.rint(colors).astype(np.uint8).reshape(height, width, 3)


def _scene(root: Path, lens: LensModel, size: tuple[int, int] = (WIDTH, HEIGHT)) -> Path:
    text = f"{lens.model} {lens.width} {lens.height} {' '.join(map(repr, lens.params))}"
    scene = TextScene({1: text}, points={})
    rng = np.random.default_rng(1)
    for i, (x, y) in enumerate(rng.uniform((-2, -1.2), (5, 1.2), (200, 2)).tolist()):
        rgb = np.rint(_color(x, y)).astype(int)
        scene.points[i + 1] = (f"{x!r} {y!r} {DEPTH} {rgb[0]} {rgb[1]} {rgb[2]}", "")
    scene.write(root, files=False)
    for i, name in enumerate(scene.images):
        save(root / "images" / name, _photo(lens, i, *size))
    return root


def _sampled(plane: Tensor, place: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n] values between the pixels of a plane [H, W]; place [2, n] holds rows and columns."""
    values: NDArray[np.float64] = map_coordinates(plane.numpy().astype(float), place, order=1)
    return values


def _misses(scene: Scene) -> NDArray[np.float64]:
    """[n] differences between the colour of a point and that of the image where it lands."""
    store = ImageStore(scene.views, (0, 0, 0), 10**8, 1)
    misses = []
    for view in scene.views:
        camera, (image, mask) = view.camera, store.with_mask(view)
        local = scene.points.xyz @ camera.world_to_camera[:3, :3].T + camera.world_to_camera[:3, 3]
        pixels = ((local / local[:, 2:]) @ camera.K.T)[:, :2]
        inside = np.all((pixels > 1) & (pixels < (camera.width - 1, camera.height - 1)), axis=1)
        place = (pixels[inside] - 0.5).T[::-1]
        found = np.stack([_sampled(plane, place) for plane in image], axis=1)
        used = np.ones(len(found), bool) if mask is None else _sampled(mask, place) > 254.9
        miss = np.abs(found[used] - scene.points.rgb[inside][used].astype(float))
        misses.append(miss.max(axis=1, initial=0))
    store.close()
    return np.concatenate(misses)


@pytest.mark.parametrize("model", LENSES)
def test_points_have_the_colours_of_the_pixels_they_project_to(tmp_path: Path, model: str) -> None:
    lens = LensModel(model, WIDTH, HEIGHT, LENSES[model])
    misses = _misses(load_scene(DataSettings(str(_scene(tmp_path, lens)))))
    assert len(misses) > 100
    assert misses.max() < 8


@pytest.mark.parametrize(("size", "downscale"), [((192, 144), 1), ((192, 144), 2), ((48, 36), 1)])
def test_photographs_resized_after_the_reconstruction(
    tmp_path: Path, size: tuple[int, int], downscale: int
) -> None:
    lens = LensModel("OPENCV", WIDTH, HEIGHT, LENSES["OPENCV"])
    scene = load_scene(DataSettings(str(_scene(tmp_path, lens, size)), downscale=downscale))
    misses = _misses(scene)
    assert len(misses) > 100
    assert misses.max() < 12
    width = scene.views[0].camera.width
    assert width == pytest.approx(size[0] / downscale, rel=0.2)


@pytest.mark.parametrize(
    ("model", "params"),
    [
        ("SIMPLE_RADIAL", (*RADIAL, 0.0)),
        ("OPENCV", (*BOTH, 0.0, 0.0, 0.0, 0.0)),
        ("FULL_OPENCV", (*BOTH, *[0.0] * 8)),
        ("FOV", (*BOTH, 0.0)),
        ("RADIAL", (*RADIAL, 1e-9, 0.0)),
    ],
)
def test_no_distortion_is_a_pinhole(model: str, params: tuple[float, ...]) -> None:
    lens = LensModel(model, WIDTH, HEIGHT, params)
    assert straighten(lens) is None
    camera = Camera("a", WIDTH, HEIGHT, np.eye(3), np.eye(4))
    assert ColmapLens(lens).undistorted(camera) == (camera, None)


@pytest.mark.parametrize("model", ["OPENCV_FISHEYE", "SIMPLE_FISHEYE"])
def test_a_fisheye_without_distortion_is_no_pinhole(model: str) -> None:
    params = (*WIDE, 0.0, 0.0, 0.0, 0.0) if model == "OPENCV_FISHEYE" else (44.0, 47.0, 37.0)
    assert straighten(LensModel(model, WIDTH, HEIGHT, params)) is not None


def test_a_lens_that_folds_masks_what_it_does_not_show(tmp_path: Path) -> None:
    """With k = -0.6 rays beyond the edge come back into the photograph."""
    lens = LensModel("SIMPLE_RADIAL", WIDTH, HEIGHT, (*RADIAL, -0.6))
    scene = load_scene(DataSettings(str(_scene(tmp_path, lens))))
    warp = scene.views[0].warp
    assert warp is not None
    valid = warp.valid()
    assert valid is not None
    assert 0.5 < valid.mean() < 1
    misses = _misses(scene)
    assert len(misses) > 100
    assert np.quantile(misses, 0.99) < 8  # blurred near the fold
    assert misses.max() < 40


@pytest.mark.parametrize(
    ("model", "params", "said"),
    [
        ("EQUIRECTANGULAR", (96.0, 72.0), "panorama"),
        ("OPENCV", (80.0, 80.0, 48.0, 36.0), "needs 8 parameters, 4 were found"),
        ("SIMPLE_RADIAL", (80.0, 48.0, 36.0, float("nan")), "unusable numbers"),
        ("SIMPLE_RADIAL", (-80.0, 48.0, 36.0, 0.1), "focal length"),
        ("SIMPLE_RADIAL", (0.01, 48.0, 36.0, -0.1), "bends the picture so far"),
        ("GOPRO", (1.0,), "unknown model GOPRO"),
    ],
)
def test_what_cannot_be_straightened_is_refused_by_model_id_and_remedy(
    tmp_path: Path, model: str, params: tuple[float, ...], said: str
) -> None:
    with pytest.raises(LensError, match=said):
        straighten(LensModel(model, WIDTH, HEIGHT, params))
    text = f"{model} {WIDTH} {HEIGHT} {' '.join(map(repr, params))}"
    scene = TextScene({1: f"PINHOLE {WIDTH} {HEIGHT} 80 80 48 36", 7: text})
    scene.images["01.png"] = 7
    with pytest.raises(UserError) as caught:
        load_scene(DataSettings(str(scene.write(tmp_path))))
    assert "camera 7 of " in str(caught.value)
    assert said in str(caught.value)
    assert model in str(caught.value)


@settings(max_examples=60, deadline=None)
@given(
    model=st.sampled_from(sorted(LENSES)),
    size=st.tuples(st.integers(8, 120), st.integers(8, 120)),
    focal=st.floats(0.3, 3),
    center=st.tuples(st.floats(-0.2, 1.2), st.floats(-0.2, 1.2)),
    bend=st.lists(st.floats(-0.3, 0.3), min_size=8, max_size=8),
)
def test_any_lens_gives_a_sound_picture_or_a_refusal(
    model: str,
    size: tuple[int, int],
    focal: float,
    center: tuple[float, float],
    bend: list[float],
) -> None:
    count = len(LENSES[model])
    single = LENSES[model][:3] in (RADIAL, (44.0, 47.0, 37.0))
    head = [focal * size[0]] * (1 if single else 2) + [center[i] * size[i] for i in (0, 1)]
    lens = LensModel(model, *size, tuple([*head, *bend][:count]))
    try:
        warp = straighten(lens)
    except LensError:
        return
    if warp is None:
        return
    image = warp.image(np.full((size[1], size[0], 3), 77, np.uint8))
    assert image.shape == (warp.height, warp.width, 3)
    assert (image == 77).all()
    valid = warp.valid()
    assert valid is None or valid.shape == image.shape[:2]
    # The way there and back again, for pixels that are said to be covered.
    row, column = np.nonzero(np.ones(image.shape[:2]) if valid is None else valid)
    pixels = np.column_stack([column, row])[::17] + 0.5
    rays = (pixels - (warp.cx, warp.cy)) / (warp.fx, warp.fy)
    back = lens.unproject(lens.project(rays))
    np.testing.assert_allclose(back, rays, atol=2e-3)
