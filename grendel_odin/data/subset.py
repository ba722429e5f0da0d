"""A model without some of its cameras."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from grendel_odin.data.views import Model


def without_cameras(model: Model, dropped: Collection[int]) -> Model:
    """Leaves out cameras by index; tracks and lenses count the others anew. Points all stay."""
    keep = np.ones(len(model.cameras), bool)
    keep[list(dropped)] = False
    place = np.cumsum(keep) - 1
    points = model.points
    seen = keep[points.track_views]
    before = np.concatenate([[0], np.cumsum(seen)])
    return replace(
        model,
        cameras=[camera for camera, kept in zip(model.cameras, keep, strict=True) if kept],
        points=replace(
            points,
            track_offsets=before[points.track_offsets].astype(np.int64),
            track_views=place[points.track_views[seen]].astype(np.int32),
        ),
        lenses={int(place[i]): lens for i, lens in model.lenses.items() if keep[i]},
    )
