"""Where a run begins: at its first iteration, or at a checkpoint of any number of ranks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from os.path import expanduser
from pathlib import Path
from typing import Any

from grendel_odin.config import UserError, flat, replacing
from grendel_odin.data.scene import Scene, View
from grendel_odin.parallel.balance import CountedCosts
from grendel_odin.parallel.world import World
from grendel_odin.train.checkpoint import (
    FOLDER,
    MANIFEST,
    Manifest,
    complete,
    damage,
    iteration_of,
    read_costs,
    read_manifest,
)
from grendel_odin.train.progress import Progress
from grendel_odin.train.run_folder import MARKER
from grendel_odin.train.settings import AUTO, Settings

WITHOUT_EFFECT = (
    *("output", "data.path", "data.cache_gb", "data.workers", "parallel."),
    *("train.iterations", "train.threads", "train.eval_iterations", "train.save_iterations"),
    *("train.checkpoint", "train.keep_checkpoints", "train.log_every", "train.tensorboard"),
    *("train.quiet", "train.resume", "train.overwrite"),
)
"""Settings that do not change the model, by the beginning of their key."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a run begins; without a checkpoint, at its first iteration."""

    checkpoint: Path | None = None
    manifest: Manifest | None = None
    continues: bool = False
    """Whether it is the run of the folder `output` that goes on."""
    replaces: bool = False
    """Whether that folder holds a run that ended before it left anything of worth."""
    notes: list[str] = field(default_factory=list)

    @property
    def images(self) -> int:
        """Trained on until here."""
        return 0 if self.manifest is None else int(self.manifest.progress["images"])

    def progress(self, iterations: int) -> Progress:
        """Of the run until here, with so many iterations in all."""
        if self.manifest is None:
            return Progress()
        progress = Progress.restored(self.manifest.progress)
        progress.iteration = min(progress.images, iterations)
        progress.saved = progress.saved if self.continues else None
        progress.resumed_at = [*progress.resumed_at, progress.iteration]
        return progress

    def recall(self, costs: CountedCosts, settings: Settings, views: Sequence[View]) -> None:
        """Give balancing its memory back, if it is measured by the same measure."""
        if self.checkpoint is None or self.manifest is None:
            return
        if self.manifest.settings.get("parallel.balance") == settings.parallel.balance.value:
            costs.recall(read_costs(self.checkpoint), views)

    def rewind(self, output: Path) -> None:
        """Take back what the run in `output` did after the checkpoint. Raises UserError."""
        if self.manifest is None or not self.continues:
            return
        try:
            for later in complete(output / FOLDER):
                if iteration_of(later) > self.manifest.iteration:
                    later.rename(_unused(later))
            (output / "summary.json").unlink(missing_ok=True)
            metrics = output / "metrics.jsonl"
            if metrics.is_file():
                lines = list(_until(self.manifest.iteration, metrics.read_bytes()))
                with replacing(metrics) as file:
                    file.writelines(lines)
        except OSError as error:
            raise UserError(f"output={output}: cannot write there: {error.strerror}") from error


def find_start(settings: Settings, world: World) -> Start:
    """The checkpoint that `train.resume` means; nothing on the disk is changed.

    Every rank calls it. Raises UserError if there is none that is whole.
    """
    resume, output = settings.train.resume, Path(settings.output)
    if not resume:
        return Start()
    # What the main rank sees counts: a network's folders may look different elsewhere.
    seen = world.together(lambda: _look(settings) if world.is_main else None)
    paths, replaces = json.loads(world.first_text(json.dumps(seen) if seen else ""))
    problems: list[str] = []
    for path in map(Path, paths):
        problem = world.together(lambda path=path: damage(path, world))  # type: ignore[misc]
        if problem := world.first_text(problem):
            problems.append(problem)
            continue
        continues = path.parent.resolve() == (output / FOLDER).resolve()
        notes = [f"warning: {each}; going back to {path.name}" for each in problems]
        return Start(path, read_manifest(path), continues, notes=notes)
    if problems:
        problems.append(f"train.resume={resume}: no other checkpoint is there; start anew without")
        raise UserError("\n".join(problems))
    note = f"train.resume=auto: no checkpoint in {output}, so training starts at the beginning"
    return Start(replaces=replaces, notes=[note])


