"""Every kind of stored pixel gives the picture that a viewer shows."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from data_helpers import noise, view_of
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from grendel_odin.data.decode import decode
from grendel_odin.data.headers import read_header

GREY, RGB, GREY_ALPHA, RGBA = 0, 2, 4, 6
CHANNELS = {GREY: 1, RGB: 3, GREY_ALPHA: 2, RGBA: 4}


def write_png16(
    path: Path, samples: NDArray[np.uint16], color: int, transparent: bytes = b""
) -> None:
    """A PNG with 16 bits a sample, [H, W, C]; PIL writes none in colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    height, width, _ = samples.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in samples)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, color, 0, 0, 0))
        + (chunk(b"tRNS", transparent) if transparent else b"")
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def decoded(path: Path, background: tuple[int, int, int] = (0, 0, 0)) -> NDArray[np.float64]:
    """[H, W, 3] in 0..255."""
    with Image.open(path) as file:
        view = view_of(path, file.size)
    assert not read_header(path).fault
    return decode(view, background).permute(1, 2, 0).numpy().astype(np.float64)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    color=st.sampled_from([GREY, RGB, GREY_ALPHA, RGBA]),
    background=st.sampled_from([(0, 0, 0), (255, 255, 255), (10, 200, 60)]),
)
def test_16_bits_are_divided_by_65535(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    color: int,
    background: tuple[int, int, int],
) -> None:
    path = tmp_path_factory.mktemp("wide") / "a.png"
    draw = np.random.default_rng(seed)
    samples = draw.integers(0, 65536, (5, 7, CHANNELS[color]), dtype=np.uint16)
    write_png16(path, samples, color)
    exact = samples / 65535
    alpha = exact[..., -1:] if color in (GREY_ALPHA, RGBA) else 1.0
    rgb = exact[..., :1] if color in (GREY, GREY_ALPHA) else exact[..., :3]
    expected = 255 * rgb * alpha + np.array(background) * (1 - alpha)
    assert np.abs(decoded(path, background) - expected).max() <= 0.51  # rounded, not cut


@pytest.mark.parametrize(("color", "key"), [(GREY, (500,)), (RGB, (500, 501, 502))])
def test_the_transparent_colour_of_16_bits_is_exact(
    tmp_path: Path, color: int, key: tuple[int, ...]
) -> None:
    samples = np.full((2, 3, len(key)), key, np.uint16)
    samples[0, 0] += 1  # the same high byte, but not transparent
    packed = struct.pack(f">{len(key)}H", *key)
    write_png16(tmp_path / "a.png", samples, color, packed)
    pixels = decoded(tmp_path / "a.png", (9, 90, 200))
    assert (pixels[0, 0] == 2).all()
    assert (pixels[1] == (9, 90, 200)).all()
    assert read_header(tmp_path / "a.png").transparent


@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_16_bit_grey_tiff(tmp_path: Path, compression: str | None, order: str) -> None:
    samples = np.random.default_rng(1).integers(0, 65536, (5, 7)).astype(f"{order}u2")
    path = tmp_path / "a.tif"
    Image.fromarray(samples.astype(np.uint16)).save(path, compression=compression)
    assert np.abs(decoded(path)[..., 0] - samples / 257).max() <= 0.51


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    mode=st.sampled_from(["1", "L", "LA", "P", "RGB", "RGBA"]),
    suffix=st.sampled_from(["png", "webp", "tif", "bmp", "gif"]),
    keyed=st.booleans(),
)
def test_8_bits_match_a_viewer(
    tmp_path_factory: pytest.TempPathFactory, seed: int, mode: str, suffix: str, keyed: bool
) -> None:
    path = tmp_path_factory.mktemp("modes") / f"a.{suffix}"
    picture = Image.fromarray(noise(9, 6, seed, 4)).convert("RGB" if mode == "P" else mode)
    if mode == "P":
        picture = picture.quantize(20)
    options = {"transparency": 3} if keyed and mode in ("P", "L") and suffix == "png" else {}
    if suffix == "webp":
        options["lossless"] = True
    if suffix in ("bmp", "gif") and "A" in mode:
        picture = picture.convert("RGB")
    picture.save(path, **options)
    background = (40, 250, 7)
    with Image.open(path) as file:
        shown = np.asarray(file.convert("RGBA")).astype(float)
    alpha = shown[..., 3:] / 255
    expected = shown[..., :3] * alpha + np.array(background) * (1 - alpha)
    assert np.abs(decoded(path, background) - expected).max() <= 1.01


def _inks(pixels: NDArray[np.uint8]) -> Image.Image:
    return Image.fromarray(pixels).convert("CMYK")


def test_cmyk_jpeg_with_and_without_adobes_inversion(tmp_path: Path) -> None:
    smooth = np.asarray(Image.fromarray(noise(4, 3)).resize((64, 48), Image.Resampling.BICUBIC))
    _inks(smooth).save(tmp_path / "adobe.jpg", quality=98)
    inverted = Image.fromarray(255 - np.asarray(_inks(smooth)), "CMYK")
    inverted.save(tmp_path / "plain.jpg", quality=98)
    data = (tmp_path / "plain.jpg").read_bytes()
    start = data.index(b"\xff\xee")  # its APP14 marker, by which Adobe tells that it inverts
    length = struct.unpack(">H", data[start + 2 : start + 4])[0]
    (tmp_path / "plain.jpg").write_bytes(data[:start] + data[start + 2 + length :])
    for name in ("adobe.jpg", "plain.jpg"):
        assert np.abs(decoded(tmp_path / name) - smooth).mean() < 4, name


def test_progressive_jpeg(tmp_path: Path) -> None:
    smooth = np.asarray(Image.fromarray(noise(4, 3)).resize((64, 48), Image.Resampling.BICUBIC))
    Image.fromarray(smooth).save(tmp_path / "a.jpg", quality=98, progressive=True)
    assert np.abs(decoded(tmp_path / "a.jpg") - smooth).mean() < 4
