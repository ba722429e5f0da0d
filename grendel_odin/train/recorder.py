"""Keeps the record of a run: metrics, models, evaluations and the summary."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
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
        if done.capped and not progress.capped:
            progress.capped = True
            limit = self.settings.model.max_primitives
            self.log.say(f"{progress.iteration}: model.max_primitives={limit} limits growth")
        if bool(done.held_back) != progress.held_back:
            progress.held_back = not progress.held_back
            self.log.say(f"memory guard: {progress.iteration}: {self._guarded(done)}")
        if done.kept_large:
            self.log.say(
                f"warning: {progress.iteration}: pruning what is larger than densify.prune_scale3d "
                f"x extent ({self.scene.extent:.3g}) would have left hardly any primitive, so size "
                "was ignored; the cameras may stand too close together"
            )
        if done.kept_all:
            self.log.say(
                f"warning: {progress.iteration}: pruning would have left no primitive, so none was "
                "pruned; check the cameras and images, or lower densify.prune_opa"
            )

    def _guarded(self, done: Densification) -> str:
        if not done.held_back:
            return "there is room again, growth resumes"
        grown = done.cloned + done.split
        return (
            f"{self.step.pipeline.memory.reading()}, growth limited to {grown:,} of "
            f"{grown + done.held_back + done.capped:,} primitives; model.memory_limit="
            f"{self.settings.model.memory_limit:g} is the share that may be in use"
        )

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
        self.log.say(
            f"{iteration}: {move.rows_moved:,} rows ({move.bytes_moved / 1e6:,.1f} MB) went to "
            f"other ranks; rows by rank {_counts(move.before)}, now {_counts(move.after)}"
        )

    def save(self, iteration: int) -> None:
        """Write the model under an iteration's name."""
        comments = [f"grendel-odin iteration {iteration}"]
        if self.settings.renderer.antialiased:
            comments.append(ANTIALIASED_COMMENT)
        if self.scene.offset.any():
            comments.append(offset_comment(self.scene.offset))
        self.step.sharing.check(self.step.state.table)
        dropped = self.folder.save_model(self.step.state.table, iteration, comments, self.owners)
        if dropped:
            self.log.say(f"warning: {iteration}: {dropped} rows that are not finite were not saved")
        self.progress.saved = iteration
        self.world.remember(f"The last saved model is {self.folder.ply_path(iteration)}")

    def try_to_save(self, iteration: int) -> None:
        """Save in the middle of a run: a disk that is full now need not cost the training."""
        try:
            self.save(iteration)
        except UserError as error:
            self.log.say(f"warning: {iteration}: {error}; training goes on")

    def try_to_checkpoint(self, stays: bool, stage_seconds: Mapping[Stage, float]) -> None:
        """Write all that the run needs to go on from here; a full disk does not end it."""
        start, progress, step = time.perf_counter(), self.progress, self.step
        progress.wall_seconds = start - self._started
        progress.stage_seconds = {stage.value: spent for stage, spent in stage_seconds.items()}
        iteration = progress.iteration
        manifest = Manifest(
            *(iteration, stays, step.state.adam.steps, asdict(progress)),
            *(flat(self.settings), scene_identity(self.scene)),
        )
        try:
            state = replace(step.state, statistics=step.statistics())
            rows = rows_to_write(state, self.world, self.owners)
            size = self.checkpoints.write(manifest, rows, step.costs.memory())
        except UserError as error:
            self.log.say(f"warning: {iteration}: {error}; training goes on without this checkpoint")
            return
        seconds = time.perf_counter() - start
        self.log.event("checkpoint", iteration, bytes=size, seconds=seconds)
        name = self.checkpoints.folder / f"iteration_{iteration}"
        self.world.remember(f"train.resume={name} goes on from the last checkpoint")
        self.log.say(f"checkpoint: {name} ({size / 1e6:.1f} MB, {seconds:.2f} s)")

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
            self.folder.write_json(f"stats/val_step{max(0, iteration - 1):04d}.json", stats)
            self.log.say(f"{iteration}: {_line(scores)}, {figures['num_primitives']:,} primitives")
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


def _counts(rows: list[int]) -> str:
    return " ".join(f"{count:,}" for count in rows)


def _line(scores: Scores) -> str:
    """Scores in one line."""
    return ", ".join(
        f"{name} PSNR {each.psnr:.2f} SSIM {each.ssim:.3f} L1 {each.l1:.4f} ({each.num_views})"
        + (f", fully masked: {', '.join(each.left_out)}" if each.left_out else "")
        for name, each in [("test", scores.test), ("train", scores.train)]
        if each is not None
    )
