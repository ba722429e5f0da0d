"""Times the photometric loss and the optimizer's step on this machine.

    python benchmarks/loss_adam.py [threads ...]

Prints a table and, as its last line, the same figures as a JSON object. Times are the least of many
repeats: a busy machine shows in the medians.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch
from common import machine, measure

from grendel_odin import _kernels
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.optim import Adam, OptimizerKind
from grendel_odin.render.losses import PhotometricLoss
from grendel_odin.render.protocol import RowGradients

IMAGES = [(400, 301), (800, 601), (1600, 1200)]
ROWS = [5_945, 24_506, 200_000]
SEEN = 2  # one row of so many is visible


def loss_case(width: int, height: int, threads: int) -> Callable[[], object]:
    color = torch.rand(3, height, width)
    truth = torch.randint(0, 256, (3, height, width), dtype=torch.uint8)
    loss = PhotometricLoss(0.2, threads)
    return lambda: loss.loss(color, truth)


def adam_case(rows: int, kind: OptimizerKind, blocks: int, threads: int) -> Callable[[], object]:
    table = PrimitiveTable.empty(rows)
    active = torch.arange(0, rows, SEEN, dtype=torch.int32)
    gradients = RowGradients(active, 1e-3 * torch.randn(len(active), 64), blocks)
    adam, rates = Adam(rows, kind, threads), torch.full((64,), 1e-3)
    return lambda: adam.step(table, gradients, rates, (0.9, 0.999), 1e-15, 1.0)


def finite_case(rows: int, threads: int) -> Callable[[], object]:
    values = torch.randn(rows // SEEN, 64)
    return lambda: _kernels.first_nonfinite(values, 64, threads)


def cases(threads: int) -> dict[str, Callable[[], object]]:
    named: dict[str, Callable[[], object]] = {}
    for width, height in IMAGES:
        named[f"L1 + D-SSIM with gradient, {width} x {height}"] = loss_case(width, height, threads)
    for rows in ROWS:
        for kind in OptimizerKind:
            for blocks in (1, 4):
                name = f"{kind.value}, {rows} rows, {blocks} of 4 blocks live"
                named[name] = adam_case(rows, kind, blocks, threads)
        named[f"finite check, {rows // SEEN} rows"] = finite_case(rows, threads)
    return named


def main() -> None:
    torch.manual_seed(0)
    counts = [int(argument) for argument in sys.argv[1:]] or [1, 2]
    print(f"{machine()}, {_kernels.instruction_set}")
    print(f"{'':52}{'threads':>8}{'least ms':>10}{'median ms':>11}")
    figures: list[dict[str, object]] = []
    for threads in counts:
        for name, run in cases(threads).items():
            least, median = measure(run)
            print(f"{name:52}{threads:8}{least:10.3f}{median:11.3f}")
            figures.append({"case": name, "threads": threads, "min_ms": least, "median_ms": median})
    summary = {"machine": machine(), "instructions": _kernels.instruction_set, "figures": figures}
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
