"""Cameras take the true sizes of their files; what cannot be right is refused by name."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from data_helpers import noise, save
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from test_data_pixels import RGB, write_png16

from grendel_odin.data.cameras import Camera
from grendel_odin.data.decode import decode
from grendel_odin.data.headers import same_shape
from grendel_odin.data.sizes import Fitted, fit_views


def camera(width: int, height: int, name: str = "a.png") -> Camera:
    K = np.array([[0.9 * width, 0, 0.45 * width], [0, 0.95 * width, 0.55 * height], [0, 0, 1]])
    return Camera(name, width, height, K, np.eye(4))


def fit(path: Path, of: Camera, downscale: int = 1) -> Fitted:
    return fit_views([of], [path], downscale)


def rays_in_colours(of: Camera, width: int, height: int) -> NDArray[np.float64]:
    """[height, width, 3] in 0..1: the direction that each pixel of the resized camera sees."""
    K = of.resized(width, height).K
    x = (np.arange(width) + 0.5 - K[0, 2]) / K[0, 0]
    y = (np.arange(height) + 0.5 - K[1, 2]) / K[1, 1]
    both = np.stack(np.broadcast_arrays(0.5 + 0.4 * x, 0.5 + 0.4 * y[:, None], 0.3), axis=-1)
    return both.clip(0, 1)


def write_rays(path: Path, of: Camera, size: tuple[int, int], kind: str) -> None:
    colours = rays_in_colours(of, *size)
    if kind == "wide":
        write_png16(path, np.rint(colours * 65535).astype(np.uint16), RGB)
        return
    picture = Image.fromarray(np.rint(colours * 255).astype(np.uint8))
    if kind == "rgba":
        picture = picture.convert("RGBA")
    picture.save(path, **({"quality": 97, "subsampling": 0} if kind == "jpeg" else {}))


@settings(max_examples=60, deadline=None)
@given(
    width=st.integers(24, 200),
    height=st.integers(24, 200),
    share=st.floats(0.4, 1.3),
    rounding=st.tuples(st.integers(-1, 1), st.integers(-1, 1)),
    downscale=st.sampled_from([1, 2, 3, 8]),
    kind=st.sampled_from(["png", "jpeg", "rgba", "wide"]),
)
def test_every_pixel_shows_what_its_camera_sees_there(
    tmp_path_factory: pytest.TempPathFactory,
    width: int,
    height: int,
    share: float,
    rounding: tuple[int, int],
    downscale: int,
    kind: str,
) -> None:
    of = camera(width, height)
    size = (int(width * share) + rounding[0], int(height * share) + rounding[1])
    assume(same_shape((width, height), size))
    path = tmp_path_factory.mktemp("rays") / ("a.jpg" if kind == "jpeg" else "a.png")
    write_rays(path, of, size, kind)
    fitted = fit(path, of, downscale)
    assert not fitted.problems
    [view] = fitted.views
    assert view.file_size == size
    found = decode(view, (0, 0, 0)).permute(1, 2, 0).numpy() / 255
    expected = rays_in_colours(view.camera, view.camera.width, view.camera.height)
    error = np.abs(found - expected)
    # Borders of a reduced image have fewer pixels to be averaged from.
    assert error[2:-2, 2:-2].max(initial=0.0) < (0.02 if kind == "jpeg" else 0.01)
    assert error.max() < 0.06


def test_each_axis_and_each_image_has_its_own_factor(tmp_path: Path) -> None:
    save(tmp_path / "a.png", noise(41, 30))
    save(tmp_path / "b.png", noise(80, 60))
    cameras = [camera(81, 61, "a.png"), camera(80, 60, "b.png")]
    fitted = fit_views(cameras, [tmp_path / "a.png", tmp_path / "b.png"], 1)
    assert not fitted.problems
    a, b = (view.camera for view in fitted.views)
    np.testing.assert_allclose(a.K[0], cameras[0].K[0] * 41 / 81)
    np.testing.assert_allclose(a.K[1], cameras[0].K[1] * 30 / 61)
    np.testing.assert_array_equal(b.K, cameras[1].K)
    assert fitted.notes[0] == "images: 1 of 41x30, 1 of 80x60"
    assert "1 of 2 images have not the size of their camera" in fitted.notes[1]


@pytest.mark.parametrize("size", [(60, 80), (80, 80), (78, 60), (40, 32)])
def test_turned_and_cropped_images_are_refused_by_name(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    save(tmp_path / "a.png", noise(*size))
    [problem] = fit(tmp_path / "a.png", camera(80, 60)).problems
    assert f"a.png is {size[0]}x{size[1]}, which is not the shape" in problem
    assert "80x60" in problem


def test_every_bad_file_is_in_the_list(tmp_path: Path) -> None:
    good = noise(32, 24)
    save(tmp_path / "good.png", good)
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "text.jpg").write_text("not an image")
    (tmp_path / "folder.png").mkdir()
    for name in ("cut.png", "cut.jpg"):
        save(tmp_path / name, good)
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data[: len(data) * 2 // 3])
    bomb = (tmp_path / "good.png").read_bytes()
    (tmp_path / "bomb.png").write_bytes(_resized_header(bomb, 60000, 60000))
    names = ["good.png", "empty.png", "text.jpg", "cut.png", "cut.jpg", "bomb.png"]
    names += ["folder.png", "lost.png"]
    fitted = fit_views(
        [camera(32, 24, name) for name in names], [tmp_path / name for name in names], 1
    )
    text = "\n".join(fitted.problems)
    for name in names[1:5]:
        assert f"{name} cannot be decoded" in text
    assert "bomb.png is not decoded, as it may be a decompression bomb" in text
    assert "2 of 8 image files are missing" in text
    assert "folder.png, lost.png" in text
    assert "good.png" not in text


def _resized_header(png: bytes, width: int, height: int) -> bytes:
    header = b"IHDR" + struct.pack(">II", width, height) + png[24:29]
    return png[:12] + header + struct.pack(">I", zlib.crc32(header)) + png[33:]


def test_a_jpeg_with_a_tail_is_no_cut_one(tmp_path: Path) -> None:
    save(tmp_path / "a.jpg", noise(32, 24))
    with open(tmp_path / "a.jpg", "ab") as file:
        file.write(bytes(100_000))
    assert not fit(tmp_path / "a.jpg", camera(32, 24)).problems


def test_orientation_and_transparency_are_said(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(noise(32, 24)).save(tmp_path / "a.jpg", exif=exif)
    save(tmp_path / "b.png", noise(32, 24, channels=4))
    cameras = [camera(32, 24, "a.jpg"), camera(32, 24, "b.png")]
    fitted = fit_views(cameras, [tmp_path / "a.jpg", tmp_path / "b.png"], 2)
    assert not fitted.problems
    size, turned, transparent = fitted.notes
    assert size == "images: 2 of 32x24 (trained at 16x12)"
    assert "1 of 2 images have an EXIF orientation, which is ignored" in turned
    assert turned.endswith("a.jpg")
    assert "1 of 2 images have transparency; renderer.background" in transparent
