"""The pinhole camera that every part of the project shares."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Camera:
    """A pinhole camera with full intrinsics.

    Pixel centres lie at +0.5; the world-to-camera frame is COLMAP's (x right, y down, z forward).
    """

    name: str
    """Name of its image, relative to the image folder, with forward slashes."""
    width: int
    height: int
    K: NDArray[np.float64]
    """[3, 3] intrinsics in pixels."""
    world_to_camera: NDArray[np.float64]
    """[4, 4] rigid transform."""

    @property
    def center(self) -> NDArray[np.float64]:
        """[3] camera centre in the world frame."""
        rotation = self.world_to_camera[:3, :3]
        center: NDArray[np.float64] = -rotation.T @ self.world_to_camera[:3, 3]
        return center

    def resized(self, width: int, height: int) -> Camera:
        """The same camera with an image of another size; K is scaled per axis."""
        scale = np.diag([width / self.width, height / self.height, 1.0])
        return replace(self, width=width, height=height, K=scale @ self.K)
