"""The order in which a run has trained on its views: `order.txt`, one unit a line."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from grendel_odin.config import UserError, replacing, writing
from grendel_odin.train.log import Lines

NAME = "order.txt"


def heading(names: Sequence[str], batch: int) -> str:
    """The first line: what an order must be for."""
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
    return f"# {len(names)} views {digest}, units of {batch}"


class OrderRecord:
    """Appends the units of a run to its `order.txt`; each line is written at once."""

    def __init__(
        self, folder: Path, names: Sequence[str], batch: int, earlier: Sequence[Sequence[int]] = ()
    ) -> None:
        """earlier: units that a resumed run does not take again.

        If the folder's file has as many, it is believed; what comes after them goes.
        """
        path, done = folder / NAME, len(earlier)
        kept = path.read_text().splitlines()[1 : done + 1] if done and path.is_file() else []
        if len(kept) < done:
            kept = [_line(unit) for unit in earlier]
        with writing(path), replacing(path) as file:
            file.write(("\n".join([heading(names, batch), *kept]) + "\n").encode("ascii"))
        self._lines = Lines(path)

    def add(self, unit: Sequence[int]) -> None:
        """The next unit, as numbers of training views."""
        self._lines.write(_line(unit))

    def close(self) -> None:
        """Let go of the file."""
        self._lines.close()


def _line(unit: Sequence[int]) -> str:
    return " ".join(map(str, unit))


def read_order(
    run: str | os.PathLike[str], names: Sequence[str], batch: int, units: int
) -> list[list[int]]:
    """The first `units` units of another run's order.

    Raises UserError if they cannot be read, are for other views or units, or are too few.
    """
    path = Path(run) / NAME
    key = f"odin.order={os.fspath(run)}"
    try:
        first, *lines = path.read_text(encoding="ascii").splitlines() or [""]
        drawn = [[int(word) for word in line.split()] for line in lines[:units]]
    except OSError as error:
        raise UserError(
            f"{key}: cannot read {path} ({error.strerror or error}); use shuffle, plan, or the "
            "folder of a run that holds this file"
        ) from error
    except ValueError as error:
        raise UserError(f"{key}: {path} is damaged ({error})") from error
    if first != heading(names, batch):
        raise UserError(
            f"{key}: that order is for other views or units\n"
            f"  it has   {first[:120]}\n  this run {heading(names, batch)}"
        )
    for number, unit in enumerate(drawn):
        if len(set(unit)) != batch or not all(0 <= view < len(names) for view in unit):
            raise UserError(f"{key}: line {number + 2} of {path} is no unit of {batch} views")
    if len(drawn) < units:
        raise UserError(
            f"{key}: that run has {len(drawn)} units, and {units} are needed; "
            f"use train.iterations={len(drawn) * batch} or less"
        )
    return drawn
