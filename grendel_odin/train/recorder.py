"""Keeps the record of a run: metrics, models, evaluations and the summary."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace

from grendel_odin.config import UserError, flat
from grendel_odin.data.scene import Scene, View
from grendel_odin.model.ply import ANTIALIASED_COMMENT, offset_comment
from grendel_odin.odin.graph import Stage
from grendel_odin.parallel.merge import model_sha256
from grendel_odin.pipelines.densify import Densification
from grendel_odin.pipelines.redistribution import Move
from grendel_odin.render import background_color
from grendel_odin.train.checkpoint import FOLDER, Manifest, rows_to_write
from grendel_odin.train.checkpoint_writer import CheckpointWriter
from grendel_odin.train.evaluate import Evaluation, evaluate
from grendel_odin.train.grendel_log import GrendelLog
from grendel_odin.train.log import RunLog
from grendel_odin.train.order_file import OrderRecord
from grendel_odin.train.progress import Progress, Scores, Status, summary
from grendel_odin.train.resume import scene_identity
from grendel_odin.train.run_folder import RunFolder
from grendel_odin.train.settings import Settings
from grendel_odin.train.step import Step
from grendel_odin.train.unit import Unit
from grendel_odin.train.wording import growth_notes, move_line, score_line

TRAIN_SLICE = 5


class Recorder:
    """Writes to the run folder and the log what happens in the run."""

    def __init__(
        self,
        settings: Settings,
        scene: Scene,
        step: Step,
        folder: RunFolder,
        log: RunLog,
        progress: Progress,
        order: OrderRecord | None,
    ) -> None:
        """`order` is the main rank's."""
        self.settings, self.scene, self.step = settings, scene, step
        self.folder, self.log = folder, log
        self.world, self.owners = step.sharing.world, step.sharing.owners
        self.progress, self.order = progress, order
        self._numbers = {view.index: number for number, view in enumerate(scene.train)}
        self.checkpoints = CheckpointWriter(
            folder.path / FOLDER, settings.train.keep_checkpoints, self.world
        )
        (self.num_primitives,) = self.owners.sum_counts(len(step.state.table))
        self.grendel = GrendelLog(
            *(folder, self.world, len(step.state.table)),
            *(settings.train.batch_size, len(scene.train), progress.images),
        )
        self._started = time.perf_counter() - progress.wall_seconds

    def begin(self) -> None:
        """Say what is trained, and evaluate the model if it is untrained."""
        self.log.say(
            f"{self.scene.path}: {len(self.scene.train)} training views, {len(self.scene.test)} "
            f"test views, {self.num_primitives:,} points; results go to {self.folder.path}"
        )
        for note in self.scene.notes:
            self.log.say(note)
        self.log.say(self.step.images.estimate)
        limit = self.settings.model.max_primitives
        if 0 < limit < self.num_primitives:
            self.log.say(f"warning: more points than model.max_primitives={limit}: no growth")
        size, ranks = self.settings.train.batch_size, self.world.size
        if self.owners.size < ranks and size < ranks:
            self.log.say(
                f"warning: parallel.mode=replicated with train.batch_size={size}: only {size} of "
                f"{ranks} ranks have a view to render; larger batches or parallel.mode=hybrid keep "
                "all of them busy"
            )
        if self.progress.resumed_at:
            done, total = self.progress.iteration, self.settings.train.iterations
            self.log.say(f"continuing at iteration {done} of {total}")
        else:
            self.evaluate([0])

    def unit(self, unit: Unit) -> None:
        """Count the images of a unit; report every `train.log_every` iterations."""
        progress, losses = self.progress, unit.losses
        progress.images += unit.window.size
        progress.iteration = min(unit.window.last, self.settings.train.iterations)
        progress.sh_degree = unit.sh_degree
        primitives = self.num_primitives
        self.grendel.unit(
            *(unit.window, unit.refine_marks > 0, [view.camera.name for view in unit.views]),
            [loss.value for loss in losses],
        )
        if self.order:
            self.order.add([self._numbers[view.index] for view in unit.views])
        self.log.progress(progress.iteration, unit.loss, primitives)
        if unit.window.multiples(self.settings.train.log_every):
            self.log.event(
                *("train", progress.iteration),
                loss=unit.loss,
                l1=sum(loss.l1 for loss in losses) / len(losses),
                ssim=sum(loss.ssim for loss in losses) / len(losses),
                num_primitives=primitives,
                sh_degree=unit.sh_degree,
                train_wall_s=progress.train_seconds,
            )

    def densified(self, done: Densification, merged: int) -> None:
        """Report a densification; `merged` other marks of the schedule were done with it."""
        progress = self.progress
        self.num_primitives = done.num_primitives
        progress.densifications += 1
        progress.merged_densifications += merged
        self.grendel.densified(len(self.step.state.table))
        self.log.event(
            *("densify", progress.iteration),
            **asdict(done),
            merged=merged,
        )
        memory, extent = self.step.pipeline.memory, self.scene.extent
        for note in growth_notes(done, progress, self.settings, extent, memory):
            self.log.say(note)

    def reset(self, merged: int) -> None:
        """Report an opacity reset."""
        self.progress.merged_resets += merged
        self.log.event("reset_opacity", self.progress.iteration, merged=merged)

    def redistributed(self, move: Move | None) -> None:
        """Report that rows went to other ranks, if they did."""
        if move is None:
            return
        iteration = self.progress.iteration
        self.log.event("redistribute", iteration, **asdict(move))
        self.log.say(f"{iteration}: {move_line(move)}")

    def save(self, iteration: int) -> None:
        """Write the model under an iteration's name."""
        self.step.sharing.check(self.step.state.table)
        self._write(iteration)

    def try_to_save(self, iteration: int) -> None:
        """Save in the middle of a run: a disk that is full now need not cost the training."""
        self.step.sharing.check(self.step.state.table)
        with self._going_on(iteration):
            self._write(iteration)

    def _write(self, iteration: int) -> None:
        comments = [f"grendel-odin iteration {iteration}"]
        if self.settings.renderer.antialiased:
            comments.append(ANTIALIASED_COMMENT)
        if self.scene.offset.any():
            comments.append(offset_comment(self.scene.offset))
        dropped = self.folder.save_model(self.step.state.table, iteration, comments, self.owners)
        if dropped:
            self.log.say(f"warning: {iteration}: {dropped} rows that are not finite were not saved")
        self.progress.saved = iteration
        self.world.remember(f"The last saved model is {self.folder.ply_path(iteration)}")

    def try_to_checkpoint(self, stays: bool, stage_seconds: Mapping[Stage, float]) -> None:
        """Write all that the run needs to go on from here; a full disk does not end it."""
        self.step.sharing.check(self.step.state.table)
        start, progress, step = time.perf_counter(), self.progress, self.step
        progress.wall_seconds = start - self._started
        progress.stage_seconds = {stage.value: spent for stage, spent in stage_seconds.items()}
        iteration = progress.iteration
        manifest = Manifest(
            *(iteration, stays, step.state.adam.steps, asdict(progress)),
            *(flat(self.settings), scene_identity(self.scene)),
        )
        with self._going_on(iteration, " without this checkpoint"):
            state = replace(step.state, statistics=step.statistics())
            rows = rows_to_write(state, self.world, self.owners)
            size = self.checkpoints.write(manifest, rows, step.costs.memory())
            seconds = time.perf_counter() - start
            self.log.event("checkpoint", iteration, bytes=size, seconds=seconds)
            name = self.checkpoints.folder / f"iteration_{iteration}"
            self.world.remember(f"train.resume={name} goes on from the last checkpoint")
            self.log.say(f"checkpoint: {name} ({size / 1e6:.1f} MB, {seconds:.2f} s)")

    @contextmanager
    def _going_on(self, iteration: int, without: str = "") -> Iterator[None]:
        """What cannot be written, on a full disk, does not end the run."""
        try:
            yield
        except UserError as error:
            reason = str(error).rstrip(".")
            self.log.say(f"warning: {iteration}: {reason}; training goes on{without}")

    def evaluate(self, iterations: Sequence[int]) -> None:
        """Score the model on all test views and a slice of the training views.

        It is done once, and noted under each of the iterations; without any it is not done.
        """
        if not iterations:
            return
        train, test = self.scene.train, self.scene.test
        scores = Scores(
            test=self._score(test) if test else None,
            train=self._score(train[:: -(-len(train) // TRAIN_SLICE)]),
        )
        figures = {**scores.figures(), "num_primitives": self.num_primitives}
        views = {name: asdict(score) for name, score in scores.best_known.per_view.items()}
        for iteration in iterations:
            self.progress.scores[iteration] = scores.figures()
            self.log.event("eval", iteration, **figures)
            stats = {**figures, "num_GS": figures["num_primitives"], "per_view": views}
            with self._going_on(iteration):
                self.folder.write_json(f"stats/val_step{max(0, iteration - 1):04d}.json", stats)
            self.log.say(
                f"{iteration}: {score_line(scores)}, {figures['num_primitives']:,} primitives"
            )
        if any(iterations):
            rows, seconds = len(self.step.state.table), self.progress.train_seconds
            self.grendel.evaluated(iterations, scores, rows, seconds)

    def _score(self, views: Sequence[View]) -> Evaluation:
        step = self.step
        return evaluate(
            *(step.renderer, step.state.table, views, step.images),
            *(background_color(self.settings.renderer), self.progress.sh_degree, step.threads),
            step.sharing,
        )

    def end(self, status: Status, stage_seconds: Mapping[Stage, float]) -> None:
        """Save the model, if it is not, and the summary."""
        progress, table = self.progress, self.step.state.table
        problem = None
        if progress.saved != progress.iteration:
            try:
                self.save(progress.iteration)
            except UserError as error:
                problem, status = error, Status.FAILED
        wall = time.perf_counter() - self._started
        figures = summary(self.settings, progress, status, stage_seconds, wall, self.world.size)
        state = model_sha256(self.owners, table)
        model = {"num_primitives": self.num_primitives, "state_sha256": state}
        self.folder.write_json("summary.json", {**figures, **model})
        self.log.event("end", progress.iteration, status=status.value)
        self.log.say(self.step.images.usage())
        self.grendel.timed(progress.iteration, progress.train_seconds)
        stages = ", ".join(f"{stage.value} {spent:.2f}" for stage, spent in stage_seconds.items())
        self.log.note(f"rank {self.world.rank}: seconds by stage: {stages}")
        speed = f"{figures['views_per_s']:.1f} images/s" if progress.images else "no step was taken"
        self.log.say(f"{status.value} at iteration {progress.iteration}: {wall:.1f} s, {speed}")
        if problem:
            raise problem
        self.log.say(f"model: {self.folder.ply_path(progress.iteration)}")

    def close(self) -> None:
        """Close the logs."""
        if self.order:
            self.order.close()
        self.grendel.close()
        self.log.close()
