"""From a scene to a plan, and from settings to the order of views."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grendel_odin.config import UserError, replacing
from grendel_odin.data.scene import Scene, load_scene
from grendel_odin.model.initialise import initialise
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.odin.partition import Partition, partition
from grendel_odin.odin.plan import Plan, make_plan
from grendel_odin.odin.plan_files import plan_bytes
from grendel_odin.odin.plan_summary import summary
from grendel_odin.odin.rlg import Graph
from grendel_odin.odin.rlg_builders import computation, geometry, importance
from grendel_odin.odin.settings import Builder, Mode, Partitioner, PlanSettings
from grendel_odin.odin.windows import NOMINAL, CostModel
from grendel_odin.parallel.world import World
from grendel_odin.render import Renderer, make_renderer
from grendel_odin.render.settings import for_depth
from grendel_odin.report.plan_pictures import write_plan_pictures
from grendel_odin.train.costs import MEMORY_RATE, NETWORK_RATE, count_costs
from grendel_odin.train.odin_settings import PLAN, SHUFFLE
from grendel_odin.train.order_file import read_order
from grendel_odin.train.run_folder import PLAN as PLAN_FOLDER
from grendel_odin.train.sampler import units
from grendel_odin.train.settings import Settings
from grendel_odin.train.threads import use_threads
from grendel_odin.train.trace import trace_rows

Accesses = Iterable[tuple[int, NDArray[np.int64]]]
FEW_VIEWS = 20_000
"""Up to as many, both partitioners are compared in a summary."""


def plan_scene(
    scene: Scene,
    settings: PlanSettings,
    threads: int = 1,
    accesses: Accesses | None = None,
    cost: CostModel = NOMINAL,
) -> Plan:
    """The plan for the training views of a scene, numbered as in `scene.train`.

    accesses: what each view has activated, which odin.rlg=computation needs.
    Raises UserError where no plan can be made.
    """
    try:
        start = time.perf_counter()
        graph = scene_graph(scene, settings, threads, accesses)
        seconds = {"graph": time.perf_counter() - start}
        plan = make_plan(graph, settings, cost)
    except ValueError as error:
        raise UserError(f"no plan can be made for {scene.path}: {error}") from error
    return replace(plan, seconds=seconds | plan.seconds)


def scene_graph(
    scene: Scene, settings: PlanSettings, threads: int = 1, accesses: Accesses | None = None
) -> Graph:
    """The relative locality graph of the training views."""
    names = [view.camera.name for view in scene.train]
    points, edges = scene.points, settings.edges
    if settings.builder is Builder.COMPUTATION:
        if accesses is None:
            raise UserError(
                "odin.rlg=computation needs a trace of which rows each view activates, which is "
                "not there before training; use odin.rlg=importance or geometry"
            )
        return computation(names, accesses, edges, threads)
    if settings.builder is Builder.IMPORTANCE and len(points.track_views):
        place = np.full(len(scene.views), -1, np.int32)
        place[[view.index for view in scene.train]] = np.arange(len(names))
        return importance(names, points.track_offsets, points.track_views, place, edges, threads)
    cameras = [view.camera for view in scene.train]
    graph = geometry(
        names,
        np.array([camera.world_to_camera[:3] for camera in cameras]).reshape(-1, 3, 4),
        np.array([camera.K for camera in cameras]).reshape(-1, 3, 3),
        np.array([[camera.width, camera.height] for camera in cameras], np.int64).reshape(-1, 2),
        *(points.xyz, edges, threads),
    )
    if settings.builder is Builder.IMPORTANCE:
        note = "the points have no tracks: what views share is guessed from the points in sight"
        graph = replace(graph, notes=(note, *graph.notes))
    return graph


def write_plan(plan: Plan, scene: Scene, folder: Path) -> str:
    """Write plan.json, plan.npz and pictures to a folder; returns the summary.

    Raises UserError if they cannot be written.
    """
    positions = np.array([view.camera.center for view in scene.train]).reshape(-1, 3)
    text = summary(plan, _other_partitions(plan))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in (plan_bytes(plan) | {"plan.txt": f"{text}\n".encode()}).items():
            with replacing(folder / name) as file:
                file.write(content)
        write_plan_pictures(folder, positions)
    except OSError as error:
        raise UserError(
            f"cannot write the plan to {folder} ({error.strerror or error}); free space there, or "
            "name another output folder"
        ) from error
    return text


def _other_partitions(plan: Plan) -> list[Partition]:
    """By the partitioner that has not made the plan, where that takes no time."""
    if len(plan.graph) > FEW_VIEWS:
        return []
    wanted = plan.settings.partitioner
    methods = [method for method in Partitioner if method is not wanted]
    groups, seed = plan.settings.groups, plan.settings.seed
    others = [partition(plan.graph, groups, method, seed) for method in methods]
    return [each for each in others if each.method != plan.partition.method]


@dataclass(frozen=True, slots=True)
class RunOrder:
    """In which order a run trains on its views."""

    units: Iterator[list[int]]
    """Numbers of training views."""
    facts: list[str]
    """What all ranks must have in common."""
    plan: Plan | None = None


Untrained = Callable[[], PrimitiveTable]
"""The model that training starts from, made when it is asked for."""


def run_order(
    settings: Settings, scene: Scene, renderer: Renderer, world: World, untrained: Untrained
) -> RunOrder:
    """What odin.order asks for. Raises UserError at once if it cannot be had."""
    order, batch = settings.odin.order, settings.train.batch_size
    if order == SHUFFLE:
        return RunOrder(units(len(scene.train), batch, settings.seed), [SHUFFLE])
    if order == PLAN:
        plan = plan_run(settings, scene, renderer, world, untrained)
        return RunOrder(plan.units(), [f"plan {plan.sha256}"], plan)
    names = [view.camera.name for view in scene.train]
    needed = -(-settings.train.iterations // batch)
    drawn = read_order(order, names, batch, needed)
    return RunOrder(iter(drawn), [sha256(repr(drawn).encode()).hexdigest()])


def plan_run(
    settings: Settings, scene: Scene, renderer: Renderer, world: World, untrained: Untrained
) -> Plan:
    """The plan of a run; what views share may be traced on the untrained model."""
    mode, batch = Mode(settings.parallel.mode.value), settings.train.batch_size
    wanted = settings.odin.plan_settings(batch, settings.seed, mode)
    table = untrained()
    traced = wanted.builder is Builder.COMPUTATION
    accesses = trace_rows(table, renderer, scene.train) if traced else None
    rate = settings.odin.link_mbit * 1e6 / 8 or (
        NETWORK_RATE if len(set(world.hosts)) > 1 else MEMORY_RATE
    )
    cost = count_costs(scene, table, renderer, batch, world.size, rate, mode)
    return plan_scene(scene, wanted, renderer.threads, accesses, cost)


def plan_only(settings: Settings, world: World) -> None:
    """Plan a run without training: writes output/plan, prints the summary; every rank calls it.

    Raises UserError where that is not possible.
    """
    scene = world.together(lambda: load_scene(settings.data, settings.seed))
    threads = use_threads(settings.train, world)
    renderer = make_renderer(for_depth(settings.renderer, scene.depth), threads)

    def untrained() -> PrimitiveTable:
        return initialise(scene.points.xyz, scene.points.rgb, settings.model)

    plan = world.together(lambda: plan_run(settings, scene, renderer, world, untrained))
    folder = Path(settings.output) / PLAN_FOLDER
    world.on_main(lambda: print(f"{write_plan(plan, scene, folder)}\nwritten   {folder}"))
