"""The executor: order of tasks, and seconds by a clock that is handed in."""

from __future__ import annotations

import subprocess
import sys

import pytest

from grendel_odin.odin.execute import Executor
from grendel_odin.odin.graph import Stage, Task


class Clock:
    """A clock that only tasks move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_runs_in_order_and_sums_seconds_by_stage() -> None:
    clock, seen = Clock(), []

    def task(stage: Stage, unit: int, seconds: float) -> Task:
        def run() -> None:
            seen.append((stage, unit))
            clock.now += seconds

        return Task(stage, unit, run)

    executor = Executor(clock)
    executor.run([task(Stage.PROJECT, 0, 1.0), task(Stage.RENDER, 0, 2.0)])
    executor.run([task(Stage.PROJECT, 1, 4.0)])
    assert seen == [(Stage.PROJECT, 0), (Stage.RENDER, 0), (Stage.PROJECT, 1)]
    assert executor.seconds[Stage.PROJECT] == 5.0
    assert executor.seconds[Stage.RENDER] == 2.0
    assert executor.seconds[Stage.PUBLISH] == 0.0


def test_a_failing_task_stops_the_run_and_its_time_counts() -> None:
    clock, seen = Clock(), []

    def fail() -> None:
        clock.now += 3.0
        raise ArithmeticError

    executor = Executor(clock)
    with pytest.raises(ArithmeticError):
        executor.run(
            [Task(Stage.BACKWARD, 0, fail), Task(Stage.UPDATE, 0, lambda: seen.append(True))]
        )
    assert seen == []
    assert executor.seconds[Stage.BACKWARD] == 3.0


def test_stages_are_in_the_order_of_a_unit() -> None:
    names = ["extent", "project", "exchange", "render", "backward", "return", "update", "publish"]
    assert [stage.value for stage in Stage] == names


def test_odin_imports_nothing_else_of_the_project() -> None:
    code = (
        "import sys, grendel_odin.odin.execute\n"
        "print(*(name for name in sys.modules if name.startswith('grendel_odin.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = done.stdout.split()
    assert names and all(name.startswith("grendel_odin.odin") for name in names)
