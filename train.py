"""Train a model: python train.py -c configs/3dgs.yaml data.path=SCENE output=RUN [key=value ...]"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from grendel_odin.config import UserError, bind, explain
from grendel_odin.train.settings import Settings

USER_ERROR, INTERRUPTED = 2, 130


def parse(arguments: Sequence[str]) -> Settings:
    """Settings from a file and overrides; --help explains every key."""
    parser = argparse.ArgumentParser(
        prog="train.py",
        description="Trains a 3D Gaussian splatting model of a COLMAP scene.",
        usage="train.py [-c FILE] data.path=SCENE output=RUN [key=value ...]",
        epilog=explain(Settings),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="settings in YAML")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings by name")
    given = parser.parse_intermixed_args(arguments)
    return bind(Settings, given.config, given.overrides)


def main(arguments: Sequence[str]) -> int:
    """Parse, build, train, close; returns the exit code."""
    try:
        settings = parse(arguments)
        from grendel_odin.train.build import build

        with closing(build(settings)) as trainer:
            return trainer.run().exit_code
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        print("interrupted before training began", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
