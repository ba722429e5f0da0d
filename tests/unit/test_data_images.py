from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from data_helpers import noise, save, view_of
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from grendel_odin.config import UserError
from grendel_odin.data.decode import decode
from grendel_odin.data.headers import read_header
from grendel_odin.data.images import ImageStore, memory_note

BLACK = (0, 0, 0)


def _decode(path: Path, size: tuple[int, int], **more: object) -> np.ndarray:
    """uint8 [H, W, 3]"""
    tensor = decode(view_of(path, size, **more), BLACK)  # type: ignore[arg-type]
    assert tensor.dtype == torch.uint8
    assert tensor.is_contiguous()
    assert tensor.shape == (3, size[1], size[0])
    return tensor.permute(1, 2, 0).numpy()


def test_rgb_is_planar_and_exact(tmp_path: Path) -> None:
    pixels = noise(7, 5)
    save(tmp_path / "a.png", pixels)
    np.testing.assert_array_equal(_decode(tmp_path / "a.png", (7, 5)), pixels)


@pytest.mark.parametrize("mode", ["1", "L", "P"])
def test_grey_and_palette_become_rgb(tmp_path: Path, mode: str) -> None:
    picture = Image.fromarray(noise(7, 5)).convert(mode)
    picture.save(tmp_path / "a.png")
    expected = np.asarray(picture.convert("RGB"))
    np.testing.assert_array_equal(_decode(tmp_path / "a.png", (7, 5)), expected)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    mode=st.sampled_from(["RGBA", "LA"]),
    background=st.tuples(*[st.sampled_from([0.0, 0.25, 1.0])] * 3),
)
def test_alpha_is_composited_on_the_background(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    mode: str,
    background: tuple[float, float, float],
) -> None:
    path = tmp_path_factory.mktemp("alpha") / "a.png"
    picture = Image.fromarray(noise(6, 4, seed, 4)).convert(mode)
    picture.save(path)
    view = view_of(path, (6, 4))
    store = ImageStore([view], background, 10**6, 1)
    rgba = np.asarray(picture.convert("RGBA")).astype(float)
    alpha = rgba[..., 3:] / 255
    expected = rgba[..., :3] * alpha + 255 * np.array(background) * (1 - alpha)
    found = store.get(view).permute(1, 2, 0).numpy()
    store.close()
    assert np.abs(found - expected).max() <= 1.01


def test_hidden_colours_do_not_leak_when_resized(tmp_path: Path) -> None:
    rgba = np.zeros((16, 16, 4), np.uint8)
    rgba[:, 8:] = (200, 10, 30, 255)
    rgba[:, :8] = (0, 255, 0, 0)  # green that nobody should see
    save(tmp_path / "a.png", rgba)
    small = _decode(tmp_path / "a.png", (5, 5), stored=(16, 16))
    assert small[..., 1].max() <= 12


def test_reduced_images_are_antialiased(tmp_path: Path) -> None:
    stripes = np.zeros((8, 64, 3), np.uint8)
    stripes[:, ::2] = 255
    save(tmp_path / "a.png", stripes)
    small = _decode(tmp_path / "a.png", (16, 2), stored=(64, 8))
    assert np.abs(small[:, 2:-2].astype(int) - 128).max() < 8


def test_exif_orientation_is_ignored(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(noise(7, 5)).save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(_decode(tmp_path / "a.png", (7, 5)), noise(7, 5))


def _unknown(path: Path) -> None:
    Image.fromarray(np.zeros((5, 7), np.float32)).save(path)


def _turned_tiff(path: Path) -> None:
    Image.fromarray(noise(7, 5)).save(path, tiffinfo={0x0112: 6})


@pytest.mark.parametrize("write", [_unknown, _turned_tiff])
def test_other_pixel_formats_are_refused_by_name(tmp_path: Path, write: object) -> None:
    write(tmp_path / "a.tif")  # type: ignore[operator]
    view = view_of(tmp_path / "a.tif", (7, 5))
    with pytest.raises(
        UserError, match=r"a\.tif (has pixels of kind F|is a TIFF file with an ori)"
    ):
        decode(view, BLACK)
    assert read_header(view.image_path).fault


def test_a_cut_image_is_named_when_decoded(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    Image.fromarray(noise(64, 64)).save(path)
    path.write_bytes(path.read_bytes()[:1500])
    with pytest.raises(UserError, match=r"a\.jpg cannot be decoded"):
        decode(view_of(path, (64, 64)), BLACK)


def test_a_missing_image_is_named_when_decoded(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a\.jpg cannot be decoded"):
        decode(view_of(tmp_path / "a.jpg", (64, 64)), BLACK)


def test_store_prefetches_and_keeps(tmp_path: Path) -> None:
    views = []
    for i in range(4):
        save(tmp_path / f"{i}.png", noise(7, 5, i))
        views.append(view_of(tmp_path / f"{i}.png", (7, 5), i))
    store = ImageStore(views, (0, 0, 0), 10**6, 2)
    assert "4 images take 420 B" in store.estimate
    store.prefetch(views)
    images = [store.get(view) for view in views]
    for path in tmp_path.iterdir():
        path.unlink()
    for i, view in enumerate(views):
        assert store.get(view).data_ptr() == images[i].data_ptr()
        np.testing.assert_array_equal(images[i].permute(1, 2, 0).numpy(), noise(7, 5, i))
    assert store.usage().startswith("4 images decoded (420 B)")
    assert store.usage().endswith("at most 420 B were held")
    store.close()


def test_memory_is_estimated_before_anything_is_decoded() -> None:
    views = [view_of(Path(f"{i}.jpg"), (4000, 3000), i) for i in range(2000)]
    assert memory_note(views, 4 * 10**9) == (
        "2,000 images take 72.0 GB once decoded; data.cache_gb allows 4.0 GB: they are decoded "
        "again and again as needed"
    )
    assert memory_note(views[:10], 4 * 10**9).endswith("allows 4.0 GB: all are kept")
