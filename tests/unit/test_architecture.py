"""The rules that keep the rooms apart, and the documents true."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grendel_odin.config import bind, explain
from grendel_odin.train.flags import flag_tables
from grendel_odin.train.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "grendel_odin"

# What a room may import of ours, itself aside.
ALLOWED = {
    "config": set(),
    "data": {"config"},
    "model": {"config"},
    "optim": {"config", "model"},
    "render": {"config", "data", "model", "optim"},
    "parallel": {"config", "data", "model", "optim", "render"},
    "odin": set(),
    "pipelines": {"config", "data", "model", "optim", "render", "parallel", "odin"},
    "report": {"config"},
    "train": {"config", "data", "model", "optim", "render", "parallel", "odin", "pipelines"}
    | {"report"},
}
# What odin may import from outside, so that another trainer can adopt it.
ADOPTABLE = {"torch", "numpy", "scipy", "pymetis"} | sys.stdlib_module_names
# Heavy third parties, and the only files that import them.
HOMES = {
    "pycolmap": {"data"},
    "yaml": {"config"},
    "tensorboard": {"train"},
    "gsplat": {"render"},
}


def imports(path: Path) -> Iterator[str]:
    """Dotted names of everything that a file imports, at any level."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)


def files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0]
    if room.endswith(".py"):
        return
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "grendel_odin" and parts[1:] and parts[1] in ALLOWED:
            assert parts[1] in ALLOWED[room] | {room}, f"{path} imports {name}"
        elif parts[0] in HOMES:
            assert room in HOMES[parts[0]], f"{path} imports {name}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "odin").glob("*.py")), ids=lambda p: p.name)
def test_odin_stands_alone(path: Path) -> None:
    for name in imports(path):
        ours = name.startswith("grendel_odin.odin")
        assert ours or name.split(".")[0] in ADOPTABLE, f"{path} imports {name}"


def test_no_global_statements_and_no_giants() -> None:
    for path in files():
        text = path.read_text()
        assert not any(isinstance(node, ast.Global) for node in ast.walk(ast.parse(text))), path
        assert text.count("\n") <= 350, f"{path} is too long for one concern"


def test_every_key_is_documented_as_it_is() -> None:
    document = (ROOT / "docs/configuration.md").read_text()
    assert explain(Settings).strip() in document, (
        "docs/configuration.md is stale: run `python scripts/document_keys.py`"
    )


def test_every_flag_is_documented_as_it_is() -> None:
    document = (ROOT / "docs/coming-from-grendel.md").read_text()
    assert document.endswith(f"## All flags\n\n{flag_tables()}\n"), (
        "docs/coming-from-grendel.md is stale: run `python scripts/document_keys.py`"
    )


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda p: p.name)
def test_configs_bind(path: Path) -> None:
    settings = bind(Settings, path, ["data.path=scene", "output=run"])
    assert settings.data.path == "scene" and settings.output == "run"
