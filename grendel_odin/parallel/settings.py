"""How ranks work together."""

from __future__ import annotations

from dataclasses import dataclass

from grendel_odin.config import setting


@dataclass(frozen=True, slots=True)
class ParallelSettings:
    """Several processes: rows are spread over them, pixels are cut into strips."""

    timeout_s: float = setting(
        300.0,
        "Seconds after which a rank that waits for another gives up and ends the run.",
        min_exclusive=0.0,
    )
