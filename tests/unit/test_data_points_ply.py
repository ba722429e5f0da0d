from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transforms_helpers import ply

from grendel_odin.config import UserError
from grendel_odin.data.matrixcity import root_points
from grendel_odin.data.points_ply import read_points_ply

FORMS = ("ascii", "binary_little_endian", "binary_big_endian")
ROWS = [(0.5, -1.0, 431236.25, 255, 0, 7), (1.0, 2.0, 3.0, 1, 2, 3)]


def fields(kind: str, color: str = "uchar", names: str = "red green blue") -> list[tuple[str, str]]:
    return [*((axis, kind) for axis in "xyz"), *((name, color) for name in names.split())]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["float", "double"])
def test_positions_and_colours(tmp_path: Path, form: str, kind: str) -> None:
    file = tmp_path / "p.ply"
    file.write_bytes(ply(fields(kind), ROWS, form))
    points, notes = read_points_ply(file)
    np.testing.assert_array_equal(points.xyz, [row[:3] for row in ROWS])
    np.testing.assert_array_equal(points.rgb, [row[3:] for row in ROWS])
    assert notes == []


def test_text_keeps_the_digits_of_far_away_coordinates(tmp_path: Path) -> None:
    file = tmp_path / "p.ply"
    file.write_bytes(ply(fields("float")[:3], [(431236.123456, 4582342.654321, 1)], "ascii"))
    assert read_points_ply(file)[0].xyz[0, 1] == 4582342.654321


@pytest.mark.parametrize("form", FORMS)
def test_colours_of_other_kinds_and_none(tmp_path: Path, form: str) -> None:
    file = tmp_path / "p.ply"
    file.write_bytes(ply(fields("float", "float", "r g b"), [(0, 0, 0, 1.0, 0.5, 0.0)], form))
    np.testing.assert_array_equal(read_points_ply(file)[0].rgb, [[255, 128, 0]])
    file.write_bytes(ply(fields("float", "ushort"), [(0, 0, 0, 65535, 257, 0)], form))
    np.testing.assert_array_equal(read_points_ply(file)[0].rgb, [[255, 1, 0]])
    file.write_bytes(ply(fields("float")[:3], [(0, 0, 0)], form))
    points, notes = read_points_ply(file)
    assert (points.rgb == 128).all()
    assert "no colours" in notes[0]


def test_points_that_are_not_finite_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "p.ply"
    file.write_bytes(ply(fields("double")[:3], [(np.nan, 0, 0), (1, 1, 1)], FORMS[1]))
    points, notes = read_points_ply(file)
    assert len(points) == 1
    assert any("1 of 2 points" in note for note in notes)


@pytest.mark.parametrize("form", FORMS)
def test_cut_files_are_refused(tmp_path: Path, form: str) -> None:
    file = tmp_path / "p.ply"
    whole = ply(fields("float"), ROWS, form)
    file.write_bytes(whole[: -len(whole.split(b"end_header\n")[1]) // 2])
    with pytest.raises(UserError, match=r"p\.ply"):
        read_points_ply(file)
    with pytest.raises(UserError, match="cannot be read"):
        read_points_ply(tmp_path / "gone.ply")


def test_huge_counts_take_no_memory(tmp_path: Path) -> None:
    file = tmp_path / "p.ply"
    for form in FORMS:
        whole = ply(fields("float"), ROWS, form)
        file.write_bytes(whole.replace(b"vertex 2", b"vertex 99999999999999"))
        with pytest.raises(UserError, match="cut short"):
            read_points_ply(file)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    form=st.sampled_from(FORMS),
    cuts=st.lists(st.tuples(st.integers(0, 300), st.binary(max_size=4)), max_size=3),
)
def test_damaged_bytes_never_crash(
    tmp_path: Path, form: str, cuts: list[tuple[int, bytes]]
) -> None:
    body = ply(fields("float"), ROWS, form)
    for at, junk in cuts:
        body = body[:at] + junk + body[at + len(junk) + 1 :]
    file = tmp_path / "p.ply"
    file.write_bytes(body)
    try:
        points, _ = read_points_ply(file)
    except UserError:
        return
    assert np.isfinite(points.xyz).all()


def test_the_usual_name_wins_among_several(tmp_path: Path) -> None:
    assert root_points(tmp_path) == (None, [])
    for name in ("a.ply", "points3D.ply"):
        (tmp_path / name).write_bytes(b"")
    chosen, notes = root_points(tmp_path)
    assert chosen == tmp_path / "points3D.ply"
    assert "a.ply" in notes[0]
