"""Values of a JSON object by key, checked as they are taken."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LARGEST_SIZE = 1 << 20
_SHOWN = 40


class Fields:
    """A frame's values, or those at the top of its file where it has none.

    Wrong ones read as None and are noted as problems; each problem once.
    """

    def __init__(
        self,
        own: Mapping[str, Any],
        top: Mapping[str, Any],
        place: str,
        top_place: str,
        problems: dict[str, None],
    ) -> None:
        """`place` and `top_place` are what messages call the two; `problems` is added to."""
        self.place = place
        self._levels = ((own, place), (top, top_place))
        self._problems = problems
        self.faulty = False
        """Whether a value that was asked for is wrong."""

    def complain(self, text: str) -> None:
        """Note a problem of the frame."""
        self.faulty = True
        self._problems[f"{self.place} {text}"] = None

    def own(self, key: str) -> Any:
        """The frame's own value, unchecked; None if it has none."""
        return self._levels[0][0].get(key)

    def level(self, *keys: str) -> int | None:
        """0 if the frame has one of the keys, 1 if only the top has; None if neither has."""
        for level, (values, _) in enumerate(self._levels):
            if any(values.get(key) is not None for key in keys):
                return level
        return None

    def number(self, key: str, low: float = -math.inf, high: float = math.inf) -> float | None:
        """A finite number strictly between two others."""
        value, place = self._find(key)
        if value is None:
            return None
        number = _finite(value)
        if number is not None and low < number < high:
            return number
        bounds = f" between {low:g} and {high:g}" if high < math.inf else ""
        bounds = bounds or (f" above {low:g}" if low > -math.inf else "")
        self._wrong(place, key, value, f"a finite number{bounds}")
        return None

    def size(self, key: str) -> int | None:
        """A number of pixels."""
        value, place = self._find(key)
        if value is None:
            return None
        number = _finite(value)
        if number is not None and 0 < number < _LARGEST_SIZE and number == int(number):
            return int(number)
        self._wrong(place, key, value, "a whole number of pixels")
        return None

    def text(self, key: str) -> str | None:
        """A text that is not empty, with forward slashes."""
        value, place = self._find(key)
        if value is None:
            return None
        if isinstance(value, str) and value.strip():
            return value.replace("\\", "/")
        self._wrong(place, key, value, "a text")
        return None

    def names(self, key: str) -> list[str] | None:
        """A list of texts, with forward slashes."""
        value, place = self._find(key)
        if value is None:
            return None
        if isinstance(value, list) and all(isinstance(name, str) for name in value):
            return [name.replace("\\", "/") for name in value]
        self._wrong(place, key, value, "a list of file names")
        return None

    def pose(self, key: str) -> NDArray[np.float64] | None:
        """The frame's own [4, 4] from 3 or 4 rows of 4 finite numbers."""
        try:
            matrix = np.array(self.own(key), dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            matrix = np.zeros(0)
        if matrix.shape == (3, 4):
            matrix = np.vstack([matrix, [0.0, 0.0, 0.0, 1.0]])
        if matrix.shape == (4, 4) and np.isfinite(matrix).all():
            return matrix
        self.complain(f"needs a {key} of 4 rows of 4 finite numbers")
        return None

    def _find(self, key: str) -> tuple[Any, str]:
        level = self.level(key)
        if level is None:
            return None, ""
        values, place = self._levels[level]
        return values[key], place

    def _wrong(self, place: str, key: str, value: object, needed: str) -> None:
        self.faulty = True
        shown = ascii(value)
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
        self._problems[f"{place}: {key}={shown} must be {needed}"] = None


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
