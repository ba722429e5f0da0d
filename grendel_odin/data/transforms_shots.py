"""Frames of transforms.json meet their files: each becomes a camera with an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grendel_odin.data.cameras import Camera
from grendel_odin.data.headers import listed, stored_size
from grendel_odin.data.lens import LensError, LensModel
from grendel_odin.data.transforms_camera import FrameError, lens_model, world_to_camera
from grendel_odin.data.transforms_file import Intrinsics
from grendel_odin.data.transforms_paths import (
    Entry,
    EntryFiles,
    OutsideError,
    find_files,
    find_near,
)
from grendel_odin.data.undistort import straighten

_NAMES_SHOWN = 10
_UNSCALED = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Shot:
    """A camera whose files are there."""

    camera: Camera
    """By the size that the file's intrinsics are for."""
    lens: LensModel
    image: Path
    mask: Path | None
    is_test: bool | None
    scale: float
    """Of the rotation, as it was written."""


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """What has come of all entries."""

    shots: list[Shot]
    reduced: bool
    """Whether the images are those of folders like images_4."""
    problems: list[str]
    notes: list[str]


def take_shots(scene: Path, entries: Sequence[Entry], downscale: int) -> Taken:
    """Finds files and makes cameras. Entries without their files are left out and noted."""
    problems: dict[str, None] = {}
    found = []
    for entry in entries:
        try:
            found.append(find_files(scene, entry, downscale))
        except OutsideError as error:
            problems[f"{entry.frame.place} {error}"] = None
    found, alike = find_near(scene, found, downscale)
    reduced = any(files.reduced for files in found) and all(
        files.reduced for files in found if files.full
    )
    shots, missing = list[Shot](), list[str]()
    for files in found:
        image = files.reduced if reduced else files.full
        lost = files.name if image is None else files.lost_mask(scene)
        if lost:
            missing.append(lost)
            continue
        try:
            shots.append(_shot(scene, files, scene / str(image), downscale if reduced else 1))
        except (FrameError, LensError) as error:
            problems[f"{files.entry.frame.place} {error}"] = None
    shots, repeated = _unrepeated(shots, problems)
    notes = [*_near_note(alike, len(entries)), *_missing_note(missing, len(entries)), *repeated]
    notes += _notes(entries, shots)
    if not problems and all(shot.is_test for shot in shots):
        problems[_none_left(scene, entries, missing)] = None
    return Taken(shots, reduced, list(problems), notes)


def _shot(scene: Path, files: EntryFiles, image: Path, enlarge: int) -> Shot:
    """`enlarge`: how much larger the photograph is than its file. Raises FrameError, LensError."""
    frame = files.entry.frame
    width, height = _size(frame.intrinsics, image, enlarge)
    lens = lens_model(frame.intrinsics, width, height)
    fx, fy, cx, cy = lens.intrinsics()
    straighten(lens)
    pose, scale = world_to_camera(frame.camera_to_world)
    K = np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])
    return Shot(
        camera=Camera(files.name, width, height, K, pose),
        lens=lens,
        image=image,
        mask=scene / files.mask if files.mask else None,
        is_test=files.entry.is_test,
        scale=scale,
    )


def _size(said: Intrinsics, image: Path, enlarge: int) -> tuple[int, int]:
    """As the frame says, or else by the file; one that cannot be read is reported later."""
    if said.width and said.height:
        return said.width, said.height
    width, height = stored_size(image) or (1, 1)
    return width * enlarge, height * enlarge


def _unrepeated(shots: Sequence[Shot], problems: dict[str, None]) -> tuple[list[Shot], list[str]]:
    """Each image once: training wins over testing, and two poses for one image are a problem."""
    kept: dict[str, Shot] = {}
    both, twice = [], []
    for shot in sorted(shots, key=lambda shot: bool(shot.is_test)):  # stable: training first
        name = shot.camera.name
        first = kept.setdefault(name, shot)
        if first is shot:
            continue
        if first.is_test != shot.is_test:
            both.append(name)
        elif np.allclose(first.camera.world_to_camera, shot.camera.world_to_camera, atol=1e-6):
            twice.append(name)
        else:
            problems[f"{name!a} has two poses: keep one of its frames"] = None
    notes = []
    if both:
        notes.append(
            f"{len(both)} test views are training views, too, and left out of the test, which "
            f"they would spoil: {listed(both, _NAMES_SHOWN)}"
        )
    if twice:
        notes.append(f"{len(twice)} frames are listed twice: {listed(twice, _NAMES_SHOWN)}")
    return list(kept.values()), notes


def _missing_note(missing: Sequence[str], total: int) -> list[str]:
    if not missing:
        return []
    names = listed([_printable(name) for name in missing], _NAMES_SHOWN)
    return [
        f"warning: the files of {len(missing)} of {total} frames are missing; these frames are "
        f"left out: {names}"
    ]


def _near_note(alike: Sequence[str], total: int) -> list[str]:
    if not alike:
        return []
    names = listed([_printable(name) for name in alike], _NAMES_SHOWN)
    return [
        f"{len(alike)} of {total} images are paired with files whose names differ in case, "
        f"extension or form: {names}"
    ]


def _notes(entries: Sequence[Entry], shots: Sequence[Shot]) -> list[str]:
    notes = []
    masks = sum(shot.mask is not None for shot in shots)
    if masks:
        notes.append(f"{masks} of {len(shots)} images have a mask_path, which is used")
    bent = [shot.lens for shot in shots if straighten(shot.lens) is not None]
    if bent:
        models = ", ".join(sorted({lens.model for lens in bent}))
        notes.append(
            f"{len(bent)} of {len(shots)} images have a lens that bends them ({models}); they are "
            "straightened as they are decoded"
        )
    depths = sum(entry.frame.has_depth for entry in entries)
    if depths:
        notes.append(f"depth_file_path of {depths} frames is not used")
    scales = sorted({float(f"{shot.scale:.3g}") for shot in shots if _scaled(shot)})
    if scales:
        shown = ", ".join(f"{scale:g}" for scale in scales[:3])
        notes.append(f"rotations are scaled by {shown}: the scale is taken out")
    return notes


def _scaled(shot: Shot) -> bool:
    return abs(shot.scale - 1) > _UNSCALED


def _none_left(scene: Path, entries: Sequence[Entry], missing: Sequence[str]) -> str:
    if missing:
        return (
            f"no training image of {scene} is left: the files of {len(missing)} of {len(entries)} "
            f"frames are missing, the first is {_printable(missing[0])}; file_path counts from "
            f"{scene}"
        )
    if not entries:
        return f"{scene} has no frame to train on: 'frames' is empty; export it anew"
    return f"{scene} has no frame to train on: all of its frames test, or are in no list of files"


def _printable(name: str) -> str:
    return name if name.isprintable() else ascii(name)
