"""Scores of rendered views from their PNG files: `python metrics.py -m RUN [RUN ...]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from grendel_odin.config import exit_code
from grendel_odin.report.lpips import HOW_TO_INSTALL, find_lpips
from grendel_odin.train.results import Scores, Split, methods_on_disk, pairs_on_disk, writing
from grendel_odin.train.settings import TrainSettings


def score(arguments: Sequence[str] | None) -> None:
    parser = argparse.ArgumentParser(prog="metrics.py", description=__doc__)
    add = parser.add_argument
    add("-m", "--model_paths", nargs="+", type=Path, required=True, metavar="RUN")
    add("--mode", choices=[split.value for split in Split], default=Split.TEST.value)
    args = parser.parse_args(arguments)
    split, lpips = Split(args.mode), find_lpips()
    for run in args.model_paths:
        for method in methods_on_disk(run, split):
            scores = Scores(lpips, TrainSettings().thread_count())
            for pair in pairs_on_disk(run / split.value / method):
                scores.add(pair)
            with writing(run):
                scores.save(run, split, method)
            print(scores.table(f"{run}: {split.value}/{method}"))
    if not lpips:
        print(HOW_TO_INSTALL)


def main(arguments: Sequence[str] | None = None) -> int:
    return exit_code(lambda: score(arguments))


if __name__ == "__main__":
    sys.exit(main())
