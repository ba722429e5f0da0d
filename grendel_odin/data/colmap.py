"""COLMAP models, binary and text, through pycolmap (the only file that imports it)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from pathlib import Path

import numpy as np
import pycolmap
from numpy.typing import NDArray

from grendel_odin.data.cameras import Camera
from grendel_odin.data.colmap_files import binary_problems
from grendel_odin.data.views import Points

_PINHOLES = ("PINHOLE", "SIMPLE_PINHOLE")


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """What a COLMAP model says about a scene."""

    cameras: list[Camera]
    """One for each registered image, sorted by name."""
    points: Points
    """Their track_views index `cameras`."""


def read_model(folder: Path) -> tuple[Model | None, list[str]]:
    """Reads a model of pinhole cameras; also returns all problems found.

    A model with problems holds what could be read, so that more can be checked at once.
    """
    if (folder / "cameras.bin").is_file():
        problems = binary_problems(folder, _parameter_count)
        if problems:
            return None, problems
    try:
        reconstruction = pycolmap.Reconstruction(str(folder))
        images = [reconstruction.images[i] for i in reconstruction.reg_image_ids()]
        images.sort(key=attrgetter("name"))
    except (ValueError, LookupError, RuntimeError, MemoryError) as error:
        return None, [
            f"the COLMAP model {folder} cannot be read ({error}): copy the model again, "
            "or open it in COLMAP and save it anew"
        ]
    problems = _model_problems(folder, reconstruction, images)
    pairs = [(image, reconstruction.cameras[image.camera_id]) for image in images]
    usable = [(image, camera) for image, camera in pairs if not _camera_fault(camera)]
    cameras = [_camera(image, camera) for image, camera in usable]
    points = _points(reconstruction, [image.image_id for image, _ in usable])
    return Model(cameras, points), problems + _number_problems(folder, cameras, points)


def _parameter_count(model: int) -> int | None:
    try:
        camera = pycolmap.Camera.create_from_model_id(0, pycolmap.CameraModelId(model), 1.0, 1, 1)
    except ValueError:
        return None
    return len(camera.params)


def _model_problems(
    folder: Path, reconstruction: pycolmap.Reconstruction, images: list[pycolmap.Image]
) -> list[str]:
    problems = []
    if not images:
        problems.append(
            f"{folder} has no registered image: the reconstruction failed; run it again with "
            "more overlap between photos, or choose another model"
        )
    if reconstruction.num_points3D() == 0:
        problems.append(f"{folder} has no points to start from; run COLMAP's point_triangulator")
    for camera_id in sorted({image.camera_id for image in images}):
        if fault := _camera_fault(reconstruction.cameras[camera_id]):
            problems.append(f"camera {camera_id} of {folder} {fault}")
    repeated = [name for name, n in Counter(image.name for image in images).items() if n > 1]
    if repeated:
        problems.append(f"{folder} names images twice: {', '.join(repeated)}")
    return problems


def _camera_fault(camera: pycolmap.Camera) -> str:
    """Why a camera cannot be used; empty if it can."""
    if camera.model_name not in _PINHOLES:
        return (
            f"has the model {camera.model_name}; {' and '.join(_PINHOLES)} are read: undistort "
            "the scene with `colmap image_undistorter` and train on its output"
        )
    if not camera.verify_params():
        return f"needs {camera.params_info} as parameters, {len(camera.params)} numbers were found"
    return ""


def _number_problems(folder: Path, cameras: list[Camera], points: Points) -> list[str]:
    """Cameras and points must be finite, focal lengths and sizes positive."""
    bad = [
        camera.name
        for camera in cameras
        if not (np.isfinite(camera.K).all() and np.isfinite(camera.world_to_camera).all())
        or min(camera.K[0, 0], camera.K[1, 1], camera.width, camera.height) <= 0
    ]
    problems = []
    if bad:
        problems.append(
            f"{folder}: size, focal length or pose is not usable for {', '.join(bad)}; remove "
            "these images from the model"
        )
    broken = int((~np.isfinite(points.xyz).all(axis=1)).sum())
    if broken:
        problems.append(f"{folder}: {broken} of {len(points)} points are not finite; remove them")
    return problems


def _camera(image: pycolmap.Image, camera: pycolmap.Camera) -> Camera:
    world_to_camera = np.eye(4)
    world_to_camera[:3] = image.cam_from_world().matrix()
    return Camera(
        name=image.name,
        width=int(camera.width),
        height=int(camera.height),
        K=np.asarray(camera.calibration_matrix(), dtype=np.float64),
        world_to_camera=world_to_camera,
    )


def _points(reconstruction: pycolmap.Reconstruction, image_ids: list[int]) -> Points:
    """Points in id order, so that binary and text models start from the same rows.

    pycolmap has no bulk access to points; attrgetter and chain keep the walk over them in C.
    """
    records = [reconstruction.points3D[i] for i in sorted(reconstruction.point3D_ids())]
    elements = [record.track.elements for record in records]
    seen_by = np.fromiter(map(attrgetter("image_id"), chain.from_iterable(elements)), np.int64)
    lengths = np.fromiter(map(len, elements), np.int64, len(elements))
    offsets, views = _tracks(lengths, seen_by, np.asarray(image_ids, dtype=np.int64))
    return Points(
        xyz=np.array(list(map(attrgetter("xyz"), records)), dtype=np.float64).reshape(-1, 3),
        rgb=np.array(list(map(attrgetter("color"), records)), dtype=np.uint8).reshape(-1, 3),
        track_offsets=offsets,
        track_views=views,
    )


def _tracks(
    lengths: NDArray[np.int64], seen_by: NDArray[np.int64], image_ids: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """CSR rows of view indexes; drops repeats and images that are not registered."""
    if len(image_ids) == 0:
        return np.zeros(len(lengths) + 1, np.int64), np.zeros(0, np.int32)
    order = np.argsort(image_ids)
    place = np.searchsorted(image_ids, seen_by, sorter=order)
    view = order[np.minimum(place, len(image_ids) - 1)]
    known = image_ids[view] == seen_by
    point = np.repeat(np.arange(len(lengths)), lengths)
    pairs = np.unique(point[known] * len(image_ids) + view[known])
    counts = np.bincount(pairs // len(image_ids), minlength=len(lengths))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return offsets, (pairs % len(image_ids)).astype(np.int32)
