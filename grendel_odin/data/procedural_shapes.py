"""Convex solids of the procedural scene and their intersection with rays, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
"""Vectors are stored as [3, n]: one contiguous run per coordinate. float32 or float64."""

GROUND, DOME = -1, -2
"""Surface numbers of what is no solid; a solid's number is its place in the list."""

DOME_RADIUS = 10.0
_EPSILON = 2e-3


class Shape(Enum):
    """Unit solids, scaled, turned and moved by a `Solid`."""

    BALL = auto()
    """|p| <= 1"""
    BOX = auto()
    """|x|, |y|, |z| <= 1"""
    CYLINDER = auto()
    """|(x, y)| <= 1, |z| <= 1"""


@dataclass(frozen=True, slots=True, eq=False)
class Solid:
    """A unit solid under the affine map p -> turn @ (size * p) + center."""

    shape: Shape
    center: NDArray[np.float64]
    """[3]"""
    size: NDArray[np.float64]
    """[3] half extents in metres."""
    turn: NDArray[np.float64]
    """[3, 3] rotation."""

    @classmethod
    def place(
        cls, shape: Shape, center: Sequence[float], size: Sequence[float], yaw: float = 0.0
    ) -> Solid:
        """A solid turned about the vertical by `yaw` degrees."""
        cos, sin = np.cos(np.radians(yaw)), np.sin(np.radians(yaw))
        turn = np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
        return cls(shape, np.asarray(center, float), np.asarray(size, float), turn)

    @property
    def bound(self) -> float:
        """Radius of a sphere about the centre that holds the solid."""
        width, depth, height = self.size
        match self.shape:
            case Shape.BALL:
                return float(max(width, depth, height))
            case Shape.BOX:
                return float(np.sqrt(width**2 + depth**2 + height**2))
            case Shape.CYLINDER:
                return float(np.hypot(max(width, depth), height))

    def local(self, points: Array) -> Array:
        """[3, n] in metres, in the solid's own frame: textures live here."""
        dtype = points.dtype
        return rotate(self.turn.T, points - self.center.astype(dtype)[:, None])

    def interval(self, origins: Array, directions: Array) -> tuple[Array, Array]:
        """Ray parameters at which rays enter and leave; (near > far) where they miss."""
        dtype = directions.dtype
        scale = (1.0 / self.size).astype(dtype)[:, None]
        o = self.local(origins) * scale
        d = rotate(self.turn.T, directions) * scale
        match self.shape:
            case Shape.BALL:
                return _round(o, d)
            case Shape.BOX:
                return _slabs(o, d)
            case Shape.CYLINDER:
                side_in, side_out = _round(o[:2], d[:2])
                cap_in, cap_out = _slabs(o[2:], d[2:])
                return np.maximum(side_in, cap_in), np.minimum(side_out, cap_out)

    def normals(self, local: Array) -> Array:
        """[3, n] outward unit normals in the solid's frame, at `local` surface points."""
        p = local / self.size.astype(local.dtype)[:, None]
        match self.shape:
            case Shape.BALL:
                outward = p
            case Shape.BOX:
                x, y, z = np.abs(p)
                outward = np.where(np.abs(p) == np.maximum(np.maximum(x, y), z), np.sign(p), 0)
            case Shape.CYLINDER:
                on_cap = np.abs(p[2]) > np.hypot(p[0], p[1])
                outward = np.where(on_cap, 0, p)
                outward[2] = np.where(on_cap, np.sign(p[2]), 0)
        outward = outward / self.size.astype(local.dtype)[:, None]
        return outward / np.sqrt(dot(outward, outward))


def dot(a: Array, b: Array) -> Array:
    """[n] inner products. Plain sums: BLAS may round by where a column lies."""
    total = a[0] * b[0]
    for left, right in zip(a[1:], b[1:], strict=True):
        total += left * right
    return np.asarray(total)


def rotate(matrix: NDArray[np.float64], vectors: Array) -> Array:
    """[3, n] = matrix @ vectors."""
    turned = np.empty_like(vectors)
    for row, out in zip(matrix.tolist(), turned, strict=True):
        np.multiply(vectors[0], row[0], out=out)
        out += vectors[1] * row[1]
        out += vectors[2] * row[2]
    return turned


def _round(o: Array, d: Array) -> tuple[Array, Array]:
    a, b, c = dot(d, d), dot(o, d), dot(o, o) - 1
    square = b**2 - a * c
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(np.maximum(square, 0))
        near, far = (-b - root) / a, (-b + root) / a
    miss = square <= 0
    return np.where(miss, np.inf, near), np.where(miss, -np.inf, far)


def _slabs(o: Array, d: Array) -> tuple[Array, Array]:
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = 1 / d
        one, other = (-1 - o) * inverse, (1 - o) * inverse
    near, far = np.minimum(one, other), np.maximum(one, other)
    for axis in range(1, len(near)):
        np.maximum(near[0], near[axis], out=near[0])
        np.minimum(far[0], far[axis], out=far[0])
    return near[0], far[0]


def trace(
    solids: Sequence[Solid], origins: Array, directions: Array
) -> tuple[Array, NDArray[np.int8]]:
    """First hit of rays that start inside the dome: (distance [n], surface number [n]).

    Origins are [3, 1] or [3, n], directions [3, n] of unit length. Every ray hits something.
    """
    inward = dot(origins, directions)
    distance = np.sqrt(inward**2 - dot(origins, origins) + DOME_RADIUS**2) - inward
    surface = np.full(distance.shape, DOME, np.int8)
    with np.errstate(divide="ignore"):
        ground = np.where(directions[2] < 0, -origins[2] / directions[2], np.inf)
    surface[ground < distance] = GROUND
    distance = np.minimum(distance, ground)
    for number, solid in enumerate(solids):
        offset = solid.center.astype(directions.dtype)[:, None] - origins
        away = dot(offset, offset) - dot(offset, directions) ** 2
        rays = np.flatnonzero(away < solid.bound**2)
        near, far = solid.interval(_take(origins, rays), directions[:, rays])
        hit = (near < far) & (near > _EPSILON) & (near < distance[rays])
        distance[rays[hit]] = near[hit]
        surface[rays[hit]] = number
    return distance, surface


def in_shadow(solids: Sequence[Solid], points: Array, toward: Array) -> NDArray[np.bool_]:
    """[n] whether a solid stands between each point [3, n] and a far light (unit [3, 1])."""
    dark = np.zeros(points.shape[1], bool)
    frame = np.linalg.svd(toward.astype(np.float64))[0].T
    seen = rotate(frame, points)
    depth = float(frame[0] @ toward[:, 0]) * seen[0]
    for solid in solids:
        center = (frame @ solid.center).tolist()
        away = (seen[1] - center[1]) ** 2
        away += (seen[2] - center[2]) ** 2
        behind = depth < float(solid.center @ toward[:, 0]) + solid.bound
        rays = np.flatnonzero((away < solid.bound**2) & behind & ~dark)
        near, far = solid.interval(points[:, rays], toward)
        # Solids are convex: a ray that leaves its own solid has far = 0 up to rounding.
        dark[rays[(near < far) & (far > _EPSILON)]] = True
    return dark


def _take(vectors: Array, index: NDArray[np.intp]) -> Array:
    """Columns at `index`; a lone column stands for all."""
    return vectors if vectors.shape[1] == 1 else vectors[:, index]
