"""Train and test views, and the scale of a scene."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from grendel_odin.data.cameras import Camera
from grendel_odin.data.views import Points

T = TypeVar("T")

_DEPTH_SHARE = 0.1
_SMALLEST = 1e-6


def split(views: Sequence[T], test_every: int) -> tuple[list[T], list[T]]:
    """Train and test views: every test_every-th, from the first, is a test view; 0: none."""
    if test_every == 0:
        return list(views), []
    test = list(views[::test_every])
    return [view for i, view in enumerate(views) if i % test_every], test


def scene_extent(cameras: Sequence[Camera], points: Points) -> float:
    """1.1 times the largest distance of a camera from the cameras' mean centre (3DGS).

    Sizes at which primitives are split and pruned are shares of it. Cameras that (almost) share
    one centre would give an extent near zero, and pruning would then remove everything: so it is
    at least a tenth of the median distance between that centre and the points.
    """
    centers = np.array([camera.center for camera in cameras])
    middle = centers.mean(axis=0)
    radius = float(np.linalg.norm(centers - middle, axis=1).max())
    depth = float(np.median(np.linalg.norm(points.xyz - middle, axis=1))) if len(points) else 0.0
    return max(1.1 * radius, _DEPTH_SHARE * depth, _SMALLEST)
