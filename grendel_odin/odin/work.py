"""What a unit has to compute, whatever order that is done in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from torch import Tensor

from grendel_odin.odin.graph import Payload, Traffic

Piece = Callable[[], None]
"""A part of a stage that is short enough not to keep others waiting."""


class Work(Protocol):
    """What one rank computes in a unit. `part` is early, late, counts, first or rest; without a
    window there is no early and no first, and late and rest are everything."""

    number: int
    """In the order in which units are run."""
    window: bool
    """Whether it may overlap with the unit before; alike on all ranks, known after `extent`."""

    def extent(self) -> None:
        """Which views; rows that it may read; who renders what. The headers of the unit before
        have come, and the unit before that is published."""

    def project(self, part: Traffic) -> Iterable[Piece]:
        """Own rows to splats. Early: rows that are not pending. Then which rows are active is
        known when late is done."""

    def header(self, part: Traffic) -> tuple[Tensor, Tensor]:
        """Row [n] to tell all ranks, and room [R, n] for theirs: how many splats go to each rank;
        which tile rows late splats may touch; what decisions about later units need."""

    def outgoing(self, part: Traffic) -> Sequence[Payload]:
        """Packed for each rank; what is for itself does not travel."""

    def incoming(self, part: Traffic) -> Sequence[Payload]:
        """Room for what comes from each rank. Splats: the header has come. Counts: all splats have
        been sent. Gradients: counts have come, and early splats of the next unit, with the word
        what to return first, have been packed (or all is rest)."""

    def unpack(self, part: Traffic) -> Iterable[Piece]:
        """Splats that have come, made ready to be rendered: how many sums each will return is
        known when all are."""

    def slices(self) -> int:
        """Of this rank's pixels: tile rows; once the header of its first splats has come."""

    def neighbours(self, number: int) -> Iterable[int]:
        """Slices, itself among them, whose pixels the loss of a slice reads."""

    def is_late(self, number: int) -> bool:
        """Whether late splats may touch a slice or its halo."""

    def returns_first(self, number: int) -> bool:
        """Whether a slice holds splats to be returned first; early(v + 1) has come."""

    def render(self, number: int) -> None:
        """One slice."""

    def backward(self, number: int) -> None:
        """Loss and gradients of one slice."""

    def apply(self, part: Traffic) -> Iterable[Piece]:
        """Fold gradients that have come, take the step of their rows, publish them."""

    def zero_steps(self, part: Traffic) -> Iterable[Piece]:
        """The step of rows that are not active. First: those that the unit before did not activate
        either, whose version allows it at once; rest: the others."""


class ReplicatedWork(Work, Protocol):
    """The same where every rank has all rows. Early and late splats stay where they are; active,
    first, rest and their sums travel. The header of active tells how many rows each rank has."""

    def collect(self, part: Traffic) -> Iterable[Piece]:
        """Fold the gradients of own views into rows of a part, to be sent to who sums them."""

    def sum(self, part: Traffic) -> Iterable[Piece]:
        """Fold what has come from all ranks for the rows of a part that this one sums."""
