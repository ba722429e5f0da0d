"""Where the procedural scene's photographs are taken, and which points each of them sees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from grendel_odin.data.cameras import Camera
from grendel_odin.data.procedural_colmap import Observations
from grendel_odin.data.procedural_shapes import dot, rotate, trace
from grendel_odin.data.procedural_world import World, unproject

_SHORTEST_TRACK = 3
_BATCH = 4096
"""Points that are tried at a time."""


def ring_cameras(views: int, width: int, height: int, rng: np.random.Generator) -> list[Camera]:
    """Two rings that look at the middle, the low one first by name; every pose a little off."""
    focal = 0.9 * width
    K = np.array([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1]])
    low = views // 2
    cameras: list[Camera] = []
    for ring, count, radius, level in ((0, low, 3.7, 1.1), (1, views - low, 3.4, 2.3)):
        for place in range(count):
            azimuth = 2 * np.pi * (place + 0.5 * ring + rng.uniform(-0.3, 0.3)) / count
            away = radius * rng.uniform(0.94, 1.06)
            center = np.array([np.cos(azimuth) * away, np.sin(azimuth) * away, level])
            center[2] *= rng.uniform(0.9, 1.1)
            target = np.array([0.0, 0.0, 0.5]) + rng.uniform(-0.12, 0.12, 3)
            name = f"view_{len(cameras):04d}.png"
            pose = look_at(center, target, rng.uniform(-0.03, 0.03))
            cameras.append(Camera(name, width, height, K, pose))
    return cameras


def look_at(
    center: NDArray[np.float64], target: NDArray[np.float64], roll: float
) -> NDArray[np.float64]:
    """[4, 4] world-to-camera transform."""
    forward = (target - center) / np.linalg.norm(target - center)
    right = np.cross(forward, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    down = np.cross(forward, right)
    pose = np.eye(4)
    pose[0, :3] = np.cos(roll) * right + np.sin(roll) * down
    pose[1, :3] = np.cos(roll) * down - np.sin(roll) * right
    pose[2, :3] = forward
    pose[:3, 3] = -pose[:3, :3] @ center
    return pose


def survey(
    world: World, cameras: Sequence[Camera], wanted: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], Observations]:
    """Surface points [wanted, 3] under random pixels, and every view that really sees each."""
    xyz, batches, found = [], [], 0
    while found < wanted:
        points = _surface_points(world, cameras, rng)
        visible, places = zip(*(_sight(world, camera, points) for camera in cameras), strict=True)
        seen = np.stack(visible)
        kept = np.flatnonzero(seen.sum(axis=0) >= _SHORTEST_TRACK)[: wanted - found]
        image, point = np.nonzero(seen[:, kept])
        batches.append((image, point + found, np.stack(places)[image, :, kept[point]]))
        xyz.append(points[:, kept].T)
        found += len(kept)
    image, point, xy = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    order = np.argsort(image, kind="stable")
    return np.concatenate(xyz), Observations(image[order], point[order], xy[order])


def _surface_points(
    world: World, cameras: Sequence[Camera], rng: np.random.Generator
) -> NDArray[np.float64]:
    """[3, n] in random order: what lies under random pixels of every view."""
    found = []
    for camera in cameras:
        size = np.array([[camera.width], [camera.height]])
        rays = unproject(camera, rng.random((2, _BATCH // len(cameras) + 1)) * size)
        distance, _ = trace(world.solids, camera.center[:, None], rays)
        found.append(camera.center[:, None] + rays * distance)
    return rng.permutation(np.concatenate(found, axis=1, dtype=np.float64), axis=1)


def _sight(
    world: World, camera: Camera, points: NDArray[np.float64]
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Whether a camera sees each point [3, n], unhidden and in the image; and where [2, n]."""
    origin = camera.center[:, None]
    rays = points - origin
    distance = np.sqrt(dot(rays, rays))
    local = rotate(camera.world_to_camera[:3, :3], rays)
    with np.errstate(divide="ignore", invalid="ignore"):
        image = rotate(camera.K, local / local[2])
    hit, _ = trace(world.solids, origin, rays / distance)
    inside = (local[2] > 0) & (image[0] >= 0) & (image[1] >= 0)
    inside &= (image[0] < camera.width) & (image[1] < camera.height)
    return inside & (np.abs(hit - distance) < 1e-5 * distance), np.float64(image[:2])


def mean_colors(
    images: Sequence[NDArray[np.uint8]], count: int, observations: Observations
) -> NDArray[np.uint8]:
    """[count, 3] colour of each point: the mean over its track of the pixels it falls on."""
    column, row = observations.xy.astype(np.int64).T
    samples = np.stack(images)[observations.image, row, column]
    totals = [np.bincount(observations.point, channel, count) for channel in samples.T]
    lengths = np.bincount(observations.point, minlength=count)
    return np.rint(np.stack(totals, axis=1) / lengths[:, None]).astype(np.uint8)