def check_start(start: Start, settings: Settings, scene: Scene) -> list[str]:
    """What the run should say before it goes on: settings that are different now, a line each.

    Raises UserError if it cannot go on.
    """
    manifest, total = start.manifest, settings.train.iterations
    if manifest is None:
        return start.notes
    at = manifest.iteration
    if at > total:
        raise UserError(
            f"train.iterations={total} counts all iterations of a run, and {start.checkpoint} has "
            f"{at} of them; give more, or name an earlier checkpoint"
        )
    here, there = scene_identity(scene), manifest.scene
    if here != there:
        raise UserError(
            f"{start.checkpoint} was trained on {there['train']} views and tested on "
            f"{there['test']}; {scene.path} has {here['train']} and {here['test']}, or other "
            "names. Give the data.path, data.images and data.test_every of that run, or start "
            "anew without train.resume"
        )
    old, default = manifest.settings, flat(Settings())
    return start.notes + [
        f"{key}: {json.dumps(old.get(key, default[key]))} until iteration {at}, "
        f"{json.dumps(value)} from here on"
        for key, value in flat(settings).items()
        if value != old.get(key, default[key]) and not key.startswith(WITHOUT_EFFECT)
    ]


def scene_identity(scene: Scene) -> dict[str, Any]:
    """What has to be the same when a run goes on: the names of views, and which of them test."""
    names = [[view.camera.name for view in views] for views in (scene.train, scene.test)]
    digest = hashlib.sha256(json.dumps(names).encode()).hexdigest()
    return {"train": len(names[0]), "test": len(names[1]), "names_sha256": digest}


def _look(settings: Settings) -> tuple[list[str], bool]:
    """Checkpoints that may be meant, the best one first; Start.replaces. Raises UserError."""
    resume, output = settings.train.resume, Path(settings.output)
    path = Path(expanduser(resume))
    if resume == AUTO:
        found = complete(output / FOLDER)
        replaces = not found and _left_nothing(output)
        if (output / MARKER).is_file() and not (found or replaces or settings.train.overwrite):
            raise UserError(
                f"train.resume=auto: the run in {output} has no checkpoint to go on from; name "
                "another folder, or add train.overwrite=true to replace that run"
            )
        return list(map(str, found)), replaces
    if (path / MANIFEST).is_file() or (path.is_dir() and iteration_of(path) >= 0):
        return [str(path)], False
    if found := complete(path if path.name == FOLDER else path / FOLDER):
        return list(map(str, found)), False
    problem = "holds no checkpoint" if path.is_dir() else "is no folder that is there"
    raise UserError(
        f"train.resume={resume} {problem}: name a run that was trained with "
        "train.checkpoint_every=N, one of its checkpoints/iteration_N, or auto"
    )


def _left_nothing(output: Path) -> bool:
    """Whether the run of a folder ended before it had saved a model."""
    saved = (output / "point_cloud").glob("iteration_*/*.ply")
    return not any(saved) and not (output / "summary.json").exists()


def _until(iteration: int, lines: bytes) -> Iterator[bytes]:
    """Lines of metrics.jsonl until an iteration, without that of the end of the run."""
    for line in lines.splitlines(keepends=True):
        try:
            event = json.loads(line)
            if event["event"] != "end" and event["iteration"] <= iteration:
                yield line
        except (ValueError, KeyError, TypeError):  # cut in half when the run was killed
            continue


def _unused(path: Path) -> Path:
    """A name beside a path for what is kept and counts no longer."""
    number = 1
    while (other := path.with_name(f"{path.name}.old{number}")).exists():
        number += 1
    return other
