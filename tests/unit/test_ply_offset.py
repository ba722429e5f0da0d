"""PLY files of scenes far from the origin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from grendel_odin.config import UserError
from grendel_odin.data.views import Points
from grendel_odin.model.input_frame import main, write_in_input_frame
from grendel_odin.model.ply import offset_comment, write_ply
from grendel_odin.model.ply_header import read_header
from grendel_odin.model.ply_read import read_ply
from grendel_odin.train.describe import points_ply
from tests.scenes import random_table

OFFSET = np.array([431236.123456789, 4582342.0, -314.5])


def written(folder: Path, *comments: str) -> Path:
    path = folder / "a.ply"
    table = random_table(30, seed=1)
    table.ids = torch.arange(30)
    write_ply(path, table, comments)
    return path


def test_positions_come_in_the_frame_that_is_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, "one", offset_comment(OFFSET), "two")
    stored = read_ply(path)
    assert torch.equal(stored.values, random_table(30, seed=1).values)
    assert torch.equal(read_ply(path, OFFSET).values, stored.values)
    other = read_ply(path, OFFSET - [1, 2, 4])
    means = stored.field("means") + torch.tensor([1.0, 2, 4])
    torch.testing.assert_close(other.field("means"), means, rtol=0, atol=1e-6)
    assert torch.equal(other.values[:, 3:], stored.values[:, 3:])


@pytest.mark.parametrize("comment", ["offset", "offset 1 2", "offset a b c", "offset 1 2 nan"])
def test_other_comments_are_no_offset(tmp_path: Path, comment: str) -> None:
    path = written(tmp_path, comment)
    assert torch.equal(read_ply(path, np.zeros(3)).values, read_ply(path).values)


def test_the_input_frame_is_written_in_doubles_and_read_back(tmp_path: Path) -> None:
    path = written(tmp_path, offset_comment(OFFSET), "rasterize_mode antialiased")
    out = tmp_path / "b.ply"
    assert main([str(path), str(out)]) == 0
    with out.open("rb") as file:
        header = read_header(file, out)
    assert header.comments == ("rasterize_mode antialiased",)
    rows = np.frombuffer(out.read_bytes()[header.offset :], header.row)
    stored = read_ply(path)
    for axis, name in enumerate("xyz"):
        expected = stored.field("means")[:, axis].double().numpy() + OFFSET[axis]
        np.testing.assert_array_equal(rows[name], expected)
    again = read_ply(out, OFFSET)
    torch.testing.assert_close(again.values, stored.values, rtol=0, atol=1e-6)


def test_files_that_cannot_be_moved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.ply"), str(tmp_path / "b.ply")]) == 2
    assert "none.ply" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"b\.ply"):
        write_in_input_frame(written(tmp_path), tmp_path / "folder" / "b.ply")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.ply"]


def test_initial_points_tell_their_offset() -> None:
    none = np.zeros(0, np.int32)
    points = Points(np.ones((1, 3)), np.zeros((1, 3), np.uint8), np.zeros(2, np.int64), none)
    assert b"comment offset 431236.12345678" in points_ply(points, OFFSET)
    assert b"comment" not in points_ply(points, np.zeros(3))
