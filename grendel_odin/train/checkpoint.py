"""What a checkpoint is, and how it is read: a folder that holds all that a run needs to go on.

`checkpoints/iteration_N/` has a file of rows for each rank, what balancing remembers, and a
manifest with the counters of the run and the checksums of the other files.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from grendel_odin.config import UserError
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.optim.adam import Adam
from grendel_odin.optim.settings import OptimizerKind
from grendel_odin.parallel.world import World
from grendel_odin.pipelines.state import Statistics, TrainingState
from grendel_odin.train.run_folder import to_json
from grendel_odin.train.tensor_file import FileSum, TensorFile, file_sum

FORMAT = 1
FOLDER = "checkpoints"
MANIFEST = "manifest.json"
COSTS = "costs.safetensors"
_UNWRITTEN = FileSum(0, "")
_NAME = re.compile(r"iteration_(\d+)")


@dataclass(frozen=True, slots=True)
class RowsFile:
    """The file of one rank."""

    rows: int
    sum: FileSum


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint says about itself."""

    iteration: int
    stays: bool
    """Whether it was asked for by name, and so outlives newer ones."""
    adam_steps: int
    progress: dict[str, Any]
    """train.progress.Progress."""
    settings: dict[str, Any]
    """By dotted key."""
    scene: dict[str, Any]
    """train.resume.scene_identity."""
    files: list[RowsFile] = field(default_factory=list)
    """By rank; the writer adds these two."""
    costs: FileSum = _UNWRITTEN

    def text(self) -> str:
        """JSON that `read_manifest` takes; a checksum of the content is part of it."""
        content = to_json(asdict(self))
        whole = {"format": FORMAT, "sha256": _sha256(content), "content": json.loads(content)}
        return json.dumps(whole, indent=1) + "\n"


class NewerFormat(UserError):
    """A checkpoint that a later version wrote: not damaged, but not for us."""


def read_manifest(checkpoint: Path) -> Manifest:
    """Raises UserError if it is damaged, NewerFormat if it is of a later version."""
    path = checkpoint / MANIFEST
    try:
        whole = json.loads(path.read_text())
        content, form = whole["content"], whole["format"]
        if form > FORMAT:
            raise NewerFormat(
                f"{path} has format {form}, and this version reads up to {FORMAT}: install the "
                "version of Grendel-Odin that wrote it, or a later one"
            )
        if whole["sha256"] != _sha256(json.dumps(content)):
            raise ValueError("its checksum differs")
        files = [RowsFile(each["rows"], FileSum(**each["sum"])) for each in content["files"]]
        return Manifest(**{**content, "files": files, "costs": FileSum(**content["costs"])})
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged: {error}") from error


def damage(checkpoint: Path, world: World) -> str:
    """What is wrong with a checkpoint, if anything; each rank reads its part of the files.

    Raises NewerFormat.
    """
    try:
        manifest = read_manifest(checkpoint)
    except NewerFormat:
        raise
    except UserError as error:
        return str(error)
    size = len(manifest.files)
    sums = {rows_file(rank, size): each.sum for rank, each in enumerate(manifest.files)}
    sums[COSTS] = manifest.costs
    for name in list(sums)[world.rank :: world.size]:
        path, expected = checkpoint / name, sums[name]
        try:
            if (there := path.stat().st_size) != expected.size:
                return f"{path} is damaged: it has {there} bytes, not {expected.size}"
            if file_sum(path) != expected:
                return f"{path} is damaged: its checksum differs"
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
    return ""


def arrays(state: TrainingState) -> dict[str, Tensor]:
    """Views of everything that has a row for each primitive, under the names of the files."""
    named = {
        "ids": state.table.ids,
        "statistics.norms": state.statistics.norms,
        "statistics.counts": state.statistics.counts,
    }
    for part in state.table.layout.fields:
        named[part.name] = state.table.values[:, part.columns]
        named[f"{part.name}.m"] = state.adam.m[:, part.columns]
        named[f"{part.name}.v"] = state.adam.v[:, part.columns]
    return named


def rows_to_write(state: TrainingState, world: World, owners: World) -> dict[str, Tensor]:
    """The part of `arrays` that this rank writes: its rows, or a share of those that all hold."""
    part = range(len(state.table))
    if owners.size < world.size:
        part = even_share(len(part), world)
    return {name: rows[part.start : part.stop] for name, rows in arrays(state).items()}


def rows_to_read(manifest: Manifest, owners: World) -> range:
    """Those of this rank: its own of before, or, if ranks were more or fewer, an even share."""
    counts = [each.rows for each in manifest.files]
    if len(counts) == owners.size:
        start = sum(counts[: owners.rank])
        return range(start, start + counts[owners.rank])
    return even_share(sum(counts), owners)


def even_share(count: int, world: World) -> range:
    """This rank's of so many rows."""
    first, last = (count * rank // world.size for rank in (world.rank, world.rank + 1))
    return range(first, last)


def read_state(
    checkpoint: Path, manifest: Manifest, rows: range, kind: OptimizerKind, threads: int
) -> TrainingState:
    """A stretch of the rows of all ranks, laid end to end. Raises UserError."""
    count = len(rows)
    table, adam = PrimitiveTable.empty(count), Adam(count, kind, threads)
    adam.steps = manifest.adam_steps
    state = TrainingState(table, adam, Statistics(count))
    named, start = arrays(state), 0
    for rank, each in enumerate(manifest.files):
        first, last = max(rows.start, start), min(rows.stop, start + each.rows)
        if first < last:
            file = TensorFile(checkpoint / rows_file(rank, len(manifest.files)))
            for name, out in named.items():
                file.read(name, out[first - rows.start : last - rows.start], first - start)
        start += each.rows
    return state


def read_costs(checkpoint: Path) -> dict[str, Tensor]:
    """What balancing remembered (CountedCosts.memory). Raises UserError."""
    file = TensorFile(checkpoint / COSTS)
    return {name: file.read_all(name) for name in file.shapes}


def complete(folder: Path) -> list[Path]:
    """The checkpoints in a run's folder of checkpoints, the newest first."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if iteration_of(path) >= 0 and path.is_dir()]
    return sorted(found, key=iteration_of, reverse=True)


def iteration_of(checkpoint: Path) -> int:
    """That its name tells; -1 for another name."""
    match = _NAME.fullmatch(checkpoint.name)
    return int(match.group(1)) if match else -1


def rows_file(rank: int, size: int) -> str:
    """Name of the file of one rank."""
    return f"rank_{rank:04d}_of_{size:04d}.safetensors"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
