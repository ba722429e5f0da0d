"""Writes all keys into docs/configuration.md and all flags into docs/coming-from-grendel.md."""

from __future__ import annotations

from pathlib import Path

from grendel_odin.config import explain
from grendel_odin.train.flags import flag_tables
from grendel_odin.train.settings import Settings

DOCS = Path(__file__).resolve().parents[1] / "docs"


def main() -> None:
    replace_below(
        "## All keys\n", DOCS / "configuration.md", f"```\n{explain(Settings).strip()}\n```"
    )
    replace_below("## All flags\n", DOCS / "coming-from-grendel.md", flag_tables())


def replace_below(heading: str, path: Path, text: str) -> None:
    """Put a text in the place of what follows a heading."""
    kept = path.read_text().split(heading)[0]
    path.write_text(f"{kept}{heading}\n{text}\n")


if __name__ == "__main__":
    main()
