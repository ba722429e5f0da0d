"""Models on disk: those of a run, or a PLY alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grendel_odin.config import UserError, bind
from grendel_odin.config.binder import Override
from grendel_odin.model.ply_model import PARTS, WHOLE, PlyModel
from grendel_odin.train import cfg_args
from grendel_odin.train.run_folder import MARKER
from grendel_odin.train.settings import Settings

LATEST = -1


@dataclass(frozen=True, slots=True)
class SavedModel:
    """A model on disk and where its renders go."""

    settings: Settings
    model: PlyModel
    output: Path
    method: str
    """Name of its renders in the output tree: ours_N for iteration N of a run."""
    notes: tuple[str, ...] = ()
    """What the user should know of how it was read."""


def model_of_run(
    run: Path, iteration: int, overrides: Sequence[str], output: Path | None = None
) -> SavedModel:
    """The model that a run saved at `iteration`, or its latest one; output goes to the run.

    The run may be one of 3DGS or Grendel-GS, which has cfg_args. Raises UserError if the folder
    is no run or has no such iteration.
    """
    folders = {
        number: folder
        for folder in run.glob("point_cloud/iteration_*")
        if (number := _number(folder)) is not None
        and ((folder / WHOLE).is_file() or any(folder.glob(PARTS)))
    }
    config = run / MARKER
    if not config.is_file() and not (run / cfg_args.FILE).is_file():
        raise UserError(
            f"{run}: not the folder of a run: it has no {MARKER} and no {cfg_args.FILE}. Next: "
            "give the `output` of a training run, or a model alone with --ply FILE -s DATA."
        )
    if not folders:
        raise UserError(f"{run}: no point_cloud/iteration_N/{WHOLE}. Next: train first.")
    number = max(folders) if iteration == LATEST else iteration
    if number not in folders:
        there = ", ".join(map(str, sorted(folders)))
        raise UserError(f"{run}: no model of --iteration {iteration}. It has: {there}.")
    model = PlyModel.at(folders[number])
    notes = _notes(model)
    if config.is_file():
        moved = [f"output={output}"] if output else []
        settings = bind(Settings, config, [*moved, *overrides])
    else:
        config = run / cfg_args.FILE
        stored = [*cfg_args.read_words(config), f"output={output or run}", _mode(model)]
        words = [Override(word, str(config)) for word in stored]
        notes = (*notes, f"{config}: {' '.join(stored)}")
        settings = bind(Settings, None, [*words, *overrides])
    scene = settings.data.path
    if not Path(scene).exists():
        raise UserError(
            f"data.path={scene} (of {config}, unless given here) does not exist. Next: say where "
            "the scene is now: -s DATA."
        )
    return SavedModel(settings, model, output or run, f"ours_{number}", notes)


def model_of_ply(ply: Path, output: Path | None, overrides: Sequence[str]) -> SavedModel:
    """A PLY, or all those of a Grendel iteration, with settings from `overrides`.

    By default output goes to NAME_renders.
    """
    if not any(override.startswith("data.path=") for override in overrides):
        raise UserError("--ply needs a scene, for its cameras. Next: add -s DATA.")
    model = PlyModel.at(ply)
    folder = output or Path(f"{ply.stem}_renders")
    settings = bind(Settings, None, [f"output={folder}", _mode(model), *overrides])
    number = _number(model.path.parent)
    method = ply.stem if number is None else f"ours_{number}"
    return SavedModel(settings, model, folder, method, _notes(model))


def _notes(model: PlyModel) -> tuple[str, ...]:
    files = len(model.files)
    return (f"{model.path.parent}: one model from the files of {files} ranks",) * (files > 1)


def _mode(model: PlyModel) -> str:
    return f"renderer.antialiased={str(model.antialiased).lower()}"


def _number(folder: Path) -> int | None:
    """N of iteration_N."""
    match = re.fullmatch(r"iteration_(\d+)", folder.name)
    return int(match[1]) if match else None
