"""The procedural scene itself: what stands where, and how it is lit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grendel_odin.data.cameras import Camera
from grendel_odin.data.procedural_shapes import (
    DOME,
    GROUND,
    Array,
    Shape,
    Solid,
    dot,
    in_shadow,
    rotate,
    trace,
)
from grendel_odin.data.procedural_textures import (
    Material,
    bands,
    blocks,
    labyrinth,
    marble,
    plaza,
    sky,
    wood,
)

_SUN = np.array([0.55, -0.5, 0.72]) / np.linalg.norm([0.55, -0.5, 0.72])
_SUN_RADIUS = 0.016
_SUNLIGHT = np.array([[1.22], [1.10], [0.90]], np.float32)
_SKYLIGHT = np.array([[0.36], [0.42], [0.52]], np.float32)
_BOUNCE = np.array([[0.22], [0.20], [0.16]], np.float32)
_SAMPLES, _STRIDE = 5, 2
"""Samples a pixel, on a Fibonacci lattice; each sees its own point of the sun's disc."""


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Solids on a round plaza under a painted dome. Metres, z up."""

    solids: list[Solid]
    materials: list[Material]
    """One per solid, then the dome's and the ground's: surface numbers index it."""
    gloss: list[float]

    @classmethod
    def build(cls, rng: np.random.Generator) -> World:
        """The layout is fixed; `rng` draws the textures."""
        ball, box, cylinder = Shape.BALL, Shape.BOX, Shape.CYLINDER
        place = Solid.place
        stone = blocks(rng, (0.34, 0.16), 0.03, ("96918c", "c2bdb4", "7d7772"))
        brick = blocks(rng, (0.28, 0.125), 0.03, ("97503b", "c07a58", "bba995"))
        content: list[tuple[Solid, Material, float]] = [
            (place(box, (0.0, 0.1, 0.2), (0.55, 0.55, 0.2), 20), stone, 0.0),
            (
                place(ball, (0.0, 0.1, 0.92), (0.52, 0.52, 0.52)),
                marble(rng, ("e8e0d4", "64829a"), 0.36),
                0.18,
            ),
            # A gate: two posts and a lintel.
            (place(box, (-1.28, 0.98, 0.55), (0.2, 0.2, 0.55), 52), brick, 0.0),
            (place(box, (-0.6, 1.84, 0.55), (0.2, 0.2, 0.55), 52), brick, 0.0),
            (
                place(box, (-0.94, 1.41, 1.2), (0.86, 0.24, 0.11), 52),
                wood(rng, ("5d3c22", "a87442"), 0.11),
                0.0,
            ),
            (
                place(cylinder, (1.3, 0.85, 0.7), (0.27, 0.27, 0.7)),
                bands(rng, ("efe6d2", "b5483a"), 0.42, 1),
                0.06,
            ),
            (
                place(box, (1.05, -0.85, 0.3), (0.3, 0.3, 0.3), 33),
                wood(rng, ("8a5a2c", "d9ab6a"), 0.15),
                0.0,
            ),
            (
                place(box, (1.02, -0.82, 0.78), (0.18, 0.18, 0.18), 62),
                wood(rng, ("4d5f77", "93a9bb"), 0.12),
                0.0,
            ),
            (
                place(ball, (-1.1, -0.75, 0.46), (0.34, 0.34, 0.46)),
                labyrinth(rng, ("2c8780", "ecd9a8"), 0.34),
                0.2,
            ),
            (
                place(ball, (-0.15, -1.3, 0.25), (0.25, 0.25, 0.25)),
                bands(rng, ("e8b33c", "b7452f"), 0.2, 0),
                0.15,
            ),
            (
                place(ball, (-1.75, 0.05, 0.2), (0.2, 0.2, 0.2)),
                labyrinth(rng, ("f0e8da", "5b4a91"), 0.26),
                0.15,
            ),
        ]
        solids, materials, gloss = (list(column) for column in zip(*content, strict=True))
        return cls(solids, [*materials, sky(rng), plaza(rng, 2.6)], [*gloss, 0.0, 0.0])

    def photograph(self, camera: Camera) -> NDArray[np.uint8]:
        """[H, W, 3] sRGB image, box-filtered in linear light."""
        total = np.zeros((3, camera.height * camera.width), np.float32)
        corners, suns = _corners(camera), _sun_samples()
        for sample in range(_SAMPLES):
            lattice = np.array([[sample], [sample * _STRIDE % _SAMPLES]], np.float32)
            rays = unproject(camera, corners + (lattice + 0.5) / _SAMPLES)
            total += self._radiance(camera.center, rays, suns[:, sample, None])
        linear = np.clip(total / _SAMPLES, 0, 1)
        levels = np.rint(linear ** (1 / 2.2) * 255).astype(np.uint8)
        return np.ascontiguousarray(levels.T.reshape(camera.height, camera.width, 3))

    def _radiance(self, center: NDArray[np.float64], rays: Array, sun: Array) -> Array:
        """[3, n] linear light along rays [3, n] from one point."""
        origin = center.astype(rays.dtype)[:, None]
        distance, surface = trace(self.solids, origin, rays)
        color = np.empty_like(rays)
        for number in range(DOME, len(self.solids)):
            seen = np.flatnonzero(surface == number)
            if seen.size:
                view = rays[:, seen]
                color[:, seen] = self._surface(number, origin + view * distance[seen], view, sun)
        return color

    def _surface(self, number: int, points: Array, view: Array, sun: Array) -> Array:
        material, gloss = self.materials[number], self.gloss[number]
        if number == DOME:
            return material(points, points)
        if number == GROUND:
            normal = np.zeros_like(points)
            normal[2] = 1
            reflectance = material(points, normal)
        else:
            solid = self.solids[number]
            local = solid.local(points)
            own = solid.normals(local)
            normal = rotate(solid.turn, own)
            reflectance = material(local, own)
        facing = np.maximum(dot(normal, sun), 0)
        lit = np.flatnonzero(facing > 0)
        facing[lit[in_shadow(self.solids, points[:, lit], sun)]] = 0
        above = 0.5 + 0.5 * normal[2]
        ambient = (_BOUNCE + (_SKYLIGHT - _BOUNCE) * above) * self._openness(points, normal)
        light = reflectance * (ambient + _SUNLIGHT * facing)
        if gloss:
            half = sun - view
            shine = np.maximum(dot(normal, half) / np.sqrt(dot(half, half)), 0) ** 24
            light += gloss * _SUNLIGHT * shine * (facing > 0)
        return np.asarray(light)

    def _openness(self, points: Array, normal: Array) -> Array:
        """[n] share of the sky that solids leave free, each taken as a sphere of its volume."""
        covered = np.zeros_like(points[0])
        for solid in self.solids:
            offset = solid.center.astype(points.dtype)[:, None] - points
            square = dot(offset, offset)
            radius = float(np.prod(solid.size)) ** (1 / 3)
            share = np.maximum(dot(offset, normal), 0)
            share *= radius**2
            share /= square * np.sqrt(square)
            covered += np.minimum(share, 1, out=share)
        return np.asarray(1 - 0.8 * np.minimum(covered, 1))


def unproject(camera: Camera, xy: Array) -> Array:
    """[3, n] unit rays in the world through image points [2, n], in their precision."""
    rays = np.ones((3, xy.shape[1]), xy.dtype)
    rays[:2] = xy
    rays = rotate(camera.world_to_camera[:3, :3].T @ np.linalg.inv(camera.K), rays)
    rays /= np.sqrt(dot(rays, rays))
    return rays


def _corners(camera: Camera) -> NDArray[np.float32]:
    """[2, H * W] upper left corner of every pixel."""
    x, y = np.meshgrid(np.arange(camera.width), np.arange(camera.height))
    return np.stack([x.ravel(), y.ravel()]).astype(np.float32)


def _sun_samples() -> NDArray[np.float32]:
    """[3, samples] unit directions to points spread evenly over the sun's disc."""
    count = _SAMPLES
    radius = _SUN_RADIUS * np.sqrt((np.arange(count) + 0.5) / count)
    angle = np.arange(count) * np.pi * (3 - np.sqrt(5))
    side = np.cross(_SUN, [0.0, 0.0, 1.0])
    side /= np.linalg.norm(side)
    other = np.cross(_SUN, side)
    disc = np.outer(side, radius * np.cos(angle)) + np.outer(other, radius * np.sin(angle))
    directions = _SUN[:, None] + disc
    return np.asarray(directions / np.linalg.norm(directions, axis=0), np.float32)
