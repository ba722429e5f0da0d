"""Trains case after case on ranks that are started once: training_ranks.py CASE ... -- WORD ...

A case is `key=value,key=value`; the words after -- belong to all.
"""

from __future__ import annotations

import sys
from contextlib import closing

from grendel_odin.config import bind
from grendel_odin.parallel.launch import join_world
from grendel_odin.train.build import build
from grendel_odin.train.settings import Settings


def main(cases: list[str], shared: list[str]) -> None:
    world = join_world(timeout_s=60)
    for case in cases:
        words = case.split(",")
        with closing(build(bind(Settings, None, [*shared, *words]), world)) as trainer:
            trainer.run()
    world.close()


if __name__ == "__main__":
    border = sys.argv.index("--")
    main(sys.argv[1:border], sys.argv[border + 1 :])
