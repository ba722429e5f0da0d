"""Photographs: checked by their headers, decoded when needed, held as uint8 (the PIL file).

Pixels are taken as they are stored, as COLMAP does: EXIF orientation is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from grendel_odin.config import UserError
from grendel_odin.data.view_cache import ViewCache
from grendel_odin.data.views import View

_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA")
_NAMES_SHOWN = 50
_FAULTS_SHOWN = 20


class ImageStore:
    """The images of a scene, composited on the run's background."""

    def __init__(
        self,
        views: Sequence[View],
        background: tuple[float, float, float],
        cache_bytes: int,
        workers: int,
    ) -> None:
        """`background` in [0, 1] shows through transparent pixels; `workers` threads load ahead."""
        red, green, blue = (round(255 * value) for value in background)
        self.total_bytes = sum(view.nbytes for view in views)
        """What all images would take at once."""
        self._cache = ViewCache(lambda view: decode(view, (red, green, blue)), cache_bytes, workers)

    def get(self, view: View) -> Tensor:
        """uint8 [3, H, W], contiguous, shared: not to be written to. Raises UserError."""
        return self._cache.get(view)

    def prefetch(self, views: Iterable[View]) -> None:
        """Decodes views in the background, the one needed first first, as room allows."""
        self._cache.prefetch(views)

    def close(self) -> None:
        """Ends the threads and lets all images go."""
        self._cache.close()


def check_images(views: Sequence[View]) -> None:
    """Reads the headers of all images. Raises one UserError with all problems."""
    problems = image_problems(views)
    if problems:
        raise UserError("\n".join(problems))


def image_problems(views: Sequence[View]) -> list[str]:
    """What is wrong with existence, format and size of image files, by their headers."""
    missing = [view for view in views if not view.image_path.is_file()]
    faults = []
    for view in views:
        if view.image_path.is_file() and (fault := _header_fault(view)):
            faults.append(fault)
    problems = faults[:_FAULTS_SHOWN]
    if len(faults) > _FAULTS_SHOWN:
        problems.append(f"and {len(faults) - _FAULTS_SHOWN} more image files with such faults")
    if missing:
        names = [view.camera.name for view in missing[:_NAMES_SHOWN]]
        rest = f" and {len(missing) - len(names)} more" if len(missing) > len(names) else ""
        problems.append(
            f"{len(missing)} of {len(views)} image files are missing (the first was sought as "
            f"{missing[0].image_path}): {', '.join(names)}{rest}; data.images names the folder"
        )
    return problems


def stored_size(path: Path) -> tuple[int, int] | None:
    """Width and height by a file's header; None if it cannot be read."""
    try:
        with Image.open(path) as file:
            size: tuple[int, int] = file.size
            return size
    except Exception:  # plug-ins raise whatever they like at broken files
        return None


def decode(view: View, background: tuple[int, int, int]) -> Tensor:
    """uint8 [3, H, W] of one view; `background` in [0, 255]. Raises UserError naming the file."""
    try:
        with Image.open(view.image_path) as file:
            fault = _fault(view, file)
            image = None if fault else _to_rgb(file, background)
    except Exception as error:  # plug-ins raise whatever they like at broken files
        raise UserError(_unreadable(view.image_path, error)) from error
    if image is None:
        raise UserError(fault)
    size = (view.camera.width, view.camera.height)
    if image.size != size:
        image = image.resize(size, Image.Resampling.LANCZOS)
    return torch.from_numpy(np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1)))


def _to_rgb(file: Image.Image, background: tuple[int, int, int]) -> Image.Image:
    """Composites before anything is resized: colours behind alpha 0 must not leak into others."""
    if not file.has_transparency_data:
        return file.convert("RGB")
    rgba = file.convert("RGBA")
    canvas = Image.new("RGB", rgba.size, background)
    canvas.paste(rgba, mask=rgba)
    return canvas


def _header_fault(view: View) -> str:
    try:
        with Image.open(view.image_path) as file:
            return _fault(view, file)
    except Exception as error:  # plug-ins raise whatever they like at broken files
        return _unreadable(view.image_path, error)


def _fault(view: View, file: Image.Image) -> str:
    """Why an opened file does not fit its view; empty if it does."""
    if file.mode not in _MODES or _has_wide_samples(file):
        return (
            f"{view.image_path} has pixels of kind {file.mode}"
            f"{' with 16 bits a sample' if _has_wide_samples(file) else ''}; 8-bit grey, palette, "
            "RGB and RGBA images are read: convert it"
        )
    if file.size != view.file_size:
        width, height = view.file_size
        return (
            f"{view.image_path} is {file.width}x{file.height}, but the camera of "
            f"{view.camera.name} is {width}x{height}: give the images that the model was made "
            "from, or use data.downscale to train on smaller ones"
        )
    return ""


def _has_wide_samples(file: Image.Image) -> bool:
    """PIL cuts 16-bit colour to 8 bits in silence; the raw mode of a tile tells."""
    tiles = getattr(file, "tile", None) or []
    raw = [tile[3] if isinstance(tile[3], str) else (tile[3] or [""])[0] for tile in tiles]
    return any(str(mode).endswith((";16B", ";16L", ";16N")) for mode in raw)


def _unreadable(path: Path, error: Exception) -> str:
    return f"{path} cannot be decoded ({error}): replace the file"
