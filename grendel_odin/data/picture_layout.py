"""Which way a scene is drawn: an upright frame, and the part of space worth showing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grendel_odin.data.cameras import Camera

_MARGIN = 0.06
_SHARE = 2.0
"""Percent of the points that may lie outside of the picture on each side."""
_FEW = 50
_REACH = 3.0
"""Times the span of the cameras that points may widen the picture to."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Axes of the picture in the world, and the box that it shows."""

    axes: NDArray[np.float64]
    """[3, 3] rows: right, away (up in the view from above), up (up in the view from the side)."""
    low: NDArray[np.float64]
    """[3] along these axes."""
    high: NDArray[np.float64]

    def local(self, xyz: NDArray[np.float64]) -> NDArray[np.float64]:
        """[n, 3] along the axes, of points [n, 3] of the world."""
        along: NDArray[np.float64] = xyz @ self.axes.T
        return along


def layout(cameras: Sequence[Camera], xyz: NDArray[np.float64]) -> Layout:
    """Upright as its photographer stood, the longest side lying across."""
    rotations = np.array([camera.world_to_camera[:3, :3] for camera in cameras])
    centers = np.array([camera.center for camera in cameras])
    up = _up(rotations, xyz)
    across = _longest(np.concatenate([centers, _middle_part(xyz)]), up)
    axes = np.stack([across, np.cross(up, across), up])
    low, high = _box(centers @ axes.T, xyz @ axes.T)
    return Layout(axes, low, high)


def _up(rotations: NDArray[np.float64], xyz: NDArray[np.float64]) -> NDArray[np.float64]:
    """Upright photographs have their x axes level; where that leaves a choice (all look one way),
    it goes to their own up, or to the direction in which the points are flat."""
    right, down, forward = rotations[:, 0], rotations[:, 1].mean(axis=0), rotations[:, 2].mean(0)
    favoured = 0.1 * np.outer(down, down) + 0.05 * np.outer(forward, forward)
    if len(xyz) > 3:
        values, vectors = np.linalg.eigh(np.cov(_middle_part(xyz).T))
        flatness = 1 - np.sqrt(max(values[0], 0) / values[1]) if values[1] > 0 else 0.0
        favoured += 0.1 * flatness * np.outer(vectors[:, 0], vectors[:, 0])
    up: NDArray[np.float64] = np.linalg.eigh(right.T @ right / len(right) - favoured)[1][:, 0]
    sign = -(up @ down) if abs(up @ down) > 0.1 else -(up @ forward)
    return up if sign >= 0 else np.negative(up)


def _longest(xyz: NDArray[np.float64], up: NDArray[np.float64]) -> NDArray[np.float64]:
    """The level direction in which positions are spread most."""
    level = xyz - xyz.mean(axis=0)
    level = level - np.outer(level @ up, up)
    across: NDArray[np.float64] = np.linalg.eigh(level.T @ level)[1][:, 2]
    if abs(across @ up) > 0.5:  # all positions on one line along up
        across = np.cross(up, np.eye(3)[int(np.abs(up).argmin())])
    across = across - (across @ up) * up
    across = across * np.sign(across[np.abs(across).argmax()])
    return np.asarray(across / np.linalg.norm(across), dtype=np.float64)


def _middle_part(xyz: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points without those that stand out, at most some thousands."""
    some = xyz[:: max(1, len(xyz) // 5000)]
    if len(some) < _FEW:
        return some
    low, high = np.percentile(some, [_SHARE, 100 - _SHARE], axis=0)
    return np.asarray(some[((some >= low) & (some <= high)).all(axis=1)], dtype=np.float64)


def _box(
    centers: NDArray[np.float64], points: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All cameras but the farthest, and most points, with a margin."""
    low, high = _most(centers)
    if len(points):
        middle, span = (low + high) / 2, max(float((high - low).max()), 1e-9)
        near_low, near_high = np.percentile(points, [_SHARE, 100 - _SHARE], axis=0)
        if len(centers) > 1:
            near_low = np.maximum(near_low, middle - _REACH * span)
            near_high = np.minimum(near_high, middle + _REACH * span)
        low, high = np.minimum(low, near_low), np.maximum(high, near_high)
    size = max(float((high - low).max()), 1e-6)
    margin = _MARGIN * size
    return low - margin, high + margin


def _most(centers: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The box of positions within ten median distances of their middle."""
    away = np.linalg.norm(centers - np.median(centers, axis=0), axis=1)
    kept = centers[away <= 10 * max(float(np.median(away)), 1e-12)]
    kept = kept if len(kept) else centers
    return kept.min(axis=0), kept.max(axis=0)
