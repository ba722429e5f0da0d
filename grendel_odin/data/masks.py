"""Masks: white where an image is used, black where it is ignored."""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from grendel_odin.config import UserError
from grendel_odin.data.headers import listed, read_header, same_shape, unreadable
from grendel_odin.data.pixels import to_rgb
from grendel_odin.data.views import View

_NAMES_SHOWN = 5
DEFAULT_FOLDER = "masks"
_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", "")
"""Of a mask, the usual one first. The last is for a mask whose name is that of the image."""
_BESIDE = "images/"


@dataclass(frozen=True, slots=True)
class Masked:
    """Views with their masks."""

    views: list[View]
    problems: list[str]
    """Masks that cannot be read."""
    notes: list[str]
    """What was found, and what was not."""


def find_masks(root: Path, folder: str, views: Sequence[View]) -> Masked:
    """Gives views the masks that lie in root/folder; a view that has one keeps it.

    The mask of a/b.jpg is a/b.jpg.png (COLMAP) or a/b.png, or either with another ending.
    """
    place = root / folder
    if not folder or not place.is_dir():
        return Masked(list(views), [], _no_folder(root, folder))
    files = _Files(place)
    paired = [
        view if view.mask_path else replace(view, mask_path=files.mask_of(view.camera.name))
        for view in views
    ]
    problems, stretched = _check(paired)
    return Masked(paired, problems, [_count(place, paired), *stretched])


def read_mask(path: Path, size: tuple[int, int]) -> Image.Image:
    """The mask as 0 and 255, resized by nearest. Raises UserError naming the file.

    Used is what is brighter than half of the brightest pixel, so that files of 0 and 1 work, too.
    """
    try:
        with Image.open(path) as file:
            grey = np.asarray(to_rgb(path, file, (0, 0, 0)).convert("L"))
        if np.ptp(grey) == 0:
            grey = _alpha(path, grey)
    except Exception as error:  # plug-ins raise whatever they like at broken files
        raise UserError(f"the mask {path} {unreadable(error)}") from error
    mask = Image.fromarray((grey > grey.max() / 2).astype(np.uint8) * np.uint8(255))
    return mask if mask.size == size else mask.resize(size, Image.Resampling.NEAREST)


def _alpha(path: Path, grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """What a picture of one colour says is in its alpha; `grey` if that has one value, too."""
    with Image.open(path) as file:
        alpha = np.asarray(file.convert("RGBA").getchannel("A"))
    return alpha if np.ptp(alpha) else grey


class _Files:
    """Files under a folder by their names relative to it."""

    def __init__(self, folder: Path) -> None:
        os.listdir(folder)  # rglob passes over what may not be read
        paths = [path for path in folder.rglob("*") if path.is_file()]
        self._exact = {path.relative_to(folder).as_posix(): path for path in paths}
        uses = Counter(map(_folded, self._exact))
        self._folded = {
            _folded(name): path for name, path in self._exact.items() if uses[_folded(name)] == 1
        }

    def mask_of(self, image: str) -> Path | None:
        """By exact names first, then in another case or form of Unicode if only one fits.

        transforms.json counts names from above the image folder, `masks` stands for that folder.
        """
        for spelling in (image, image.removeprefix(_BESIDE)):
            stem = PurePosixPath(spelling).with_suffix("").as_posix()
            names = [f"{base}{ending}" for ending in _ENDINGS for base in (spelling, stem)]
            exact = [self._exact[name] for name in names if name in self._exact]
            alike = [self._folded[key] for key in map(_folded, names) if key in self._folded]
            if exact or alike:
                return (exact + alike)[0]
        return None


def _no_folder(root: Path, folder: str) -> list[str]:
    """A note, if masks were asked for or seem to lie elsewhere."""
    if folder not in ("", DEFAULT_FOLDER):
        return [f"warning: no masks: data.masks={folder}, but {root / folder} does not exist"]
    near = [path.name for path in root.glob("*") if path.name.lower() in ("mask", "masks")]
    if not folder or not near or not (root / near[0]).is_dir():
        return []
    return [f"warning: {root / near[0]} is not used; data.masks={near[0]} takes masks from there"]


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _count(place: Path, views: Sequence[View]) -> str:
    bare = [view.camera.name for view in views if view.mask_path is None]
    if len(bare) < len(views):
        whole = f"; used whole, without one: {listed(bare, _NAMES_SHOWN)}" if bare else ""
        return f"{len(views) - len(bare)} of {len(views)} images have a mask in {place}{whole}"
    name = bare[0] if bare else "a.jpg"
    stem = PurePosixPath(name).with_suffix(".png")
    return (
        f"warning: {place} has no mask for any of {len(views)} images, which are used whole (of "
        f"the first, {name}.png and {stem} were sought there)"
    )


def _check(views: Sequence[View]) -> tuple[list[str], list[str]]:
    """Masks that cannot be read, and a note on those of an odd shape."""
    problems, stretched = [], []
    for view in views:
        if view.mask_path is None:
            continue
        header = read_header(view.mask_path)
        if header.size is None or header.fault:
            problems.append(f"the mask {view.mask_path} {header.fault}")
        elif not same_shape(view.file_size, header.size):
            stretched.append(view.mask_path.name)
    if not stretched:
        return problems, []
    return problems, [
        f"warning: {len(stretched)} masks have not the shape of their images and are stretched "
        f"over them: {listed(stretched, _NAMES_SHOWN)}"
    ]
