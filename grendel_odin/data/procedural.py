"""A COLMAP data set out of nothing: photographs of a ray-traced world, with points and tracks."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from grendel_odin.config import UserError, bind, dump, exit_code, explain, setting
from grendel_odin.data.cameras import Camera
from grendel_odin.data.procedural_colmap import write_model
from grendel_odin.data.procedural_survey import mean_colors, ring_cameras, survey
from grendel_odin.data.procedural_world import World

_NOTE = "procedural.yaml"
"""The settings, in the data set's folder; marks it as ours to replace."""
_CONTENT = {_NOTE, "images", "sparse"}
_THREADS = 2


@dataclass(frozen=True)
class ProceduralSettings:
    """The procedural scene."""

    seed: int = setting(0, "draws textures, camera jitter and points", min=0)
    views: int = setting(48, "photographs, on two rings around the scene", min=4, max=9999)
    width: int = setting(320, "image width in pixels", min=16, max=4096)
    height: int = setting(240, "image height in pixels", min=16, max=4096)
    points: int = setting(15_000, "points of the sparse cloud", min=100, max=1_000_000)


def write_procedural_scene(path: Path, settings: ProceduralSettings) -> None:
    """Write the data set: images/, sparse/0/ and a note of its settings. All or nothing.

    An older procedural scene at `path` is replaced; the same settings give the same bytes.

    Raises:
        UserError: `path` holds anything else, or cannot be written.
    """
    path = path.absolute()
    _check_target(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        (draft / "images").mkdir(parents=True)
        (draft / "sparse" / "0").mkdir(parents=True)
        _fill(draft, settings)
        _swap(draft, path)
    except OSError as error:
        raise UserError(f"{path}: cannot write the procedural scene: {error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _check_target(path: Path) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise UserError(f"{path}: is a file; name a new or empty folder for the procedural scene")
    content = {entry.name for entry in path.iterdir()}
    foreign = sorted(content - _CONTENT) if _NOTE in content else sorted(content)
    if foreign:
        raise UserError(
            f"{path}: holds files that are no procedural scene ({', '.join(foreign[:3])}); "
            "name a new or empty folder, or remove them first"
        )


def _swap(draft: Path, path: Path) -> None:
    """Put the finished draft in place; what was there leaves only afterwards."""
    if not path.exists():
        draft.rename(path)
        return
    old = draft.with_suffix(".old")
    path.rename(old)
    draft.rename(path)
    shutil.rmtree(old)


def _fill(folder: Path, settings: ProceduralSettings) -> None:
    textures, jitter, scatter = np.random.default_rng(settings.seed).spawn(3)
    world = World.build(textures)
    cameras = ring_cameras(settings.views, settings.width, settings.height, jitter)

    def photograph(camera: Camera) -> NDArray[np.uint8]:
        image = world.photograph(camera)
        Image.fromarray(image).save(folder / "images" / camera.name, compress_level=4)
        return image

    with ThreadPoolExecutor(_THREADS) as pool:
        images = list(pool.map(photograph, cameras))
    xyz, observations = survey(world, cameras, settings.points, scatter)
    rgb = mean_colors(images, len(xyz), observations)
    write_model(folder / "sparse" / "0", cameras, xyz, rgb, observations)
    (folder / _NOTE).write_text(dump(settings), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """`OUT [key=value ...]`; returns the exit status."""
    parser = argparse.ArgumentParser(
        "python -m grendel_odin.data.procedural",
        description="Writes the procedural scene, a COLMAP data set.",
        epilog=explain(ProceduralSettings),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("out", metavar="OUT", type=Path, help="new or empty folder")
    parser.add_argument("settings", metavar="key=value", nargs="*", help="settings, see below")
    given = parser.parse_args(arguments)

    def write() -> None:
        settings = bind(ProceduralSettings, None, given.settings)
        write_procedural_scene(given.out, settings)
        print(f"{given.out}: {settings.views} views of {settings.width}x{settings.height}")

    return exit_code(write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
