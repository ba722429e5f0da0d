"""Small transforms.json scenes, made on the fly."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from data_helpers import noise, save

from grendel_odin.data.cameras import Camera

OPENGL = np.diag([1.0, -1.0, -1.0, 1.0])
SIZE = (16, 12)


def opengl_pose(camera: Camera, scale: float = 1.0) -> list[list[float]]:
    """Camera to world in OpenGL's axes, the rotation scaled."""
    pose = np.linalg.inv(camera.world_to_camera) @ OPENGL
    pose[:3, :3] *= scale
    return [[float(value) for value in row] for row in pose]


def standing(x: float) -> list[list[float]]:
    """At x on the x axis, looking along -z of the world, as OpenGL's cameras do."""
    pose = np.eye(4)
    pose[0, 3] = x
    return [[float(value) for value in row] for row in pose]


def frames(names: Sequence[str], **more: Any) -> list[dict[str, Any]]:
    return [
        {"file_path": name, "transform_matrix": standing(i), **more} for i, name in enumerate(names)
    ]


def write_json(root: Path, name: str, **top: Any) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(json.dumps(top))
    return root


def write_images(root: Path, names: Sequence[str], size: tuple[int, int] = SIZE) -> None:
    for seed, name in enumerate(names):
        save(root / name, noise(*size, seed=seed))


def simple_scene(root: Path, count: int = 4, **top: Any) -> Path:
    """transforms.json with images/0.png and so on; keys given here win."""
    names = [f"images/{i}.png" for i in range(count)]
    write_images(root, names)
    keys = {"fl_x": 20.0, "w": SIZE[0], "h": SIZE[1], "frames": frames(names), **top}
    return write_json(root, "transforms.json", **keys)


def ply(fields: Sequence[tuple[str, str]], rows: Sequence[Sequence[float]], form: str) -> bytes:
    """A PLY file whose types are named as in its header."""
    head = ["ply", f"format {form} 1.0", f"element vertex {len(rows)}"]
    head += [f"property {kind} {name}" for name, kind in fields] + ["end_header", ""]
    if form == "ascii":
        body = "".join(" ".join(map(repr, row)) + "\n" for row in rows).encode()
    else:
        order = "<" if "little" in form else ">"
        codes = {"float": "f", "double": "d", "uchar": "B", "ushort": "H", "int": "i"}
        row_format = order + "".join(codes[kind] for _, kind in fields)
        body = b"".join(struct.pack(row_format, *row) for row in rows)
    return "\n".join(head).encode() + body
