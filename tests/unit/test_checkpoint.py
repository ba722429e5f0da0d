"""Checkpoints on disk: whole or not there, readable by any number of ranks, damage is named."""

from __future__ import annotations

import errno
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grendel_odin.config import UserError, flat
from grendel_odin.model.table import ROW_WIDTH, PrimitiveTable
from grendel_odin.optim.adam import Adam
from grendel_odin.optim.settings import OptimizerKind
from grendel_odin.parallel.world import ALONE, World
from grendel_odin.pipelines.state import Statistics, TrainingState
from grendel_odin.train import checkpoint_writer, tensor_file
from grendel_odin.train.checkpoint import (
    COSTS,
    FORMAT,
    MANIFEST,
    Manifest,
    NewerFormat,
    arrays,
    complete,
    damage,
    read_costs,
    read_manifest,
    read_state,
    rows_to_read,
)
from grendel_odin.train.checkpoint_writer import CheckpointWriter
from grendel_odin.train.progress import Progress
from grendel_odin.train.settings import Settings
from grendel_odin.train.tensor_file import TensorFile, write_tensors
from tests.scenes import random_table
from tests.threaded_world import run_on_ranks

SCENE = {"train": 8, "test": 2, "names_sha256": "x"}


def random_state(table: PrimitiveTable, seed: int) -> TrainingState:
    """Moments and statistics that differ from row to row."""
    draw = torch.Generator().manual_seed(seed)
    n = len(table)
    state = TrainingState(table, Adam(n), Statistics(n))
    used = torch.ones(ROW_WIDTH)
    used[[14, 15, 61, 62, 63]] = 0.0
    state.adam.m = torch.randn(n, ROW_WIDTH, generator=draw) * used
    state.adam.v = torch.rand(n, ROW_WIDTH, generator=draw) * used
    state.adam.steps = 7
    state.statistics.norms = torch.randint(1 << 40, (n,), generator=draw)
    state.statistics.counts = torch.randint(99, (n,), generator=draw, dtype=torch.int32)
    return state


def manifest(iteration: int = 20, stays: bool = False, **progress: Any) -> Manifest:
    kept = asdict(Progress(iteration=iteration, images=iteration, **progress))
    return Manifest(iteration, stays, 7, kept, flat(Settings()), SCENE)


def write(folder: Path, iteration: int = 20, keep: int = 0, **options: Any) -> Path:
    """A checkpoint of one rank with a few rows; returns its folder."""
    rows = arrays(random_state(random_table(5, iteration), iteration))
    CheckpointWriter(folder, keep, ALONE).write(manifest(iteration, **options), rows, {})
    return folder / f"iteration_{iteration}"


def part(state: TrainingState, rows: range) -> TrainingState:
    cut = slice(rows.start, rows.stop)
    made = TrainingState(
        PrimitiveTable(state.table.values[cut], state.table.ids[cut]),
        Adam(len(rows)),
        Statistics(len(rows)),
    )
    made.adam.m, made.adam.v = state.adam.m[cut], state.adam.v[cut]
    made.statistics.norms = state.statistics.norms[cut]
    made.statistics.counts = state.statistics.counts[cut]
    return made


def same(one: TrainingState, other: TrainingState) -> bool:
    pairs = zip(
        (one.table.values, one.table.ids, one.adam.m, one.adam.v, *vars(one.statistics).values()),
        (
            *(other.table.values, other.table.ids, other.adam.m, other.adam.v),
            *vars(other.statistics).values(),
        ),
        strict=True,
    )
    return all(torch.equal(a, b) and a.dtype == b.dtype for a, b in pairs)


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    ranks=st.integers(1, 5),
    chunk=st.integers(1, 40),
)
def test_any_number_of_ranks_reads_what_any_other_wrote(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], ranks: int, chunk: int
) -> None:
    folder = tmp_path_factory.mktemp("run")
    whole = random_state(random_table(sum(counts), seed=1), seed=2)
    firsts = [sum(counts[:rank]) for rank in range(len(counts))]

    def save(world: World) -> int:
        first = firsts[world.rank]
        rows = arrays(part(whole, range(first, first + counts[world.rank])))
        return CheckpointWriter(folder, 0, world).write(
            manifest(), rows, {"known": torch.arange(3)}
        )

    def load(world: World) -> TrainingState:
        assert damage(path, world) == ""
        rows = rows_to_read(stored, world)
        return read_state(path, stored, rows, OptimizerKind.ADAM, threads=1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_file, "CHUNK", chunk)
        sizes = run_on_ranks(len(counts), save)
        path = folder / "iteration_20"
        stored = read_manifest(path)
        parts = run_on_ranks(ranks, load)
    assert sizes == [sum(each.sum.size for each in stored.files)] * len(counts)
    shares = [len(each.table) for each in parts]
    if ranks == len(counts):
        assert shares == counts
    else:
        assert max(shares) - min(shares) <= 1
    start = 0
    for each in parts:
        assert same(each, part(whole, range(start, start + len(each.table))))
        assert each.adam.steps == 7
        start += len(each.table)
    assert start == sum(counts)
    assert read_costs(path)["known"].tolist() == [0, 1, 2]


