"""The frame that training works in: that of the input, less an offset if that is far away.

Parameters are float32. Its spacing is 2^-23 of a coordinate, half a metre in UTM northings; small
steps of the optimizer would be lost long before. So coordinates are read in float64, and where the
middle of the cameras is more than 64 scene sizes from the origin (float32 spacing above 1/130,000
of the size) a round offset is subtracted from points and camera centres before anything else sees
them. All files of a run hold the local frame; local + offset = input. The offset stands in the
header of every PLY (`comment offset X Y Z`) and, as the transform from input to local frame that
nerfstudio writes, in dataparser_transforms.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from grendel_odin.data.cameras import Camera
from grendel_odin.data.extent import median_distance, seen, stray_cameras, view_depth
from grendel_odin.data.random_start import random_start
from grendel_odin.data.tidy import camera_problems, tidy_points
from grendel_odin.data.views import Model, Points

_FAR_AWAY = 64.0
_FEW = 50
_LISTED = 5
_PROJECTED = 5000
_SAME_PLACE = 1e-9
"""Share of the points' distance below which cameras have not moved."""
_CREDIBLE = 0.5
"""Share of observations that project into their images even of a poor model."""


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A model in the frame of training."""

    model: Model
    """Its cameras and points are in the local frame; its notes tell what was done."""
    offset: NDArray[np.float64]
    """[3] what was subtracted from all coordinates; zeros as a rule."""
    depth: float
    """Median depth at which views see points; 0 if none does."""
    problems: list[str]


def place(model: Model, random_points: int, seed: int) -> Placed:
    """Drop what cannot be used, draw points where there are none, subtract the offset.

    With problems, nothing is done.
    """
    cameras = model.cameras
    problems = camera_problems(cameras)
    if problems or not cameras:
        return Placed(model, np.zeros(3), 0.0, problems)
    centers = np.array([camera.center for camera in cameras])
    points, notes = tidy_points(model.points, centers)
    stray = stray_cameras(centers, points.xyz)
    offset = find_offset(centers[~stray], points.xyz)
    if offset.any():
        cameras = [moved(camera, offset) for camera in cameras]
        points = replace(points, xyz=points.xyz - offset)
        notes.append(
            "coordinates far from the origin: the offset "
            f"{' '.join(f'{value:.12g}' for value in offset.tolist())} is subtracted. Files of "
            "the run hold the local frame; the offset is in the headers of PLY files and in "
            "dataparser_transforms.json"
        )
    notes += _camera_notes(cameras, stray, points)
    if len(points):
        notes += _point_notes(cameras, points)
    else:
        points, note = random_start(cameras, random_points, seed)
        notes.append(note)
    placed = replace(model, cameras=cameras, points=points, notes=[*model.notes, *notes])
    return Placed(placed, offset, view_depth(cameras, points.xyz), [])


def find_offset(centers: NDArray[np.float64], xyz: NDArray[np.float64]) -> NDArray[np.float64]:
    """[3] the middle of cameras [C, 3], rounded to the scene's order of magnitude; zeros if it is
    within 64 sizes of the origin. All views count, so that no choice of test views changes it."""
    middle = np.median(centers, axis=0)
    radius = float(np.linalg.norm(centers - middle, axis=1).max())
    size = max(radius, median_distance(xyz, middle))
    if np.abs(middle).max() <= _FAR_AWAY * (size or 1.0):
        return np.zeros(3)
    step = 10.0 ** np.floor(np.log10(size)) if size else 1.0
    rounded: NDArray[np.float64] = np.round(middle / step) * step
    return rounded


def moved(camera: Camera, offset: NDArray[np.float64]) -> Camera:
    """The camera in the frame whose origin is at `offset`."""
    pose = camera.world_to_camera.copy()
    pose[:3, 3] = pose[:3, :3] @ (offset - camera.center)
    return replace(camera, world_to_camera=pose)


def _one_place(centers: NDArray[np.float64], xyz: NDArray[np.float64]) -> bool:
    radius = float(np.linalg.norm(centers - centers[0], axis=1).max())
    return radius <= _SAME_PLACE * (median_distance(xyz, centers[0]) or 1.0)


def _camera_notes(cameras: Sequence[Camera], stray: NDArray[np.bool_], points: Points) -> list[str]:
    notes = []
    if len(cameras) == 1:
        notes.append("one image only: it is trained on, and none is held out to test with")
    elif _one_place(np.array([camera.center for camera in cameras]), points.xyz):
        notes.append(
            "warning: all cameras stand at one place: depth cannot be told from them, and the "
            "scene's extent is that of its points"
        )
    names = [camera.name for camera, far in zip(cameras, stray, strict=True) if far]
    if names:
        notes.append(
            f"{len(names)} of {len(cameras)} cameras stand far from the others and do not count "
            f"for the scene's extent: {_listed(names)}"
        )
    outside = [
        camera.name
        for camera in cameras
        if not (0 <= camera.K[0, 2] <= camera.width and 0 <= camera.K[1, 2] <= camera.height)
    ]
    if outside:
        notes.append(
            f"{len(outside)} of {len(cameras)} images are crops without their principal point: "
            f"{_listed(outside)}"
        )
    return notes


def _point_notes(cameras: Sequence[Camera], points: Points) -> list[str]:
    notes = []
    if len(points) < _FEW:
        notes.append(f"warning: only {len(points)} points to start from; expect a poor start")
    if len(points.track_views):
        sees = np.bincount(points.track_views, minlength=len(cameras)) > 0
        notes += _contradictions(cameras, points)
    else:
        notes.append("the points have no tracks; what a view sees is found by projection")
        sees = np.zeros(len(cameras), bool)
    some = points.xyz[:: -(-len(points) // _PROJECTED)]
    blind = [
        camera.name
        for camera, tracked in zip(cameras, sees, strict=True)
        if not tracked and not seen(camera, some)[0].any()
    ]
    if blind:
        notes.append(f"{len(blind)} of {len(cameras)} views see no point: {_listed(blind)}")
    return notes


def _contradictions(cameras: Sequence[Camera], points: Points) -> list[str]:
    """A warning if points do not project into the views that are said to see them."""
    owners = np.repeat(np.arange(len(points)), np.diff(points.track_offsets))
    step = -(-len(owners) // _PROJECTED)
    owners, views = owners[::step], points.track_views[::step]
    inside = sum(
        int(seen(camera, points.xyz[owners[views == index]])[0].sum())
        for index, camera in enumerate(cameras)
    )
    if inside >= _CREDIBLE * len(owners):
        return []
    return [
        f"warning: {len(owners) - inside:,} of {len(owners):,} observations lie outside of the "
        "images that they were made in: poses, intrinsics and points do not belong together"
    ]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
