"""Models in several files: those of the ranks of a Grendel-GS run, read and merged as one."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grendel_odin.config import UserError
from grendel_odin.model.ply import write_ply
from grendel_odin.model.ply_model import PlyModel
from grendel_odin.model.ply_read import read_ply
from grendel_odin.model.table import PrimitiveTable
from tests.scenes import random_table


def script() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "scripts/merge_ply.py"
    spec = importlib.util.spec_from_file_location("merge_ply", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_ranks(folder: Path, counts: list[int], *comments: str) -> PrimitiveTable:
    """The files of so many ranks, and the rows of all of them in their order."""
    table = random_table(sum(counts), seed=5)
    table.ids = torch.arange(len(table))
    first = 0
    for rank, count in enumerate(counts):
        part = slice(first, first + count)
        rows = PrimitiveTable(table.values[part], table.ids[part])
        write_ply(folder / f"point_cloud_rk{rank}_ws{len(counts)}.ply", rows, comments)
        first += count
    return table


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=5), st.integers(1, 6))
def test_a_set_reads_and_merges_as_one_file(counts: list[int], size: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = write_ranks(folder, counts, "two words")
        model = PlyModel.at(folder)
        assert model.rows == len(table)
        assert torch.equal(model.read().values, table.values)
        shares = [model.read(rank=rank, size=size) for rank in range(size)]
        assert torch.equal(torch.cat([share.values for share in shares]), table.values)
        assert torch.equal(torch.cat([share.ids for share in shares]), torch.arange(len(table)))
        model.merge(folder / "merged.ply")
        write_ply(folder / "whole.ply", table, ["two words"])
        assert (folder / "merged.ply").read_bytes() == (folder / "whole.ply").read_bytes()


def test_many_rows_and_a_frame(tmp_path: Path) -> None:
    table = write_ranks(tmp_path, [4_500, 1, 9_000], "offset 10 20 30")
    model = PlyModel.at(tmp_path)
    frame = np.array([9.0, 18.0, 30.0])
    moved = torch.cat([model.read(frame, rank, 2).values for rank in range(2)])
    expected = table.values[:, :3] + torch.tensor([1.0, 2.0, 0.0])
    torch.testing.assert_close(moved[:, :3], expected, rtol=0, atol=1e-6)
    model.merge(tmp_path / "all.ply")
    assert torch.equal(read_ply(tmp_path / "all.ply").values, table.values)


def test_rows_that_are_not_finite_keep_the_ids_of_the_others(tmp_path: Path) -> None:
    write_ranks(tmp_path, [3, 3])
    path = tmp_path / "point_cloud_rk1_ws2.ply"
    content = bytearray(path.read_bytes())
    start = content.index(b"end_header\n") + len(b"end_header\n")
    content[start : start + 4] = b"\xff" * 4
    path.write_bytes(content)
    model = PlyModel.at(tmp_path)
    assert model.rows == 6
    ids = [model.read(rank=rank, size=2).ids.tolist() for rank in range(2)]
    assert ids == [[0, 1, 2], [4, 5]] and model.read().ids.tolist() == ids[0] + ids[1]


def test_one_file_of_a_set_stands_for_all(tmp_path: Path) -> None:
    table = write_ranks(tmp_path, [3, 4])
    assert len(PlyModel.at(tmp_path / "point_cloud_rk1_ws2.ply").read()) == len(table)
    with pytest.raises(UserError, match=r"rk7_ws2\.ply: cannot read"):
        PlyModel.at(tmp_path / "point_cloud_rk7_ws2.ply")
    write_ply(tmp_path / "point_cloud.ply", random_table(2, 0))
    assert PlyModel.at(tmp_path).rows == 2  # Grendel's loader takes it first, too


def complaint(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        PlyModel.at(folder)
    return str(caught.value)


def test_what_is_no_whole_set_is_refused(tmp_path: Path) -> None:
    assert "holds neither" in complaint(tmp_path)
    write_ranks(tmp_path, [2, 3, 4])
    second = tmp_path / "point_cloud_rk1_ws3.ply"
    kept = second.read_bytes()
    second.unlink()
    assert "of 3 ranks 1 have no file: point_cloud_rk1_ws3.ply is missing" in complaint(tmp_path)
    second.write_bytes(kept[:-8])
    assert "cut short" in complaint(tmp_path)
    second.write_bytes(kept + b"more")
    assert "its header counts 3 primitives" in complaint(tmp_path)
    second.write_bytes(kept.replace(b"property float nx\n", b"").replace(b"vertex 3", b"vertex 0"))
    assert "differs from that of" in complaint(tmp_path)
    lines = kept.split(b"end_header\n")[0].splitlines(keepends=True)
    degree_2 = [line for line in lines if b"f_rest_" not in line or int(line[22:]) < 24]
    header = b"".join([*degree_2, b"end_header\n"]).replace(b"vertex 3", b"vertex 0")
    second.write_bytes(header)
    assert "SH degree 2, but" in complaint(tmp_path)
    second.write_bytes(kept)
    assert PlyModel.at(tmp_path).rows == 9
    write_ranks(tmp_path, [2, 3])
    assert "runs of 2 and 3 ranks" in complaint(tmp_path)


def test_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main, run = script().main, tmp_path / "run"
    folders = [run / "point_cloud" / f"iteration_{number}" for number in (7000, 30000)]
    tables = [write_ranks(folders[0], [3, 5]), write_ranks(folders[1], [4, 0, 2])]
    parts = sorted(map(str, folders[0].iterdir()), reverse=True)
    out = tmp_path / "out" / "all.ply"
    assert main([*parts, "--out", str(out)]) == 0
    assert torch.equal(read_ply(out).values, tables[0].values)
    assert "8 primitives of 2 ranks" in capsys.readouterr().out
    assert main([str(run), "--out", str(out)]) == 2
    assert "iteration_30000, iteration_7000" in capsys.readouterr().err
    assert main([str(run)]) == 0
    for folder, table in zip(folders, tables, strict=True):
        assert torch.equal(read_ply(folder / "point_cloud.ply").values, table.values)
    assert main([str(folders[0])]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main([parts[0]]) == 2
    assert "of 2 ranks 0 have no file" in capsys.readouterr().err
    assert main([parts[0], parts[0]]) == 2
    assert "two files of rank 1" in capsys.readouterr().err
    assert main([str(out)]) == 2
    assert "not named point_cloud_rkR_wsW.ply" in capsys.readouterr().err
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "nowhere: no such file" in capsys.readouterr().err
    for part in run.rglob("*_rk*.ply"):
        part.unlink()
    assert main([str(run)]) == 2
    assert "there is nothing to merge" in capsys.readouterr().err
