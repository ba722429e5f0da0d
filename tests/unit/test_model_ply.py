"""PLY files: the layout that viewers expect, and files of other trainers."""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grendel_odin.config import UserError
from grendel_odin.model.ply import PROPERTIES, write_ply
from grendel_odin.model.ply_read import read_ply
from grendel_odin.model.table import PrimitiveTable
from tests.scenes import random_table

NAMES = (
    "x y z nx ny nz f_dc_0 f_dc_1 f_dc_2 "
    + " ".join(f"f_rest_{i}" for i in range(45))
    + " opacity scale_0 scale_1 scale_2 rot_0 rot_1 rot_2 rot_3"
).split()


def by_id(table: PrimitiveTable) -> torch.Tensor:
    return table.values[table.ids.argsort()]


def body(path: Path) -> np.ndarray:
    """[n, 62] floats after the header."""
    return np.frombuffer(path.read_bytes().split(b"end_header\n", 1)[1], "<f4").reshape(-1, 62)


def write_rows(path: Path, columns: dict[str, np.ndarray], order: str = "<") -> None:
    """A PLY with the given properties, in their order and type."""
    types = {"f4": "float", "f8": "double", "u1": "uchar"}
    row = np.dtype([(name, column.dtype.newbyteorder(order)) for name, column in columns.items()])
    rows = np.empty(len(next(iter(columns.values()))), row)
    for name, column in columns.items():
        rows[name] = column
    form = {"<": "binary_little_endian", ">": "binary_big_endian"}[order]
    header = [
        "ply",
        f"format {form} 1.0",
        "comment by another trainer",
        f"element vertex {len(rows)}",
    ]
    header += [f"property {types[column.dtype.str[1:]]} {name}" for name, column in columns.items()]
    path.write_bytes("\n".join([*header, "end_header", ""]).encode() + rows.tobytes())


def foreign_columns(degree: int, n: int = 4) -> dict[str, np.ndarray]:
    """Properties of a trainer that writes no normals, in another order, opacity as a double."""
    draw = np.random.default_rng(degree)
    rest = [f"f_rest_{i}" for i in range(3 * ((degree + 1) ** 2 - 1))]
    names = ["rot_0", "rot_1", "rot_2", "rot_3", "z", "y", "x", *rest, "scale_0", "scale_1"]
    names += ["scale_2", "f_dc_2", "f_dc_1", "f_dc_0"]
    columns = {name: draw.normal(size=n).astype(np.float32) for name in names}
    return {"label": np.arange(n, dtype=np.uint8), **columns, "opacity": draw.normal(size=n)}


def test_layout_of_the_file(tmp_path: Path) -> None:
    table = random_table(5, 0)
    path = tmp_path / "deep" / "point_cloud.ply"
    assert write_ply(path, table, comments=["rasterize_mode antialiased", "two\nlines"]) == 0
    header = path.read_bytes().split(b"end_header\n", 1)[0].decode().splitlines()
    assert header[:5] == [
        "ply",
        "format binary_little_endian 1.0",
        "comment rasterize_mode antialiased",
        "comment two lines",
        "element vertex 5",
    ]
    assert header[5:] == [f"property float {name}" for name in NAMES]
    assert list(PROPERTIES) == NAMES
    rows, ordered = body(path), by_id(table)
    np.testing.assert_array_equal(rows[:, :3], ordered[:, 0:3])
    assert (rows[:, 3:6] == 0).all()
    np.testing.assert_array_equal(rows[:, 6:9], ordered[:, 11:14])
    red = rows[:, 9 : 9 + 15]
    np.testing.assert_array_equal(red, ordered[:, 16:61].reshape(5, 15, 3)[:, :, 0])
    np.testing.assert_array_equal(rows[:, 54:], ordered[:, [10, 3, 4, 5, 6, 7, 8, 9]])
    assert [entry.name for entry in path.parent.iterdir()] == ["point_cloud.ply"]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 40), st.integers(0, 3), st.integers(0, 99))
def test_round_trip(tmp_path: Path, n: int, degree: int, seed: int) -> None:
    table = random_table(n, seed, degree)
    write_ply(tmp_path / "a.ply", table)
    again = read_ply(tmp_path / "a.ply")
    assert torch.equal(again.values, by_id(table))
    assert torch.equal(again.ids, torch.arange(n))


def test_many_chunks(tmp_path: Path) -> None:
    table = random_table(9_001, 1, degree=0)
    write_ply(tmp_path / "a.ply", table)
    assert torch.equal(read_ply(tmp_path / "a.ply").values, by_id(table))


