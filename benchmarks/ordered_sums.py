"""What it costs that sums have one order: python benchmarks/ordered_sums.py SCENE [units].

A view is cut into strips for R ranks, which are simulated one after another. Ordered: only the
strip that holds a splat's first tile row adds its rows up, others send them one by one. Plain:
every strip adds up its own. Both are timed in turns, from blending backward to the gradients of
splats, and set against all of projection, rendering and gradients. The last line is a JSON object.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from itertools import islice
from statistics import median

import torch
from common import machine
from torch import Tensor

from grendel_odin.config import bind
from grendel_odin.data.views import View
from grendel_odin.parallel.parcel import pick, touching
from grendel_odin.parallel.sharing import pixel_rows
from grendel_odin.parallel.strips import Strip, cut
from grendel_odin.render.losses import HALO
from grendel_odin.render.protocol import SPLAT_WIDTH, Rect, SplatSums
from grendel_odin.train.build import build
from grendel_odin.train.settings import Settings
from grendel_odin.train.step import Step


def strips_of(step: Step, view: View, ranks: int) -> list[Strip]:
    return cut([step.costs.of(view).numpy()], ranks)


def once(step: Step, view: View, ranks: int, ordered: bool) -> tuple[float, float, int]:
    """Seconds of all, seconds of the sums, and bytes of the sums."""
    camera, renderer = view.camera, step.renderer
    start = time.perf_counter()
    splats = renderer.project(step.state.table, camera, 3)
    ranges = renderer.row_ranges(splats)
    spent, size, parts = 0.0, 0, list[tuple[Tensor, SplatSums]]()
    for strip in strips_of(step, view, ranks):
        rows = pixel_rows(strip, camera)
        sent = touching(ranges, pixel_rows(strip, camera, HALO))
        share = pick(splats, sent)
        rect = Rect(0, rows.start, camera.width, len(rows))
        image = renderer.render(share, camera, rect, step.background)
        tops = torch.ones(len(share), dtype=torch.bool)
        if ordered and strip.first:
            tops = renderer.row_ranges(share)[:, 0] >= rows.start
        begin = time.perf_counter()
        sums = renderer.strip_sums(image, torch.full_like(image.color, 1e-6), tops)
        spent += time.perf_counter() - begin
        size += 2 * len(sums.counts) + 4 * SPLAT_WIDTH * len(sums.values)
        parts.append((sent, sums))
    begin = time.perf_counter()
    renderer.gather_sums(splats, parts)
    end = time.perf_counter()
    return end - start, spent + end - begin, size


def main(scene: str, units: int) -> None:
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as output:
        words = [f"data.path={scene}", f"output={output}/run", "train.threads=1"]
        trainer = build(bind(Settings, None, words))
        for unit in islice(trainer.units(), units):  # so that costs are known
            trainer.executor.run(trainer.step.tasks(unit))
        views = trainer.scene.train[:8]
        for ranks in (2, 4, 8):
            runs = {
                ordered: [once(trainer.step, v, ranks, ordered) for v in views]
                for ordered in (True, False)
            }
            times: dict[bool, list[float]] = {True: [], False: []}
            for _ in range(10):
                for ordered, each in times.items():
                    each.append(sum(once(trainer.step, v, ranks, ordered)[1] for v in views))
            whole = median(each[0] for each in runs[False]) * len(views)
            extra = (min(times[True]) - min(times[False])) / whole
            size = {ordered: sum(each[2] for each in found) for ordered, found in runs.items()}
            figures[f"cost_{ranks}"] = round(extra, 4)
            figures[f"bytes_{ranks}"] = round(size[True] / size[False], 3)
            print(
                f"{ranks} ranks: {100 * extra:.2f} % of a step's rendering, "
                f"bytes of sums x {size[True] / size[False]:.3f}"
            )
        trainer.close()
    print(json.dumps({"benchmark": "ordered_sums", "machine": machine(), "scene": scene} | figures))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 120)
