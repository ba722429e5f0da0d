"""Merges the PLY files that the ranks of a Grendel-GS run wrote into one point_cloud.ply.

python scripts/merge_ply.py RUN               every iteration of a run
python scripts/merge_ply.py FOLDER            one iteration: point_cloud_rk*_ws*.ply in FOLDER
python scripts/merge_ply.py FILE FILE ...     these files

The merged file lies beside its parts unless --out says otherwise. Rows keep their order, by rank,
and their bytes; they pass through memory a megabyte at a time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from grendel_odin.config import UserError, exit_code
from grendel_odin.model.ply_model import PARTS, WHOLE, PlyModel


def models(paths: Sequence[Path]) -> list[PlyModel]:
    """What the paths name: the iterations of a run, one iteration, or files."""
    if absent := [path for path in paths if not path.exists()]:
        raise UserError(f"{absent[0]}: no such file or folder.")
    if not paths[0].is_dir():
        return [PlyModel.of_ranks(paths)]
    if len(paths) > 1:
        raise UserError(f"{paths[1]}: give one folder, or the files of one iteration.")
    folders = {path.parent for path in paths[0].glob(f"point_cloud/iteration_*/{PARTS}")}
    if not folders and any(paths[0].glob(f"point_cloud/iteration_*/{WHOLE}")):
        raise UserError(f"{paths[0]}: its models are in one file each: there is nothing to merge.")
    return [PlyModel.of_folder(folder) for folder in sorted(folders) or paths]


def merge(paths: Sequence[Path], out: Path | None) -> None:
    """Merge all models, or none if something is wrong with one."""
    found = models(paths)
    if out and len(found) > 1:
        folders = ", ".join(model.path.parent.name for model in found)
        raise UserError(f"--out names one file, but {paths[0]} has {folders}. Next: name one.")
    targets = [out or model.path.parent / WHOLE for model in found]
    for target in targets:
        if target.exists():
            raise UserError(f"{target}: exists already. Next: remove it, or give --out FILE.")
    for model, target in zip(found, targets, strict=True):
        model.merge(target)
        print(f"{target}: {model.rows:,} primitives of {len(model.files)} ranks")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="RUN|FOLDER|FILE")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the merged file")
    given = parser.parse_args(arguments)
    return exit_code(lambda: merge(given.paths, given.out))


if __name__ == "__main__":
    sys.exit(main())
