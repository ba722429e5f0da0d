"""A model without some of its cameras."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from grendel_odin.data.extent import split
from grendel_odin.data.settings import DataSettings
from grendel_odin.data.views import Model, Sources


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


def first_views(model: Model, settings: DataSettings) -> Model:
    """As many training and test views as the settings allow, the first of each by name."""
    sources = model.sources
    if sources is None or not (settings.train_views or settings.test_views):
        return model
    every = list(range(len(model.cameras)))
    train, test = split(every, settings.test_every)
    if sources.is_test is not None:
        train = [i for i in every if not sources.is_test[i]]
        test = [i for i in every if sources.is_test[i]]
    kept_train, kept_test = (
        train[: settings.train_views or None],
        test[: settings.test_views or None],
    )
    tests, kept = set(kept_test), sorted(kept_train + kept_test)
    notes = [
        f"data.{name}_views={len(few)}: {len(all_) - len(few)} of {len(all_)} views are left out"
        for name, few, all_ in [("train", kept_train, train), ("test", kept_test, test)]
        if len(few) < len(all_)
    ]
    return replace(
        without_cameras(model, set(every).difference(kept)),
        notes=[*model.notes, *notes],
        sources=Sources(
            [sources.images[i] for i in kept],
            [sources.masks[i] for i in kept],
            [i in tests for i in kept],
            sources.reduced,
        ),
    )
