"""One view of a scene: its points, and its cameras as little pyramids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from grendel_odin.data.cameras import Camera
from grendel_odin.data.picture_layout import Layout
from grendel_odin.data.scene import Scene

WIDTH = 1600
FINE = 2
"""Everything is drawn this many times larger and then reduced, so that lines are smooth."""
TRAIN, TEST = (88, 190, 255), (255, 150, 50)
_GROUND = (38, 41, 47)
_DOT_SHARE, _SMALLEST_DOT, _LARGEST_DOT = 0.3, 1.5, 4.0
"""Side of a point: of the room that each has in the panel; bounds in pixels."""
_PYRAMIDS = 3000
"""With more cameras than this, each is a dot."""
_CORNERS = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """One view: which local axis runs up in it, which one towards the eye."""

    title: str
    up: int
    toward: int
    sign: float
    height: int
    scale: float
    """Fine pixels to a unit of the scene."""
    layout: Layout

    def pixels(self, local: NDArray[np.float64]) -> NDArray[np.float64]:
        """[n, 2] fine pixels of local positions [n, 3]."""
        low, high = self.layout.low, self.layout.high
        left = (FINE * WIDTH - self.scale * (high[0] - low[0])) / 2
        x = left + (local[:, 0] - low[0]) * self.scale
        middle = (low[self.up] + high[self.up]) / 2
        y = FINE * self.height / 2 - (local[:, self.up] - middle) * self.scale
        return np.stack([x, y], axis=1)


def draw_panel(scene: Scene, panel: Panel) -> Image.Image:
    pixels = np.empty((FINE * panel.height, FINE * WIDTH, 3), np.uint8)
    pixels[:] = _GROUND
    _draw_points(pixels, scene, panel)
    image = Image.fromarray(pixels)
    draw = ImageDraw.Draw(image)
    length = _pyramid_length(scene, panel)
    for views, color in ((scene.train, TRAIN), (scene.test, TEST)):
        _draw_cameras(draw, [view.camera for view in views], color, panel, length)
    return image.resize((WIDTH, panel.height), Image.Resampling.BOX)


def _draw_points(pixels: NDArray[np.uint8], scene: Scene, panel: Panel) -> None:
    """The nearest to the eye last, each a little square."""
    if not len(scene.points):
        return
    local = panel.layout.local(scene.points.xyz)
    order = np.argsort(panel.sign * local[:, panel.toward], kind="stable")
    at, rgb = panel.pixels(local[order]), scene.points.rgb[order]
    height, width, _ = pixels.shape
    room = _DOT_SHARE * (height * width / len(at)) ** 0.5
    size = round(min(max(room, FINE * _SMALLEST_DOT), FINE * _LARGEST_DOT))
    inside = ((at > -size) & (at < (width, height))).all(axis=1)
    corner, rgb = np.floor(at[inside]).astype(np.int64), rgb[inside]
    flat = np.full(height * width, -1, np.int64)
    for dx in range(size):
        for dy in range(size):
            x, y = corner[:, 0] + dx, corner[:, 1] + dy
            seen = (x >= 0) & (x < width) & (y >= 0) & (y < height)
            np.maximum.at(flat, (y * width + x)[seen], np.flatnonzero(seen))
    hit = np.flatnonzero(flat >= 0)
    pixels.reshape(-1, 3)[hit] = rgb[flat[hit]]


def _pyramid_length(scene: Scene, panel: Panel) -> float:
    """So that neighbours can be told apart, within bounds; in units of the scene."""
    local = panel.layout.local(np.array([view.camera.center for view in scene.views]))
    box = panel.layout.high[:2] - panel.layout.low[:2]
    span = float(box.max())
    room = np.sqrt(float(np.prod(box)) / max(1, len(local)))
    return float(np.clip(0.3 * room, 0.01 * span, 0.03 * span))


def _draw_cameras(
    draw: ImageDraw.ImageDraw,
    cameras: Sequence[Camera],
    color: tuple[int, int, int],
    panel: Panel,
    length: float,
) -> None:
    """A pyramid each: its tip is the camera's centre, its base what the image sees."""
    if len(cameras) > _PYRAMIDS:
        centers = np.array([camera.center for camera in cameras])
        for x, y in panel.pixels(panel.layout.local(centers)).tolist():
            draw.ellipse((x - 2, y - 2, x + 2, y + 2), fill=color)
        return
    for camera in cameras:
        tip, *base = panel.pixels(panel.layout.local(_pyramid(camera, length))).tolist()
        outline = [(x, y) for x, y in (*base, base[0])]
        draw.line(outline, fill=color, width=FINE)
        for x, y in base:
            draw.line([tuple(tip), (x, y)], fill=color, width=FINE)
        draw.ellipse((tip[0] - 3, tip[1] - 3, tip[0] + 3, tip[1] + 3), fill=color)


def _pyramid(camera: Camera, length: float) -> NDArray[np.float64]:
    """[5, 3] tip and corners in the world; no wider than long, however wide the lens."""
    half = np.array([camera.width / camera.K[0, 0], camera.height / camera.K[1, 1]]) / 2
    half *= min(1.0, 0.8 / float(half.max()))
    corners = np.column_stack([_CORNERS * half, np.ones(4)]) * length
    rays = np.vstack([np.zeros(3), corners])
    world: NDArray[np.float64] = rays @ camera.world_to_camera[:3, :3] + camera.center
    return world
