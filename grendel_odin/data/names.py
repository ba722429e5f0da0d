"""Pairs the names that a model gives its images with files, by name only.

A name is taken as it stands first. Programs and file systems also change letter case, the form of
Unicode, the extension and the direction of slashes: such files are paired if only one fits.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from grendel_odin.data.colmap_records import decode_name, printable
from grendel_odin.data.headers import listed

_PHOTOS = frozenset(
    [
        ".bmp",
        ".heic",
        ".jp2",
        ".jpe",
        ".jpeg",
        ".jpg",
        ".png",
        ".ppm",
        ".tga",
        ".tif",
        ".tiff",
        ".webp",
        ".avif",
        ".gif",
        ".pgm",
    ]
)
_LONGEST = 255
_SHOWN = 20
_LITTER = ("__MACOSX", "@eaDir")
"""Folders in which archives and NAS systems keep their own thumbnails and attributes."""


@dataclass(frozen=True, slots=True)
class Paired:
    """Where the images of a model lie."""

    paths: list[Path]
    """One for each name; that of a missing image is where it was sought."""
    missing: list[int] = field(default_factory=list)
    """Positions of the names without a file."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def name_fault(name: str) -> str:
    """Why a name cannot be that of a file below the image folder; empty if it can."""
    parts = name.replace("\\", "/").split("/")
    if not name.strip() or parts[-1] in ("", "."):
        return "is empty"
    if re.search(r"[\x00-\x1f\x7f-\x9f]", name):
        return "has control characters"
    if not parts[0] or re.match(r"[A-Za-z]:", name):
        return "is an absolute path"
    if ".." in parts:
        return "leads out of the image folder"
    if any(len(part.encode(errors="replace")) > _LONGEST for part in parts) or len(name) > 4096:
        return f"is longer than the {_LONGEST} bytes that a file's name may have"
    return ""


def pair_images(names: Sequence[str], folder: Path) -> Paired:
    """Finds the file of each name below `folder`; names without `name_fault`."""
    paths = [folder / name for name in names]
    found = [path.is_file() for path in paths]
    files = LikeFiles(folder)
    paired = Paired(paths)
    loosely: list[str] = []
    unclear: list[str] = []
    taken = {path for path, there in zip(paths, found, strict=True) if there}
    claims: dict[Path, list[str]] = defaultdict(list)
    for index, name in enumerate(names):
        if found[index]:
            continue
        candidates = [path for path in files.like(name) if path not in taken]
        if len(candidates) == 1:
            paths[index] = candidates[0]
            claims[candidates[0]].append(name)
            loosely.append(f"{printable(name)} is {_below(candidates[0], folder)}")
        else:
            paired.missing.append(index)
            if candidates:
                alike = listed([_below(path, folder) for path in candidates], _SHOWN)
                unclear.append(f"{printable(name)} ({alike})")
    paired.problems.extend(_ambiguous(folder, unclear))
    paired.problems.extend(_claimed(folder, claims))
    if loosely:
        paired.notes.append(
            f"{len(loosely)} of {len(names)} images are paired with files whose names differ in "
            f"case, extension or form: {listed(loosely, _SHOWN)}"
        )
    paired.notes.extend(_unused(folder, files.photos, paths, len(names) - len(paired.missing)))
    return paired


class LikeFiles:
    """Photographs below a folder, by ever looser forms of their names."""

    def __init__(self, folder: Path) -> None:
        self.photos: dict[str, Path] = dict(photos_in(folder))
        """By name relative to the folder."""
        self._folder = folder.name
        self._by: list[tuple[Callable[[str], str], dict[str, list[Path]]]] = []

    def like(self, name: str) -> list[Path]:
        """Files whose names are alike in the strictest form that gives any."""
        for form, table in self._tables():
            for spelling in (name, name.removeprefix(f"{self._folder}/")):
                if table.get(form(spelling)):
                    return table[form(spelling)]
        return []

    def _tables(self) -> list[tuple[Callable[[str], str], dict[str, list[Path]]]]:
        """Built when a name is first sought in vain."""
        if not self._by:
            for form in (_composed, _folded, _bare):
                table: dict[str, list[Path]] = defaultdict(list)
                for name, path in self.photos.items():
                    table[form(name)].append(path)
                self._by.append((form, table))
        return self._by


def _composed(name: str) -> str:
    """One form of Unicode and of slashes."""
    return unicodedata.normalize("NFC", os.path.normpath(name.replace("\\", "/")))


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", _composed(name).casefold())


def _bare(name: str) -> str:
    """Without an extension, if it is one of a photograph."""
    path = PurePosixPath(_folded(name))
    return str(path.with_suffix("") if path.suffix in _PHOTOS else path)


def photos_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """Name below the folder and path of each photo.

    Links to folders are followed, each folder once; hidden files and litter passed over.
    """
    visited = set()
    for place, inner, files in os.walk(folder, followlinks=True):
        visited.add(os.path.realpath(place))
        inner[:] = sorted(
            name
            for name in inner
            if not name.startswith(".")
            and name not in _LITTER
            and os.path.realpath(os.path.join(place, name)) not in visited
        )
        for file in sorted(files):
            if os.path.splitext(file)[1].lower() in _PHOTOS and not file.startswith("."):
                path = Path(place) / file
                yield decode_name(os.fsencode(path.relative_to(folder).as_posix())), path


def _ambiguous(folder: Path, unclear: Sequence[str]) -> list[str]:
    if not unclear:
        return []
    return [
        f"{len(unclear)} images have no file of their name in {folder}, and several that are like "
        f"it: {listed(unclear, _SHOWN)}; rename the right ones"
    ]


def _claimed(folder: Path, claims: dict[Path, list[str]]) -> list[str]:
    """Two names for one file: which of them it is cannot be told."""
    return [
        f"{_below(path, folder)} is the only file in {folder} for each of the images "
        f"{listed([printable(name) for name in names], _SHOWN)}; rename files as the model has them"
        for path, names in claims.items()
        if len(names) > 1
    ]


def _unused(
    folder: Path, photos: Mapping[str, Path], paths: Sequence[Path], registered: int
) -> list[str]:
    """A note on photographs that the model does not use; they may be too many to miss it."""
    used = set(paths)
    extra = [printable(name) for name, path in photos.items() if path not in used]
    if not extra:
        return []
    return [
        f"{registered} of {registered + len(extra)} photos in {folder} are registered in the "
        f"model; not used: {listed(extra, _SHOWN)}"
    ]


def _below(path: Path, folder: Path) -> str:
    return printable(decode_name(os.fsencode(path.relative_to(folder).as_posix())))
