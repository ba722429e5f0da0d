"""What the schedule hides, in virtual time: no clock of this machine is read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grendel_odin.odin.admit import Policy
from grendel_odin.odin.settings import Mode
from grendel_odin.odin.simulate import simulate
from grendel_odin.odin.workload import Workload

OFF, QUALITY, THROUGHPUT = Policy.OFF, Policy.QUALITY, Policy.THROUGHPUT


@pytest.mark.parametrize("conflict", [0.2, 0.5])
@pytest.mark.parametrize("late_tiles", [0.0, 0.5, 1.0])
def test_a_slow_rank_does_not_make_a_convoy(conflict: float, late_tiles: float) -> None:
    load = Workload(
        ranks=3,
        units=30,
        conflict=[conflict],
        late_tiles=late_tiles,
        first_tiles=conflict,
        speeds=[1.3],
        imbalance=0.0,
    )
    found = simulate(load, QUALITY)
    assert found.unit_s <= 1.05 * found.busiest_s
    assert simulate(load, OFF).unit_s >= 1.25 * found.busiest_s


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("share", [0.3, 0.5])
def test_the_baseline_is_honest(ranks: int, share: float) -> None:
    load = Workload(ranks, 30, communication=share, imbalance=0.0)
    found = simulate(load, OFF)
    wire = 2 * load.bytes_each_way / load.rate
    header = load.latency_s + (ranks - 1) * load.header_bytes / load.rate
    assert found.exposed_s <= 1.1 * wire + 4 * load.latency_s + header
    assert found.compute_s == pytest.approx(load.compute_s)
    assert found.unit_s == pytest.approx(found.compute_s + found.exposed_s, rel=1e-3)


@pytest.mark.parametrize(("share", "least"), [(0.1, 0.99), (0.3, 0.98), (0.5, 0.72)])
def test_rows_without_conflict_are_hidden_up_to_the_limit(share: float, least: float) -> None:
    """At one half, applying rest(v) and projecting early(v + 2) leave the links idle."""
    load = Workload(2, 50, communication=share, conflict=[0.1], imbalance=0.0)
    off, quality = simulate(load, OFF), simulate(load, QUALITY)
    limit = min(1 / (1 - share), 1 / share)
    assert least * limit <= off.unit_s / quality.unit_s <= 1.02 * limit


def test_late_reads_help_where_much_is_in_conflict() -> None:
    load = Workload(2, 50, conflict=[0.5])
    off, quality, throughput = (simulate(load, each) for each in (OFF, QUALITY, THROUGHPUT))
    assert throughput.unit_s < 0.95 * quality.unit_s < 0.95 * off.unit_s
    assert 1 - throughput.exposed_s / off.exposed_s > 0.7
    assert 1 - quality.exposed_s / off.exposed_s > 0.5


def test_without_windows_nothing_is_lost() -> None:
    load = Workload(3, 30, windows=[False], imbalance=0.0)
    assert simulate(load, QUALITY).unit_s <= 1.01 * simulate(load, OFF).unit_s


def test_waits_add_up_by_cause_and_runs_repeat() -> None:
    load = Workload(3, 20, conflict=[0.4, 0.1, 0.7], windows=[True, True, False], speeds=[1.0, 1.2])
    first = simulate(load, THROUGHPUT)
    assert first == simulate(load, THROUGHPUT)
    assert first.exposed_s == pytest.approx(sum(first.causes.values()))


@pytest.mark.parametrize("policy", Policy)
def test_the_coarse_network_is_close_to_the_exact_one(policy: Policy) -> None:
    load = Workload(6, 30, conflict=[0.3])
    exact, coarse = (simulate(load, policy, exact=exact) for exact in (True, False))
    assert coarse.unit_s == pytest.approx(exact.unit_s, rel=0.05)


def test_dense_adam_steps_of_other_rows_fit_in() -> None:
    load = Workload(3, 30, conflict=[0.2], imbalance=0.0)
    dense = replace(load, shares=replace(load.shares, apply=0.1, zero_steps=0.08))
    assert simulate(dense, QUALITY).unit_s <= 1.02 * simulate(load, QUALITY).unit_s


def test_replicated_mode_hides_what_the_next_unit_does_not_wait_for() -> None:
    load = Workload(4, 30, Mode.REPLICATED, conflict=[0.1], imbalance=0.0)
    off, quality = simulate(load, OFF), simulate(load, QUALITY)
    assert 1 - quality.exposed_s / off.exposed_s > 0.8
    dense = replace(load, conflict=[1.0])
    assert simulate(dense, QUALITY).unit_s <= 1.02 * simulate(dense, OFF).unit_s
