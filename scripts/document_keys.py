"""Writes the list of all keys into docs/configuration.md."""

from __future__ import annotations

from pathlib import Path

from grendel_odin.config import explain
from grendel_odin.train.settings import Settings

HEADING = "## All keys\n"


def main() -> None:
    path = Path(__file__).resolve().parents[1] / "docs/configuration.md"
    kept = path.read_text().split(HEADING)[0]
    path.write_text(f"{kept}{HEADING}\n```\n{explain(Settings).strip()}\n```\n")


if __name__ == "__main__":
    main()
