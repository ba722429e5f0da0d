"""Points for a scene that has none: drawn where its cameras look."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from grendel_odin.data.cameras import Camera
from grendel_odin.data.extent import stray_cameras
from grendel_odin.data.views import Points

_NEAREST, _FARTHEST = 0.5, 2.0  # shares of a view's typical depth
_CONVERGING = 0.01  # mean squared sine of the angle between axes
_IN_FRONT = 0.75
_OVERLAP_STEP = 0.25


def random_start(cameras: Sequence[Camera], count: int, seed: int) -> tuple[Points, str]:
    """`count` points of random colours in the view volumes of the cameras; a note that says where.

    A point is drawn by camera (stray ones left out), pixel and depth, the logarithm of which is
    uniform between half and twice the depth of what the camera looks at. So every view sees some.
    """
    draw = np.random.default_rng([seed, count])
    centers = np.array([camera.center for camera in cameras])
    kept = ~stray_cameras(centers, np.zeros((0, 3)))
    used = [camera for camera, keep in zip(cameras, kept, strict=True) if keep]
    depths, how = _depths(used, centers[kept])
    number = draw.integers(len(used), size=count)
    sizes = np.array([(camera.width, camera.height) for camera in used])
    pixels = draw.random((count, 2)) * sizes[number]
    z = depths[number] * np.exp(draw.uniform(np.log(_NEAREST), np.log(_FARTHEST), count))
    K = np.array([camera.K for camera in used])[number]
    x = (pixels[:, 0] - K[:, 0, 2] - K[:, 0, 1] * (pixels[:, 1] - K[:, 1, 2]) / K[:, 1, 1]) * z
    y = (pixels[:, 1] - K[:, 1, 2]) * z
    local = np.stack([x / K[:, 0, 0], y / K[:, 1, 1], z], axis=1)
    rotations = np.array([camera.world_to_camera[:3, :3] for camera in used])[number]
    xyz = np.einsum("nij,ni->nj", rotations, local) + centers[kept][number]
    rgb = draw.integers(0, 256, (count, 3), dtype=np.uint8)
    low, high = _NEAREST * float(np.median(depths)), _FARTHEST * float(np.median(depths))
    note = (
        f"no points: training starts from {count:,} random ones (data.random_points, seed {seed}) "
        f"about {low:.3g} to {high:.3g} in front of the cameras, {how}"
    )
    return Points(xyz, rgb, np.zeros(count + 1, np.int64), np.zeros(0, np.int32)), note


def _depths(
    cameras: Sequence[Camera], centers: NDArray[np.float64]
) -> tuple[NDArray[np.float64], str]:
    """[C] the depth at which each camera's subject is likely to lie, and how it was found."""
    forward = np.array([camera.world_to_camera[2, :3] for camera in cameras])
    across = np.eye(3) - forward[:, :, None] * forward[:, None, :]
    system = across.mean(axis=0)
    if np.linalg.eigvalsh(system)[0] > _CONVERGING:
        middle = centers.mean(axis=0)  # keeps far-away coordinates out of the equations
        target = np.einsum("cij,cj->i", across, centers - middle) / len(cameras)
        focus = middle + np.linalg.solve(system, target)
        depths = np.einsum("ci,ci->c", focus - centers, forward)
        front = depths > 0
        if front.mean() >= _IN_FRONT:
            typical = float(np.median(depths[front]))
            usual = front & (depths > 0.1 * typical)
            return np.where(usual, depths, typical), "around the point that they look at"
    # Parallel or outward views: neighbours are taken to overlap by three quarters.
    distinct = np.unique(centers, axis=0)
    if len(distinct) > 1:
        spacing = float(np.median(cKDTree(distinct).query(distinct, k=[2])[0]))
        focal = np.array([camera.K[0, 0] / camera.width for camera in cameras])
        return spacing * focal / _OVERLAP_STEP, "at a depth where neighbours overlap by 3/4"
    return np.ones(len(cameras)), "at a guessed depth: nothing tells the scene's scale"
