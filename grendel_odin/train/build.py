"""From settings to a trainer. What can be checked is checked here, before the first iteration."""

from __future__ import annotations

from dataclasses import replace

import torch

from grendel_odin.config import UserError
from grendel_odin.data.images import ImageStore
from grendel_odin.data.scene import Scene, load_scene
from grendel_odin.model.initialise import initialise
from grendel_odin.optim.adam import Adam
from grendel_odin.optim.schedule import Rates
from grendel_odin.pipelines.gs3d import GaussianSplatting
from grendel_odin.pipelines.state import Statistics, TrainingState
from grendel_odin.render import Background, Renderer, background_color, make_renderer
from grendel_odin.render.losses import PhotometricLoss
from grendel_odin.render.settings import for_depth
from grendel_odin.train.describe import describe_run
from grendel_odin.train.log import RunLog, check_tensorboard
from grendel_odin.train.recorder import Recorder
from grendel_odin.train.run_folder import RunFolder, check_output
from grendel_odin.train.settings import Settings
from grendel_odin.train.step import Step
from grendel_odin.train.trainer import Trainer


def build(settings: Settings) -> Trainer:
    """A trainer that is ready to run, its run folder made and described.

    Raises UserError, in which case the run folder is as it was.
    """
    train = settings.train
    check_output(settings.output, train.overwrite)
    if train.tensorboard:
        check_tensorboard()
    torch.set_num_threads(train.thread_count())
    scene = load_scene(settings.data, settings.seed)
    fitted = for_depth(settings.renderer, scene.depth)
    if fitted.near_plane < settings.renderer.near_plane:
        note = f"small scene (median depth {scene.depth:.3g}): near plane {fitted.near_plane:.3g}"
        scene = replace(scene, notes=[*scene.notes, note])
    renderer = make_renderer(fitted, train.thread_count())
    _check_batch(settings, scene)
    step = _build_step(settings, scene, renderer)
    folder = RunFolder(settings.output, train.overwrite)
    describe_run(folder, settings, scene)
    log = RunLog(folder, train.iterations, train.tensorboard)
    return Trainer(settings, scene, step, Recorder(settings, scene, step, folder, log))


def _check_batch(settings: Settings, scene: Scene) -> None:
    size, views = settings.train.batch_size, len(scene.train)
    if size > views:
        raise UserError(
            f"train.batch_size={size}: the scene has only {views} training views, and a batch "
            f"holds different ones; use train.batch_size={views} or less"
        )


def _build_step(settings: Settings, scene: Scene, renderer: Renderer) -> Step:
    train, threads = settings.train, settings.train.thread_count()
    table = initialise(scene.points.xyz, scene.points.rgb, settings.model)
    adam = Adam(len(table), settings.optim.kind, threads)
    background = background_color(settings.renderer)
    data = settings.data
    return Step(
        state=TrainingState(table, adam, Statistics(len(table))),
        renderer=renderer,
        loss=PhotometricLoss(settings.loss.ssim_lambda, threads),
        images=ImageStore(scene.views, background, data.cache_bytes, data.workers),
        pipeline=_pipeline(settings, scene),
        rates=Rates(settings.optim, train.batch_size, scene.extent, train.schedule_scale),
        background=torch.tensor(background),
        threads=threads,
    )


def _pipeline(settings: Settings, scene: Scene) -> GaussianSplatting:
    return GaussianSplatting(
        settings=settings.densify,
        schedule_scale=settings.train.schedule_scale,
        sh_degree=settings.model.sh_degree,
        sh_degree_interval=settings.train.sh_degree_interval,
        max_primitives=settings.model.max_primitives,
        extent=scene.extent,
        white_background=settings.renderer.background is Background.WHITE,
        seed=settings.seed,
        threads=settings.train.thread_count(),
    )
