"""Scenes to plans, plans to folders, and the order of views that a run asks for."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from grendel_odin.config import UserError, bind
from grendel_odin.data.cameras import Camera
from grendel_odin.data.scene import Points, Scene, View, load_scene
from grendel_odin.data.settings import DataSettings
from grendel_odin.model.initialise import initialise
from grendel_odin.model.settings import ModelSettings
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.odin.plan import Plan
from grendel_odin.odin.plan_files import load_plan
from grendel_odin.odin.rlg import Evidence
from grendel_odin.odin.settings import Builder, Mode, PlanSettings, UnitShape, Windows
from grendel_odin.parallel.world import ALONE, World
from grendel_odin.render.cpu import CpuRenderer
from grendel_odin.render.protocol import Constants
from grendel_odin.train.odin_settings import OdinSettings
from grendel_odin.train.order_file import OrderRecord, read_order
from grendel_odin.train.planning import plan_run, plan_scene, run_order, write_plan
from grendel_odin.train.sampler import units
from grendel_odin.train.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("GRENDEL_ODIN_DATA", ROOT.parent / "shared" / "data"))


def scene_of(views: int, tracks: bool = True, test_every: int = 4) -> Scene:
    """Cameras in a row that look down on points, each seeing those below it."""
    x = np.linspace(0, views, 40 * views)
    xyz = np.stack([x, np.zeros_like(x), np.full_like(x, 2.0)], axis=1)
    K = np.array([[20.0, 0, 20], [0, 20, 20], [0, 0, 1]])
    every = []
    for index in range(views):
        pose = np.eye(4)
        pose[0, 3] = -index - 0.5
        name = f"{index:02d}.jpg"
        every.append(View(Camera(name, 40, 40, K, pose), Path(name), index))
    seen = np.abs(x[:, None] - np.arange(views) - 0.5) < 2.0
    if not tracks:
        seen[:] = False
    offsets = np.concatenate([[0], np.cumsum(seen.sum(axis=1))]).astype(np.int64)
    points = Points(
        xyz, np.zeros((len(x), 3), np.uint8), offsets, np.nonzero(seen)[1].astype(np.int32)
    )
    test = every[::test_every]
    return Scene(Path("row"), [v for v in every if v not in test], test, points, 1.0)


def test_only_training_views_are_planned_for() -> None:
    scene = scene_of(16)
    plan = plan_scene(scene, PlanSettings(groups=2))
    assert plan.graph.names == tuple(view.camera.name for view in scene.train)
    # Each sees points up to 2 away: view 1 shares some with 2 and 3; views 0, 4, 8 and 12 test.
    first = plan.graph.neighbours[: plan.graph.starts[1]]
    assert [scene.train[view].index for view in first] == [2, 3]
    assert set(plan.seconds) == {"graph", "partition", "order", "windows"}


def test_scenes_without_tracks_are_planned_by_their_cameras() -> None:
    with_tracks, without = scene_of(12), scene_of(12, tracks=False)
    plan = plan_scene(without, PlanSettings(groups=2))
    assert plan.graph.builder is Builder.GEOMETRY
    assert plan.notes[0].startswith("the points have no tracks")
    same = plan_scene(with_tracks, PlanSettings(groups=2, builder=Builder.GEOMETRY))
    assert np.array_equal(same.graph.neighbours, plan.graph.neighbours)
    assert not same.graph.notes
    empty = replace(
        without,
        points=Points(
            *(np.zeros((0, 3)), np.zeros((0, 3), np.uint8)),
            *(np.zeros(1, np.int64), np.zeros(0, np.int32)),
        ),
    )
    nothing = plan_scene(empty, PlanSettings(groups=2))
    assert nothing.graph.unknown.all() and "have no points in sight" in nothing.notes[-1]
    assert sorted(nothing.order[: len(empty.train)].tolist()) == list(range(len(empty.train)))


def test_a_trace_is_asked_for_where_one_is_needed() -> None:
    scene, wanted = scene_of(6), PlanSettings(builder=Builder.COMPUTATION)
    with pytest.raises(UserError, match=r"odin\.rlg=computation needs a trace"):
        plan_scene(scene, wanted)
    trace = [(view, np.arange(view, view + 3)) for view in range(len(scene.train))]
    assert plan_scene(scene, wanted, accesses=trace).graph.mean_weight > 0


def test_too_few_views_are_a_mistake_of_the_user() -> None:
    with pytest.raises(UserError, match="unit of 9 different views cannot be drawn from 4"):
        plan_scene(scene_of(6), PlanSettings(batch=9))


def test_a_plan_is_written_with_its_pictures(tmp_path: Path) -> None:
    scene = scene_of(16)
    plan = plan_scene(scene, PlanSettings(batch=2, groups=2))
    text = write_plan(plan, scene, tmp_path / "plan")
    assert load_plan(tmp_path / "plan") == plan
    assert (tmp_path / "plan/plan.txt").read_text() == text + "\n"
    for name in ("plan_graph", "plan_matrix", "plan_order"):
        with Image.open(tmp_path / f"plan/{name}.png") as picture:
            assert len(picture.convert("RGB").getcolors(100000) or []) > 2, name
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write the plan to"):
        write_plan(plan, scene, tmp_path / "file" / "plan")


@pytest.mark.parametrize("views", [1, 2])
def test_the_smallest_scenes_are_planned_and_drawn(views: int, tmp_path: Path) -> None:
    scene = scene_of(views, test_every=100)
    scene = replace(scene, train=scene.train + scene.test, test=[])
    plan = plan_scene(scene, PlanSettings())
    write_plan(plan, scene, tmp_path)
    assert sorted(set(plan.order.tolist())) == list(range(views))


def test_keys_bind_to_plan_settings() -> None:
    words = ["order=plan", "groups=3", "unit=compact", "sas=off", "rlg=geometry", "edges=9"]
    wanted = bind(OdinSettings, None, words).plan_settings(4, 7, Mode.REPLICATED)
    assert wanted == PlanSettings(
        batch=4,
        builder=Builder.GEOMETRY,
        edges=9,
        groups=3,
        unit=UnitShape.COMPACT,
        windows=Windows.OFF,
        mode=Mode.REPLICATED,
        seed=7,
    )


def run_settings(order: str, batch: int, iterations: int, seed: int = 5) -> Settings:
    words = [f"train.batch_size={batch}", f"train.iterations={iterations}", f"seed={seed}"]
    return bind(Settings, None, [f"odin.order={order}", "data.path=x", "output=y", *words])


def untrained(scene: Scene) -> Callable[[], PrimitiveTable]:
    return lambda: initialise(scene.points.xyz, scene.points.rgb, ModelSettings())


def drawn(scene: Scene, settings: Settings) -> list[list[int]]:
    renderer = CpuRenderer(Constants(), 1)
    return list(islice(run_order(settings, scene, renderer, ALONE, untrained(scene)).units, 20))


def test_the_three_orders(tmp_path: Path) -> None:
    scene = scene_of(13)
    views, names = len(scene.train), [view.camera.name for view in scene.train]
    shuffled = drawn(scene, run_settings("shuffle", 2, 40))
    assert shuffled == list(islice(units(views, 2, 5), 20))
    planned = drawn(scene, run_settings("plan", 2, 40))
    assert planned != shuffled
    with closing(OrderRecord(tmp_path, names, 2)) as record:
        for unit in planned:
            record.add(unit)
    assert drawn(scene, run_settings(str(tmp_path), 2, 40, seed=0)) == planned
    assert drawn(scene, run_settings(str(tmp_path), 2, 6)) == planned[:3]


def test_a_trace_of_the_untrained_model_can_make_the_graph() -> None:
    settings = run_settings("plan", 1, 10)
    traced = replace(settings, odin=replace(settings.odin, rlg=Builder.COMPUTATION))
    scene = scene_of(13)
    order = run_order(traced, scene, CpuRenderer(Constants(), 1), ALONE, untrained(scene))
    assert order.plan is not None and order.plan.graph.builder is Builder.COMPUTATION
    assert order.plan.graph.edge_count > 0
    assert order.facts == [f"plan {order.plan.sha256}"]


def test_windows_are_planned_by_counted_costs() -> None:
    scene, renderer = scene_of(13), CpuRenderer(Constants(), 1)

    def planned(ranks: int, mbit: float) -> Plan:
        settings = run_settings("plan", 1, 10)
        settings = replace(settings, odin=replace(settings.odin, link_mbit=mbit))
        return plan_run(settings, scene, renderer, World(size=ranks), untrained(scene))

    alone, slow, slower = planned(1, 0), planned(2, 100), planned(2, 10)
    assert alone.cost.exchange_s < slow.cost.exchange_s < slower.cost.exchange_s
    assert slow.cost.compute_s == pytest.approx(alone.cost.compute_s / 2)
    assert not alone.open.any()  # nothing travels, so there is nothing to hide
    assert planned(2, 10) == slower and slow != slower


def test_epochs_after_a_refresh_follow_what_was_seen() -> None:
    plan = plan_scene(scene_of(13), PlanSettings(batch=1))
    course, views = plan.course(), len(plan.graph)
    orders = course.orders()
    first = next(orders)
    assert first.tolist() == plan.order[:views].tolist()
    pairs = np.array([(u, v) for u in range(views) for v in range(u)], np.int32)
    course.learn(Evidence(pairs, np.zeros(len(pairs), np.float32)), blend=1.0)
    assert course.graph.edge_count == 0 and plan.graph.edge_count > 0
    assert sorted(next(orders).tolist()) == list(range(views))


def test_a_resumed_run_elsewhere_writes_what_it_skips(tmp_path: Path) -> None:
    with closing(OrderRecord(tmp_path, ["a", "b"], 1, [[1], [0]])) as record:
        record.add([1])
    assert read_order(tmp_path, ["a", "b"], 1, 3) == [[1], [0], [1]]


def test_a_continued_run_keeps_the_units_that_it_has_done(tmp_path: Path) -> None:
    names = ["a", "b", "c"]
    with closing(OrderRecord(tmp_path, names, 1)) as record:
        for view in (2, 0, 1, 2):
            record.add([view])
    with closing(OrderRecord(tmp_path, names, 1, [[2], [0]])) as record:
        record.add([0])
    assert read_order(tmp_path, names, 1, 3) == [[2], [0], [0]]


def test_orders_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    names = ["a", "b", "c"]
    with pytest.raises(UserError, match=r"cannot read .*order\.txt"):
        read_order(tmp_path, names, 2, 1)
    with closing(OrderRecord(tmp_path, names, 2)) as record:
        record.add([0, 1])
        record.add([2, 2])
    with pytest.raises(UserError, match=r"line 3 of .* is no unit of 2 views"):
        read_order(tmp_path, names, 2, 2)
    assert read_order(tmp_path, names, 2, 1) == [[0, 1]]
    for other, batch in ((["a", "b", "d"], 2), (names, 1)):
        with pytest.raises(UserError, match="for other views or units"):
            read_order(tmp_path, other, batch, 1)
    with closing(OrderRecord(tmp_path, names, 2)) as record:
        record.add([0, 1])
    with pytest.raises(UserError, match=r"has 1 units, and 5 are needed; use train.iterations=2"):
        read_order(tmp_path, names, 2, 5)
    (tmp_path / "order.txt").write_bytes(b"# \xff\n1 x\n")
    with pytest.raises(UserError, match="is damaged"):
        read_order(tmp_path, names, 2, 1)


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("unit", UnitShape)
def test_a_real_capture_is_ordered_well(batch: int, unit: UnitShape) -> None:
    folder = DATA / "caliterra_w400"
    if not folder.is_dir():
        pytest.skip(f"no scene {folder}; GRENDEL_ODIN_DATA names the folder of scenes")
    scene = load_scene(DataSettings(path=str(folder)))
    for seed in range(3):
        plan = plan_scene(scene, PlanSettings(batch=batch, unit=unit, seed=seed))
        assert plan.couplings.mean <= plan.shuffled.mean / 3
        assert plan.couplings.high <= plan.shuffled.high / 2
        assert plan.graph.kept > 0.95 and plan.partition.balance <= 1.05
