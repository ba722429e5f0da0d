"""Pairs cameras with image files: each camera takes the true size of its file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grendel_odin.data.cameras import Camera
from grendel_odin.data.headers import Header, listed, read_header, same_shape
from grendel_odin.data.views import Lens, View

_FAULTS_SHOWN = 20
_NAMES_SHOWN = 5
_ALIKE = (0.7, 1.4)
"""A ratio that is within rounding of another, even where images are tiny."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """Views, and what was found while their files were looked at."""

    views: list[View]
    problems: list[str]
    notes: list[str]


def fit_views(
    cameras: Sequence[Camera],
    paths: Sequence[Path],
    downscale: int,
    lenses: Mapping[int, Lens] | None = None,
) -> Fitted:
    """One view for each camera, in order, by the headers of the files at `paths`.

    Intrinsics are scaled per axis to the true size of each file, which must have the shape of
    the camera's image, and then by `downscale`, rounded to whole pixels. `lenses` belong to
    cameras, by index, that are not pinholes.
    """
    views, faults = [], []
    headers = [read_header(path) for path in paths]
    resized = []
    for index, (camera, header) in enumerate(zip(cameras, headers, strict=True)):
        size = header.size or (camera.width, camera.height)
        if header.fault and not header.missing:
            faults.append(f"{header.path} {header.fault}")
        elif not same_shape((camera.width, camera.height), size):
            faults.append(_shape_fault(camera, header, size))
        elif size != (camera.width, camera.height):
            resized.append(camera.name)
        lens = lenses.get(index) if lenses and not header.fault else None
        views.append(_view(camera, header.path, index, size, downscale, lens))
    problems = faults[:_FAULTS_SHOWN]
    if len(faults) > _FAULTS_SHOWN:
        problems.append(f"and {len(faults) - _FAULTS_SHOWN} more image files with such faults")
    names = [camera.name for camera in cameras]
    notes = [_size_note(views), *_notes(names, headers, resized)] if views else []
    return Fitted(views, problems + _missing(names, headers), notes)


def _view(
    camera: Camera, path: Path, index: int, size: tuple[int, int], downscale: int, lens: Lens | None
) -> View:
    stored, warp = camera.resized(*size), None
    if lens is not None:
        stored, warp = lens.undistorted(stored)
    width, height = (max(1, round(side / downscale)) for side in (stored.width, stored.height))
    return View(stored.resized(width, height), path, index, size, warp=warp)


def _shape_fault(camera: Camera, header: Header, size: tuple[int, int]) -> str:
    remedy = (
        "give the images that the model was made from, or the same resized as a whole, neither "
        "cropped nor turned"
    )
    if header.turned and same_shape((camera.width, camera.height), size[::-1]):
        remedy = (
            "the model was made from images turned as their EXIF orientation says; turn the "
            "pixels of the files likewise (mogrify -auto-orient)"
        )
    return (
        f"{header.path} is {size[0]}x{size[1]}, which is not the shape of the camera of "
        f"{camera.name}, {camera.width}x{camera.height}: {remedy}"
    )


def _missing(names: Sequence[str], headers: Sequence[Header]) -> list[str]:
    missing = [i for i, header in enumerate(headers) if header.missing]
    if not missing:
        return []
    return [
        f"{len(missing)} of {len(headers)} image files are missing (the first was sought as "
        f"{headers[missing[0]].path}): {listed([names[i] for i in missing])}; data.images names "
        "the folder, data.skip_missing=true trains without them"
    ]


def reduction_note(cameras: Sequence[Camera], views: Sequence[View], factor: int) -> list[str]:
    """A warning if images that were reduced beforehand are of quite another size than asked for.

    `cameras`: as the model has them, in the order of their views.
    """
    ratios = [camera.width / view.file_size[0] for camera, view in zip(cameras, views, strict=True)]
    odd = [ratio for ratio in ratios if not _ALIKE[0] < ratio / factor < _ALIKE[1]]
    if not odd:
        return []
    return [
        f"warning: {len(odd)} of {len(views)} reduced images are {odd[0]:.3g} times smaller than "
        f"in the model, not data.downscale={factor}; they are trained on as they are"
    ]


def _size_note(views: Sequence[View]) -> str:
    counts = Counter((view.file_size, (view.camera.width, view.camera.height)) for view in views)
    parts = []
    for (stored, trained), count in counts.most_common():
        reduced = f" (trained at {trained[0]}x{trained[1]})" if trained != stored else ""
        parts.append(f"{count} of {stored[0]}x{stored[1]}{reduced}")
    return f"images: {listed(parts, _NAMES_SHOWN)}"


def _notes(names: Sequence[str], headers: Sequence[Header], resized: Sequence[str]) -> list[str]:
    notes, total = [], len(headers)
    if resized:
        notes.append(
            f"{len(resized)} of {total} images have not the size of their camera; intrinsics are "
            f"scaled to each file's own size: {listed(resized, _NAMES_SHOWN)}"
        )
    turned = [name for name, header in zip(names, headers, strict=True) if header.turned]
    if turned:
        notes.append(
            f"{len(turned)} of {total} images have an EXIF orientation, which is ignored: pixels "
            f"are taken as they are stored, as COLMAP does: {listed(turned, _NAMES_SHOWN)}"
        )
    transparent = sum(header.transparent for header in headers)
    if transparent:
        notes.append(
            f"{transparent} of {total} images have transparency; renderer.background shows "
            "through, in training and in evaluation"
        )
    return notes
