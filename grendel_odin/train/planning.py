"""From a scene to a plan, and from settings to the order of views."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grendel_odin.config import UserError, replacing
from grendel_odin.data.scene import Scene
from grendel_odin.odin.partition import Partition, partition
from grendel_odin.odin.plan import Plan, make_plan
from grendel_odin.odin.plan_files import plan_bytes
from grendel_odin.odin.plan_summary import summary
from grendel_odin.odin.rlg import Graph
from grendel_odin.odin.rlg_builders import computation, geometry, importance
from grendel_odin.odin.settings import Builder, Partitioner, PlanSettings
from grendel_odin.odin.windows import NOMINAL, CostModel
from grendel_odin.report.plan_pictures import write_plan_pictures
from grendel_odin.train.odin_settings import PLAN, SHUFFLE, OdinSettings
from grendel_odin.train.order_file import read_order
from grendel_odin.train.sampler import units

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
    return [partition(plan.graph, groups, method, seed) for method in methods]


def order_units(
    scene: Scene,
    settings: OdinSettings,
    batch: int,
    seed: int,
    needed: int,
    plan: Plan | None = None,
) -> Iterator[list[int]]:
    """Units of `batch` numbers of training views, in the order that odin.order asks for.

    needed: units that the run will take. plan: if it is there already.
    Raises UserError at once if that order cannot be had.
    """
    if settings.order == SHUFFLE:
        return units(len(scene.train), batch, seed)
    if settings.order == PLAN:
        made = plan or plan_scene(scene, settings.plan_settings(batch, seed))
        return made.units()
    names = [view.camera.name for view in scene.train]
    return iter(read_order(settings.order, names, batch, needed))
