"""Files that describe a run to viewers, to other tools and to whoever wants to repeat it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import grendel_odin
from grendel_odin.config import dump
from grendel_odin.data.scene import Scene
from grendel_odin.data.views import Points, View
from grendel_odin.model.ply import offset_comment
from grendel_odin.train import args_json, cfg_args
from grendel_odin.train.run_folder import MARKER, RunFolder
from grendel_odin.train.settings import Settings

PACKAGES = ("torch", "numpy", "scipy", "gsplat", "pycolmap", "pillow")
VARIABLES = ("OMP_NUM_THREADS", "OMP_PROC_BIND", "KMP_AFFINITY", "CUDA_VISIBLE_DEVICES")


def describe_run(folder: RunFolder, settings: Settings, scene: Scene) -> None:
    """Write the settings, the cameras, the initial points and the environment."""
    # Replacing another run concerns this call alone, not whoever repeats it from its settings.
    repeatable = replace(settings, train=replace(settings.train, overwrite=False))
    folder.write(MARKER, dump(repeatable).encode())
    folder.write_json(args_json.FILE, args_json.arguments(settings))
    folder.write(cfg_args.FILE, cfg_args.write_text(settings).encode())
    folder.write_json("cameras.json", cameras([*scene.test, *scene.train]))
    folder.write("input.ply", points_ply(scene.points, scene.offset))
    if scene.offset.any():
        folder.write_json("dataparser_transforms.json", transform_to_local(scene.offset))
    folder.write_json("environment.json", environment())


def cameras(views: Sequence[View]) -> list[dict[str, Any]]:
    """Cameras as SIBR reads them: camera-to-world rotation, position, focal lengths."""
    return [
        {
            "id": number,
            "img_name": view.camera.name,
            "width": view.camera.width,
            "height": view.camera.height,
            "position": view.camera.center.tolist(),
            "rotation": view.camera.world_to_camera[:3, :3].T.tolist(),
            "fy": float(view.camera.K[1, 1]),
            "fx": float(view.camera.K[0, 0]),
        }
        for number, view in enumerate(views)
    ]


def transform_to_local(offset: NDArray[np.float64]) -> dict[str, Any]:
    """The way from the input's frame to that of the run's files, as nerfstudio writes it: [3, 4]
    transform, then scale."""
    rows = np.column_stack([np.eye(3), -offset]).tolist()
    return {"transform": rows, "scale": 1.0, "offset": offset.tolist()}


def points_ply(points: Points, offset: NDArray[np.float64]) -> bytes:
    """The initial points as a PLY of positions, empty normals and colours.

    They are in the local frame, like all files of the run; the header tells the offset.
    """
    floats, colors = ("x", "y", "z", "nx", "ny", "nz"), ("red", "green", "blue")
    rows = np.zeros(len(points.xyz), [(n, "<f4") for n in floats] + [(n, "u1") for n in colors])
    for axis, name in enumerate(floats[:3]):
        rows[name] = points.xyz[:, axis]
    for channel, name in enumerate(colors):
        rows[name] = points.rgb[:, channel]
    header = [
        *("ply", "format binary_little_endian 1.0"),
        *([f"comment {offset_comment(offset)}"] if offset.any() else []),
        f"element vertex {len(rows)}",
        *(f"property float {name}" for name in floats),
        *(f"property uchar {name}" for name in colors),
        "end_header\n",
    ]
    return "\n".join(header).encode() + rows.tobytes()


def environment() -> dict[str, Any]:
    """Versions and the machine, without its name."""
    return {
        "grendel_odin": installed_version("grendel-odin"),
        "git_sha": git_sha(),
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu_count": os.cpu_count(),
        "packages": {name: installed_version(name) for name in PACKAGES},
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def git_sha() -> str | None:
    """The commit of the checkout that runs, None outside of one."""
    root = Path(grendel_odin.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
