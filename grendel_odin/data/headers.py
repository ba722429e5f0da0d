"""What the header of an image file says, without decoding it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, UnidentifiedImageError
from PIL.ImageFile import ImageFile

from grendel_odin.data.pixels import ORIENTATION, has_transparency, kind_fault

_TAIL = 4096
_ENDS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND"}


@dataclass(frozen=True, slots=True)
class Header:
    """One image file."""

    path: Path
    size: tuple[int, int] | None = None
    """Width and height; None if the file cannot be read."""
    fault: str = ""
    """Why it cannot be used, as the end of a sentence about it; empty if it can."""
    missing: bool = False
    transparent: bool = False
    turned: bool = False
    """Whether EXIF asks viewers to turn or mirror it."""


def read_header(path: Path) -> Header:
    """Opens a file; decodes it only if its end is missing, to see whether that matters."""
    if not path.is_file():
        return Header(path, missing=True, fault="does not exist")
    try:
        with Image.open(path) as file:
            fault = kind_fault(file)
            header = Header(path, file.size, fault, False, has_transparency(file), _turned(file))
            if not fault and _ends_early(path, file):
                file.load()
            return header
    except Exception as error:  # plug-ins raise whatever they like at broken files
        return Header(path, fault=unreadable(error))


def stored_size(path: Path) -> tuple[int, int] | None:
    """Width and height by a file's header; None if it cannot be read."""
    try:
        with Image.open(path) as file:
            size: tuple[int, int] = file.size
            return size
    except Exception:  # plug-ins raise whatever they like at broken files
        return None


def same_shape(size: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether one factor leads from a size to another, both sides rounded down, up or to nearest.

    That a side was chosen and the other rounded is among these.
    """
    for below, above in ((0.0, 1.0), (1.0, 0.0), (0.5, 0.5)):
        low = max((side - below) / of for of, side in zip(size, other, strict=True))
        high = min((side + above) / of for of, side in zip(size, other, strict=True))
        if low <= high:
            return True
    return False


def unreadable(error: Exception) -> str:
    """The end of a sentence about a file that PIL fails to read."""
    if isinstance(error, Image.DecompressionBombError):
        return f"is not decoded, as it may be a decompression bomb ({error}): make it smaller"
    if isinstance(error, UnidentifiedImageError):
        return "cannot be decoded (its kind is not known): replace it by a JPEG or PNG file"
    return f"cannot be decoded ({error}): replace the file"


def listed(names: Sequence[str], shown: int = 50) -> str:
    """Names for a message, cut where there are too many."""
    rest = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + rest


def _turned(file: ImageFile) -> bool:
    # For PNG, getexif() would decode a file without EXIF to look for it at the end.
    return "exif" in file.info and file.getexif().get(ORIENTATION, 1) not in (0, 1)


def _ends_early(path: Path, file: ImageFile) -> bool:
    """Whether the mark at the end is missing, as when a copy or a download was cut short."""
    end = _ENDS.get(file.format or "")
    if end is None:
        return False
    with open(path, "rb") as raw:
        raw.seek(max(0, path.stat().st_size - _TAIL))
        return end not in raw.read()
