"""The points of a COLMAP model: its own file, or a PLY where tools have written only that."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from grendel_odin.config import UserError
from grendel_odin.data import colmap_binary, colmap_text
from grendel_odin.data.colmap_records import Damaged, PointRecords
from grendel_odin.data.points_ply import read_points_ply

_ENDINGS = {"bin": ("bin", "txt", "ply"), "txt": ("txt", "bin", "ply")}


def points_file(folder: Path, kind: str) -> Path | None:
    """Where the points of a model lie whose other files end in `kind`; None if nowhere."""
    files = (folder / f"points3D.{ending}" for ending in _ENDINGS[kind])
    return next((file for file in files if file.is_file()), None)


def read_points(file: Path) -> PointRecords:
    """In the order of the file; those of a PLY have no tracks. Raises Damaged."""
    if file.suffix == ".bin":
        return colmap_binary.read_points(file)
    if file.suffix == ".txt":
        return colmap_text.read_points(file)
    try:
        points, _ = read_points_ply(file)
    except UserError as error:
        raise Damaged(str(error)) from None
    count = len(points)
    return PointRecords(
        ids=np.arange(count, dtype=np.uint64),
        xyz=points.xyz,
        rgb=points.rgb,
        track_lengths=np.zeros(count, np.int64),
        track_images=np.zeros(0, np.int64),
    )


def points_note(file: Path, kind: str) -> list[str]:
    """Says so if the points are not where they are expected."""
    if file.suffix == f".{kind}":
        return []
    return [f"points are read from {file.name}, as there is no points3D.{kind}"]
