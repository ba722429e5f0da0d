"""The read audit: for each unit and row the version that was read, against what was allowed."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from grendel_odin.odin.admit import Policy


class WrongVersion(AssertionError):
    """A unit read a row at a version that it must not see."""


@dataclass(slots=True)
class UnitReads:
    """What one unit has read."""

    reads: int = 0
    late: int = 0
    """Of the version before the last, as admitted."""


@dataclass(slots=True)
class ReadAudit:
    """For debugging: every read of rows is told to it, also that of a backward pass.

    Unit v reads version v - 1, and v - 2 of the rows that it was admitted to read late: of those
    always, whether or not v - 1 has been published meanwhile.
    """

    policy: Policy
    rows: int
    """In the table, until the next fence."""
    units: dict[int, UnitReads] = field(default_factory=dict)
    _late: dict[int, Tensor] = field(default_factory=dict)

    def admit(self, unit: int, rows: Tensor) -> None:
        """The unit is to read these rows one version late."""
        if len(rows) and self.policy in (Policy.OFF, Policy.QUALITY):
            raise WrongVersion(f"policy {self.policy.value} admits no late read (unit {unit})")
        if unit in self.units:
            raise WrongVersion(f"unit {unit} has read rows before it was known which it reads late")
        late = torch.zeros(self.rows, dtype=torch.bool)
        late[rows.long()] = True
        self._late[unit] = late

    def read(self, unit: int, rows: Tensor, versions: Tensor) -> None:
        """The unit reads rows [n] at versions [n]. Raises WrongVersion."""
        late = (
            self._late[unit][rows.long()] if unit in self._late else torch.zeros_like(rows).bool()
        )
        wrong = versions != unit - 1 - late.to(versions.dtype)
        if wrong.any():
            first = int(wrong.nonzero()[0, 0])
            raise WrongVersion(
                f"unit {unit} read row {int(rows[first])} at version {int(versions[first])}, not "
                f"{unit - 1 - int(late[first])} (policy {self.policy.value}; {int(wrong.sum())} "
                "such rows)"
            )
        entry = self.units.setdefault(unit, UnitReads())
        entry.reads += len(rows)
        entry.late += int(late.sum())

    def finish(self, unit: int) -> None:
        """The unit reads nothing any more."""
        self._late.pop(unit, None)
