"""Photographs of any lens become those of a pinhole: the way of the pixels, and its limits.

The pinhole keeps the focal lengths of the photograph. Its frame is the largest one that the four
edges of the photograph leave free, up to 63 degrees off the axis, as COLMAP's undistorter has it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import binary_erosion
from torch.nn.functional import grid_sample

from grendel_odin.data.cameras import Camera
from grendel_odin.data.lens import MOST_PIXELS, LensError, LensModel, lattice

_WIDEST = 2.0
"""Tangent of the largest angle off the axis: pixels further out are stretched beyond use."""
_LARGEST = 3
"""Times the photograph's sides; fisheyes need less than twice."""
_SMALLEST_SHARE = 0.2
"""Of the straightened image, that the photograph must cover."""
_COARSE = 65
"""Points along each side of the lattice on which a lens is examined."""
_STRIP = 1 << 17
"""Pixels that are mapped at a time."""
_SMEAR = 0.3
"""Of the usual area in the photograph, below which a pixel has too little of its own."""
_OUTSIDE = 9.0


@dataclass(frozen=True, slots=True)
class ColmapLens:
    """A `Lens` for views: it straightens photographs of any size."""

    lens: LensModel

    def undistorted(self, camera: Camera) -> tuple[Camera, Undistortion | None]:
        """The pinhole camera to train with, and the way of the pixels to it. Raises LensError."""
        warp = straighten(self.lens)
        if warp is None:
            return camera, None
        warp = warp.scaled(camera.width / self.lens.width, camera.height / self.lens.height)
        return replace(camera, width=warp.width, height=warp.height, K=warp.K), warp


