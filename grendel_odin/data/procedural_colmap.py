"""A COLMAP model (binary form) written from arrays; layouts as in COLMAP's documentation."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from grendel_odin.data.cameras import Camera

_PINHOLE = 1
_OBSERVATION = np.dtype([("xy", "<f8", 2), ("point", "<u8")])
_TRACK_ENTRY = np.dtype([("image", "<u4"), ("observation", "<u4")])
_POINT = np.dtype(
    [("id", "<u8"), ("xyz", "<f8", 3), ("rgb", "u1", 3), ("error", "<f8"), ("track", "<u8")]
)


@dataclass(frozen=True, slots=True, eq=False)
class Observations:
    """Which point lies where in which image; sorted by image."""

    image: NDArray[np.int64]
    """[m] positions in the list of cameras."""
    point: NDArray[np.int64]
    """[m] rows of the point cloud."""
    xy: NDArray[np.float64]
    """[m, 2] pixels; (0.5, 0.5) is the centre of the first."""


def write_model(
    folder: Path,
    cameras: Sequence[Camera],
    xyz: NDArray[np.float64],
    rgb: NDArray[np.uint8],
    observations: Observations,
) -> None:
    """Write cameras.bin, images.bin and points3D.bin into an existing folder.

    `cameras` share one set of intrinsics; xyz [P, 3], rgb [P, 3]. Ids count from 1.
    """
    bounds = np.searchsorted(observations.image, np.arange(len(cameras) + 1))
    (folder / "cameras.bin").write_bytes(_camera(cameras[0]))
    (folder / "images.bin").write_bytes(_images(cameras, observations, bounds))
    (folder / "points3D.bin").write_bytes(_points(xyz, rgb, observations, bounds))


def _camera(camera: Camera) -> bytes:
    K = camera.K
    size = (camera.width, camera.height)
    return struct.pack("<QIiQQ4d", 1, 1, _PINHOLE, *size, K[0, 0], K[1, 1], K[0, 2], K[1, 2])


def _images(
    cameras: Sequence[Camera], observations: Observations, bounds: NDArray[np.int64]
) -> bytes:
    rows = np.empty(len(observations.point), _OBSERVATION)
    rows["xy"], rows["point"] = observations.xy, observations.point + 1
    parts = [struct.pack("<Q", len(cameras))]
    for index, camera in enumerate(cameras):
        x, y, z, w = Rotation.from_matrix(camera.world_to_camera[:3, :3]).as_quat()
        shift = camera.world_to_camera[:3, 3]
        seen = rows[bounds[index] : bounds[index + 1]]
        parts += [
            struct.pack("<I7dI", index + 1, w, x, y, z, *shift, 1),
            camera.name.encode() + b"\0",
            struct.pack("<Q", len(seen)),
            seen.tobytes(),
        ]
    return b"".join(parts)


def _points(
    xyz: NDArray[np.float64],
    rgb: NDArray[np.uint8],
    observations: Observations,
    bounds: NDArray[np.int64],
) -> bytes:
    """Records of unequal length, laid out in one buffer without a loop over points."""
    lengths = np.bincount(observations.point, minlength=len(xyz))
    heads = np.zeros(len(xyz), _POINT)
    heads["id"], heads["xyz"], heads["rgb"] = np.arange(1, len(xyz) + 1), xyz, rgb
    heads["track"] = lengths
    by_point = np.argsort(observations.point, kind="stable")
    entries = np.empty(len(by_point), _TRACK_ENTRY)
    place = np.arange(len(by_point)) - bounds[observations.image]
    entries["image"] = observations.image[by_point] + 1
    entries["observation"] = place[by_point]

    sizes = np.stack([np.full(len(xyz), _POINT.itemsize), lengths * _TRACK_ENTRY.itemsize], axis=1)
    is_head = np.repeat(np.tile([True, False], len(xyz)), sizes.ravel())
    body = np.empty(len(is_head), np.uint8)
    body[is_head] = np.frombuffer(heads.tobytes(), np.uint8)
    body[~is_head] = np.frombuffer(entries.tobytes(), np.uint8)
    return struct.pack("<Q", len(xyz)) + body.tobytes()
