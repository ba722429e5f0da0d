"""One model from any number of ranks in either mode: python benchmarks/same_bits.py SCENE.

Every run densifies, resets opacity and moves rows between ranks.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from runs import train

from grendel_odin.parallel.modes import Mode

WORDS = (
    *("train.iterations=700", "train.schedule_scale=0.2", "model.max_primitives=30000"),
    *("train.save_iterations=[700]", "train.eval_iterations=[700]"),
    *("parallel.reshard_every=3", "parallel.reshard_threshold=1.0"),
)


def main(
    scene: str, batches: tuple[int, ...] = (1, 4), ranks: tuple[int, ...] = (1, 2, 3, 4)
) -> None:
    hashes: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for batch in batches:
            found = hashes.setdefault(f"batch_{batch}", {})
            for mode in Mode:
                for count in ranks:
                    words = [f"data.path={scene}", f"train.batch_size={batch}", *WORDS]
                    done = train(
                        count, Path(folder) / "run", [*words, f"parallel.mode={mode.value}"]
                    )
                    events = (Path(folder) / "run" / "metrics.jsonl").read_text()
                    moves = events.count('"redistribute"')
                    found[f"{mode.value}_{count}"] = done["state_sha256"]
                    print(
                        f"batch {batch}, {mode.value}, {count} ranks: {done['state_sha256'][:16]}, "
                        f"{done['num_primitives']} primitives, rows moved {moves} times",
                        flush=True,
                    )
    same = {name: len(set(each.values())) == 1 for name, each in hashes.items()}
    print(json.dumps({"benchmark": "same_bits", "scene": scene, "same": same, "sha256": hashes}))


if __name__ == "__main__":
    main(sys.argv[1])
