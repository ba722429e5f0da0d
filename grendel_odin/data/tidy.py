"""Faults of cameras that nothing can mend, and points that no primitive can start from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from grendel_odin.data.cameras import Camera
from grendel_odin.data.extent import median_distance
from grendel_odin.data.views import Points

_FARTHEST = 1e12  # no survey reaches that far; its square is still safe in float32
_FAR, _TOO_FAR = 100.0, 1e4


def camera_problems(cameras: Sequence[Camera]) -> list[str]:
    """Cameras that cannot be used, by name and reason."""
    faults = [(camera.name, _fault(camera)) for camera in cameras]
    return [
        f"the camera of {name} {fault}; remove this image from the model, or correct it"
        for name, fault in faults
        if fault
    ]


def _fault(camera: Camera) -> str:
    K, pose = camera.K, camera.world_to_camera
    if not np.isfinite(pose).all():
        return "has a pose that is not finite"
    if not np.isfinite(K).all() or min(K[0, 0], K[1, 1], camera.width, camera.height) <= 0:
        return f"has unusable intrinsics (fx={K[0, 0]:g}, fy={K[1, 1]:g})"
    rotation = pose[:3, :3]
    if not np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-3) or np.linalg.det(rotation) < 0:
        return "has a pose that is no rotation and translation"
    if np.abs(pose[:3, 3]).max() > _FARTHEST:
        return f"lies {np.abs(pose[:3, 3]).max():.1g} units away"
    return ""


def tidy_points(points: Points, centers: NDArray[np.float64]) -> tuple[Points, list[str]]:
    """Points without those that are not finite or absurdly far; and a note on each kind of fault.

    Absurdly far is 10,000 times the usual distance of cameras [C, 3] and points from the middle of
    the cameras: float32 and projection give up there. Distant background and repeated points stay.
    """
    notes = []
    usable = np.isfinite(points.xyz).all(axis=1) & (np.abs(points.xyz).max(axis=1) <= _FARTHEST)
    if broken := int((~usable).sum()):
        notes.append(f"dropped {broken:,} of {len(points):,} points: not finite, or too far")
        points = select(points, usable)
    middle = np.median(centers, axis=0)
    size = max(median_distance(centers, middle), median_distance(points.xyz, middle))
    away = np.abs(points.xyz - middle).max(axis=1, initial=0.0)
    absurd: NDArray[np.bool_] = np.asarray(away > (_TOO_FAR * size if size > 0 else np.inf))
    if stray := int((~absurd & (away > _FAR * size)).sum()):
        notes.append(f"{stray:,} of {len(points):,} points lie far out (over {_FAR * size:.3g})")
    if dropped := int(absurd.sum()):
        notes.append(
            f"dropped {dropped:,} of {len(points):,} points: more than {_TOO_FAR * size:.3g} away"
        )
        points = select(points, ~absurd)
    if repeated := _repeats(points.xyz):
        notes.append(f"{repeated:,} of {len(points):,} points repeat another's position")
    return points, notes


def select(points: Points, keep: NDArray[np.bool_]) -> Points:
    """The points of a mask [P], with their tracks."""
    lengths = np.diff(points.track_offsets)
    offsets = np.concatenate([[0], np.cumsum(lengths[keep])]).astype(np.int64)
    views = points.track_views[np.repeat(keep, lengths)]
    return Points(points.xyz[keep], points.rgb[keep], offsets, views)


def _repeats(xyz: NDArray[np.float64]) -> int:
    """Number of points at exactly the position of an earlier one."""
    ordered = xyz[np.lexsort(xyz.T)]
    return int((ordered[1:] == ordered[:-1]).all(axis=1).sum())
