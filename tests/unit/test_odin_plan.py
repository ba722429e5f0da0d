"""The plan as a value: windows, equality, files, summary."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest

from grendel_odin.odin.graph import Stage
from grendel_odin.odin.plan import Plan, make_plan, plan_order
from grendel_odin.odin.plan_files import load_plan, plan_bytes
from grendel_odin.odin.plan_summary import figures, summary
from grendel_odin.odin.rlg import Evidence, refresh
from grendel_odin.odin.settings import Mode, Partitioner, PlanSettings, Windows
from grendel_odin.odin.windows import CostModel, plan_windows, window
from tests.unit.test_odin_partition import ring

COST = CostModel(exchange_s=0.3, return_s=0.1, compute_s=0.25, split_s=0.05)


def plan_of(**changes: object) -> Plan:
    return make_plan(ring(50, 5), replace(PlanSettings(batch=3, seed=5), **changes), COST)


def test_gain_of_a_window() -> None:
    conflict = np.array([0.0, 0.5, 1.0])
    hybrid = COST.gain(conflict, Mode.HYBRID)  # min((1 - q) 0.4, 0.25) - 0.05
    assert hybrid.tolist() == pytest.approx([0.20, 0.15, -0.05])
    replicated = COST.gain(conflict, Mode.REPLICATED)  # min(0.4, (1 - q) 0.25) - 0.05
    assert replicated.tolist() == pytest.approx([0.20, 0.075, -0.05])


def test_windows_open_where_they_pay() -> None:
    conflict = np.array([0.0, 0.86, 0.88, 1.0], np.float32)  # (1 - q) 0.4 = 0.05 at q = 0.875
    opened = {
        policy: plan_windows(conflict, COST, policy, Mode.HYBRID)[0].tolist() for policy in Windows
    }
    assert opened == {
        Windows.AUTO: [True, True, False, False],
        Windows.ALWAYS: [True] * 4,
        Windows.OFF: [False] * 4,
    }
    assert window(1.0, COST, Windows.AUTO, Mode.HYBRID) is None
    found = window(0.5, COST, Windows.AUTO, Mode.HYBRID)
    assert found and found.conflict == 0.5 and found.gain_s == pytest.approx(0.15)
    assert Stage.EXCHANGE in found.hoisted and Stage.RENDER in found.validated
    alike = window(0.5, COST, Windows.AUTO, Mode.REPLICATED)
    assert alike and Stage.EXCHANGE not in alike.hoisted


def test_costs_are_counted_from_bytes() -> None:
    cost = CostModel.counted(1e6, 2e6, 0.1, rate=1e8, latency_s=1e-3, ranks=5, header_bytes=1000)
    assert cost.exchange_s == pytest.approx(0.011) and cost.return_s == pytest.approx(0.021)
    assert cost.split_s == pytest.approx(2 * 3 * (1e-3 + 1e-5) + 2e-3)
    assert CostModel.counted(1, 1, 1, 1, 0, ranks=1).split_s == 0
    with pytest.raises(ValueError, match="negative seconds"):
        CostModel(0.1, 0.1, -0.1, 0.0)


def test_a_window_can_be_asked_for_any_pair_of_units() -> None:
    plan = plan_of()
    units = [plan.order[i : i + 3].tolist() for i in range(0, 9, 3)]
    for number, (a, b) in enumerate(pairwise(units)):
        found = plan.window(a, b)
        assert (found is not None) == plan.open[number]
        assert found is None or found.conflict == pytest.approx(float(plan.conflict[number]))
    assert plan.window(units[0], units[0]) is None  # the same views: all rows conflict


def test_equal_inputs_give_equal_plans_and_others_do_not() -> None:
    plan = plan_of()
    assert plan == plan_of() and hash(plan) == hash(plan_of())
    others = [
        plan_of(seed=6),
        plan_of(batch=2),
        plan_of(windows=Windows.OFF),
        plan_of(partitioner=Partitioner.SPECTRAL),
        make_plan(ring(50, 4), plan.settings, COST),
        make_plan(ring(50, 5), plan.settings, replace(COST, split_s=0.06)),
    ]
    assert len({plan.sha256, *(other.sha256 for other in others)}) == 7
    assert replace(plan, seconds={"graph": 1.0}) == plan
    assert plan != "plan"


def test_a_plan_is_the_same_after_saving_and_loading(tmp_path: Path) -> None:
    plan = plan_of()
    for name, content in plan_bytes(plan).items():
        (tmp_path / name).write_bytes(content)
    loaded = load_plan(tmp_path)
    assert loaded == plan and loaded.settings == plan.settings and loaded.cost == COST
    assert loaded.seconds == plan.seconds and loaded.notes == plan.notes
    assert list(islice(loaded.units(), 60)) == list(islice(plan.units(), 60))


def test_damaged_plans_are_told_apart_from_plans(tmp_path: Path) -> None:
    files = plan_bytes(plan_of())
    content = json.loads(files["plan.json"])

    def write(told: object, numbers: bytes) -> None:
        (tmp_path / "plan.json").write_text(json.dumps(told))
        (tmp_path / "plan.npz").write_bytes(numbers)

    with pytest.raises(OSError):
        load_plan(tmp_path)
    for told, numbers in (
        ([], files["plan.npz"]),
        ({**content, "version": 99}, files["plan.npz"]),
        ({**content, "settings": {**content["settings"], "unit": "round"}}, files["plan.npz"]),
        (content, files["plan.npz"][:-40]),
        (content, b"no archive"),
    ):
        write(told, numbers)
        with pytest.raises(ValueError, match="no plan, or a damaged one"):
            load_plan(tmp_path)
    write({**content, "cost": {**content["cost"], "split_s": 1.0}}, files["plan.npz"])
    with pytest.raises(ValueError, match="sha256 differs"):
        load_plan(tmp_path)


def test_a_refreshed_graph_gives_another_order_in_the_same_groups() -> None:
    plan = plan_of()
    pairs = np.array([[0, 20], [3, 30]], np.int32)
    graph = refresh(plan.graph, Evidence(pairs, np.array([0.9, 0.8], np.float32)))
    fresh = plan_order(graph, plan.partition, plan.settings, plan.cost)
    assert np.array_equal(fresh.partition.groups, plan.partition.groups)
    assert fresh != plan and sorted(fresh.order[:50].tolist()) == list(range(50))


def test_summary_and_figures() -> None:
    plan = plan_of()
    text, found = (
        summary(plan, [plan_of(partitioner=Partitioner.SPECTRAL).partition]),
        figures(plan),
    )
    assert found["views"] == 50 and found["edges"] == 250 and found["mean_degree"] == 10
    assert found["windows"] == int(plan.open.sum()) and found["pairs_of_units"] == 33
    assert found["coupling_p90"] == plan.couplings.high and found["sha256"] == plan.sha256
    for words in (
        "50 views, 250 edges (importance); density 20.4%, mean degree 10.0",
        "4 (metis): cut",
        "4 (spectral): cut",
        "units of 3 (scattered)",
        f"random  {plan.shuffled.mean:.4f}",
        plan.sha256,
    ):
        assert words in text


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="groups=0: at least 1"):
        PlanSettings(groups=0)
