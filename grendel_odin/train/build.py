"""From settings to a trainer. What can be checked is checked here, before the first iteration."""

from __future__ import annotations

from dataclasses import replace

import torch

from grendel_odin.config import UserError
from grendel_odin.data.images import ImageStore
from grendel_odin.data.scene import Scene, load_scene
from grendel_odin.model.initialise import initialise
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.optim.adam import Adam
from grendel_odin.optim.schedule import Rates
from grendel_odin.parallel.world import ALONE, World
from grendel_odin.pipelines.gs3d import GaussianSplatting
from grendel_odin.pipelines.state import Statistics, TrainingState
from grendel_odin.render import Backend, Background, Renderer, background_color, make_renderer
from grendel_odin.render.losses import PhotometricLoss
from grendel_odin.render.settings import for_depth
from grendel_odin.train.describe import describe_run
from grendel_odin.train.log import RunLog, check_tensorboard
from grendel_odin.train.recorder import Recorder
from grendel_odin.train.run_folder import RunFolder, check_output
from grendel_odin.train.settings import Settings
from grendel_odin.train.step import Step
from grendel_odin.train.trainer import Trainer


def build(settings: Settings, world: World = ALONE) -> Trainer:
    """A trainer that is ready to run, its run folder made and described.

    Raises UserError, on all ranks if on one, in which case the run folder is as it was.
    """
    scene, step = world.together(lambda: _prepare(settings, world))
    folder = RunFolder(settings.output, settings.train.overwrite, world)
    world.on_main(lambda: describe_run(folder, settings, scene))
    log = RunLog(folder, settings.train.iterations, settings.train.tensorboard, world.rank)
    if world.size > 1:
        log.say(
            f"{world.size} ranks (gloo), {step.threads} threads each; rows and pixels are spread"
        )
    return Trainer(settings, scene, step, Recorder(settings, scene, step, folder, log))


def _prepare(settings: Settings, world: World) -> tuple[Scene, Step]:
    train = settings.train
    if world.is_main:
        check_output(settings.output, train.overwrite)
    if world.size > 1 and settings.renderer.backend is Backend.REFERENCE:
        raise UserError("renderer.backend=reference works in one process; use renderer.backend=cpu")
    if train.tensorboard:
        check_tensorboard()
    threads = _thread_count(settings, world)
    torch.set_num_threads(threads)
    scene = load_scene(settings.data, settings.seed)
    fitted = for_depth(settings.renderer, scene.depth)
    if fitted.near_plane < settings.renderer.near_plane:
        note = f"small scene (median depth {scene.depth:.3g}): near plane {fitted.near_plane:.3g}"
        scene = replace(scene, notes=[*scene.notes, note])
    _check_batch(settings, scene)
    return scene, _build_step(settings, scene, make_renderer(fitted, threads), threads, world)


def _thread_count(settings: Settings, world: World) -> int:
    """Of one rank: its share of the cores, unless the settings say otherwise."""
    own = settings.train.thread_count()
    return own if settings.train.threads else max(1, own // world.local_size)


def _check_batch(settings: Settings, scene: Scene) -> None:
    size, views = settings.train.batch_size, len(scene.train)
    if size > views:
        raise UserError(
            f"train.batch_size={size}: the scene has only {views} training views, and a batch "
            f"holds different ones; use train.batch_size={views} or less"
        )


def _build_step(
    settings: Settings, scene: Scene, renderer: Renderer, threads: int, world: World
) -> Step:
    train = settings.train
    table = _own_rows(initialise(scene.points.xyz, scene.points.rgb, settings.model), world)
    adam = Adam(len(table), settings.optim.kind, threads)
    background = background_color(settings.renderer)
    data = settings.data
    return Step(
        state=TrainingState(table, adam, Statistics(len(table))),
        renderer=renderer,
        loss=PhotometricLoss(settings.loss.ssim_lambda, threads),
        images=ImageStore(scene.views, background, data.cache_bytes, data.workers),
        pipeline=_pipeline(settings, scene, threads, world),
        rates=Rates(settings.optim, train.batch_size, scene.extent, train.schedule_scale),
        background=torch.tensor(background),
        threads=threads,
        world=world,
    )


def _own_rows(table: PrimitiveTable, world: World) -> PrimitiveTable:
    """A contiguous share of the rows; any spread gives the same model."""
    first, last = (len(table) * rank // world.size for rank in (world.rank, world.rank + 1))
    return PrimitiveTable(table.values[first:last].clone(), table.ids[first:last].clone())


def _pipeline(settings: Settings, scene: Scene, threads: int, world: World) -> GaussianSplatting:
    return GaussianSplatting(
        settings=settings.densify,
        schedule_scale=settings.train.schedule_scale,
        sh_degree=settings.model.sh_degree,
        sh_degree_interval=settings.train.sh_degree_interval,
        max_primitives=settings.model.max_primitives,
        extent=scene.extent,
        white_background=settings.renderer.background is Background.WHITE,
        seed=settings.seed,
        threads=threads,
        world=world,
    )
