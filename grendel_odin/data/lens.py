"""Camera models as COLMAP defines them, through pycolmap (only photos.py imports it, too)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pycolmap
from numpy.typing import NDArray

MOST_PIXELS = 1 << 20
"""Of a side of an image."""
_SHORTEST, _LONGEST = 1e-3, 1e7
"""Pixels; what lies outside is damage, and would overflow in single precision."""
_SAME = 1e-3
"""Pixels; a distortion below this is none."""
_MISS = 0.1
"""Pixels by which a ray may miss the pixel that it was computed from."""


class LensError(Exception):
    """Why a camera cannot be used, and what helps; the text goes on after "camera N"."""


@dataclass(frozen=True, slots=True)
class LensModel:
    """A camera model by COLMAP's name with its parameters, in pixels of the photograph.

    The constructor checks nothing: `intrinsics` does, and comes first.
    """

    model: str
    width: int
    height: int
    params: tuple[float, ...]

    def __str__(self) -> str:
        values = ", ".join(f"{value:g}" for value in self.params)
        return f"{self.model}, {self.width}x{self.height}, parameters {values or '(none)'}"

    def intrinsics(self) -> tuple[float, float, float, float]:
        """fx, fy, cx, cy. Raises LensError if the model or its numbers cannot be used."""
        count = parameter_count(self.model)
        if count is None:
            raise LensError(f"has the unknown model {self.model}: convert it to a known one")
        if count != len(self.params):
            raise LensError(
                f"of the model {self.model} needs {count} parameters, {len(self.params)} were "
                "found: write the camera anew"
            )
        sizes = (self.width, self.height)
        if not (np.isfinite(self.params).all() and min(sizes) > 0 and max(sizes) <= MOST_PIXELS):
            raise LensError(f"has unusable numbers ({self}): calibrate it anew")
        camera = _camera(self)
        if camera.is_spherical():
            raise LensError(
                f"has the model {self.model}: a panorama has no pinhole; cut it into perspective "
                "images (COLMAP's panorama_sfm.py does) and reconstruct these"
            )
        fx, fy = float(camera.focal_length_x), float(camera.focal_length_y)
        cx, cy = float(camera.principal_point_x), float(camera.principal_point_y)
        if not (min(fx, fy) >= _SHORTEST and max(fx, fy, abs(cx), abs(cy)) <= _LONGEST):
            raise LensError(
                f"has an unusable focal length or principal point ({self}): calibrate it anew"
            )
        return fx, fy, cx, cy

    def is_pinhole(self) -> bool:
        """By what it does, not by its parameters: a fisheye of zero distortion is none."""
        if self.model in ("PINHOLE", "SIMPLE_PINHOLE"):
            return True
        fx, fy, cx, cy = self.intrinsics()
        pixels = lattice(self.width, self.height, 17)
        miss = np.abs(self.project((pixels - (cx, cy)) / (fx, fy)) - pixels)
        return bool((miss < _SAME).all())

    def project(self, rays: NDArray[np.float64]) -> NDArray[np.float64]:
        """Pixels [n, 2] of rays (x, y, 1) [n, 2]; NaN where there are none."""
        points = np.column_stack([rays, np.ones(len(rays))])
        return np.asarray(_camera(self).img_from_cam(points), dtype=np.float64)

    def unproject(self, pixels: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rays (x, y, 1) [n, 2] of pixels; NaN where the lens has no inverse there."""
        rays = np.array(_camera(self).cam_from_img(np.ascontiguousarray(pixels)), dtype=np.float64)
        miss = np.abs(self.project(rays) - pixels).max(axis=1)
        rays[~(miss < _MISS)] = np.nan
        return rays


def lattice(width: float, height: float, n: int) -> NDArray[np.float64]:
    """[n * n, 2] points over an image, its edges included; x runs fastest."""
    x, y = np.meshgrid(np.linspace(0, width, n), np.linspace(0, height, n))
    return np.column_stack([x.ravel(), y.ravel()])


def model_name(number: int) -> str | None:
    """Name of a camera model by COLMAP's number; None if there is none."""
    try:
        return str(pycolmap.CameraModelId(number).name)
    except ValueError:
        return None


@lru_cache
def parameter_count(model: str) -> int | None:
    """Number of parameters of a camera model by its name; None if there is none."""
    try:
        return len(pycolmap.Camera.create_from_model_name(1, model, 1.0, 1, 1).params)
    except (ValueError, LookupError, RuntimeError):
        return None


@lru_cache(maxsize=256)
def _camera(lens: LensModel) -> pycolmap.Camera:
    return pycolmap.Camera(
        model=lens.model, width=lens.width, height=lens.height, params=list(lens.params)
    )
