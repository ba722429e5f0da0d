"""The folder of a run: the names that viewers and other trainers' tools look for.

A folder that holds a run is refused, unless `train.overwrite=true`: then what an earlier run (or
its renders) left there is removed first, and other files stay. (The 3DGS trainer writes over it
without a word and leaves a mixture of both runs.) A folder with other content is always refused.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grendel_odin.config import UserError, replacing, writing
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.parallel.merge import save_ply
from grendel_odin.parallel.world import ALONE, World

MARKER = "cfg.yml"
FILES = (
    *("args.json", "cfg_args", "cameras.json", "input.ply", "environment.json", "metrics.jsonl"),
    *("summary.json", "results.json", "per_view.json", "results_train.json"),
    *("per_view_train.json", "results_test.json", "per_view_test.json"),
    *("dataparser_transforms.json", "order.txt"),
)
PLAN = "plan"
"""May be there before the run is, by train.py --plan-only."""
RANK_LOGS = "python_ws=*_rk=*.log"
"""Of scripts for Grendel-GS; a run of another number of ranks had others."""
FOLDERS = (*("point_cloud", "logs", "stats", "tb", "test", "train", "videos", "checkpoints", PLAN),)


def check_output(output: str, overwrite: bool) -> None:
    """Raise UserError if a run could not write into this folder; changes nothing."""
    path = Path(output)
    if path.is_dir():
        if (path / MARKER).is_file() and not overwrite:
            has_checkpoints = any((path / "checkpoints").glob("iteration_*"))
            raise UserError(
                f"output={output} already holds a run; name another folder, "
                + ("go on with it (train.resume=auto), " if has_checkpoints else "")
                + "or add train.overwrite=true to replace that run"
            )
        foreign = [each for each in path.iterdir() if each.name != PLAN]
        if not (path / MARKER).is_file() and not all(map(_is_empty_folder, foreign)):
            raise UserError(
                f"output={output} holds files that are no run of this program; "
                "name a new or empty folder"
            )
    elif path.exists():
        raise UserError(f"output={output} is a file; name a folder")
    elif path.is_symlink():
        raise UserError(
            f"output={output} is a link to {os.readlink(path)}, which does not exist; "
            "make that folder, or name another one"
        )
    parent = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise UserError(f"output={output}: cannot write to {parent}; name a folder elsewhere")


class RunFolder:
    """Writes the results of one run; each file appears complete or not at all."""

    def __init__(
        self, output: str, overwrite: bool, world: World = ALONE, continues: bool = False
    ) -> None:
        """Make the folder, or empty it of an earlier run unless that `continues`; all then have it.

        Raises UserError if it cannot be made, or is not seen by all.
        """
        self.path, self.is_main = Path(output), world.is_main
        world.on_main(lambda: self._make(output, overwrite, continues))
        world.together(self._check_seen)

    def _make(self, output: str, overwrite: bool, continues: bool) -> None:
        check_output(output, overwrite or continues)
        try:
            if not continues:
                self._clear()
            (self.path / "logs").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"output={output}: cannot write {error.filename} ({error.strerror}); "
                "name a folder elsewhere"
            ) from error

    def _check_seen(self) -> None:
        if not (self.path / "logs").is_dir():
            raise UserError(
                f"output={self.path}: the main rank made this folder, but it is not seen here; "
                "name a folder that all nodes share"
            )

    def _clear(self) -> None:
        named = [self.path / name for name in (MARKER, *FILES)]
        for path in (*named, *self.path.glob(RANK_LOGS)):
            path.unlink(missing_ok=True)
        for name in FOLDERS:
            if (self.path / name).is_dir():
                shutil.rmtree(self.path / name)

    def ply_path(self, iteration: int) -> Path:
        """Where the model of an iteration lies."""
        return self.path / "point_cloud" / f"iteration_{iteration}" / "point_cloud.ply"

    def save_model(
        self, table: PrimitiveTable, iteration: int, comments: list[str], world: World
    ) -> int:
        """Write the model of all ranks; returns the number of rows dropped as not finite."""
        return save_ply(world, self.ply_path(iteration), table, comments)

    def write_json(self, name: str, content: Mapping[str, Any] | list[Any]) -> None:
        """Write a JSON file; `name` may have a folder."""
        self.write(name, (to_json(content, indent=2) + "\n").encode())

    def write(self, name: str, content: bytes) -> None:
        """Write a file, if this is the main rank. Raises UserError if it cannot."""
        if not self.is_main:
            return
        path = self.path / name
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                file.write(content)


def _is_empty_folder(path: Path) -> bool:
    """As a run leaves them that could not write its first file."""
    return path.is_dir() and not any(path.iterdir())


def to_json(content: Any, indent: int | None = None) -> str:
    """JSON text; it knows neither infinity nor NaN: null stands for them."""
    return json.dumps(_finite(content), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(child) for child in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
