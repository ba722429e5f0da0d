"""From an image file to the planes that are trained on: open, composite, warp, resize."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from grendel_odin.config import UserError
from grendel_odin.data.headers import unreadable
from grendel_odin.data.masks import read_mask
from grendel_odin.data.pixels import kind_fault, to_rgb
from grendel_odin.data.views import View

_DRAFT = 2
"""JPEG files are decoded at 1/2, 1/4 or 1/8 if that leaves this many times the size needed."""
Box = tuple[float, float, float, float]


def decode(view: View, background: tuple[int, int, int], into: Tensor | None = None) -> Tensor:
    """uint8 [3, H, W] of one view, or [4, H, W] where it is masked: 255 = use, 0 = ignore.

    `background` in [0, 255]; `into`: where to put it. Raises UserError naming the file.
    """
    image, box = _stored(view, background)
    if view.warp is not None:
        image = Image.fromarray(view.warp.image(np.asarray(image)))
        box = None
    size = (view.camera.width, view.camera.height)
    if image.size != size:
        image = image.resize(size, Image.Resampling.LANCZOS, box=box)
    planes = torch.empty(view.shape, dtype=torch.uint8) if into is None else into
    planes.numpy()[:3] = np.asarray(image).transpose(2, 0, 1)
    if view.masked:
        planes.numpy()[3] = _mask(view, size)
    return planes


def _stored(view: View, background: tuple[int, int, int]) -> tuple[Image.Image, Box | None]:
    """RGB as the file has it, perhaps in a smaller draft, and the part of it to be resized."""
    path, size = view.image_path, (view.camera.width, view.camera.height)
    try:
        with Image.open(path) as file:
            fault = kind_fault(file) or _size_fault(view, file.size)
            if fault:
                raise UserError(f"{path} {fault}")
            wanted = (_DRAFT * size[0], _DRAFT * size[1])
            draft = file.draft(None, wanted) if view.warp is None else None
            return to_rgb(path, file, background), draft[1] if draft else None
    except UserError:
        raise
    except Exception as error:  # plug-ins raise whatever they like at broken files
        raise UserError(f"{path} {unreadable(error)}") from error


def _size_fault(view: View, size: tuple[int, int]) -> str:
    if size == view.file_size:
        return ""
    width, height = view.file_size
    return (
        f"is {size[0]}x{size[1]}, but {width}x{height} is expected for {view.camera.name}: files "
        "must not change while they are read"
    )


def _mask(view: View, size: tuple[int, int]) -> NDArray[np.uint8]:
    """[H, W] of 0 and 255. A warped pixel counts if all pixels that it is made of do."""
    warp, path = view.warp, view.mask_path
    if warp is None:
        return np.asarray(read_mask(path, size)) if path else np.full(size[::-1], 255, np.uint8)
    usable = np.full(size[::-1], 255, np.uint8)
    if path is not None:
        warped = warp.image(np.asarray(read_mask(path, view.file_size))[..., None])
        usable &= _nearest(warped[..., 0] == 255, size)
    valid = warp.valid()
    return usable if valid is None else usable & _nearest(valid, size)


def _nearest(mask: NDArray[np.bool_], size: tuple[int, int]) -> NDArray[np.uint8]:
    picture = Image.fromarray(mask.astype(np.uint8) * np.uint8(255))
    return np.asarray(picture.resize(size, Image.Resampling.NEAREST))
