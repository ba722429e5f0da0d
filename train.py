"""Train a model: python train.py -c configs/3dgs.yaml data.path=SCENE output=RUN [key=value ...]"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from grendel_odin.config import UserError, bind, exit_code, explain, unknown_flags
from grendel_odin.parallel.launch import ranks
from grendel_odin.render import Backend
from grendel_odin.train.flags import FLAG_NAMES, train_words
from grendel_odin.train.settings import Settings


def parse(arguments: Sequence[str]) -> tuple[Settings, list[str]]:
    """Settings from a file, overrides and flags, and notes on these; --help explains every key."""
    parser = argparse.ArgumentParser(
        prog="train.py",
        description="Trains a 3D Gaussian splatting model of a scene.",
        usage="train.py [-c FILE] data.path=SCENE output=RUN [key=value ...] [flags of Grendel-GS]",
        epilog=explain(Settings),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="settings in YAML")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings by name")
    said = train_words(arguments)
    given, unknown = parser.parse_known_intermixed_args(said.arguments)
    if unknown:  # what followed them would only be misunderstood, too
        complaints = unknown_flags(Settings, unknown, FLAG_NAMES)
        raise UserError("\n".join([*said.problems, *complaints]))
    return bind(Settings, given.config, given.overrides, said.problems), said.notes


def main(arguments: Sequence[str]) -> int:
    """Parse, join the other ranks, build, train, close; returns the exit code."""
    return exit_code(lambda: train(arguments), interrupted="interrupted before training began")


def train(arguments: Sequence[str]) -> int:
    """One rank of a run, from its joining the others to its leaving them."""
    with ranks(
        lambda: parse(arguments),
        lambda given: given[0].parallel,
        lambda given: given[0].renderer.backend is Backend.CUDA,
    ) as ((settings, notes), world):
        from grendel_odin.train.build import build

        with closing(build(settings, world, notes)) as trainer, world.ending_all():
            return trainer.run().exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
