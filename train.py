"""Train a model: python train.py -c configs/3dgs.yaml data.path=SCENE output=RUN [key=value ...]"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing

from grendel_odin.config import exit_code
from grendel_odin.parallel.launch import ranks
from grendel_odin.render import Backend
from grendel_odin.train.call import parse


def main(arguments: Sequence[str]) -> int:
    """Parse, join the other ranks, build, train, close; returns the exit code."""
    return exit_code(lambda: train(arguments), interrupted="interrupted before training began")


def train(arguments: Sequence[str]) -> int:
    """One rank of a run, from its joining the others to its leaving them."""
    with ranks(
        lambda: parse(arguments),
        lambda call: call.settings.parallel,
        lambda call: call.settings.renderer.backend is Backend.CUDA,
    ) as (call, world):
        if call.plan_only:
            from grendel_odin.train.planning import plan_only

            plan_only(call.settings, world)
            return 0
        from grendel_odin.train.build import build

        with closing(build(call.settings, world, call.notes)) as trainer, world.ending_all():
            return trainer.run().exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
