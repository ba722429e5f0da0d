"""The first table of a run, from the points of structure from motion."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from grendel_odin.config import UserError
from grendel_odin.model.settings import ModelSettings
from grendel_odin.model.sh import C0
from grendel_odin.model.table import PrimitiveTable

_NEIGHBOURS = 3
_MIN_SQUARED_DISTANCE = 1e-7
_MIN_SHARE, _TINIEST = 1e-4, 1e-24


def initialise(
    xyz: NDArray[np.float64], rgb: NDArray[np.uint8], settings: ModelSettings
) -> PrimitiveTable:
    """One isotropic primitive a point (Kerbl et al. 2023, section 5.1), ids in point order.

    xyz: [P, 3]; rgb: [P, 3]. The scale is the root mean square distance to the three nearest
    other points. If P exceeds `max_primitives`, an even selection of that many points is taken.
    Raises UserError if there is no point or a coordinate is not finite.
    """
    _check(xyz)
    cap = settings.max_primitives
    if 0 < cap < len(xyz):
        chosen = np.arange(cap, dtype=np.int64) * len(xyz) // cap
        xyz, rgb = xyz[chosen], rgb[chosen]
    table = PrimitiveTable.empty(len(xyz))
    table.ids = torch.arange(len(xyz), dtype=torch.int64)
    table.field("means")[:] = torch.from_numpy(np.asarray(xyz, dtype=np.float64))
    log_scales = 0.5 * np.log(mean_squared_distances(xyz))
    table.field("scales")[:] = torch.from_numpy(log_scales)[:, None]
    table.field("quats")[:, 0] = 1.0
    opacity = settings.init_opacity
    table.field("opacities")[:] = math.log(opacity / (1.0 - opacity))
    color = np.asarray(rgb, dtype=np.float64) / 255.0
    table.field("sh0")[:] = torch.from_numpy((color - 0.5) / C0)
    return table


def mean_squared_distances(xyz: NDArray[np.float64]) -> NDArray[np.float64]:
    """[P] mean squared distance of points [P, 3] to their three nearest others, at least 1e-7.

    With fewer than four points the mean runs over those that exist. The floor is that of 3DGS; in
    tiny scenes, where it would be seen, it is a ten-thousandth of the points' median distance from
    their middle, squared.
    """
    neighbours = min(_NEIGHBOURS, len(xyz) - 1)
    if neighbours == 0:
        return np.full(len(xyz), _MIN_SQUARED_DISTANCE)
    spread = float(np.median(np.linalg.norm(xyz - np.median(xyz, axis=0), axis=1)))
    share = (_MIN_SHARE * spread) ** 2
    floor = min(_MIN_SQUARED_DISTANCE, max(share, _TINIEST)) if share > 0 else _MIN_SQUARED_DISTANCE
    squared = _squared_distances(xyz, neighbours)
    stacked = squared == 0  # repeated four times and more: other positions tell the distance
    if stacked.any():
        places, place = np.unique(xyz, axis=0, return_inverse=True)
        if len(places) > 1:
            apart = _squared_distances(places, min(_NEIGHBOURS, len(places) - 1))
            squared[stacked] = apart[place.reshape(-1)[stacked]]
    return np.maximum(squared, floor)


def _squared_distances(xyz: NDArray[np.float64], neighbours: int) -> NDArray[np.float64]:
    # The nearest hit is the point itself, or a duplicate at the same distance of 0.
    ranks = np.arange(2, neighbours + 2)
    distances = np.asarray(cKDTree(xyz).query(xyz, k=ranks, workers=-1)[0])
    squared: NDArray[np.float64] = np.square(distances).mean(axis=1)
    return squared


def _check(xyz: NDArray[np.float64]) -> None:
    if len(xyz) == 0:
        raise UserError(
            "The scene has no 3D points to start from. Next: triangulate points in COLMAP, or add "
            "a points3D file that holds some."
        )
    broken = int((~np.isfinite(xyz).all(axis=1)).sum())
    if broken:
        raise UserError(
            f"{broken} of the {len(xyz)} 3D points have coordinates that are not finite. Next: "
            "remove them from the points3D file."
        )
