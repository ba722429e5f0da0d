"""What a unit of a run costs, counted before it begins: the ground on which windows are planned.

Counted with constants, not timed: a plan must be the same on every rank and in every run. Bytes
are those of the untrained model's splats in a few views; seconds of computation come from what
blending them evaluates (constants: one thread of a Zen 4 core, see docs/performance.md).
"""

from __future__ import annotations

import torch

from grendel_odin.data.scene import Scene
from grendel_odin.model.table import ROW_WIDTH, PrimitiveTable
from grendel_odin.odin.settings import Mode
from grendel_odin.odin.windows import CostModel
from grendel_odin.parallel import parcel
from grendel_odin.render.protocol import SPLAT_WIDTH, Rect, Renderer

EVALUATION_S, PIXEL_S = 15e-9, 11e-9
"""Of a row of 16 pixels and one splat, forward and backward; of a pixel in the loss."""
LATENCY_S = 50e-6
MEMORY_RATE, NETWORK_RATE = 4e9, 1.25e9
"""Bytes a second between ranks of one machine, and of several (10 Gbit/s)."""
VIEWS = 3


def count_costs(
    scene: Scene,
    table: PrimitiveTable,
    renderer: Renderer,
    batch: int,
    ranks: int,
    rate: float,
    mode: Mode,
) -> CostModel:
    """Of a unit of `batch` views over ranks that send `rate` bytes a second each.

    Computation is that of one thread a rank: ranks with other numbers of threads have one plan.
    """
    views = scene.train[:: -(-len(scene.train) // VIEWS)]
    splats = evaluations = pixels = 0
    for view in views:
        found = renderer.project(table, view.camera, 0)
        rendering = renderer.render(found, view.camera, Rect.full(view.camera), torch.zeros(3))
        splats += len(found)
        evaluations += int(renderer.tile_row_costs(rendering).sum())
        pixels += view.camera.width * view.camera.height
    each, leaving = batch * splats / len(views), (ranks - 1) / ranks
    there, back = 4 * parcel.WIDTH, 4 * SPLAT_WIDTH + 2
    if mode is Mode.REPLICATED:  # which rows, and their gradients: to be folded, and folded
        there, back = 4 * ranks, 2 * 4 * ROW_WIDTH
    compute = (EVALUATION_S * evaluations + PIXEL_S * pixels) * batch / len(views)
    return CostModel.counted(
        exchange_bytes=each * there * leaving / ranks,
        return_bytes=each * back * leaving / ranks,
        compute_s=compute / ranks,
        rate=rate,
        latency_s=LATENCY_S,
        ranks=ranks,
    )
