"""How even the strips of ranks are: the cut by known costs against the best one in hindsight.

    python benchmarks/balance.py --data SCENE [--epochs 14]

Trains in one process, densification included, and cuts each unit for R ranks as training does: by
what its views cost when they were last rendered, at least two units ago. Afterwards the true costs
are known; the best contiguous cut is then found by dynamic programming. The first epoch teaches
only. Prints a table of the costliest share against the mean; its last line is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from itertools import islice
from pathlib import Path

import numpy as np
from common import machine
from numpy.typing import NDArray
from torch import Tensor

from grendel_odin.config import bind
from grendel_odin.data.views import View
from grendel_odin.parallel.balance import CountedCosts
from grendel_odin.parallel.strips import HALO_SHARE, Strip, cut
from grendel_odin.train.build import build
from grendel_odin.train.settings import Settings

RANKS = (2, 4, 8)
BAR = 1.05


class Watched(CountedCosts):
    """Costs that keep what the latest unit really cost."""

    def learn(self, views: list[View], evaluations: list[Tensor]) -> None:
        super().learn(views, evaluations)
        true = CountedCosts()
        true.learn(views, evaluations)
        true.learn([], [])  # ends the lag
        self.true = [true.of(view).numpy() for view in views]


def loads(costs: list[NDArray[np.int64]], strips: list[Strip], ranks: int) -> NDArray[np.float64]:
    """[R] the cost of each share, halo included."""
    total = np.zeros(ranks)
    for strip in strips:
        rows = costs[strip.view]
        total[strip.rank] += rows[strip.first : strip.last].sum()
        total[strip.rank] += HALO_SHARE * rows[strip.first - 1] if strip.first else 0.0
        total[strip.rank] += HALO_SHARE * rows[strip.last] if strip.last < len(rows) else 0.0
    return total


def best_worst(costs: list[NDArray[np.int64]], ranks: int) -> float:
    """Least possible cost of the costliest share, over all contiguous cuts."""
    rows = np.concatenate(costs).astype(float)
    n = len(rows)
    inside = np.ones(n + 1, dtype=bool)
    inside[np.cumsum([0, *(len(each) for each in costs)])] = False
    below = np.concatenate([[0.0], np.cumsum(rows)])
    above = HALO_SHARE * inside * np.concatenate([[0.0], rows])  # halo of a share that starts there
    under = HALO_SHARE * inside * np.concatenate([rows, [0.0]])  # and of one that ends there
    share = below[None, :] - below[:, None] + above[:, None] + under[None, :]
    share[np.tril_indices(n + 1, -1)] = np.inf
    np.fill_diagonal(share, 0.0)
    best = share[0]
    for _ in range(ranks - 1):
        best = np.maximum(best[:, None], share).min(0)
    return float(best[n])


def run(data: Path, epochs: int, batch: int) -> dict[int, dict[str, float]]:
    """For each R: the costliest share over the mean one, by the cut and at best, over units."""
    with tempfile.TemporaryDirectory() as output:
        words = [f"data.path={data}", f"output={output}/run", "train.threads=1"]
        trainer = build(bind(Settings, None, [*words, f"train.batch_size={batch}"]))
        step, views = trainer.step, len(trainer.scene.train)
        step.costs = watched = Watched()
        found: dict[int, list[tuple[float, float]]] = {ranks: [] for ranks in RANKS}
        for unit in islice(trainer.units(), epochs * views // batch):
            known = [watched.of(view).numpy() for view in unit.views]
            trainer.executor.run(step.tasks(unit))
            trainer.fence(unit)
            if unit.window.start <= views + 2 * batch:
                continue
            for ranks, pairs in found.items():
                mean = sum(each.sum() for each in watched.true) / ranks
                worst = loads(watched.true, cut(known, ranks), ranks).max()
                pairs.append((float(worst / mean), best_worst(watched.true, ranks) / mean))
        trainer.close()
    return {ranks: figures(np.array(pairs)) for ranks, pairs in found.items()}


def figures(pairs: NDArray[np.float64]) -> dict[str, float]:
    ratio = pairs[:, 0] / pairs[:, 1]
    return {
        "cut_max_over_mean": float(pairs[:, 0].mean()),
        "best_max_over_mean": float(pairs[:, 1].mean()),
        "ratio": float(ratio.mean()),
        "ratio_p95": float(np.quantile(ratio, 0.95)),
        "units": len(pairs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of a scene")
    parser.add_argument("--epochs", type=int, default=14, help="passes over the views")
    words = parser.parse_args()
    print(f"{machine()}; {words.data.name}, {words.epochs} epochs")
    print(f"{'R':>2} {'B':>3} {'max/mean':>8} {'at best':>8} {'ratio':>6} {'p95':>6} {'units':>6}")
    cases = {}
    for batch in (1, *RANKS):
        for ranks, each in run(words.data, words.epochs, batch).items():
            if batch not in (1, ranks):
                continue
            cases[f"R={ranks} B={batch}"] = each
            print(
                f"{ranks:2d} {batch:3d} {each['cut_max_over_mean']:8.3f} "
                f"{each['best_max_over_mean']:8.3f} {each['ratio']:6.3f} {each['ratio_p95']:6.3f} "
                f"{each['units']:6.0f}"
            )
    passed = all(each["ratio"] <= BAR for each in cases.values())
    print(f"within {BAR} of the best cut: {'yes' if passed else 'NO'}")
    head = {"benchmark": "balance", "machine": machine(), "scene": words.data.name}
    print(json.dumps({**head, "cases": cases, "passed": passed}))


if __name__ == "__main__":
    main()
