"""The stages of a unit, and tasks: the pieces of work that an executor puts in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


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


@dataclass(frozen=True, slots=True)
class Task:
    """A piece of one stage of one unit."""

    stage: Stage
    unit: int
    run: Callable[[], None]
