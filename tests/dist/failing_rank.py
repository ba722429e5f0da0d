"""train.py, but the rank that FAILS names runs out of memory in its 20th unit."""

from __future__ import annotations

import os
import sys

import train
from grendel_odin.train.step import Step
from grendel_odin.train.unit import Unit

update = Step.update


def fail(step: Step, unit: Unit) -> None:
    if unit.index == 20 and os.environ["RANK"] == os.environ["FAILS"]:
        raise MemoryError("no 7 GB are left")
    update(step, unit)


Step.update = fail  # type: ignore[method-assign]
sys.exit(train.main(sys.argv[1:]))
