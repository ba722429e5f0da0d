"""The training loop; every rank runs it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

from grendel_odin.config import BrokenRun, UserError
from grendel_odin.data.scene import Scene
from grendel_odin.odin.execute import Executor
from grendel_odin.odin.graph import Stage
from grendel_odin.pipelines.redistribution import Redistribution
from grendel_odin.pipelines.window import windows
from grendel_odin.train.interrupt import Interrupt
from grendel_odin.train.progress import Status
from grendel_odin.train.recorder import Recorder
from grendel_odin.train.sampler import lookahead
from grendel_odin.train.settings import Settings
from grendel_odin.train.step import Step
from grendel_odin.train.threads import ThreadGovernor
from grendel_odin.train.unit import Unit

PREFETCHED_IMAGES = 8
CHECK_EVERY = 10
"""Densifications from one comparison of replicas to the next."""


class Trainer:
    """Trains until the last iteration or Ctrl-C; the recorder writes the results."""

    def __init__(
        self,
        settings: Settings,
        scene: Scene,
        step: Step,
        recorder: Recorder,
        order: Iterator[list[int]],
    ) -> None:
        """`order` gives the numbers of the training views of the units that are left."""
        self.settings, self.scene, self.step, self.recorder = settings, scene, step, recorder
        self.order = order
        self.executor = Executor()
        for stage, spent in recorder.progress.stage_seconds.items():
            self.executor.seconds[Stage(stage)] += spent
        cameras = [view.camera for view in scene.train]
        self.redistribution = Redistribution(
            *(settings.parallel, step.sharing.owners, cameras, settings.seed),
            recorder.progress.densifications,
        )
        self.governor = None if settings.train.threads else ThreadGovernor(step.threads)

    def run(self) -> Status:
        """Train. Whatever ends it, the model of the last whole unit is saved.

        Unless a rank failed alone, or was lost: then nothing can be agreed with it any more.
        """
        step, world = self.step, self.step.sharing.world
        patience = self.settings.parallel.timeout_s
        with Interrupt(world.is_main) as interrupt:
            self.recorder.begin()
            try:
                self.recorder.redistributed(self.redistribution.at_start(step.state))
                for unit in self.units():
                    unit.stop = interrupt.requested
                    with self.training(), world.waiting(patience):
                        self.executor.run(step.tasks(unit))
                    patience = self.settings.parallel.step_timeout_s
                    self.recorder.unit(unit)
                    self.milestones(unit)
                    with self.training():
                        self.fence(unit)
                    self.checkpoint(unit)
                    if unit.stop:
                        break
                    if self.governor and self.governor.look():
                        step.use_threads(self.governor.threads)
            except UserError as error:
                if error.agreed or world.size == 1:
                    self.end(Status.FAILED)
                raise
            except BrokenRun:
                raise
            except Exception:
                self.recorder.log.note(traceback.format_exc())
                raise
            left = self.settings.train.iterations - self.recorder.progress.iteration
            return self.end(Status.INTERRUPTED if left else Status.COMPLETE)

    def units(self) -> Iterator[Unit]:
        """The units that are left of the run; images of later ones are decoded ahead."""
        train, views = self.settings.train, self.scene.train
        images = self.recorder.progress.images
        done = images // train.batch_size
        ahead = lookahead(
            ([views[number] for number in unit] for unit in self.order),
            -(-PREFETCHED_IMAGES // train.batch_size),
            lambda window: self.step.images.prefetch(chain.from_iterable(window)),
        )
        pipeline = self.step.pipeline
        left = windows(train.iterations, train.batch_size, images)
        for index, window in enumerate(left, done):
            # Nothing would train what the last unit densifies or resets.
            last = window.last >= train.iterations
            refine, reset = pipeline.refine_marks(window), pipeline.reset_marks(window)
            yield Unit(index, window, next(ahead), 0 if last else refine, 0 if last else reset)

    def milestones(self, unit: Unit) -> None:
        """Save and evaluate under each nominal iteration, before the unit densifies or resets."""
        train = self.settings.train
        for mark in unit.window.marks([*train.save_iterations, train.iterations]):
            if mark < train.iterations:
                self.recorder.try_to_save(mark)
            elif mark == train.iterations:
                self.recorder.save(mark)
        marks = unit.window.marks([*train.eval_iterations, train.iterations])
        self.recorder.evaluate([mark for mark in marks if mark <= train.iterations])

    def fence(self, unit: Unit) -> None:
        """Structural changes: densification, then the opacity reset; once, however many marks."""
        start = time.perf_counter()
        if unit.refine_marks:
            self.step.state.statistics = self.step.statistics()
            done = self.step.pipeline.refine(self.step.state, unit.window)
            self.recorder.densified(done, merged=unit.refine_marks - 1)
            move = self.redistribution.after_densification(self.step.state)
            self.recorder.redistributed(move)
            if self.recorder.progress.densifications % CHECK_EVERY == 0:
                self.step.sharing.check(self.step.state.table)
        if unit.reset_marks:
            self.step.pipeline.reset(self.step.state)
            self.recorder.reset(merged=unit.reset_marks - 1)
        self.recorder.progress.fence_seconds += time.perf_counter() - start

    def checkpoint(self, unit: Unit) -> None:
        """As the schedule says; one that makes checkpoints at all also makes one where it ends."""
        train, window = self.settings.train, unit.window
        named = bool(window.marks(train.checkpoint_iterations))
        due = train.checkpoint_every and window.multiples(train.checkpoint_every)
        ends = unit.stop or window.last >= train.iterations
        if named or due or (ends and train.makes_checkpoints):
            self.recorder.try_to_checkpoint(named, self.executor.seconds)

    def end(self, status: Status) -> Status:
        """Write what is left to write."""
        self.recorder.end(status, self.executor.seconds)
        return status

    @contextmanager
    def training(self) -> Iterator[None]:
        """Counts as training time; evaluation and saving do not."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.recorder.progress.train_seconds += time.perf_counter() - start

    def close(self) -> None:
        """Let go of threads and files."""
        self.step.images.close()
        self.recorder.close()
