"""Train a model: python train.py -c configs/3dgs.yaml data.path=SCENE output=RUN [key=value ...]"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from grendel_odin.config import UserError, bind, exit_code, explain, unknown_flags
from grendel_odin.parallel.world import find_place, join_world
from grendel_odin.train.settings import Settings

HABITS = {
    **{"-s": "data.path=SCENE", "--source_path": "data.path=SCENE"},
    **{"-m": "output=RUN", "--model_path": "output=RUN", "-o": "output=RUN"},
    **{"-r": "data.downscale=N", "--resolution": "data.downscale=N", "-i": "data.images=FOLDER"},
    **{"-w": "renderer.background=white", "--white_background": "renderer.background=white"},
    **{"--eval": "data.test_every=8", "--bsz": "train.batch_size=N"},
}
"""What 3DGS's and Grendel's flags are called here."""


def parse(arguments: Sequence[str]) -> Settings:
    """Settings from a file and overrides; --help explains every key."""
    parser = argparse.ArgumentParser(
        prog="train.py",
        description="Trains a 3D Gaussian splatting model of a scene.",
        usage="train.py [-c FILE] data.path=SCENE output=RUN [key=value ...]",
        epilog=explain(Settings),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="settings in YAML")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings by name")
    given, unknown = parser.parse_known_intermixed_args(arguments)
    if unknown:
        raise UserError(unknown_flags(Settings, unknown, HABITS))
    return bind(Settings, given.config, given.overrides)


def main(arguments: Sequence[str]) -> int:
    """Parse, join the other ranks, build, train, close; returns the exit code."""
    place = find_place(os.environ)
    return exit_code(
        lambda: train(parse(arguments)),
        speaks=place is None or place.rank == 0,
        interrupted="interrupted before training began",
    )


def train(settings: Settings) -> int:
    """One rank of a run, from its joining the others to its leaving them."""
    with closing(join_world(settings.parallel.timeout_s)) as world:
        from grendel_odin.train.build import build

        with closing(build(settings, world)) as trainer:
            return trainer.run().exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