@dataclass(frozen=True, slots=True)
class Undistortion:
    """Straightens photographs of one lens; a `Warp` for views."""

    lens: LensModel
    width: int
    height: int
    """Size of the straightened image."""
    fx: float
    fy: float
    cx: float
    cy: float
    folds: bool = False
    """Rays outside the photograph may land in it again: each pixel is checked."""

    @property
    def K(self) -> NDArray[np.float64]:
        """[3, 3] intrinsics of the straightened image."""
        return np.array([[self.fx, 0.0, self.cx], [0.0, self.fy, self.cy], [0.0, 0.0, 1.0]])

    def scaled(self, x: float, y: float) -> Undistortion:
        """The same view in other pixels, for photographs stored at another size."""
        width, height = max(1, round(self.width * x)), max(1, round(self.height * y))
        x, y = width / self.width, height / self.height
        fx, fy, cx, cy = self.fx * x, self.fy * y, self.cx * x, self.cy * y
        return Undistortion(self.lens, width, height, fx, fy, cx, cy, self.folds)

    def image(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """[H, W, C] or [H, W] as stored, at any size, to [height, width, C]; bilinear."""
        grid = torch.from_numpy(_grid(self))[None]
        planes = pixels.reshape(*pixels.shape[:2], -1)
        out = np.empty((self.height, self.width, planes.shape[2]), np.uint8)
        for channel in range(planes.shape[2]):
            plane = torch.from_numpy(planes[..., channel].astype(np.float32))[None, None]
            flat = grid_sample(plane, grid, padding_mode="border", align_corners=False)
            out[..., channel] = (flat[0, 0] + 0.5).clamp_(0, 255).to(torch.uint8).numpy()
        return out.reshape(self.height, self.width, *pixels.shape[2:])

    def valid(self) -> NDArray[np.bool_] | None:
        """[height, width] pixels that the photograph covers; None: all are."""
        inside: NDArray[np.bool_] = np.all(np.abs(_grid(self)) <= 1, axis=2)
        return None if inside.all() else inside


@lru_cache(maxsize=1 << 14)
def straighten(lens: LensModel) -> Undistortion | None:
    """The way from a photograph to a pinhole image; None: it is one. Raises LensError."""
    fx, fy, _, _ = lens.intrinsics()
    if lens.is_pinhole():
        return None
    warp = _framed(lens, fx, fy, *_free_frame(lens))
    covered, steady = _coverage(warp)
    if not steady or not covered.all():
        warp = _framed(lens, fx, fy, *_covered_frame(warp, covered))
        covered, steady = _coverage(warp)
    blown_up = warp.width > _LARGEST * lens.width or warp.height > _LARGEST * lens.height
    if blown_up or covered.mean() < _SMALLEST_SHARE:
        raise LensError(_too_bent(lens))
    return replace(warp, folds=not steady)


def _free_frame(lens: LensModel) -> tuple[float, float, float, float]:
    """Left, top, right, bottom as tangents: the rectangle between the straightened edges.

    Where an edge has no ray (a fisheye that sees more than half a sphere) it sets no bound.
    """
    along = np.linspace(0, 1, 257)
    zero, one = np.zeros_like(along), np.ones_like(along)
    size = np.array([lens.width, lens.height], dtype=np.float64)
    bounds = []
    for axis, far in ((0, False), (1, False), (0, True), (1, True)):
        across = one if far else zero
        edge = np.column_stack([across, along] if axis == 0 else [along, across]) * size
        values = lens.unproject(edge)[:, axis]
        values = values[np.isfinite(values)]
        bound = (values.min() if far else values.max()) if len(values) else _WIDEST * (far or -1)
        bounds.append(float(np.clip(bound, -_WIDEST, _WIDEST)))
    return bounds[0], bounds[1], bounds[2], bounds[3]


def _framed(
    lens: LensModel, fx: float, fy: float, left: float, top: float, right: float, bottom: float
) -> Undistortion:
    """The straightened image between four tangents."""
    # A little slack: an edge that falls on a whole pixel must not lose it to rounding.
    sides = fx * (right - left) + 1e-3, fy * (bottom - top) + 1e-3
    if not (min(sides) >= 1 and max(sides) <= MOST_PIXELS):
        raise LensError(_too_bent(lens))
    return Undistortion(lens, int(sides[0]), int(sides[1]), fx, fy, -fx * left, -fy * top)


def _coverage(warp: Undistortion) -> tuple[NDArray[np.bool_], bool]:
    """[n, n] lattice points that the photograph covers; whether none comes back from a fold."""
    lens = warp.lens
    rays = (lattice(warp.width, warp.height, _COARSE) - (warp.cx, warp.cy)) / (warp.fx, warp.fy)
    landed = lens.project(rays)
    inside = np.all((landed >= -0.5) & (landed <= (lens.width + 0.5, lens.height + 0.5)), axis=1)
    true = inside & _returns(lens, rays, landed)
    return true.reshape(_COARSE, _COARSE), bool((true == inside).all())


def _returns(
    lens: LensModel, rays: NDArray[np.float64], pixels: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Rays that the lens gives back from the pixels where they land."""
    back: NDArray[np.bool_] = np.abs(lens.unproject(pixels) - rays).max(axis=1) < 1e-3
    return back


def _covered_frame(
    warp: Undistortion, covered: NDArray[np.bool_]
) -> tuple[float, float, float, float]:
    """The part of a frame, on the lattice, beyond which the photograph covers nothing."""
    if not covered.any():
        raise LensError(_too_bent(warp.lens))
    bounds = []
    for axis, side, focal, center in (
        (0, warp.width, warp.fx, warp.cx),
        (1, warp.height, warp.fy, warp.cy),
    ):
        used = np.flatnonzero(covered.any(axis=axis))
        ends = np.array([max(used[0] - 1, 0), min(used[-1] + 1, _COARSE - 1)])
        bounds.append((ends * side / (_COARSE - 1) - center) / focal)
    (left, right), (top, bottom) = bounds
    return float(left), float(top), float(right), float(bottom)


def _too_bent(lens: LensModel) -> str:
    return (
        f"bends the picture so far that no pinhole image is left ({lens}): its calibration is "
        "wrong; fix it in COLMAP, or undistort the scene with `colmap image_undistorter`"
    )


@lru_cache(maxsize=2)
def _grid(warp: Undistortion) -> NDArray[np.float32]:
    """[height, width, 2] where each pixel is found in the photograph, whose edges are -1 and 1.

    In strips, so that the scratch in float64 stays small. Few are kept: they are as large as
    the images.
    """
    width, height = warp.width, warp.height
    grid = np.empty((height * width, 2), np.float32)
    x = (np.arange(width) + 0.5 - warp.cx) / warp.fx
    y = (np.arange(height) + 0.5 - warp.cy) / warp.fy
    scale = np.array([2 / warp.lens.width, 2 / warp.lens.height])
    rows = max(1, _STRIP // width)
    for top in range(0, height, rows):
        strip = y[top : top + rows]
        rays = np.column_stack([np.tile(x, len(strip)), np.repeat(strip, width)])
        pixels = warp.lens.project(rays)
        place = pixels * scale - 1
        outside = ~(np.abs(place) < 1 + 1e-6).all(axis=1)
        np.clip(place, -1, 1, out=place)
        if warp.folds:
            outside |= ~_returns(warp.lens, rays, pixels)
        place[outside] = _OUTSIDE
        grid[top * width : top * width + len(place)] = place
    image = grid.reshape(height, width, 2)
    if warp.folds:
        image[_smeared(image)] = _OUTSIDE
    return image


def _smeared(grid: NDArray[np.float32]) -> NDArray[np.bool_]:
    """[height, width] pixels near a fold: there one of the photograph is spread over many."""
    if min(grid.shape[:2]) < 2:
        return np.zeros(grid.shape[:2], bool)
    down: NDArray[np.float32] = np.gradient(grid, axis=0)
    right: NDArray[np.float32] = np.gradient(grid, axis=1)
    area = np.abs(down[..., 0] * right[..., 1] - down[..., 1] * right[..., 0])
    covered: NDArray[np.bool_] = np.all(np.abs(grid) <= 1, axis=2)
    usual = np.median(area[covered]) if covered.any() else 0.0
    # Beside a pixel without a place there is no area to speak of.
    inner: NDArray[np.bool_] = binary_erosion(covered, np.ones((3, 3), bool), border_value=1)
    smeared: NDArray[np.bool_] = ~(inner & (area >= _SMEAR * usual))
    return smeared
