"""Which file an entry of transforms.json means. Nothing outside the scene's folder is read."""

from __future__ import annotations

import os.path
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grendel_odin.data.names import LikeFiles
from grendel_odin.data.transforms_file import Frame

_ENDINGS = (".png", ".jpg", ".jpeg", ".PNG", ".JPG", ".JPEG", ".webp", ".tif", ".tiff", ".bmp")
_DRIVE = re.compile(r"[A-Za-z]:")


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A frame, and whether it tests; None: its file does not say."""

    frame: Frame
    is_test: bool | None


@dataclass(frozen=True, slots=True, eq=False)
class EntryFiles:
    """Names of an entry's files."""

    entry: Entry
    name: str
    """Of its image, with an ending as soon as one is found."""
    full: str | None
    reduced: str | None
    """In a folder like images_4."""
    mask: str | None
    """As it is named, whether it is there or not."""

    def lost_mask(self, scene: Path) -> str:
        """A named mask that is not there: without it, what it hides would be trained on."""
        if self.mask is None or os.path.isfile(scene / self.mask):
            return ""
        return f"{self.mask} (the mask of {self.name})"


class OutsideError(Exception):
    """A path leaves the scene's folder; the text goes on after the frame's name."""


def find_files(scene: Path, entry: Entry, downscale: int) -> EntryFiles:
    """Looks for an entry's image in both places. Raises OutsideError."""
    frame = entry.frame
    name = name_inside(scene, frame.file, "file_path")
    mask = name_inside(scene, frame.mask, "mask_path") if frame.mask else None
    full, reduced = find_image(scene, name), None
    if downscale > 1:
        smaller = reduced_name(name, downscale)
        reduced = find_image(scene, smaller) if smaller != name else None
        if reduced and not full:
            name += reduced.removeprefix(smaller)
    return EntryFiles(entry, full or name, full, reduced, mask)


def find_near(
    scene: Path, found: Sequence[EntryFiles], downscale: int
) -> tuple[list[EntryFiles], list[str]]:
    """Images without a file of their name, paired as those of COLMAP are: if one only is alike.

    Also returns what was paired, in words.
    """
    if all(files.full or files.reduced for files in found):
        return list(found), []
    photos, taken = LikeFiles(scene), {files.full for files in found}
    result, paired = [], []
    for files in found:
        if not (files.full or files.reduced):
            alike = [path.relative_to(scene).as_posix() for path in photos.like(files.name)]
            free = [name for name in alike if name not in taken]
            if len(free) == 1:
                paired.append(f"{files.name} is {free[0]}")
                smaller = find_image(scene, reduced_name(free[0], downscale))
                reduced = smaller if downscale > 1 and smaller != free[0] else None
                files = replace(files, name=free[0], full=free[0], reduced=reduced)
        result.append(files)
    return result, paired


def name_inside(scene: Path, file: str, key: str) -> str:
    """A path relative to the scene's folder, with forward slashes. Raises OutsideError.

    Links are not followed, so that images may lie elsewhere if a link in the folder says so.
    """
    root = os.path.abspath(scene)
    joined = os.path.normpath(os.path.join(root, file))
    if _DRIVE.match(file) or file.startswith("//") or not joined.startswith(root.rstrip("/") + "/"):
        raise OutsideError(
            f"has {key} {file!a}, which is outside of {scene}: put the files, or a link to "
            "their folder, inside and make the path relative"
        )
    return os.path.relpath(joined, root).replace(os.sep, "/")


def find_image(scene: Path, name: str) -> str | None:
    """The name of a file that exists, an ending added where there is none; None if none does."""
    for ending in ("", *_ENDINGS):
        if os.path.isfile(scene / f"{name}{ending}"):
            return f"{name}{ending}"
    return None


def reduced_name(name: str, downscale: int) -> str:
    """Where an image reduced by a factor lies by custom: images_4/a.jpg for images/a.jpg."""
    folder, slash, rest = name.partition("/")
    return f"{folder}_{downscale}/{rest}" if slash else name
