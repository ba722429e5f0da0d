"""Models on disk: those of a run, or a PLY alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grendel_odin.config import UserError, bind
from grendel_odin.model.ply import ANTIALIASED_COMMENT
from grendel_odin.model.ply_header import read_header
from grendel_odin.train.settings import Settings

LATEST = -1


@dataclass(frozen=True, slots=True)
class SavedModel:
    """A model on disk and where its renders go."""

    settings: Settings
    ply: Path
    output: Path
    method: str
    """Name of its renders in the output tree: ours_N for iteration N of a run."""


def model_of_run(
    run: Path, iteration: int, overrides: Sequence[str], output: Path | None = None
) -> SavedModel:
    """The model that a run saved at `iteration`, or its latest one; output goes to the run.

    Raises UserError if the folder is no run or has no such iteration.
    """
    config = run / "cfg.yml"
    if not config.is_file():
        raise UserError(
            f"{run}: not the folder of a run: it has no cfg.yml. Next: give the `output` of a "
            "training run, or a model alone with --ply FILE -s DATA."
        )
    files = run.glob("point_cloud/iteration_*/point_cloud.ply")
    saved = {number: path for path in files if (number := _number(path)) is not None}
    if not saved:
        raise UserError(f"{run}: no point_cloud/iteration_N/point_cloud.ply. Next: train first.")
    number = max(saved) if iteration == LATEST else iteration
    if number not in saved:
        there = ", ".join(map(str, sorted(saved)))
        raise UserError(f"{run}: no model of --iteration {iteration}. It has: {there}.")
    moved = [f"output={output}"] if output else []
    settings = bind(Settings, config, [*moved, *overrides])
    scene = settings.data.path
    if not Path(scene).exists():
        raise UserError(
            f"data.path={scene} (of {config}, unless given here) does not exist. Next: say where "
            "the scene is now: -s DATA."
        )
    return SavedModel(settings, saved[number], output or run, f"ours_{number}")


def model_of_ply(ply: Path, output: Path | None, overrides: Sequence[str]) -> SavedModel:
    """A PLY alone, with settings from `overrides`; by default output goes to NAME_renders."""
    if not any(override.startswith("data.path=") for override in overrides):
        raise UserError("--ply needs a scene, for its cameras. Next: add -s DATA.")
    folder = output or Path(f"{ply.stem}_renders")
    antialiased = f"renderer.antialiased={str(is_antialiased(ply)).lower()}"
    settings = bind(Settings, None, [f"output={folder}", antialiased, *overrides])
    number = _number(ply)
    return SavedModel(settings, ply, folder, ply.stem if number is None else f"ours_{number}")


def is_antialiased(ply: Path) -> bool:
    """Whether the file's header says that its opacities are for the anti-aliased mode."""
    try:
        with open(ply, "rb") as file:
            return ANTIALIASED_COMMENT in read_header(file, ply).comments
    except OSError as error:
        raise UserError(f"{ply}: cannot read the PLY ({error.strerror or error}).") from error


def _number(ply: Path) -> int | None:
    """N of .../iteration_N/point_cloud.ply."""
    match = re.fullmatch(r"iteration_(\d+)", ply.parent.name)
    return int(match[1]) if match else None
