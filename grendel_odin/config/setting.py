"""How a settings dataclass declares one setting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

METADATA_KEY = "grendel_odin.setting"


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a setting says about itself beyond type and default."""

    help: str = ""
    min: float | None = None
    max: float | None = None
    min_exclusive: float | None = None

    def bounds(self) -> str:
        """The allowed range in words, "" where there is none."""
        limits = [(">=", self.min), (">", self.min_exclusive), ("<=", self.max)]
        return " and ".join(f"{sign} {limit}" for sign, limit in limits if limit is not None)

    def admits(self, value: float) -> bool:
        """Whether a number lies in the range."""
        return (
            (self.min is None or value >= self.min)
            and (self.min_exclusive is None or value > self.min_exclusive)
            and (self.max is None or value <= self.max)
        )


def setting(
    default: Any,
    help: str,
    *,
    min: float | None = None,
    max: float | None = None,
    min_exclusive: float | None = None,
) -> Any:
    """A dataclass field with its help text and range; a range holds for each item of a tuple.

    Lists are turned into tuples: settings are values that nobody changes in place.
    """
    value = tuple(default) if isinstance(default, list) else default
    declaration = Declaration(help, min, max, min_exclusive)
    return field(default=value, metadata={METADATA_KEY: declaration})
