"""A picture of a scene's cameras and points, from above and from the side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from grendel_odin.config import UserError
from grendel_odin.data.picture_layout import layout
from grendel_odin.data.picture_panel import FINE, TEST, TRAIN, WIDTH, Panel, draw_panel
from grendel_odin.data.scene import Scene

_TALLEST, _LOWEST = 1400, 220
_BAR, _GAP = 34, 14
_GROUND, _INK = (24, 26, 30), (225, 227, 230)


def write_picture(scene: Scene, path: Path) -> None:
    """Write the picture as PNG. Raises UserError if `path` lies in the scene or is not writable."""
    if path.resolve().is_relative_to(scene.path.resolve()):
        raise UserError(
            f"{path} lies in the data folder {scene.path}, where nothing is written: name another "
            "place with --picture FILE"
        )
    try:
        draw_scene(scene).save(path, format="PNG")
    except OSError as error:
        raise UserError(
            f"cannot write the picture {path} ({error.strerror or error}): name another place "
            "with --picture FILE"
        ) from error


def draw_scene(scene: Scene) -> Image.Image:
    """Both views, one above the other, at one scale."""
    place = layout([view.camera for view in scene.views], scene.points.xyz)
    width, depth, height = place.high - place.low
    scale = FINE * min(WIDTH / width, _TALLEST / max(depth, height))
    panels = [
        Panel("from above", 1, 2, 1.0, _panel_height(depth * scale), scale, place),
        Panel("from the side", 2, 1, -1.0, _panel_height(height * scale), scale, place),
    ]
    total = sum(panel.height + _BAR + _GAP for panel in panels) + _BAR
    canvas = Image.new("RGB", (WIDTH, total), _GROUND)
    top = 0
    for panel in panels:
        _write(canvas, (12, top + 6), panel.title, _INK)
        _draw_bar(canvas, top, panel)
        canvas.paste(draw_panel(scene, panel), (0, top + _BAR))
        top += panel.height + _BAR + _GAP
    _draw_legend(canvas, top, scene)
    return canvas


def _panel_height(fine: float) -> int:
    return max(_LOWEST, round(fine / FINE))


def _draw_bar(canvas: Image.Image, top: int, panel: Panel) -> None:
    """A length of 1, 2 or 5 units of the scene (times a power of ten)."""
    unit = 0.18 * WIDTH * FINE / panel.scale
    power = 10.0 ** np.floor(np.log10(unit))
    length = float(max(step for step in (1, 2, 5) if step * power <= unit) * power)
    pixels = length * panel.scale / FINE
    text = "1 unit" if length == 1 else f"{length:g} units"
    right, y = WIDTH - 16, top + _BAR - 10
    draw = ImageDraw.Draw(canvas)
    draw.line([(right - pixels, y), (right, y)], fill=_INK, width=2)
    for x in (right - pixels, right):
        draw.line([(x, y - 5), (x, y + 5)], fill=_INK, width=2)
    _write(canvas, (right - pixels - 12, top + 6), text, _INK, "ra")


def _draw_legend(canvas: Image.Image, top: int, scene: Scene) -> None:
    x = 12
    for text, color in (
        (f"{len(scene.train)} training views", TRAIN),
        (f"{len(scene.test)} test views", TEST),
        (f"{len(scene.points):,} points in their colours", _INK),
    ):
        x = _write(canvas, (x, top + 4), text, color) + 40


def _write(
    canvas: Image.Image,
    at: tuple[float, float],
    text: str,
    color: tuple[int, int, int],
    anchor: str = "la",
) -> int:
    """Draw a text; returns where it ends."""
    font = ImageFont.load_default(18)
    draw = ImageDraw.Draw(canvas)
    draw.text(at, text, fill=color, font=font, anchor=anchor)
    return int(draw.textbbox(at, text, font=font, anchor=anchor)[2])
