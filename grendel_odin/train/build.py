"""From settings to a trainer. What can be checked is checked here, before the first iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import islice

import torch

from grendel_odin.config import UserError
from grendel_odin.data.images import ImageStore
from grendel_odin.data.node_memory import NodeMemory
from grendel_odin.data.scene import Scene, load_scene
from grendel_odin.model.initialise import initialise
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.optim.adam import Adam
from grendel_odin.optim.schedule import Rates
from grendel_odin.parallel.agreement import agree
from grendel_odin.parallel.balance import CountedCosts
from grendel_odin.parallel.node import share_memory
from grendel_odin.parallel.share import share
from grendel_odin.parallel.timed import Balance, EvenCosts, TimedCosts
from grendel_odin.parallel.world import ALONE, World
from grendel_odin.pipelines.gs3d import GaussianSplatting
from grendel_odin.pipelines.memory import MemoryGuard
from grendel_odin.pipelines.state import Statistics, TrainingState
from grendel_odin.render import Backend, Background, Renderer, background_color, make_renderer
from grendel_odin.render.losses import PhotometricLoss
from grendel_odin.render.settings import for_depth
from grendel_odin.train.checkpoint import even_share, read_state, rows_to_read
from grendel_odin.train.describe import describe_run
from grendel_odin.train.facts import describe_ranks, program_facts, scene_facts
from grendel_odin.train.log import RunLog, check_tensorboard
from grendel_odin.train.order_file import OrderRecord
from grendel_odin.train.planning import RunOrder, Untrained, run_order, write_plan
from grendel_odin.train.recorder import Recorder
from grendel_odin.train.resume import Start, check_start, find_start
from grendel_odin.train.run_folder import PLAN, RunFolder, check_output
from grendel_odin.train.settings import Settings
from grendel_odin.train.step import Step
from grendel_odin.train.threads import use_threads
from grendel_odin.train.trainer import Trainer


def build(settings: Settings, world: World = ALONE, notes: Sequence[str] = ()) -> Trainer:
    """A trainer that is ready to run, its run folder made and described; it says `notes` first.

    Raises UserError, on all ranks if on one, in which case the run folder is as it was.
    """
    agree(world, program_facts(settings))
    train, start = settings.train, find_start(settings, world)
    memory = share_memory(world)
    scene, step, order = world.together(lambda: _prepare(settings, world, start, memory))
    agree(world, {**scene_facts(scene), "order of views": order.facts})
    scene = replace(scene, notes=[*notes, *scene.notes])
    overwrite = train.overwrite or start.replaces
    folder = RunFolder(settings.output, overwrite, world, start.continues)
    world.on_main(lambda: start.rewind(folder.path))
    world.on_main(lambda: describe_run(folder, settings, scene))
    log = RunLog(folder, train.iterations, train.tensorboard, world.rank, train.quiet, start.images)
    world.tell(log.note)
    for line in describe_ranks(world, settings.parallel.mode, step.threads):
        log.say(line)
    progress = start.progress(train.iterations)
    if order.plan:
        plan = order.plan
        world.on_main(lambda: log.say(write_plan(plan, scene, folder.path / PLAN)))
    earlier = list(islice(order.units, progress.images // train.batch_size))
    record = None
    if world.is_main:
        names = [view.camera.name for view in scene.train]
        record = OrderRecord(folder.path, names, train.batch_size, earlier)
    recorder = Recorder(settings, scene, step, folder, log, progress, record)
    return Trainer(settings, scene, step, recorder, order.units)


def _prepare(
    settings: Settings, world: World, start: Start, memory: NodeMemory
) -> tuple[Scene, Step, RunOrder]:
    train = settings.train
    if world.is_main:
        check_output(settings.output, train.overwrite or start.replaces or start.continues)
    if world.size > 1 and settings.renderer.backend is Backend.REFERENCE:
        raise UserError("renderer.backend=reference works in one process; use renderer.backend=cpu")
    if train.tensorboard:
        check_tensorboard()
    threads = use_threads(train, world)
    scene = load_scene(settings.data, settings.seed)
    fitted = for_depth(settings.renderer, scene.depth)
    if fitted.near_plane < settings.renderer.near_plane:
        note = f"small scene (median depth {scene.depth:.3g}): near plane {fitted.near_plane:.3g}"
        scene = replace(scene, notes=[*scene.notes, note])
    _check_batch(settings, scene)
    scene = replace(scene, notes=[*check_start(start, settings, scene), *scene.notes])
    data, background = settings.data, background_color(settings.renderer)
    images = ImageStore(scene.views, background, data.cache_bytes, data.workers, memory)
    renderer = make_renderer(fitted, threads)
    # The plan may look at it, and a run that is not resumed starts from it.
    untrained = cache(lambda: initialise(scene.points.xyz, scene.points.rgb, settings.model))
    order = run_order(settings, scene, renderer, world, untrained)
    step = _build_step(settings, scene, renderer, images, threads, world, start, untrained)
    return scene, step, order


def _check_batch(settings: Settings, scene: Scene) -> None:
    size, views = settings.train.batch_size, len(scene.train)
    if size > views:
        raise UserError(
            f"train.batch_size={size}: the scene has only {views} training views, and a batch "
            f"holds different ones; use train.batch_size={views} or less"
        )


def _build_step(
    settings: Settings,
    scene: Scene,
    renderer: Renderer,
    images: ImageStore,
    threads: int,
    world: World,
    start: Start,
    untrained: Untrained,
) -> Step:
    train = settings.train
    sharing = share(settings.parallel, world, renderer)
    step = Step(
        state=_state(settings, threads, sharing.owners, start, untrained),
        renderer=renderer,
        loss=PhotometricLoss(settings.loss.ssim_lambda, threads),
        images=images,
        pipeline=_pipeline(settings, scene, threads, sharing.owners, world),
        sharing=sharing,
        rates=Rates(settings.optim, train.batch_size, scene.extent, train.schedule_scale),
        background=torch.tensor(background_color(settings.renderer)),
        threads=threads,
        costs=_costs(settings, world, len(scene.train)),
        last_step=str(start.checkpoint or ""),
    )
    start.recall(step.costs, settings, scene.views)
    return step


def _costs(settings: Settings, world: World, views: int) -> CountedCosts:
    parallel = settings.parallel
    if parallel.balance is Balance.COUNTED:
        return CountedCosts()
    if parallel.balance is Balance.EVEN:
        return EvenCosts()
    warmup = views if parallel.balance_warmup < 0 else parallel.balance_warmup
    whole_views = settings.train.batch_size >= world.size
    return TimedCosts(parallel.balance_decay, warmup, not parallel.balance_small, whole_views)


def _state(
    settings: Settings, threads: int, world: World, start: Start, untrained: Untrained
) -> TrainingState:
    """This rank's rows: those of a checkpoint, or one a point."""
    kind, manifest = settings.optim.kind, start.manifest
    if start.checkpoint and manifest:
        rows = rows_to_read(manifest, world)
        state = read_state(start.checkpoint, manifest, rows, kind, threads)
        if world.twin:  # what has been counted is counted once
            state.statistics.reset(len(state.table))
        return state
    table = _own_rows(untrained(), world)
    return TrainingState(table, Adam(len(table), kind, threads), Statistics(len(table)))


def _own_rows(table: PrimitiveTable, world: World) -> PrimitiveTable:
    """A contiguous share of the rows; any spread gives the same model."""
    part = even_share(len(table), world)
    own = slice(part.start, part.stop)
    return PrimitiveTable(table.values[own].clone(), table.ids[own].clone())


def _pipeline(
    settings: Settings, scene: Scene, threads: int, owners: World, world: World
) -> GaussianSplatting:
    replicas = world if owners.size < world.size else ALONE
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
        world=owners,
        memory=MemoryGuard(settings.model.memory_limit, replicas=replicas),
    )
