"""From a frame of transforms.json to a camera of ours."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from grendel_odin.data.lens import LensModel
from grendel_odin.data.transforms_file import Intrinsics

_FROM_OPENGL = np.diag([1.0, -1.0, -1.0])
"""x right, y up, z backward to x right, y down, z forward."""
_SKEW = 1e-3
_PERSPECTIVE = ("OPENCV", "FULL_OPENCV", "PINHOLE", "SIMPLE_PINHOLE", "PERSPECTIVE")
_FISHEYE = "OPENCV_FISHEYE"
_CENTRAL = ("k1", "k2", "p1", "p2")
_RADIAL = ("k1", "k2", "k3", "k4")
_FULL = (*_CENTRAL, "k3", "k4", "k5", "k6")


class FrameError(Exception):
    """Why a frame cannot be used; the text goes on after the frame's name."""


def world_to_camera(camera_to_world: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """[4, 4] rigid transform in COLMAP's axes, and the scale that the rotation had.

    MatrixCity's rotations are scaled by 0.01; position and PLY share their unit, so that the
    scale is dropped. Raises FrameError for what is no rotation, however scaled.
    """
    if np.abs(camera_to_world[3] - (0, 0, 0, 1)).max() > 1e-6:
        raise FrameError("has a pose whose last row is not 0 0 0 1")
    scaled = camera_to_world[:3, :3]
    largest = float(np.abs(scaled).max())
    unit = scaled / largest if largest > 0 else scaled
    determinant = float(np.linalg.det(unit))
    if determinant <= 1e-9:
        kind = "mirrors the scene" if determinant < -1e-9 else "is flat"
        raise FrameError(f"has a pose that {kind}: its 3x3 part must be a rotation")
    factor = determinant ** (1 / 3)
    unit = unit / factor
    if np.abs(unit.T @ unit - np.eye(3)).max() > _SKEW:
        raise FrameError("has a pose that is skewed: its 3x3 part must be a rotation")
    left, _, right = np.linalg.svd(unit)
    result = np.eye(4)
    result[:3, :3] = (left @ right @ _FROM_OPENGL).T
    result[:3, 3] = -result[:3, :3] @ camera_to_world[:3, 3]
    return result, largest * factor


def lens_model(said: Intrinsics, width: int, height: int) -> LensModel:
    """The camera model by COLMAP's name, for an image of this size. Raises FrameError."""
    fx, fy = _focal(said.focal_x, said.angle_x, width), _focal(said.focal_y, said.angle_y, height)
    if fx is None and fy is None:
        raise FrameError(
            "has no focal length: fl_x or camera_angle_x is needed, in the frame or at the top"
        )
    fx, fy = fx or fy or 0.0, fy or fx or 0.0
    cx = width / 2 if said.center_x is None else said.center_x
    cy = height / 2 if said.center_y is None else said.center_y
    model, keys = _model(said)
    bent = [said.distortion.get(key, 0.0) for key in keys]
    return LensModel(model, width, height, (fx, fy, cx, cy, *bent))


def _focal(pixels: float | None, angle: float | None, side: int) -> float | None:
    if pixels is not None or angle is None:
        return pixels
    return side / 2 / math.tan(angle / 2)


def _model(said: Intrinsics) -> tuple[str, tuple[str, ...]]:
    """COLMAP's name, and the keys of its parameters after fx, fy, cx, cy, in its order."""
    name = (said.model or "OPENCV").upper()
    keys: tuple[str, ...] = _CENTRAL
    if name == _FISHEYE:
        model, keys = _FISHEYE, _RADIAL
    elif name not in _PERSPECTIVE:
        known = ", ".join((*_PERSPECTIVE, _FISHEYE))
        raise FrameError(
            f"has the camera_model {said.model!r}; {known} are read: cut the images into "
            "perspective ones, or undistort them"
        )
    elif not said.distortion:
        model, keys = "PINHOLE", ()
    elif name == "FULL_OPENCV" or _only_k3(said):
        model, keys = "FULL_OPENCV", _FULL
    else:
        model = "OPENCV"
    unread = sorted(set(said.distortion) - set(keys))
    if unread:
        raise FrameError(
            f"has {', '.join(unread)}, which {name} does not know: set camera_model "
            "(FULL_OPENCV has k1 to k6, OPENCV_FISHEYE k1 to k4), or undistort the images"
        )
    return model, keys


def _only_k3(said: Intrinsics) -> bool:
    """k3 means the same in both of OpenCV's polynomials, k4 does not."""
    return "k3" in said.distortion and set(said.distortion) <= {*_CENTRAL, "k3"}
