"""Marks every test with the folder it lies in, so that `-m unit` runs tests/unit."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        if folder in ("unit", "numerics", "dist", "cli"):
            item.add_marker(folder)
