"""Masks: white where an image is used, black where it is ignored."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from grendel_odin.config import UserError
from grendel_odin.data.headers import listed, read_header, same_shape, unreadable
from grendel_odin.data.pixels import to_rgb
from grendel_odin.data.views import View

_NAMES_SHOWN = 5
DEFAULT_FOLDER = "masks"


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

    The mask of a/b.jpg is a/b.jpg.png (COLMAP) or a/b.png.
    """
    place = root / folder
    if not folder or not place.is_dir():
        asked = folder not in ("", DEFAULT_FOLDER)
        note = f"no masks: data.masks={folder}, but {place} does not exist"
        return Masked(list(views), [], [note] if asked else [])
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
    except Exception as error:  # plug-ins raise whatever they like at broken files
        raise UserError(f"the mask {path} {unreadable(error)}") from error
    mask = Image.fromarray((grey > grey.max() / 2).astype(np.uint8) * np.uint8(255))
    return mask if mask.size == size else mask.resize(size, Image.Resampling.NEAREST)


class _Files:
    """Files under a folder by their names relative to it."""

    def __init__(self, folder: Path) -> None:
        paths = [path for path in folder.rglob("*") if path.is_file()]
        self._exact = {path.relative_to(folder).as_posix(): path for path in paths}
        uses = Counter(map(_folded, self._exact))
        self._folded = {
            _folded(name): path for name, path in self._exact.items() if uses[_folded(name)] == 1
        }

    def mask_of(self, image: str) -> Path | None:
        """By exact names first, then in another case or form of Unicode if only one fits."""
        names = (f"{image}.png", PurePosixPath(image).with_suffix(".png").as_posix())
        exact = [self._exact[name] for name in names if name in self._exact]
        alike = [self._folded[key] for key in map(_folded, names) if key in self._folded]
        return next(iter(exact + alike), None)


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
        f"{place} has no mask for any of {len(views)} images, which are used whole (of the first, "
        f"{name}.png and {stem} were sought there)"
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
