"""Train and test views, and the scale of a scene."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from grendel_odin.data.cameras import Camera
from grendel_odin.data.views import Points

T = TypeVar("T")

_DEPTH_SHARE = 0.1
_SMALLEST = 1e-6
_STRAY = 10.0
_FEWEST_FOR_STRAY = 4
_SAMPLED_CAMERAS = 64
_SAMPLED_POINTS = 2000


def split(views: Sequence[T], test_every: int) -> tuple[list[T], list[T]]:
    """Train and test views: every test_every-th, from the first, is a test view; 0: none.

    A single view is a training view, since something must be trained on.
    """
    if test_every == 0 or len(views) == 1:
        return list(views), []
    test = list(views[::test_every])
    return [view for i, view in enumerate(views) if i % test_every], test


def stray_cameras(centers: NDArray[np.float64], xyz: NDArray[np.float64]) -> NDArray[np.bool_]:
    """[C] cameras far from all others: failed poses, which must not set the scene's scale.

    Far is ten times what nine in ten cameras keep to (distance from the median centre), and ten
    times the median distance of the points, so that a second standpoint is no stray. Of fewer
    than four cameras none can be told from the others. centers: [C, 3]; xyz: [P, 3].
    """
    if len(centers) < _FEWEST_FOR_STRAY:
        return np.zeros(len(centers), np.bool_)
    middle = np.median(centers, axis=0)
    distances = np.linalg.norm(centers - middle, axis=1)
    usual = max(float(np.quantile(distances, 0.9, method="lower")), median_distance(xyz, middle))
    stray: NDArray[np.bool_] = distances > (_STRAY * usual if usual > 0 else np.inf)
    return stray


def scene_extent(cameras: Sequence[Camera], points: Points) -> float:
    """1.1 times the largest distance of a camera from the cameras' mean centre (3DGS).

    Sizes at which primitives are split and pruned are shares of it. Stray cameras are left out;
    where there is none, this is the formula of 3DGS. Cameras that (almost) share one centre would
    give an extent near zero, and pruning would then remove everything: so it is at least a tenth
    of the median distance between that centre and the points.
    """
    centers = np.array([camera.center for camera in cameras])
    centers = centers[~stray_cameras(centers, points.xyz)]
    middle = centers.mean(axis=0)
    radius = float(np.linalg.norm(centers - middle, axis=1).max())
    depth = median_distance(points.xyz, middle)
    return max(1.1 * radius, _DEPTH_SHARE * depth, _SMALLEST)


def median_distance(xyz: NDArray[np.float64], middle: NDArray[np.float64]) -> float:
    """Median distance of points [P, 3] from a place; 0 without points."""
    if len(xyz) == 0:
        return 0.0
    return float(np.median(np.linalg.norm(xyz - middle, axis=1)))


def seen(camera: Camera, xyz: NDArray[np.float64]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """[P] whether points [P, 3] project into the image, and [P] their depths."""
    local = xyz @ camera.world_to_camera[:3, :3].T + camera.world_to_camera[:3, 3]
    depth = local[:, 2]
    x, y, w = (local @ camera.K.T).T
    inside = (depth > 0) & (x >= 0) & (x <= camera.width * w)
    return inside & (y >= 0) & (y <= camera.height * w), depth


def view_depth(cameras: Sequence[Camera], xyz: NDArray[np.float64]) -> float:
    """Median depth of points in the images that they project into, from an even sample; 0 if none
    projects into any."""
    some = xyz[:: -(-len(xyz) // _SAMPLED_POINTS) or 1]
    found = [seen(camera, some) for camera in cameras[:: -(-len(cameras) // _SAMPLED_CAMERAS) or 1]]
    depths = np.concatenate([depth[inside] for inside, depth in found]) if found else np.zeros(0)
    return float(np.median(depths)) if len(depths) else 0.0
