"""Textures of the procedural scene: smooth, band-limited functions of the place on a surface.

A material maps [3, n] surface points in metres and their normals, both in the solid's own frame,
to [3, n] linear reflectance. The finest detail is about 2 pixels of a 320x240 view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grendel_odin.data.procedural_shapes import Array

Material = Callable[[Array, Array], Array]


@dataclass(frozen=True, slots=True, eq=False)
class Waves:
    """A random field with a bounded spectrum: a sum of plane waves, of unit variance."""

    vectors: NDArray[np.float64]
    """[k, 3] radians per metre."""
    phases: NDArray[np.float64]
    amplitudes: NDArray[np.float64]

    @classmethod
    def draw(
        cls, rng: np.random.Generator, shortest: float, longest: float, count: int = 12
    ) -> Waves:
        """Wavelengths in metres, spread evenly on a log scale; long waves are the stronger."""
        lengths = shortest * (longest / shortest) ** ((np.arange(count) + 0.5) / count)
        directions = rng.normal(size=(count, 3))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        amplitudes = lengths**0.6
        amplitudes *= np.sqrt(2 / np.sum(amplitudes**2))
        vectors = directions * (2 * np.pi / lengths)[:, None]
        return cls(vectors, rng.uniform(0, 2 * np.pi, count), amplitudes)

    def __call__(self, p: Array) -> Array:
        """[n] values at points [3, n]."""
        total = np.zeros_like(p[0])
        for vector, phase, amplitude in zip(
            self.vectors.tolist(), self.phases.tolist(), self.amplitudes.tolist(), strict=True
        ):
            wave = p[0] * vector[0] + p[1] * vector[1]
            wave += p[2] * vector[2]
            wave += phase
            total += amplitude * np.sin(wave, out=wave)
        return np.asarray(total)


def rgb(code: str) -> NDArray[np.float32]:
    """[3, 1] linear colour of an sRGB code such as "c08040"."""
    levels = np.array([int(code[i : i + 2], 16) for i in (0, 2, 4)]) / 255
    return np.asarray(levels[:, None] ** 2.2, np.float32)


def step(value: Array, width: float) -> Array:
    """Smooth step from 0 to 1 about value = 0, over `width`."""
    x = np.clip(value * (1 / width) + 0.5, 0, 1)
    return np.asarray(x * x * (3 - 2 * x))


def mix(a: Array, b: Array, share: Array) -> Array:
    """a where share = 0, b where share = 1."""
    return a + (b - a) * share


def _joint(value: Array, pitch: float, width: float) -> Array:
    """1 on the lines value = k * pitch, `width` wide with soft edges, else 0."""
    away = np.abs(value - np.round(value * (1 / pitch)) * pitch)
    return step(width / 2 - away, width * 0.8)


def _unfold(p: Array, normal: Array) -> tuple[Array, Array]:
    """Coordinates on the faces of a box: across and up (on level faces x and y)."""
    level = np.abs(normal[2]) > 0.7
    across = np.where(np.abs(normal[0]) > 0.7, p[1], p[0])
    return across, np.where(level, p[1], p[2])


def blocks(
    rng: np.random.Generator, size: tuple[float, float], joint: float, colors: tuple[str, str, str]
) -> Material:
    """Courses of bricks or slabs, each of its own shade between two colours; third: the joints."""
    shades = rng.random((64, 64)).astype(np.float32)
    grain = Waves.draw(rng, 0.05, 0.3)
    dark, light, mortar = map(rgb, colors)

    def material(p: Array, normal: Array) -> Array:
        across, up = _unfold(p, normal)
        course = np.floor(up * (1 / size[1]))
        across = across + course % 2 * (size[0] / 2)
        column = np.floor(across * (1 / size[0]))
        shade = shades[course.astype(np.int64) & 63, column.astype(np.int64) & 63]
        face = mix(dark, light, shade) * (1 + 0.10 * grain(p))
        gap = np.maximum(_joint(across, size[0], joint), _joint(up, size[1], joint))
        return mix(face, mortar, gap)

    return material


def wood(rng: np.random.Generator, colors: tuple[str, str], plank: float) -> Material:
    """Planks along the horizontal with drawn-out grain."""
    warp, tone = Waves.draw(rng, 0.25, 1.0), Waves.draw(rng, 0.1, 0.5)
    dark, light = map(rgb, colors)
    shifts = rng.uniform(0, 6, 64).astype(np.float32)

    def material(p: Array, normal: Array) -> Array:
        across, up = _unfold(p, normal)
        board = shifts[np.floor(up * (1 / plank)).astype(np.int64) & 63]
        stretched = np.stack([across * 0.25, up, board])
        rings = np.sin(up * (2 * np.pi / 0.07) + 1.6 * warp(stretched) + board)
        share = 0.5 + 0.28 * rings + 0.16 * tone(stretched)
        face = mix(dark, light, np.clip(share, 0, 1))
        return face * (1 - 0.6 * _joint(up, plank, 0.02))

    return material


def marble(rng: np.random.Generator, colors: tuple[str, str], vein: float) -> Material:
    """Stone with warped veins, `vein` metres apart."""
    direction, warp = rng.normal(size=3), Waves.draw(rng, 0.15, 0.8)
    grain = Waves.draw(rng, 0.05, 0.2)
    direction *= 2 * np.pi / (vein * np.linalg.norm(direction))
    x, y, z = direction.tolist()
    base, line = map(rgb, colors)

    def material(p: Array, normal: Array) -> Array:
        wave = np.sin(p[0] * x + p[1] * y + p[2] * z + 1.8 * warp(p))
        share = np.clip(0.5 + 0.5 * wave, 0, 1) ** 3
        return mix(base, line, share) * (1 + 0.04 * grain(p))

    return material


def labyrinth(rng: np.random.Generator, colors: tuple[str, str], pitch: float) -> Material:
    """Glaze with winding bands (a gyroid of the given period)."""
    warp = Waves.draw(rng, 0.3, 0.9)
    one, other = map(rgb, colors)

    def material(p: Array, normal: Array) -> Array:
        x, y, z = p * (2 * np.pi / pitch) + 0.5 * warp(p)
        field = np.sin(x) * np.cos(y) + np.sin(y) * np.cos(z) + np.sin(z) * np.cos(x)
        return mix(one, other, step(field, 0.7))

    return material


def bands(rng: np.random.Generator, colors: tuple[str, str], pitch: float, twist: int) -> Material:
    """Stripes `pitch` metres apart in height that wind `twist` times about the axis."""
    grain = Waves.draw(rng, 0.05, 0.3)
    one, other = map(rgb, colors)

    def material(p: Array, normal: Array) -> Array:
        turn = np.arctan2(p[1], p[0]) * twist
        wave = np.sin(p[2] * (2 * np.pi / pitch) + turn)
        return mix(one, other, step(wave, 0.7)) * (1 + 0.06 * grain(p))

    return material


def plaza(rng: np.random.Generator, radius: float) -> Material:
    """The ground: slabs within `radius`, a kerb, then grass that grows smoother far out."""
    slabs = blocks(rng, (0.38, 0.38), 0.036, ("a8967f", "d0c1a8", "857a6c"))
    kerb = rgb("b5aca0")
    blades, patches = Waves.draw(rng, 0.09, 0.5, 16), Waves.draw(rng, 0.8, 4.0)
    moss, straw = rgb("4c6b2c"), rgb("93a055")

    def lawn(p: Array, away: Array) -> Array:
        fine = blades(p) * np.clip((8 - away) * 0.2, 0, 1)
        return mix(moss, straw, np.clip(0.45 + 0.16 * fine + 0.16 * patches(p), 0, 1))

    def material(p: Array, normal: Array) -> Array:
        away = np.hypot(p[0], p[1])
        color = np.empty_like(p)
        paved, green = np.flatnonzero(away < radius), np.flatnonzero(away >= radius)
        stone = slabs(p[:, paved], normal[:, paved])
        color[:, paved] = mix(stone, kerb, step(away[paved] - radius + 0.14, 0.03))
        color[:, green] = lawn(p[:, green], away[green])
        return color

    return material


def sky(rng: np.random.Generator) -> Material:
    """The dome, which shines by itself: far hills, a pale horizon, blue above, soft clouds."""
    clouds, ridge = Waves.draw(rng, 2.0, 9.0), Waves.draw(rng, 2.5, 9.0)
    woods = Waves.draw(rng, 0.35, 1.5)
    horizon, zenith, white = rgb("dfe6e6"), rgb("5f93cf"), rgb("fbf7f0")
    near, far = rgb("55713f"), rgb("8ba3a0")
    stretch = np.array([[1], [1], [2]], np.float32)
    level = np.array([[1], [1], [0]], np.float32)

    def material(p: Array, normal: Array) -> Array:
        height = p[2]
        air = mix(horizon, zenith, np.clip(height * 0.14, 0, 1) ** 0.8)
        veil = step(clouds(p * stretch) - 0.3, 2.2)
        air = mix(air, white, veil * np.clip(height * 0.25, 0, 1) * 0.8)
        flat = p * level
        back = far * (1 + 0.03 * woods(p))
        front = near * (1 + 0.13 * woods(p))
        land = mix(back, air, step(height - 1.5 - 0.35 * ridge(flat[[1, 0, 2]]), 0.12))
        return mix(front, land, step(height - 0.75 - 0.25 * ridge(flat), 0.12))

    return material
