"""Views and sparse points: what a scene consists of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grendel_odin.data.cameras import Camera


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

    @property
    def file_size(self) -> tuple[int, int]:
        """Width and height that the image file must have."""
        return self.stored_size or (self.camera.width, self.camera.height)

    @property
    def nbytes(self) -> int:
        """Bytes of the decoded image."""
        return 3 * self.camera.width * self.camera.height


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
