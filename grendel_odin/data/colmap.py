"""COLMAP models, binary and text, become cameras and points.

Poses are those of the images: rigs and frames, where a model has them, hold the same once more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from grendel_odin.data import colmap_binary, colmap_text
from grendel_odin.data.cameras import Camera
from grendel_odin.data.colmap_files import Found, find_model, other_models, text_beside
from grendel_odin.data.colmap_points import points_file, points_note, read_points
from grendel_odin.data.colmap_records import Damaged, ImageRecord, PointRecords, Records, printable
from grendel_odin.data.headers import listed
from grendel_odin.data.lens import LensError, LensModel
from grendel_odin.data.names import name_fault
from grendel_odin.data.undistort import ColmapLens, straighten
from grendel_odin.data.views import Lens, Model, Points

__all__ = ["Model", "read_colmap", "read_model"]

T = TypeVar("T")
_NAMES_SHOWN = 20
_FAR = 1e15
"""Units from the origin; beyond it, double precision leaves no scene."""


def read_colmap(scene: Path, wanted: str = "") -> tuple[Model | None, list[str]]:
    """The model that a scene is trained on, and all problems.

    `wanted` names its folder, relative to the scene; else it is the one with most images.
    """
    found, problems = find_model(scene, wanted)
    if found is None:
        return None, problems
    model, problems = read_model(found)
    others = other_models(scene, found)
    if model is not None:
        model.notes[:0] = others
    return model, problems + (others if model is None else [])


def read_model(found: Found) -> tuple[Model | None, list[str]]:
    """Reads one model; also returns all problems found.

    A model with problems holds what could be read, so that more can be checked at once.
    """
    records, problems = _records(found)
    if records is None:
        return None, problems
    images = sorted(map(_renamed, records.images), key=lambda image: image.name)
    problems = _image_problems(found.folder, images)
    faults = {number: fault for number, lens in _used(records) if (fault := _fault(lens))}
    problems += [
        f"camera {number} of {found.folder} {fault}" for number, fault in sorted(faults.items())
    ]
    lost = [image for image in images if image.camera_id not in records.cameras]
    if lost:
        problems.append(
            f"{found.folder}: cameras.{found.kind} has no camera {lost[0].camera_id}, which the "
            f"image {printable(lost[0].name)} names ({len(lost)} such images)"
        )
    usable = [
        image
        for image in images
        if image.camera_id in records.cameras
        and image.camera_id not in faults
        and not _bad_pose(image)
        and not name_fault(image.name)
    ]
    lenses = [records.cameras[image.camera_id] for image in usable]
    return Model(
        cameras=_cameras(usable, lenses),
        points=_points(records.points, [image.id for image in usable]),
        notes=points_note(_points_file(found), found.kind) + _notes(records),
        lenses=_bent(lenses),
    ), problems


def _records(found: Found) -> tuple[Records | None, list[str]]:
    """The three files; damage to several is told at once."""
    form = colmap_binary if found.kind == "bin" else colmap_text
    problems: list[str] = []

    def attempt(read: Callable[[Path], T], file: Path) -> T | None:
        try:
            return read(file)
        except Damaged as damage:
            problems.append(str(damage))
        except (OSError, MemoryError) as error:
            problems.append(f"{file} cannot be read ({error})")
        return None

    cameras = attempt(form.read_cameras, found.file("cameras"))
    images = attempt(form.read_images, found.file("images"))
    points = attempt(read_points, _points_file(found))
    if cameras is None or images is None or points is None:
        return None, problems + text_beside(found)
    return Records(cameras, images, points), []


def _points_file(found: Found) -> Path:
    return points_file(found.folder, found.kind) or found.file("points3D")


def _renamed(image: ImageRecord) -> ImageRecord:
    """Windows programs part folders by backslashes."""
    return replace(image, name=image.name.replace("\\", "/").removeprefix("./"))


def _used(records: Records) -> list[tuple[int, LensModel]]:
    used = {image.camera_id for image in records.images}
    return [(number, lens) for number, lens in records.cameras.items() if number in used]


def _fault(lens: LensModel) -> str:
    try:
        straighten(lens)
    except LensError as fault:
        return str(fault)
    return ""


def _image_problems(folder: Path, images: list[ImageRecord]) -> list[str]:
    problems = []
    if not images:
        problems.append(
            f"{folder} has no registered image: the reconstruction failed; run it again with "
            "more overlap between photos, or choose another model"
        )
    repeated = [name for name, n in Counter(image.name for image in images).items() if n > 1]
    if repeated:
        problems.append(f"{folder} names images twice: {_listed(repeated)}")
    faults = [f"{image.name} {fault}" for image in images if (fault := name_fault(image.name))]
    if faults:
        problems.append(
            f"{folder}: names of images must be those of files below the image folder; rename "
            f"them in the model: {_listed(faults)}"
        )
    bad = [image.name for image in images if _bad_pose(image)]
    if bad:
        problems.append(
            f"{folder}: the pose of {len(bad)} images is not finite, no rotation or more than "
            f"{_FAR:g} units away; remove them from the model, or scale it: {_listed(bad)}"
        )
    return problems


def _listed(names: list[str]) -> str:
    return listed([printable(name) for name in names], _NAMES_SHOWN)


def _bad_pose(image: ImageRecord) -> bool:
    usable = 1e-3 < math.hypot(*image.quaternion) < 1e3 and math.hypot(*image.translation) < _FAR
    return not usable


def _cameras(images: list[ImageRecord], lenses: list[LensModel]) -> list[Camera]:
    if not images:
        return []
    quaternions = np.array([image.quaternion for image in images])
    poses = np.tile(np.eye(4), (len(images), 1, 1))
    poses[:, :3, :3] = Rotation.from_quat(np.roll(quaternions, -1, axis=1)).as_matrix()
    poses[:, :3, 3] = [image.translation for image in images]
    return [
        Camera(image.name, lens.width, lens.height, _K(lens), pose)
        for image, lens, pose in zip(images, lenses, poses, strict=True)
    ]


def _K(lens: LensModel) -> NDArray[np.float64]:
    fx, fy, cx, cy = lens.intrinsics()
    return np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])


def _bent(lenses: list[LensModel]) -> dict[int, Lens]:
    return {i: ColmapLens(lens) for i, lens in enumerate(lenses) if straighten(lens) is not None}


def _notes(records: Records) -> list[str]:
    """Which camera models are straightened."""
    bent = [
        (number, lens) for number, lens in _used(records) if not _fault(lens) and straighten(lens)
    ]
    if not bent:
        return []
    models = ", ".join(sorted({lens.model for _, lens in bent}))
    ids = {number for number, _ in bent}
    count = sum(image.camera_id in ids for image in records.images)
    return [
        f"{count} of {len(records.images)} images have a lens that bends them ({models}); they "
        "are straightened as they are decoded"
    ]


def _points(records: PointRecords, image_ids: list[int]) -> Points:
    """Points in id order, so that binary and text models start from the same rows."""
    order = np.argsort(records.ids, kind="stable")
    starts = np.concatenate([[0], np.cumsum(records.track_lengths)]).astype(np.int64)
    lengths = records.track_lengths[order]
    before = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)[:-1]
    place = np.repeat(starts[:-1][order] - before, lengths) + np.arange(lengths.sum())
    offsets, views = _tracks(lengths, records.track_images[place], np.array(image_ids, np.int64))
    return Points(records.xyz[order], records.rgb[order], offsets, views)


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
