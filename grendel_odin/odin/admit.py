"""Which rows a unit may read while the unit before has not published them.

The step of unit n is applied to version n - 1 only, and a row's version is the last unit whose
step it has had. So a row is pending for unit v while its version is below v - 1. A pending row
that v may see is in conflict with it: v waits for it, or is admitted to read it one version late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from torch import Tensor

from grendel_odin.odin.gradient_bins import BINS, UNKNOWN, weigh
from grendel_odin.odin.header import LateHeader


class Policy(str, Enum):
    """What becomes of rows in conflict."""

    OFF = "off"  # a barrier after every unit: there are none
    QUALITY = "quality"  # they are waited for
    THROUGHPUT = "throughput"  # few with small steps are read late, the others waited for
    HOGWILD = "hogwild"  # all are read late


def pending(versions: Tensor, unit: int) -> Tensor:
    """[n] bool: rows that the unit before `unit` has still to publish."""
    return versions < unit - 1


def conflict(versions: Tensor, unit: int, may_be_visible: Tensor) -> Tensor:
    """[n] bool: rows that `unit` may see and that are pending."""
    return pending(versions, unit) & may_be_visible


@dataclass(frozen=True, slots=True)
class Admission:
    """The policy and its limits. Decisions are made from integers, so all ranks make the same."""

    policy: Policy = Policy.OFF
    tau: float = 0.2
    """Largest number of rows read late, as a share of the unit's candidates."""
    grad_share: float = 0.05
    """Largest sum of their steps, as a share of all steps of the unit before."""
    look_ahead: int = 4
    """Units among which the next is chosen; 1 keeps the planned order."""

    def __post_init__(self) -> None:
        for name in ("tau", "grad_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)}: a share from 0 to 1 is needed")
        if self.look_ahead < 1:
            raise ValueError(f"look_ahead={self.look_ahead}: at least 1 is needed")

    def threshold(
        self, candidates: int, counts: Sequence[int], sums: Sequence[int], total: Sequence[int]
    ) -> int:
        """The bin below which rows in conflict are read late.

        counts and sums: of the rows in conflict, by bin; total: sums of all rows that the unit
        before writes. A bin is admitted whole or not at all; that of unknown rows never is, but
        by `hogwild`.
        """
        if self.policy is not Policy.THROUGHPUT:
            return BINS if self.policy is Policy.HOGWILD else 0
        rows_limit = Fraction(str(self.tau)) * candidates
        size_limit = Fraction(str(self.grad_share)) * weigh(total)
        rows = size = 0
        for place in range(UNKNOWN):
            rows += counts[place]
            size += sums[place] << place
            if rows > rows_limit or size > size_limit:
                return place
        return UNKNOWN

    def threshold_of(self, gathered: LateHeader, ahead: int) -> int:
        """The same for a unit ahead, by its place in the look-ahead, from the headers of all."""
        return self.threshold(
            int(gathered.candidates[:, ahead].sum()),
            gathered.counts[:, ahead].sum(0).tolist(),
            gathered.sums[:, ahead].sum(0).tolist(),
            gathered.total.sum(0).tolist(),
        )
