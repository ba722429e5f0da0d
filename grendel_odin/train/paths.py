"""Camera paths for films: through the training cameras, or an ellipse that follows their ring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from scipy.spatial.transform import Rotation, RotationSpline

from grendel_odin.data.cameras import Camera

_FRAMES_PER_KEY = 5
_FOCUS_PRIOR = 0.01


class PathKind(str, Enum):
    """The shape of a camera path."""

    INTERP = "interp"
    ELLIPSE = "ellipse"


def camera_path(
    kind: PathKind, cameras: Sequence[Camera], points: NDArray[np.float64], frames: int
) -> list[Camera]:
    """`frames` cameras with the first one's size and intrinsics. points: [P, 3] of the scene."""
    if len(cameras) == 1:
        return [cameras[0]] * frames
    if kind is PathKind.ELLIPSE:
        return ellipse(cameras, points, frames)
    return interpolate(cameras, frames)


def interpolate(cameras: Sequence[Camera], frames: int) -> list[Camera]:
    """A smooth path through evenly picked cameras, in their order: splines of centre and rotation.

    The time between two keys grows with the square root of their distance (centripetal), which
    keeps cubic splines from making loops.
    """
    count = min(len(cameras), max(2, frames // _FRAMES_PER_KEY))
    keys = [cameras[i] for i in np.linspace(0, len(cameras) - 1, count).round().astype(int)]
    centers = np.stack([camera.center for camera in keys])
    steps = np.sqrt(np.linalg.norm(np.diff(centers, axis=0), axis=1))
    steps += 0.05 * steps.mean() + 1e-9  # cameras that share a centre still need time to turn
    times = np.concatenate([[0.0], np.cumsum(steps)])
    at = np.linspace(0.0, times[-1], frames)
    turned = Rotation.from_matrix(np.stack([camera.world_to_camera[:3, :3] for camera in keys]))
    rotations = RotationSpline(times, turned)(at).as_matrix()
    return _cameras(cameras[0], rotations, CubicSpline(times, centers)(at))


def ellipse(cameras: Sequence[Camera], points: NDArray[np.float64], frames: int) -> list[Camera]:
    """A closed ellipse in the plane of the camera centres, looking at what they look at.

    Its half axes are sqrt(2) standard deviations of the centres, which gives a ring back exactly.
    """
    centers = np.stack([camera.center for camera in cameras])
    middle = centers.mean(axis=0)
    _, deviations, axes = np.linalg.svd(centers - middle, full_matrices=True)
    half_axes = np.zeros(2)
    half_axes[: len(deviations[:2])] = np.sqrt(2.0 / len(cameras)) * deviations[:2]
    angles = np.linspace(0.0, 2.0 * np.pi, frames, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    path = middle + (circle * half_axes) @ axes[:2]
    up = -np.mean([camera.world_to_camera[1, :3] for camera in cameras], axis=0)
    if np.linalg.norm(up) < 0.3:  # no common upright, as in a flight to and fro looking down
        up = axes[2]
    return _cameras(cameras[0], _looking_at(_focus(cameras, points) - path, up), path)


def _focus(cameras: Sequence[Camera], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """The point nearest to all viewing axes.

    Parallel axes leave it open along themselves; a weak pull to the points' median decides then.
    """
    centers = np.stack([camera.center for camera in cameras])
    forward = np.stack([camera.world_to_camera[2, :3] for camera in cameras])
    prior = np.median(points, axis=0) if len(points) else (centers + forward).mean(axis=0)
    across = np.eye(3) - forward[:, :, None] * forward[:, None, :]
    system = across.mean(axis=0) + _FOCUS_PRIOR * np.eye(3)
    target = np.einsum("cij,cj->i", across, centers) / len(cameras) + _FOCUS_PRIOR * prior
    focus: NDArray[np.float64] = np.linalg.solve(system, target)
    return focus


def _looking_at(forward: NDArray[np.float64], up: NDArray[np.float64]) -> NDArray[np.float64]:
    """[F, 3, 3] world-to-camera rotations that look along `forward` [F, 3], `up` upwards."""
    right = _unit(np.cross(forward, up))
    forward = _unit(forward)
    return np.stack([right, np.cross(forward, right), forward], axis=1)


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: NDArray[np.float64] = vectors / np.maximum(lengths, 1e-12)
    return unit


def _cameras(
    like: Camera, rotations: NDArray[np.float64], centers: NDArray[np.float64]
) -> list[Camera]:
    poses = np.tile(np.eye(4), (len(centers), 1, 1))
    poses[:, :3, :3] = rotations
    poses[:, :3, 3] = -np.einsum("fij,fj->fi", rotations, centers)
    return [
        replace(like, name=f"frame_{index:05d}.png", world_to_camera=pose)
        for index, pose in enumerate(poses)
    ]
