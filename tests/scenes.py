"""Random scenes for tests: small, seeded, with rows that every rule of projection meets."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from grendel_odin.data.cameras import Camera
from grendel_odin.model.sh import C0
from grendel_odin.model.table import PrimitiveTable

CAMERA_DISTANCE = 4.0


def random_table(
    n: int, seed: int, degree: int = 3, dtype: torch.dtype = torch.float32
) -> PrimitiveTable:
    """A cloud around the origin: anisotropic, of any quaternion length, some rows near or behind
    the cameras of `random_camera`, some transparent, some negative colours, ids shuffled."""
    draw = torch.Generator().manual_seed(seed)

    def normal(width: int) -> torch.Tensor:
        return torch.randn(n, width, generator=draw, dtype=torch.float64)

    table = PrimitiveTable.empty(n)
    table.values = table.values.to(dtype)
    table.ids = torch.randperm(n, generator=draw) * 7919 + 3
    table.field("means")[:] = 1.4 * normal(3)
    table.field("scales")[:] = math.log(0.12) + 0.6 * normal(3)
    table.field("quats")[:] = normal(4)
    table.field("opacities")[:] = 2.5 * normal(1)
    table.field("sh0")[:] = (0.6 * normal(3)) / (2 * C0)
    live = 3 * ((degree + 1) ** 2 - 1)
    table.field("shN")[:, :live] = 0.15 * normal(live)
    return table


def random_camera(width: int, height: int, seed: int) -> Camera:
    """A camera at distance 4 that looks about at the origin; fx differs from fy and the principal
    point is off the centre."""
    draw = np.random.default_rng(seed)
    forward = draw.normal(size=3)
    forward /= np.linalg.norm(forward)
    center = -CAMERA_DISTANCE * forward + 0.2 * draw.normal(size=3)
    world_to_camera = np.eye(4)
    world_to_camera[:3, :3] = _rotation_towards(forward, roll=draw.uniform(-math.pi, math.pi))
    world_to_camera[:3, 3] = -world_to_camera[:3, :3] @ center
    focal = width * draw.uniform(0.8, 1.2)
    K = np.array(
        [
            [focal, 0.0, width * draw.uniform(0.4, 0.6)],
            [0.0, focal * draw.uniform(0.9, 1.1), height * draw.uniform(0.4, 0.6)],
            [0.0, 0.0, 1.0],
        ]
    )
    return Camera(f"random_{seed}.png", width, height, K, world_to_camera)


def _rotation_towards(forward: NDArray[np.float64], roll: float) -> NDArray[np.float64]:
    """[3, 3] rotation whose third row is `forward`."""
    helper = np.eye(3)[np.argmin(np.abs(forward))]
    right = np.cross(helper, forward)
    right /= np.linalg.norm(right)
    down = np.cross(forward, right)
    cos, sin = math.cos(roll), math.sin(roll)
    return np.stack([cos * right + sin * down, cos * down - sin * right, forward])
