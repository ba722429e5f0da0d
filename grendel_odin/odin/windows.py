"""The static asynchronous schedule: between which units stages may overlap, and what that is worth.

A window lets stages of unit u + 1 run before u has published all of its rows. It is a function of
the pair of units, so it can be asked about any order, also one that is chosen while training runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grendel_odin.odin.graph import Stage
from grendel_odin.odin.settings import Mode, Windows

_HOISTED = {
    Mode.HYBRID: (Stage.EXTENT, Stage.PROJECT, Stage.EXCHANGE),
    Mode.REPLICATED: (Stage.EXTENT, Stage.PROJECT),
}
_VALIDATED = {
    Mode.HYBRID: (Stage.PROJECT, Stage.EXCHANGE, Stage.RENDER),
    Mode.REPLICATED: (Stage.PROJECT, Stage.RENDER),
}


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds of a typical unit on one rank. They are counted, or measured once by one rank and
    handed to all: a window decides which messages exist, so ranks must not differ about it."""

    exchange_s: float
    """Splats to the owners of pixels (replicated: the sets of active rows)."""
    return_s: float
    """Gradients to the owners of rows."""
    compute_s: float
    """All computation."""
    split_s: float
    """What a second message of each kind costs: latency, headers, packing."""

    def __post_init__(self) -> None:
        if min(self.exchange_s, self.return_s, self.compute_s, self.split_s) < 0:
            raise ValueError(f"negative seconds in {self}")

    @classmethod
    def counted(
        cls,
        exchange_bytes: float,
        return_bytes: float,
        compute_s: float,
        rate: float,
        latency_s: float,
        ranks: int,
        header_bytes: int = 4096,
    ) -> CostModel:
        """From bytes that a rank sends in a unit, over a link of `rate` bytes/s.

        A split costs two headers, which travel in ceil(log2 ranks) steps, and two messages.
        """
        steps = max(ranks - 1, 0).bit_length()
        split = 2 * steps * (latency_s + header_bytes / rate) + 2 * latency_s
        return cls(
            exchange_bytes / rate + latency_s, return_bytes / rate + latency_s, compute_s, split
        )

    def gain(self, conflict: NDArray[np.float64], mode: Mode) -> NDArray[np.float64]:
        """Seconds that a window saves, less what it costs; conflict in 0..1."""
        free = 1.0 - np.clip(conflict, 0.0, 1.0)
        travel = self.exchange_s + self.return_s
        if mode is Mode.HYBRID:  # what travels early or returns late hides under computation
            hidden = np.minimum(free * travel, self.compute_s)
        else:  # computation on rows that the reduction does not concern hides it
            hidden = np.minimum(travel, free * self.compute_s)
        return hidden - self.split_s


NOMINAL = CostModel(exchange_s=0.02, return_s=0.02, compute_s=0.1, split_s=0.002)
"""Until a run has counted its own: 1/4 of a step is communication, and a split costs 2%."""


@dataclass(frozen=True, slots=True)
class Window:
    """A planned overlap of a unit with the unit before."""

    hoisted: tuple[Stage, ...]
    """Stages that may run, on rows without conflict, before the unit before has published."""
    validated: tuple[Stage, ...]
    """Stages before which rows that are still pending are waited for."""
    conflict: float
    """Expected share of the unit's rows that the unit before touches."""
    gain_s: float


def plan_windows(
    conflict: NDArray[np.float32], cost: CostModel, policy: Windows, mode: Mode
) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """For each pair: whether there is a window, and the seconds it is expected to save."""
    gain = cost.gain(conflict.astype(np.float64), mode)
    if policy is Windows.AUTO:
        opened: NDArray[np.bool_] = gain > 0
    else:
        opened = np.full(len(conflict), policy is Windows.ALWAYS)
    return opened, gain.astype(np.float32)


def window(conflict: float, cost: CostModel, policy: Windows, mode: Mode) -> Window | None:
    """The window of one pair of units, if there is one."""
    opened, gain = plan_windows(np.array([conflict], np.float32), cost, policy, mode)
    if not opened[0]:
        return None
    return Window(_HOISTED[mode], _VALIDATED[mode], conflict, float(gain[0]))
