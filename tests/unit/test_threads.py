"""The number of threads follows the cores that can be had."""

from __future__ import annotations

from grendel_odin.train.threads import RETRY, SPAN, ThreadGovernor


class Machine:
    """Clocks of a machine that gives a process at most so many cores."""

    def __init__(self, limit: int) -> None:
        self.cores = float(limit)
        self.wall_s = self.cpu_s = 0.0
        self.governor = ThreadGovernor(limit, lambda: self.wall_s, lambda: self.cpu_s)

    def spend(self, seconds: float = SPAN) -> int:
        self.wall_s += seconds
        self.cpu_s += seconds * min(self.cores, self.governor.threads)
        self.governor.look()
        return self.governor.threads


def test_a_machine_of_its_own_keeps_all_threads() -> None:
    machine = Machine(4)
    assert [machine.spend() for _ in range(30)] == [4] * 30


def test_fewer_cores_mean_fewer_threads_and_a_new_try_later() -> None:
    machine = Machine(2)
    machine.cores = 1.1
    assert machine.spend() == 1
    tried = [machine.spend() for _ in range(2 * RETRY + 2)]
    assert tried.count(2) == 2 and tried[RETRY - 1] == 2 and tried[RETRY] == 1


def test_cores_that_come_back_are_used_again() -> None:
    machine = Machine(8)
    machine.cores = 3.0
    assert machine.spend() == 3
    machine.cores = 8.0
    assert [machine.spend() for _ in range(RETRY + 3)][-1] == 8


def test_short_looks_change_nothing() -> None:
    machine = Machine(2)
    machine.cores = 0.5
    assert machine.spend(0.9 * SPAN) == 2 and machine.spend(0.2 * SPAN) == 1
