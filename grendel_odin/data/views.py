"""Views and sparse points: what a scene consists of."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from grendel_odin.data.cameras import Camera


class Warp(Protocol):
    """Brings stored pixels into the frame of a pinhole camera, as undoing a distortion does."""

    def image(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """[H, W, C] as stored to [h, w, C], for any number of channels."""

    def valid(self) -> NDArray[np.bool_] | None:
        """[h, w]: pixels that the stored image covers; None: all are."""


class Lens(Protocol):
    """What a camera has beyond the intrinsics of a pinhole, for images of any size."""

    def undistorted(self, camera: Camera) -> tuple[Camera, Warp | None]:
        """The pinhole camera to train with, and the way of the pixels to it.

        camera: as described by the model, its K and size scaled per axis to those of the file.
        """


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A camera with its photograph."""

    camera: Camera
    """The camera that is trained with: its size is that of the decoded image."""
    image_path: Path
    index: int
    """Position in the list of all views of the scene, sorted by name."""
    stored_size: tuple[int, int] | None = None
    """Width and height that the file must have; None: the camera's size.
    Where they differ, the image is reduced as it is decoded."""
    mask_path: Path | None = None
    """Picture of any size that is white where the image is to be used."""
    warp: Warp | None = None
    """Applied to what is stored, before it is resized to the camera's size."""

    @property
    def file_size(self) -> tuple[int, int]:
        """Width and height that the image file must have."""
        return self.stored_size or (self.camera.width, self.camera.height)

    @property
    def masked(self) -> bool:
        """Whether some of its pixels may have to be left out."""
        return self.mask_path is not None or self.warp is not None

    @property
    def shape(self) -> tuple[int, int, int]:
        """[3, H, W] of the decoded image; [4, H, W] with its mask, if there is one."""
        return 4 if self.masked else 3, self.camera.height, self.camera.width

    @property
    def nbytes(self) -> int:
        """Bytes of the decoded image, and of its mask if there is one."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Sparse points in the order of their ids, with the views that see them."""

    xyz: NDArray[np.float64]
    """[P, 3]"""
    rgb: NDArray[np.uint8]
    """[P, 3]"""
    track_offsets: NDArray[np.int64]
    """[P + 1]: point p is seen by track_views[track_offsets[p] : track_offsets[p + 1]]."""
    track_views: NDArray[np.int32]
    """View indexes, ascending and without repeats within a point."""

    def __len__(self) -> int:
        return len(self.xyz)


@dataclass(frozen=True, slots=True, eq=False)
class Sources:
    """Where the files of a model lie, if the model itself says so; in the order of its cameras."""

    images: list[Path]
    masks: list[Path | None]
    is_test: list[bool] | None
    """Which views test; None: the model does not say."""
    reduced: bool
    """Whether the images are the data.downscale times smaller ones already."""


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """What a reader of any format says about a scene."""

    cameras: list[Camera]
    """One for each image, sorted by name; K is that of the photograph, whatever its lens."""
    points: Points
    """Their track_views index `cameras`."""
    notes: list[str] = field(default_factory=list)
    """What was found, assumed, dropped or counted; a line each."""
    lenses: dict[int, Lens] = field(default_factory=dict)
    """By index of the camera, of those that are not pinholes."""
    sources: Sources | None = None
    """None: names are those of files in data.images, and data.test_every chooses test views."""
