"""Whatever happens to the files of a model, it is read or refused, never a traceback."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import pycolmap
import pytest
from data_helpers import TextScene
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grendel_odin.config import UserError
from grendel_odin.data.scene import load_scene
from grendel_odin.data.settings import DataSettings

PARTS = ("cameras", "images", "points3D")


@pytest.fixture(scope="module", params=["bin", "txt"])
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = TextScene(
        {1: "PINHOLE 16 12 20 21 8.5 5.25", 2: "OPENCV 16 12 20 21 8 6 0.1 0 0.01 0"},
        {f"{i:02}.png": 1 + i % 2 for i in range(6)},
    ).write(tmp_path_factory.mktemp("sound"))
    if request.param == "bin":
        model = root / "sparse/0"
        pycolmap.Reconstruction(str(model)).write_binary(str(model))
        for part in PARTS:
            (model / f"{part}.txt").unlink()
    return root


@st.composite
def _damage(draw: st.DrawFn) -> list[tuple[str, float, str, bytes]]:
    one = st.tuples(
        st.sampled_from(PARTS),
        st.floats(0, 1),
        st.sampled_from(["overwrite", "insert", "delete", "cut"]),
        st.binary(min_size=1, max_size=9)
        | st.sampled_from([b"\0" * 8, b"\xff" * 8, b"nan ", b"\n", b"\n\n", b" ", b"1e999", b"#"]),
    )
    return draw(st.lists(one, min_size=1, max_size=4))


def _damaged(data: bytes, share: float, how: str, piece: bytes) -> bytes:
    place = int(share * len(data))
    if how == "cut":
        return data[:place]
    if how == "insert":
        return data[:place] + piece + data[place:]
    return data[:place] + (piece if how == "overwrite" else b"") + data[place + len(piece) :]


@settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(damage=_damage())
def test_any_damage_gives_a_scene_or_a_message(
    sound: Path,
    tmp_path_factory: pytest.TempPathFactory,
    damage: list[tuple[str, float, str, bytes]],
) -> None:
    root = tmp_path_factory.mktemp("damaged") / "scene"
    shutil.copytree(sound, root)
    for part, share, how, piece in damage:
        (file,) = (root / "sparse/0").glob(f"{part}.*")
        file.write_bytes(_damaged(file.read_bytes(), share, how, piece))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            scene = load_scene(DataSettings(str(root)))
    except UserError as error:
        assert str(error).strip()
        str(error).encode()  # can be printed
    else:
        assert scene.train
        assert all(view.image_path.is_file() for view in scene.views)
    finally:
        shutil.rmtree(root)