def test_rows_that_are_not_finite_are_dropped(tmp_path: Path) -> None:
    table = random_table(8, 2)
    table.values[1, 0] = torch.nan
    table.values[4, 60] = torch.inf
    table.values[6, 10] = -torch.inf
    assert write_ply(tmp_path / "a.ply", table) == 3
    kept = torch.tensor([0, 2, 3, 5, 7])
    expected = PrimitiveTable(table.values[kept], table.ids[kept])
    assert torch.equal(read_ply(tmp_path / "a.ply").values, by_id(expected))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("degree", range(4))
def test_files_of_other_trainers(tmp_path: Path, degree: int, order: str) -> None:
    columns = foreign_columns(degree)
    write_rows(tmp_path / "a.ply", columns, order)
    table = read_ply(tmp_path / "a.ply")
    coefficients = (degree + 1) ** 2 - 1
    shN = table.field("shN").reshape(4, 15, 3).numpy()
    for channel in range(3):
        for k in range(coefficients):
            name = f"f_rest_{channel * coefficients + k}"
            np.testing.assert_array_equal(shN[:, k, channel], columns[name])
    assert (shN[:, coefficients:] == 0).all()
    np.testing.assert_array_equal(table.field("means")[:, 2], columns["z"])
    np.testing.assert_array_equal(table.field("sh0")[:, 2], columns["f_dc_2"])
    np.testing.assert_allclose(table.field("opacities")[:, 0], columns["opacity"], rtol=1e-6)
    assert table.values.dtype == torch.float32


def test_reading_drops_broken_rows_with_a_warning(tmp_path: Path) -> None:
    columns = foreign_columns(0)
    columns["x"][2] = np.nan
    write_rows(tmp_path / "a.ply", columns)
    with pytest.warns(UserWarning, match="dropped 1 rows"):
        table = read_ply(tmp_path / "a.ply")
    assert table.ids.tolist() == [0, 1, 3]
    assert table.values.isfinite().all()


def test_later_elements_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "a.ply"
    write_rows(path, foreign_columns(1))
    extra = b"element face 1\nproperty list uchar int vertex_indices\nend_header\n"
    path.write_bytes(path.read_bytes().replace(b"end_header\n", extra) + b"\x01\x00\x00\x00\x00")
    assert len(read_ply(path)) == 4


VERTEX = b"ply\nformat binary_little_endian 1.0\nelement vertex "


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not start with 'ply'"),
        (b"\x89PNG\r\n", "does not start with 'ply'"),
        (b"ply\nformat ascii 1.0\nelement vertex 0\nend_header\n", "ASCII PLY"),
        (b"ply\nformat weird 1.0\nend_header\n", "no known format"),
        (VERTEX + b"3\nproperty float x\n", "no 'end_header'"),
        (VERTEX + b"-3\nproperty float x\nend_header\n", "vertex count is '-3'"),
        (VERTEX + b"1\nproperty list uchar int x\nend_header\n", "not a scalar property"),
        (VERTEX + b"1\nproperty float x\nproperty float x\nend_header\n", "a property twice"),
        (VERTEX + b"1\nend_header\n", "no properties"),
        (VERTEX.replace(b"vertex", b"chunk") + b"1\nend_header\n", "first element"),
        (VERTEX + b"9999999999999\nproperty float x\nend_header\nabcd", "cut short"),
        (VERTEX + b"1\nproperty float x\nend_header\nabcd", "its rows lack y, z"),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.ply"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        read_ply(path)
    assert str(path) in str(caught.value)


def test_odd_number_of_coefficients(tmp_path: Path) -> None:
    columns = foreign_columns(1)
    del columns["f_rest_3"]
    write_rows(tmp_path / "a.ply", columns)
    with pytest.raises(UserError, match="8 f_rest properties fit no SH degree"):
        read_ply(tmp_path / "a.ply")


def test_missing_file_and_bad_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read the PLY"):
        read_ply(tmp_path / "absent.ply")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write the PLY"):
        write_ply(tmp_path / "file" / "a.ply", random_table(2, 0))


def test_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.ply"
    path.mkdir()
    with pytest.raises(UserError, match="cannot write"):
        write_ply(path, random_table(3, 0))
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.ply"]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_files_give_a_table_or_one_message(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "a.ply"
    write_rows(path, foreign_columns(0))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(UserError):
            assert read_ply(path).values.isfinite().all()
