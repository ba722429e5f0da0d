"""What sets MatrixCity's folders apart, as Grendel lays them out: a PLY of points in the root.

Its frames are those of NeRF's transforms_train.json and transforms_test.json. Blocks as they are
published call the pose rot_mat, with the rotation scaled by 0.01, and give frame_index in place
of a file name (city-super/MatrixCity, README).
"""

from __future__ import annotations

from pathlib import Path

_USUAL = ("points3d", "point_cloud", "sparse_pc", "input")


def root_points(scene: Path) -> tuple[Path | None, list[str]]:
    """The PLY in a scene's folder, and a note if it was chosen among several."""
    found = sorted(path for path in scene.glob("*") if path.suffix.lower() == ".ply")
    if len(found) < 2:
        return (found[0] if found else None), []
    usual = [path for path in found if path.stem.lower() in _USUAL]
    chosen = usual[0] if usual else found[0]
    others = ", ".join(path.name for path in found if path != chosen)
    return chosen, [f"points are read from {chosen.name}; {others} beside it are not read"]
