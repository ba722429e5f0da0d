"""Stored pixels of every kind to 8-bit RGB on an opaque background.

Pixels are taken as they are stored, as COLMAP does: EXIF orientation is ignored. Transparent
pictures are composited before anything is resized or warped: that is what premultiplying is for
(colours behind alpha 0 must not leak into their neighbours), and on an opaque background the two
are the same, since resizing is linear.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.ImageFile import ImageFile

ORIENTATION = 0x0112
_MODES = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr")
_SWAPPED = {"L": "B", "B": "L", "N": "B" if sys.byteorder == "little" else "L"}


def kind_fault(file: ImageFile) -> str:
    """Why an opened picture cannot become RGB; empty if it can."""
    if file.mode not in _MODES and not _is_wide(file):
        return (
            f"has pixels of kind {file.mode}; 8- and 16-bit grey, palette, RGB, RGBA and CMYK "
            "pictures are read: convert it"
        )
    if file.format == "TIFF" and file.getexif().get(ORIENTATION, 1) != 1:
        return "is a TIFF file with an orientation tag, which readers treat unlike: remove the tag"
    return ""


def has_transparency(file: ImageFile) -> bool:
    """Whether an opened picture has an alpha channel or a transparent colour."""
    return file.has_transparency_data or "transparency" in file.info


def to_rgb(path: Path, file: ImageFile, background: tuple[int, int, int]) -> Image.Image:
    """RGB of the picture `file`, opened from `path`; `background` in [0, 255]."""
    if _is_wide(file):
        return _composite_wide(_wide_samples(path, file), background)
    if file.mode == "CMYK" and file.format in ("JPEG", "MPO") and "adobe" not in file.info:
        _read_as(file, "CMYK")  # only Adobe stores the four inks inverted, PIL assumes it always
    if not file.has_transparency_data:
        return file.convert("RGB")
    rgba = file.convert("RGBA")
    canvas = Image.new("RGB", rgba.size, background)
    canvas.paste(rgba, mask=rgba)
    return canvas


def _is_wide(file: ImageFile) -> bool:
    """Whether samples have 16 bits: PIL cuts 16-bit colour to 8 in silence, its raw mode tells."""
    wide = _raw_mode(file)[-4:-1] == ";16"
    return file.mode.startswith("I;16") or (file.mode in ("I", "RGB", "RGBA") and wide)


def _raw_mode(file: ImageFile) -> str:
    """How the file's samples are laid out, in PIL's words; empty if it does not say."""
    args = file.tile[0][3] if file.tile else ""
    mode = args[0] if isinstance(args, tuple) and args else args
    return mode if isinstance(mode, str) else ""


def _read_as(file: ImageFile, raw_mode: str) -> None:
    """Have the samples of a picture, not loaded yet, unpacked in another way."""
    for number, tile in enumerate(file.tile):
        args = (raw_mode, *tile[3][1:]) if isinstance(tile[3], tuple) else raw_mode
        file.tile[number] = (*tile[:3], args)  # type: ignore[call-overload]


def _wide_samples(path: Path, file: ImageFile) -> NDArray[np.uint16]:
    """[H, W, 4]: red, green, blue and alpha, each of 16 bits."""
    raw_mode = _raw_mode(file)
    transparent = file.info.get("transparency")
    if file.mode.startswith("I"):
        samples = np.asarray(file)[..., None].astype(np.uint16)
    elif raw_mode == "LA;16B":  # as many bytes as RGBA, which keeps all of them
        _read_as(file, "RGBA")
        samples = np.ascontiguousarray(np.asarray(file)).view(">u2").astype(np.uint16)
    else:  # two readings: the high bytes, and the low ones, by the other byte order
        with Image.open(path) as other:
            _read_as(other, raw_mode[:-1] + _SWAPPED[raw_mode[-1]])
            low = np.asarray(other)
        samples = np.asarray(file).astype(np.uint16) << 8 | low
    if samples.shape[2] in (1, 3):
        seen = np.ones_like(samples[..., :1], dtype=bool)
        if transparent is not None:
            seen = (samples != np.asarray(transparent)).any(axis=2, keepdims=True)
        samples = np.concatenate([samples, np.where(seen, 65535, 0).astype(np.uint16)], axis=2)
    return samples if samples.shape[2] == 4 else samples[..., [0, 0, 0, 1]]


def _composite_wide(samples: NDArray[np.uint16], background: tuple[int, int, int]) -> Image.Image:
    pixels = np.empty((*samples.shape[:2], 3), np.uint8)
    alpha = samples[..., 3] / np.float32(65535)
    for channel, behind in enumerate(background):
        color = samples[..., channel] * np.float32(255 / 65535)
        pixels[..., channel] = np.rint(behind + (color - behind) * alpha)
    return Image.fromarray(pixels)
