"""What an executor puts in order: tasks and communications of units, and what waits for what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, Protocol

import torch
from torch import Tensor


class Stage(str, Enum):
    """A step of a unit, in the order in which one view goes through them."""

    EXTENT = "extent"  # which rows the unit may read; its images and settings
    PROJECT = "project"  # rows to splats, at the owner of the rows
    EXCHANGE = "exchange"  # splats travel to the owners of pixels
    RENDER = "render"  # splats to pixels and their loss
    BACKWARD = "backward"  # pixels to the gradients of splats
    RETURN = "return"  # gradients travel home and are folded into those of rows
    UPDATE = "update"  # statistics and the optimizer's step
    PUBLISH = "publish"  # later units may read the new version


class Urgency(IntEnum):
    """Of the tasks that are ready, the most urgent runs first; of those, the oldest unit's."""

    DUTY = 0  # what other ranks, or a later unit, wait for: apply, publish, project, pack
    RETURN = 1  # leads to gradients that return first
    WORK = 2  # renders, backwards


class Traffic(str, Enum):
    """What a communication carries."""

    EARLY_HEADER = "early header"
    EARLY = "early"  # splats of rows that the unit before does not change
    LATE_HEADER = "late header"
    LATE = "late"  # the other splats
    COUNTS = "counts"  # how many sums each splat will return
    ACTIVE_HEADER = "active header"
    ACTIVE = "active"  # rows that each rank will change (replicated)
    FIRST = "first"  # gradients of rows that the next unit waits for
    FIRST_SUMS = "first sums"  # the same summed over ranks, to all of them (replicated)
    REST = "rest"  # the other gradients
    REST_SUMS = "rest sums"


class Payload(Protocol):
    """What travels: a flat contiguous tensor, or the mere size of one in a simulation."""

    @property
    def nbytes(self) -> int:
        """Bytes on the wire; a message of none is not sent."""

    def copy_(self, other: Any, /) -> object:
        """Take over what has come."""


@dataclass(slots=True, eq=False)
class Event:
    """Something that tasks wait for; it happens once."""

    done: bool = field(default=False, init=False)
    followers: list[Task] = field(default_factory=list, init=False, repr=False)


@dataclass(slots=True, eq=False)
class Task(Event):
    """A piece of one stage of one unit. `run` may give tasks: they become part of this one, which
    is done when they are."""

    stage: Stage
    unit: int
    run: Callable[[], Iterable[Task] | None] = field(repr=False)
    after: Iterable[Event] = field(default=(), repr=False)
    urgency: Urgency = Urgency.WORK
    # The executor keeps these.
    parent: Task | None = field(default=None, init=False, repr=False)
    started: bool = field(default=False, init=False)
    waits: int = field(default=0, init=False)
    """Events that have not happened yet."""
    parts: int = field(default=1, init=False)
    """That are not done: itself and its children."""


@dataclass(slots=True, eq=False)
class Communication(Event):
    """An operation of all ranks, done when all that it brings here has come, and this rank has
    given its own part: that may come from itself, too."""

    traffic: Traffic
    unit: int
    tag: int = field(default=-1, init=False)
    """Its number in the planned order, alike on all ranks; -1 before it is planned."""

    def __str__(self) -> str:
        return f"{self.traffic.value} of unit {self.unit}"


@dataclass(slots=True, eq=False)
class Exchange(Communication):
    """A message to and from every rank; both ends know its size."""

    outgoing: Sequence[Payload] | None = field(default=None, init=False, repr=False)
    """By rank; none until it is handed to the executor."""
    halves: int = field(default=2, init=False)
    """Sending and receiving, so far as they are to be done."""


@dataclass(slots=True, eq=False)
class Gather(Communication):
    """Equally long rows of all ranks, for all ranks: a header."""

    row: Tensor | None = field(default=None, init=False, repr=False)
    """[n], this rank's; none until it is handed to the executor."""
    rows: Tensor = field(default_factory=lambda: torch.empty(0), init=False, repr=False)
    """[R, n], filled when it is done."""
