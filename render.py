"""Render a trained model: `python render.py -m RUN`, or a PLY: `--ply FILE -s DATA`.

RUN may be a run of 3DGS or Grendel-GS, too. Over ranks: `torchrun ... render.py -m RUN`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from grendel_odin.config import CommandLine, UserError, exit_code, unknown_flags
from grendel_odin.parallel.launch import ranks
from grendel_odin.train.flags import FLAG_NAMES, render_words
from grendel_odin.train.paths import PathKind
from grendel_odin.train.render_run import Renders
from grendel_odin.train.render_split import Selection
from grendel_odin.train.results import Split
from grendel_odin.train.saved_model import LATEST, SavedModel, model_of_ply, model_of_run
from grendel_odin.train.settings import Settings


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The command line, and notes on the flags of other trainers in it."""
    parser = CommandLine(
        prog="render.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("-m", "--model_path", type=Path, metavar="RUN", help="folder of a run")
    model.add_argument("--ply", type=Path, metavar="FILE", help="a 3DGS PLY of any trainer")
    add = parser.add_argument
    add("-s", "--source_path", metavar="DATA", help="folder of the scene (with -m: if it moved)")
    add("-o", "--output", type=Path, metavar="OUT", help="output folder (with -m: RUN itself)")
    add("--iteration", type=int, default=LATEST, metavar="N", help="with -m; -1: latest")
    add("--skip_train", action="store_true", help="leave the training views out")
    add("--skip_test", action="store_true", help="leave the test views out")
    add("--l", type=int, default=-1, metavar="N", help="from the N-th view on, by name")
    add("--r", type=int, default=-1, metavar="N", help="up to before the N-th view")
    add("--sample_freq", type=int, default=-1, metavar="N", help="every N-th view")
    add("--generate_num", type=int, default=-1, metavar="N", help="at most N views of a split")
    add("--distributed_load", action="store_true", help="without effect: files are always shared")
    add("--path", choices=[kind.value for kind in PathKind], help="render a film instead of views")
    add("--frames", type=int, default=120, help="of the film (default 120)")
    add("overrides", nargs="*", metavar="key=value", help="such as renderer.background=white")
    said = render_words(arguments)
    given, unknown = parser.parse_known_intermixed_args(said.arguments)
    complaints = unknown_flags(Settings, unknown, FLAG_NAMES) if unknown else []
    if complaints := [*said.problems, *complaints]:
        raise UserError("\n".join(complaints))
    return given, said.notes


def find_model(args: argparse.Namespace) -> SavedModel:
    moved = [f"data.path={args.source_path}"] if args.source_path else []
    overrides = [*moved, *args.overrides]
    if args.skip_train and args.skip_test and not args.path:
        raise UserError("nothing to render: leave out --skip_train or --skip_test, or give --path")
    if args.ply and args.iteration != LATEST:
        raise UserError("--iteration chooses a model of a run, with -m RUN; --ply names one itself")
    if args.ply:
        return model_of_ply(args.ply, args.output, overrides)
    return model_of_run(args.model_path, args.iteration, overrides, args.output)


def render(words: Sequence[str]) -> None:
    def read() -> tuple[argparse.Namespace, Sequence[str], SavedModel]:
        args, notes = parse(words)
        return args, notes, find_model(args)

    with ranks(read, lambda given: given[2].settings.parallel) as ((args, notes, model), world):
        renders = Renders(model, world)

        def say(text: str) -> None:
            if world.is_main:
                print(text)

        for note in [*notes, *model.notes]:
            say(note)
        if args.path:
            say(renders.film(PathKind(args.path), args.frames))
        skipped = {Split.TRAIN: args.skip_train, Split.TEST: args.skip_test}
        selection = Selection(args.l, args.r, args.sample_freq, args.generate_num)
        for split in [split for split in Split if not (args.path or skipped[split])]:
            say(renders.views(split, selection))


def main(arguments: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    return exit_code(lambda: render(words))


if __name__ == "__main__":
    sys.exit(main())
