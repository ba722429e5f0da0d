"""Ranks of a node that share images; each writes what it has seen to FOLDER/rank_N.json."""

from __future__ import annotations

import json
import random
import sys
from contextlib import closing
from pathlib import Path

import numpy as np

from grendel_odin.config import UserError
from grendel_odin.data.cameras import Camera
from grendel_odin.data.images import ImageStore
from grendel_odin.data.views import View
from grendel_odin.parallel.launch import join_world
from grendel_odin.parallel.node import share_memory
from grendel_odin.parallel.world import World

AHEAD, UNITS = 4, 30
BLACK = (0.0, 0.0, 0.0)


def main() -> None:
    folder = Path(sys.argv[1])
    with closing(join_world(60)) as world:
        seen = {
            "all fit": read(folder, world, 10**6),
            "a few fit": read(folder, world, 3 * 300),
            "none fits": read(folder, world, 0),
            "error": broken(folder, world),
        }
    (folder / f"rank_{world.rank}.json").write_text(json.dumps(seen))


def read(folder: Path, world: World, limit: int) -> dict[str, object]:
    """Units of two views in one order; each rank reads its share of the rows of each."""
    views = views_of(sorted(folder.glob("[0-9].png")))
    store = ImageStore(views, BLACK, limit, 2, share_memory(world))
    order = [random.Random(unit).sample(views, 2) for unit in range(UNITS)]
    rows, right = np.array_split(np.arange(views[0].camera.height), world.size)[world.rank], True
    for at, unit in enumerate(order):
        store.prefetch(view for each in order[at : at + AHEAD] for view in each)
        for view in unit:
            image = store.get(view)[:, rows[0] : rows[-1] + 1]
            right &= bool((image == 1 + view.index).all())
        world.sum_counts(0)  # the end of a unit
    usage = store.usage()
    world.sum_counts(0)
    store.close()
    return {"right": right, "usage": usage, "estimate": store.estimate}


def broken(folder: Path, world: World) -> str:
    """What a rank is told about an image that cannot be decoded."""
    store = ImageStore(views_of([folder / "broken.png"]), BLACK, 10**6, 1, share_memory(world))
    with closing(store):
        store.prefetch(views_of([folder / "broken.png"]))
        try:
            store.get(views_of([folder / "broken.png"])[0])
        except UserError as error:
            return str(error)
    return ""


def views_of(paths: list[Path]) -> list[View]:
    return [
        View(Camera(path.name, 10, 10, K=np.eye(3), world_to_camera=np.eye(4)), path, index)
        for index, path in enumerate(paths)
    ]


if __name__ == "__main__":
    main()
