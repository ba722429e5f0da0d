"""PNG files and side-by-side pictures: truth, render, error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from grendel_odin.config import UserError

ERROR_FULL_SCALE = 0.25
"""Mean absolute error over the channels that the heat map shows in white."""
MAX_PANEL_WIDTH = 480
_CAPTION = 16
_GAP = 4
_HEADINGS = ("truth", "render", f"error (white: {ERROR_FULL_SCALE:.0%} or more)")
_HOT = np.array([[0, 0, 0], [150, 0, 0], [255, 60, 0], [255, 200, 0], [255, 255, 255]])


@dataclass(frozen=True, slots=True)
class Row:
    """A view in a side-by-side picture."""

    name: str
    psnr: float
    truth: Tensor
    """uint8 [3, H, W]."""
    render: Tensor
    """uint8 [3, H, W]."""


def write_png(path: Path, image: Tensor) -> None:
    """Write a uint8 image [3, H, W]; folders are made as needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _to_pil(image).save(path, compress_level=3)


def read_png(path: Path) -> Tensor:
    """uint8 [3, H, W] of a PNG file. Raises UserError if it cannot be read."""
    try:
        with Image.open(path) as image:
            pixels = np.array(image.convert("RGB"))
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{path}: cannot read the image ({error}).") from error
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def write_side_by_side(path: Path, rows: Sequence[Row]) -> None:
    """A picture with a row a view: truth, render and error heat map under a caption."""
    strips = [_strip(row) for row in rows]
    width = max(strip.width for strip in strips)
    height = _CAPTION + sum(strip.height for strip in strips)
    picture = Image.new("RGB", (width, height), "white")
    _headings(picture, panel_width=(strips[0].width + _GAP) // len(_HEADINGS))
    top = _CAPTION
    for strip in strips:
        picture.paste(strip, (0, top))
        top += strip.height
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)


def heat_map(truth: Tensor, render: Tensor) -> NDArray[np.uint8]:
    """[H, W, 3] colours of the absolute error of uint8 images [3, H, W]: black, red, white."""
    error = (truth.float() - render.float()).abs().mean(0).numpy() / 255.0
    level = np.clip(error / ERROR_FULL_SCALE, 0.0, 1.0) * (len(_HOT) - 1)
    knots = np.arange(len(_HOT))
    channels = [np.interp(level, knots, _HOT[:, channel]) for channel in range(3)]
    colors: NDArray[np.uint8] = np.stack(channels, axis=-1).round().astype(np.uint8)
    return colors


def _strip(row: Row) -> Image.Image:
    heat = Image.fromarray(heat_map(row.truth, row.render))
    panels = [_fit(panel) for panel in (_to_pil(row.truth), _to_pil(row.render), heat)]
    width, height = panels[0].size
    count = len(panels)
    strip = Image.new("RGB", (count * width + (count - 1) * _GAP, height + _CAPTION), "white")
    for index, panel in enumerate(panels):
        strip.paste(panel, (index * (width + _GAP), _CAPTION))
    _write(strip, 0, f"{row.name}   PSNR {row.psnr:.2f} dB")
    return strip


def _headings(picture: Image.Image, panel_width: int) -> None:
    for index, heading in enumerate(_HEADINGS):
        _write(picture, index * panel_width, heading)


def _write(picture: Image.Image, left: int, text: str) -> None:
    """Text at the top; PIL's own font, of which only ASCII is certain on every build."""
    ascii_text = text.encode("ascii", "replace").decode("ascii")
    font = ImageFont.load_default()
    ImageDraw.Draw(picture).text((left + 2, 2), ascii_text, fill="black", font=font)


def _fit(panel: Image.Image) -> Image.Image:
    if panel.width <= MAX_PANEL_WIDTH:
        return panel
    height = max(1, round(panel.height * MAX_PANEL_WIDTH / panel.width))
    return panel.resize((MAX_PANEL_WIDTH, height), Image.Resampling.BOX)


def _to_pil(image: Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())
