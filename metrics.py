"""Scores of rendered views from their PNG files: `python metrics.py -m RUN [RUN ...]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from grendel_odin.config import CommandLine, exit_code, writing
from grendel_odin.parallel.launch import ranks
from grendel_odin.parallel.settings import ParallelSettings
from grendel_odin.parallel.world import World
from grendel_odin.report.lpips import HOW_TO_INSTALL
from grendel_odin.train.png_files import methods_on_disk, names_on_disk, pairs_on_disk
from grendel_odin.train.render_split import common_lpips
from grendel_odin.train.results import Scores, Split
from grendel_odin.train.settings import TrainSettings
from grendel_odin.train.threads import use_threads


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandLine(prog="metrics.py", description=__doc__)
    add = parser.add_argument
    add("-m", "--model_paths", nargs="+", type=Path, required=True, metavar="RUN")
    add("--mode", choices=[split.value for split in Split], default=Split.TEST.value)
    return parser.parse_args(arguments)


def score(arguments: Sequence[str] | None) -> None:
    with ranks(lambda: parse(arguments), lambda args: ParallelSettings()) as (args, world):
        split = Split(args.mode)
        lpips, threads = common_lpips(world), use_threads(TrainSettings(), world)
        runs: list[Path] = args.model_paths
        methods = world.together(lambda: [methods_on_disk(run, split) for run in runs])
        for run, found in zip(runs, methods, strict=True):
            for method in found:
                score_method(run, split, method, Scores(lpips, threads), world)
        if world.is_main and not lpips:
            print(HOW_TO_INSTALL)


def score_method(run: Path, split: Split, method: str, own: Scores, world: World) -> None:
    """Score one rendering of a split; each rank adds every so manyth pair to its `own`."""
    folder = run / split.value / method
    names = world.together(lambda: names_on_disk(folder))

    def add_share() -> None:
        for pair in pairs_on_disk(folder, names[world.rank :: world.size]):
            own.add(pair)

    def report() -> None:
        with writing(run):
            scores.save(run, split, method)
        print(scores.table(f"{run}: {split.value}/{method}"))

    world.together(add_share)
    scores = own.gather(world, names)
    world.on_main(report)


def main(arguments: Sequence[str] | None = None) -> int:
    return exit_code(lambda: score(arguments))


if __name__ == "__main__":
    sys.exit(main())
