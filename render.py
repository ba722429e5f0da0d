"""Render a trained model: `python render.py -m RUN`, or a PLY: `--ply FILE -s DATA`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from grendel_odin.config import UserError, exit_code
from grendel_odin.train.paths import PathKind
from grendel_odin.train.render_run import Renders
from grendel_odin.train.results import Split
from grendel_odin.train.saved_model import LATEST, model_of_ply, model_of_run


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="render.py", description=__doc__)
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("-m", "--model_path", type=Path, metavar="RUN", help="folder of a run")
    model.add_argument("--ply", type=Path, metavar="FILE", help="a 3DGS PLY of any trainer")
    add = parser.add_argument
    add("-s", "--source_path", metavar="DATA", help="folder of the scene (with -m: if it moved)")
    add("-o", "--output", type=Path, metavar="OUT", help="output folder (with -m: RUN itself)")
    add("--iteration", type=int, default=LATEST, metavar="N", help="with -m; -1: latest")
    add("--skip_train", action="store_true", help="leave the training views out")
    add("--skip_test", action="store_true", help="leave the test views out")
    add("--path", choices=[kind.value for kind in PathKind], help="render a film instead of views")
    add("--frames", type=int, default=120, help="of the film (default 120)")
    add("overrides", nargs="*", metavar="key=value", help="such as renderer.background=white")
    return parser.parse_intermixed_args(arguments)


def render(args: argparse.Namespace) -> None:
    moved = [f"data.path={args.source_path}"] if args.source_path else []
    overrides = [*moved, *args.overrides]
    if args.skip_train and args.skip_test and not args.path:
        raise UserError("nothing to render: leave out --skip_train or --skip_test, or give --path")
    if args.ply and args.iteration != LATEST:
        raise UserError("--iteration chooses a model of a run, with -m RUN; --ply names one itself")
    renders = Renders(
        model_of_ply(args.ply, args.output, overrides)
        if args.ply
        else model_of_run(args.model_path, args.iteration, overrides, args.output)
    )
    if args.path:
        print(renders.film(PathKind(args.path), args.frames))
    skipped = {Split.TRAIN: args.skip_train, Split.TEST: args.skip_test}
    for split in [split for split in Split if not (args.path or skipped[split])]:
        print(renders.views(split))


def main(arguments: Sequence[str] | None = None) -> int:
    return exit_code(lambda: render(parse(arguments)))


if __name__ == "__main__":
    sys.exit(main())
