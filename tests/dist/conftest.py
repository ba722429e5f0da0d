"""What the tests of ranks share."""

from __future__ import annotations

from pathlib import Path

import pytest

from grendel_odin.data.procedural import ProceduralSettings, write_procedural_scene


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten views of four tile rows each; every eighth tests."""
    path = tmp_path_factory.mktemp("data") / "scene"
    write_procedural_scene(path, ProceduralSettings(views=10, width=64, height=49, points=300))
    return path
