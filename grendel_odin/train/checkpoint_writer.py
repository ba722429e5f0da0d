"""Writes checkpoints so that each is complete or not there, and removes old ones."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from grendel_odin.config import UserError, writing
from grendel_odin.parallel.world import World
from grendel_odin.train.checkpoint import (
    COSTS,
    MANIFEST,
    Manifest,
    RowsFile,
    complete,
    read_manifest,
    rows_file,
)
from grendel_odin.train.tensor_file import FileSum, write_tensors


@dataclass(frozen=True, slots=True)
class CheckpointWriter:
    """Writes those of a run; every rank calls it."""

    folder: Path
    keep: int
    """Newest ones to keep; 0 keeps all."""
    world: World

    def write(
        self, manifest: Manifest, rows: Mapping[str, Tensor], costs: Mapping[str, Tensor]
    ) -> int:
        """Write this rank's share of the rows, `checkpoint.arrays`; returns all ranks' bytes.

        It is written under a hidden name, and renamed once all ranks have said that their part is
        on the disk. Raises UserError on all ranks if that fails; then nothing of it is left.
        """
        world, final = self.world, self.folder / f"iteration_{manifest.iteration}"
        temporary = _hidden(final)
        own_file = temporary / rows_file(world.rank, world.size)
        try:
            world.on_main(lambda: self._begin(temporary))
            own = world.together(lambda: _write(own_file, rows))
            whole = replace(manifest, files=self._files(len(rows["ids"]), own))
            world.on_main(lambda: self._finish(whole, costs, temporary, final))
        except UserError:
            if world.is_main:
                shutil.rmtree(temporary, ignore_errors=True)
            raise
        return sum(each.sum.size for each in whole.files)

    def _begin(self, temporary: Path) -> None:
        with writing(temporary):
            for left_over in self.folder.glob(".iteration_*.tmp"):
                shutil.rmtree(left_over)
            temporary.mkdir(parents=True)

    def _files(self, rows: int, own: FileSum) -> list[RowsFile]:
        """Of all ranks."""
        sha256 = torch.tensor(list(bytes.fromhex(own.sha256)))
        told = self.world.gather_integers(torch.cat([torch.tensor([rows, own.size]), sha256]))
        return [
            RowsFile(count, FileSum(size, bytes(digest).hex()))
            for count, size, *digest in told.tolist()
        ]

    def _finish(
        self, manifest: Manifest, costs: Mapping[str, Tensor], temporary: Path, final: Path
    ) -> None:
        with writing(final):
            manifest = replace(manifest, costs=write_tensors(temporary / COSTS, costs))
            with open(temporary / MANIFEST, "w") as file:
                file.write(manifest.text())
                file.flush()
                os.fsync(file.fileno())
            _sync(temporary)
            temporary.rename(final)
            _sync(self.folder)
        self._remove_old()

    def _remove_old(self) -> None:
        """Those that newer ones replace; one that cannot be removed does no harm."""
        passing = [path for path in complete(self.folder) if not _stays(path)]
        for path in passing[self.keep :] if self.keep else []:
            try:
                path.rename(_hidden(path))  # first, so that half a checkpoint is never seen
            except OSError:
                continue
            shutil.rmtree(_hidden(path), ignore_errors=True)


def _hidden(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


def _stays(checkpoint: Path) -> bool:
    try:
        return read_manifest(checkpoint).stays
    except UserError:
        return True  # not ours to judge


def _write(path: Path, tensors: Mapping[str, Tensor]) -> FileSum:
    with writing(path):
        return write_tensors(path, tensors)


def _sync(folder: Path) -> None:
    """Wait until the disk has the names in a folder."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
