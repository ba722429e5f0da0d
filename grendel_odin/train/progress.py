"""How far a run has come, and the summary of it."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any

from grendel_odin.odin.graph import Stage
from grendel_odin.train.evaluate import Evaluation
from grendel_odin.train.settings import Settings


class Status(str, Enum):
    """How a run ended."""

    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    FAILED = "failed"

    @property
    def exit_code(self) -> int:
        """Of the process; 130 is what shells report after Ctrl-C."""
        return {Status.COMPLETE: 0, Status.INTERRUPTED: 130, Status.FAILED: 2}[self]


Figures = dict[str, float | int | None]
"""Means of an evaluation by name."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Evaluations of one model."""

    test: Evaluation | None
    """None where the scene has no test views."""
    train: Evaluation
    """Of a slice of the training views."""

    @property
    def best_known(self) -> Evaluation:
        """That of the test views, where there are any."""
        return self.test or self.train

    def figures(self) -> Figures:
        """The means under the names that metrics.jsonl and summary.json use."""
        test, train = self.test, self.train
        return {
            "num_test_views": test.num_views if test else 0,
            "psnr": test.psnr if test else None,
            "ssim": test.ssim if test else None,
            "l1": test.l1 if test else None,
            "num_train_views": train.num_views,
            "train_psnr": train.psnr,
            "train_ssim": train.ssim,
            "train_l1": train.l1,
        }


@dataclass(slots=True)
class Progress:
    """What a run has done so far; plain values, which a checkpoint keeps as JSON."""

    iteration: int = 0
    images: int = 0
    """Images trained on: the iteration, unless the last batch reaches beyond."""
    sh_degree: int = 0
    train_seconds: float = 0.0
    """Without evaluation and saving."""
    fence_seconds: float = 0.0
    saved: int | None = None
    """Iteration of the last PLY."""
    scores: dict[int, Figures] = field(default_factory=dict)
    """By iteration; 0 is the untrained model."""
    densifications: int = 0
    merged_densifications: int = 0
    """Marks of the schedule that were done with another one of the same unit."""
    merged_resets: int = 0
    capped: bool = False
    """Whether model.max_primitives has limited growth."""
    held_back: bool = False
    """Whether the memory guard limits growth at the moment."""
    wall_seconds: float = 0.0
    """Of the run until its last checkpoint."""
    stage_seconds: dict[str, float] = field(default_factory=dict)
    """Likewise, by stage."""
    resumed_at: list[int] = field(default_factory=list)
    """Iterations at which the run was continued."""

    @staticmethod
    def restored(content: Mapping[str, Any]) -> Progress:
        """What a checkpoint has kept; values that this version does not know are left out."""
        known = {each.name for each in fields(Progress)}
        values = {name: value for name, value in content.items() if name in known}
        scores = {int(iteration): each for iteration, each in values["scores"].items()}
        return Progress(**{**values, "scores": scores})


def summary(
    settings: Settings,
    progress: Progress,
    status: Status,
    stage_seconds: Mapping[Stage, float],
    wall_seconds: float,
    world_size: int,
) -> dict[str, Any]:
    """summary.json but for what only the model knows.

    Scores are null if the last iteration was not evaluated, as after Ctrl-C.
    """
    scores = progress.scores.get(progress.iteration)
    initial = progress.scores[0]
    initial_psnr = initial["train_psnr"] if initial["psnr"] is None else initial["psnr"]
    blank: dict[str, Any] = {key: None for key in initial}
    seconds = progress.train_seconds
    stages = {stage.value: stage_seconds[stage] for stage in Stage}
    return {
        "status": status.value,
        "pipeline": settings.pipeline.value,
        "iteration": progress.iteration,
        "sh_degree": progress.sh_degree,
        **blank,
        "num_test_views": initial["num_test_views"],
        **(scores or {}),
        "initial_psnr": initial_psnr,
        "wall_s": wall_seconds,
        "train_wall_s": seconds,
        "views_per_s": progress.images / seconds if seconds else 0.0,
        "stage_seconds": {**stages, "fence": progress.fence_seconds},
        "world_size": world_size,
        "batch_size": settings.train.batch_size,
        "threads": settings.train.thread_count(),
        "peak_rss_mb": peak_rss_mb(),
        "seed": settings.seed,
        "merged_densifications": progress.merged_densifications,
        "merged_resets": progress.merged_resets,
        "resumed_at": progress.resumed_at,
    }


def peak_rss_mb() -> float:
    """Largest resident memory that the process has had, in MB (2^20 bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def rss_mb() -> float:
    """Resident memory of the process now, in MB (2^20 bytes); its peak where no /proc tells."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return peak_rss_mb()
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20