def test_files_are_safetensors(tmp_path: Path) -> None:
    table = random_table(3, 0)
    write_tensors(tmp_path / "file", {"ids": table.ids, "means": table.field("means")})
    data = (tmp_path / "file").read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert length % 8 == 0
    assert json.loads(data[8 : 8 + length]) == {
        "ids": {"dtype": "I64", "shape": [3], "data_offsets": [0, 24]},
        "means": {"dtype": "F32", "shape": [3, 3], "data_offsets": [24, 60]},
    }
    body = data[8 + length :]
    assert body[:24] == table.ids.numpy().tobytes()
    assert body[24:] == table.field("means").contiguous().numpy().tobytes()


def test_a_row_takes_728_bytes(tmp_path: Path) -> None:
    state = random_state(random_table(100, 0), 0)
    assert sum(each.nbytes for each in arrays(state).values()) == 100 * 728


@pytest.mark.parametrize("kind", ["flip", "cut", "gone"])
@pytest.mark.parametrize("name", ["rank_0000_of_0001.safetensors", COSTS, MANIFEST])
def test_damage_is_named(tmp_path: Path, name: str, kind: str) -> None:
    path = write(tmp_path)
    assert damage(path, ALONE) == ""
    file = path / name
    data = file.read_bytes()
    if kind == "gone":
        file.unlink()
    elif kind == "cut":
        file.write_bytes(data[:-3])
    else:
        place = data.index(b'"adam_steps"') + 16 if name == MANIFEST else len(data) // 2
        file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    assert str(file) in damage(path, ALONE)


def test_any_flipped_byte_of_a_manifest_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path) / MANIFEST
    data = path.read_bytes()
    whole = json.loads(data)
    for place in range(0, len(data), 7):
        path.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        try:
            read_manifest(path.parent)
        except UserError:
            continue
        # Between values, spaces and line ends carry nothing.
        assert json.loads(path.read_text())["content"] == whole["content"]


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    content = json.loads((path / MANIFEST).read_text())
    content["format"] = FORMAT + 1
    (path / MANIFEST).write_text(json.dumps(content))
    with pytest.raises(NewerFormat, match="install the version of Grendel-Odin that wrote it"):
        damage(path, ALONE)


def test_wrong_tensors_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_tensors(path, {"ids": torch.arange(4)})
    with pytest.raises(UserError, match=r"no tensor 'ids' of F32"):
        TensorFile(path).read("ids", torch.empty(4))
    with pytest.raises(UserError, match="ends too early"):
        TensorFile(path).read("ids", torch.empty(3, dtype=torch.int64), first=2)
    path.write_bytes(b"\xff" * 40)
    with pytest.raises(UserError, match="damaged"):
        TensorFile(path)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_full_disk_leaves_nothing_of_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    write(tmp_path, 10)
    real = checkpoint_writer.write_tensors

    def full(path: Path, tensors: Any) -> Any:
        summed = real(path, tensors)
        if f"rank_{rank:04d}" in path.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return summed

    monkeypatch.setattr(checkpoint_writer, "write_tensors", full)

    def save(world: World) -> str:
        rows = arrays(random_state(random_table(5, 0), 0))
        try:
            CheckpointWriter(tmp_path, 1, world).write(manifest(20), rows, {})
        except UserError as error:
            return str(error)
        return ""

    errors = run_on_ranks(2, save)
    assert errors[0] == errors[1] and "No space left on device" in errors[0]
    assert [path.name for path in tmp_path.iterdir()] == ["iteration_10"]


def test_what_a_killed_run_left_half_written_goes(tmp_path: Path) -> None:
    (tmp_path / ".iteration_15.tmp").mkdir()
    (tmp_path / ".iteration_15.tmp" / "rank_0000_of_0001.safetensors").write_bytes(b"half")
    assert complete(tmp_path) == []
    write(tmp_path, 20)
    assert [path.name for path in tmp_path.iterdir()] == ["iteration_20"]


def test_the_newest_are_kept_and_those_asked_for_by_name(tmp_path: Path) -> None:
    for iteration in (10, 20, 100, 110, 120):
        write(tmp_path, iteration, keep=2, stays=iteration == 20)
    assert [path.name for path in complete(tmp_path)] == [
        *("iteration_120", "iteration_110", "iteration_20")
    ]
    write(tmp_path, 130, keep=0)
    assert len(complete(tmp_path)) == 4


def test_progress_survives_json() -> None:
    scores = {0: {"psnr": None, "train_psnr": 11.25}, 31: {"psnr": 0.1 + 0.2, "train_psnr": 3.0}}
    progress = Progress(iteration=40, images=42, scores=scores, stage_seconds={"render": 1.5})  # type: ignore[arg-type]
    kept = json.loads(replace(manifest(), progress=asdict(progress)).text())["content"]["progress"]
    assert Progress.restored({**kept, "unheard_of": 1}) == progress
