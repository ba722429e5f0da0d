"""Where the shared data sets lie that provoke reported faults."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CASES = Path(os.environ.get("GRENDEL_ODIN_CASES", ROOT.parent / "shared" / "cases"))


def case(name: str) -> Path:
    """The folder of a data set; skips the test where there is none."""
    if not (CASES / name).is_dir():
        pytest.skip(f"no data set {CASES / name}; GRENDEL_ODIN_CASES names the folder of them")
    return (CASES / name).resolve()
