"""Two ranks of one thread against one: python benchmarks/scaling.py SCENE [iterations] [rounds].

The runs of a round take turns, so that a change of the machine's mood meets all of them.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

from common import machine
from runs import train

ONE, HYBRID, ONE_OF_2, REPLICATED = "one", "hybrid", "one_of_batches", "replicated"
RUNS = {
    ONE: (1, ()),
    HYBRID: (2, ("parallel.mode=hybrid",)),
    ONE_OF_2: (1, ("train.batch_size=2",)),
    REPLICATED: (2, ("train.batch_size=2", "parallel.mode=replicated")),
}


def main(scene: str, iterations: int, rounds: int) -> None:
    common = [
        *(f"data.path={scene}", f"train.iterations={iterations}"),
        *(f"train.eval_iterations=[{iterations}]", f"train.save_iterations=[{iterations}]"),
    ]
    speeds: dict[str, list[float]] = {name: [] for name in RUNS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for name, (ranks, words) in RUNS.items():
                done = train(ranks, Path(folder) / name, [*common, *words])
                speeds[name].append(done["views_per_s"])
                print(f"{name}: {done['views_per_s']:.1f} views/s", flush=True)
    best = {name: max(each) for name, each in speeds.items()}
    figures = {
        **{f"{name}_views_per_s": round(each, 1) for name, each in best.items()},
        **{f"{n}_median": round(statistics.median(each), 1) for n, each in speeds.items()},
        "hybrid_speedup": round(best[HYBRID] / best[ONE], 2),
        "replicated_speedup": round(best[REPLICATED] / best[ONE_OF_2], 2),
    }
    print(json.dumps({"benchmark": "scaling", "machine": machine(), "scene": scene} | figures))


if __name__ == "__main__":
    words = sys.argv[1:]
    main(
        words[0],
        int(words[1]) if len(words) > 1 else 500,
        int(words[2]) if len(words) > 2 else 3,
    )
