"""The settings of a run: the root of the tree that a configuration file fills."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from grendel_odin.config import setting
from grendel_odin.data.settings import DataSettings
from grendel_odin.model.settings import ModelSettings
from grendel_odin.optim.settings import OptimSettings
from grendel_odin.parallel.settings import ParallelSettings
from grendel_odin.pipelines.densify import DensifySettings
from grendel_odin.render.settings import RendererSettings
from grendel_odin.train.odin_settings import OdinSettings

AUTO = "auto"
"""Value of train.resume."""


class Pipeline(str, Enum):
    """Training recipes."""

    GAUSSIAN_SPLATTING = "3dgs"


@dataclass(frozen=True, slots=True)
class LossSettings:
    """L = (1 - ssim_lambda) L1 + ssim_lambda (1 - SSIM)."""

    ssim_lambda: float = setting(0.2, "Weight of D-SSIM against L1.", min=0.0, max=1.0)


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """The loop. Iterations count images, whatever the batch size."""

    iterations: int = setting(30000, "Images to train on; the last batch is always full.", min=1)
    batch_size: int = setting(1, "Views of one optimizer step.", min=1)
    threads: int = setting(
        0,
        "CPU threads; 0 takes the cores that are there and that others leave to the run.",
        min=0,
        max=1024,
    )
    schedule_scale: float = setting(
        1.0,
        "Stretches (> 1) or shrinks (< 1) every schedule: densification, opacity resets, SH "
        "degree, learning rate of the means.",
        min_exclusive=0.0,
    )
    sh_degree_interval: int = setting(1000, "Iterations from one SH degree to the next.", min=1)
    eval_iterations: tuple[int, ...] = setting(
        (7000, 30000), "Iterations at which the model is evaluated; the last one always is.", min=1
    )
    save_iterations: tuple[int, ...] = setting(
        (7000, 30000), "Iterations at which a PLY is saved; the last one always is.", min=1
    )
    log_every: int = setting(10, "Iterations from one line of metrics.jsonl to the next.", min=1)
    quiet: bool = setting(False, "Print errors only; logs/ has the rest.")
    tensorboard: bool = setting(False, "Write TensorBoard files, too, to the run folder's tb/.")
    checkpoint_iterations: tuple[int, ...] = setting(
        (), "Iterations at which a checkpoint is written that stays.", min=1
    )
    checkpoint_every: int = setting(
        0, "Iterations from one checkpoint to the next; 0 writes none.", min=0
    )
    keep_checkpoints: int = setting(
        2, "Newest checkpoints of train.checkpoint_every that are kept; 0 keeps all.", min=0
    )
    resume: str = setting(
        "",
        "Checkpoint, or run folder, whose newest checkpoint is continued; `auto` continues the run "
        "that `output` holds, and starts it where there is none.",
    )
    overwrite: bool = setting(
        False, "Replace the run that the folder `output` holds; without it, it is left alone."
    )

    @property
    def makes_checkpoints(self) -> bool:
        """Also at the end and before a stop that was asked for."""
        return bool(self.checkpoint_iterations or self.checkpoint_every) or self.resume == AUTO

    def thread_count(self) -> int:
        """The number of threads that `threads` stands for."""
        if self.threads:
            return self.threads
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Settings:
    """A training run."""

    pipeline: Pipeline = setting(Pipeline.GAUSSIAN_SPLATTING, "Training recipe.")
    output: str = setting("", "Run folder, which receives every result.")
    seed: int = setting(0, "Seed of everything random; equal seeds give equal bits.", min=0)
    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    renderer: RendererSettings = field(default_factory=RendererSettings)
    loss: LossSettings = field(default_factory=LossSettings)
    optim: OptimSettings = field(default_factory=OptimSettings)
    densify: DensifySettings = field(default_factory=DensifySettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    parallel: ParallelSettings = field(default_factory=ParallelSettings)
    odin: OdinSettings = field(default_factory=OdinSettings)

    def problems(self) -> list[str]:
        """What binding alone does not find."""
        found = []
        if not self.data.path:
            found.append("data.path is not given; name the folder of a scene: data.path=FOLDER")
        if not self.output:
            found.append("output is not given; name a folder for the results: output=FOLDER")
        if self.data.path and self.output:
            scene, output = Path(self.data.path).resolve(), Path(self.output).resolve()
            if output == scene or scene in output.parents:
                found.append(
                    f"output={self.output} lies in the data folder {self.data.path}, which is "
                    "never written to; name a folder outside of it"
                )
        return found
