"""What a trainer would make of a data set, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from grendel_odin.data.colmap_files import find_models
from grendel_odin.data.images import memory_note
from grendel_odin.data.scene import Scene
from grendel_odin.data.settings import DataSettings
from grendel_odin.data.views import Points, View

_KINDS_SHOWN = 8


def report(scene: Scene, settings: DataSettings) -> str:
    """Lines on a scene that loads: a column of names, one of findings."""
    format_, notes = _format(scene, settings)
    rows = [
        ("scene", str(scene.path)),
        ("format", format_),
        ("views", _views(scene)),
        *[("camera", text) for text in _cameras(scene.views)],
        ("masks", _masks(scene.views)),
        ("points", _points(scene.points)),
        ("tracks", _tracks(scene.points)),
        ("extent", _extent(scene)),
        ("memory", memory_note(scene.views, settings.cache_bytes)),
        *[("note", note) for note in notes],
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)


def _format(scene: Scene, settings: DataSettings) -> tuple[str, list[str]]:
    """The format, and the notes that are left: readers of transforms.json begin theirs with it."""
    models = find_models(scene.path)
    if not models:
        return scene.notes[0], scene.notes[1:]
    wanted = scene.path / settings.model if settings.model else models[0].folder
    model = next((m for m in models if m.folder.resolve() == wanted.resolve()), models[0])
    kind = "binary" if model.kind == "bin" else "text"
    text = f"COLMAP model {model.folder} ({kind}), {model.images} registered images"
    return text, scene.notes


def _views(scene: Scene) -> str:
    return f"{len(scene.train)} to train, {len(scene.test)} to test"


def _cameras(views: Sequence[View]) -> list[str]:
    """One line for each set of intrinsics, the most used first."""
    kinds = Counter((_intrinsics(view), view.warp is not None) for view in views)
    lines = [
        f"{count} views: {text}{', straightened' if bent else ''}"
        for (text, bent), count in kinds.most_common(_KINDS_SHOWN)
    ]
    rest = len(kinds) - len(lines)
    return [*lines, f"and {rest} more intrinsics"] if rest else lines


def _intrinsics(view: View) -> str:
    camera, K = view.camera, view.camera.K
    size = f"{camera.width}x{camera.height}"
    if view.file_size != (camera.width, camera.height):
        size += f" (from {view.file_size[0]}x{view.file_size[1]})"
    return f"{size}, fx {K[0, 0]:.1f}, fy {K[1, 1]:.1f}, cx {K[0, 2]:.1f}, cy {K[1, 2]:.1f}"


def _masks(views: Sequence[View]) -> str:
    return f"{sum(view.mask_path is not None for view in views)} of {len(views)} views have one"


def _points(points: Points) -> str:
    if not len(points):
        return "none"
    low, high = np.percentile(points.xyz, [1, 99], axis=0)
    box = " x ".join(f"{side:.3g}" for side in high - low)
    return f"{len(points):,}, of which 98% lie in a box of {box} units"


def _tracks(points: Points) -> str:
    if not len(points.track_views):
        return "none: what a view sees is found by projection"
    lengths = np.diff(points.track_offsets)
    short = int((lengths < 3).sum())
    return (
        f"a point is seen by {lengths.mean():.1f} views on average "
        f"({int(lengths.max())} at most, {short:,} points by less than 3)"
    )


def _extent(scene: Scene) -> str:
    text = f"{scene.extent:.4g} units"
    if scene.offset.any():
        text += f", after the offset {' '.join(f'{value:.12g}' for value in scene.offset)}"
    return text
