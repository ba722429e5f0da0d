"""Scenes described by transforms.json: Blender's (NeRF-synthetic), nerfstudio's, MatrixCity's."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import numpy as np

from grendel_odin.config import UserError
from grendel_odin.data.matrixcity import root_points
from grendel_odin.data.points_ply import read_points_ply
from grendel_odin.data.transforms_file import Frame, TransformsFile, read_transforms
from grendel_odin.data.transforms_paths import Entry, OutsideError, name_inside
from grendel_odin.data.transforms_shots import Shot, take_shots
from grendel_odin.data.undistort import ColmapLens, straighten
from grendel_odin.data.views import Lens, Model, Points, Sources

_WHOLE, _TRAIN, _TEST, _VAL = (f"transforms{part}.json" for part in ("", "_train", "_test", "_val"))
_FAULTS_SHOWN = 20
_NAMES_SHOWN = 10


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """Frames of a scene with what is known of their use, and where its points lie."""

    entries: list[Entry]
    points: Path | None
    notes: list[str]
    problems: list[str]


def has_transforms(scene: Path) -> bool:
    """Whether a folder holds a scene in one of these formats."""
    return any((scene / name).is_file() for name in (_WHOLE, _TRAIN))


def read_transforms_scene(scene: Path, downscale: int) -> tuple[Model | None, list[str]]:
    """The scene of transforms_train.json and its companion, or else of transforms.json.

    Also returns all problems. Frames whose image or mask is missing are left out, with a note.
    """
    found = _pair(scene) if (scene / _TRAIN).is_file() else _single(scene)
    if found.problems and all(entry.is_test for entry in found.entries):  # the rest would mislead
        return None, _cut(found.problems)
    taken = take_shots(scene, found.entries, downscale)
    problems = found.problems + taken.problems
    points, notes = _no_points(), found.notes + taken.notes
    if found.points is not None:
        try:
            points, more = read_points_ply(found.points)
            notes += [f"{len(points)} points from {found.points.name}", *more]
        except UserError as error:
            problems.append(f"{error}, or take the file out to start from random points")
    if problems:
        return None, _cut(problems)
    return _model(taken.shots, taken.reduced, points, notes), []


def _cut(problems: list[str]) -> list[str]:
    rest = len(problems) - _FAULTS_SHOWN
    return problems[:_FAULTS_SHOWN] + ([f"and {rest} more such problems"] if rest > 0 else [])


def _pair(scene: Path) -> _Found:
    """transforms_train.json, with the views of transforms_test.json or else _val as test views."""
    train, problems = read_transforms(scene / _TRAIN)
    other = next((name for name in (_TEST, _VAL) if (scene / name).is_file()), None)
    tests, more = read_transforms(scene / other) if other else (None, [])
    entries = [Entry(frame, False if other else None) for frame in _frames(train)]
    entries += [Entry(frame, True) for frame in _frames(tests)]
    notes = list[str]()
    points, named = _named_points(scene, train)
    if points is None and not named:
        points, notes = root_points(scene)
    kind = "MatrixCity's" if points and other else "Blender's"
    files = f"{_TRAIN} and {other}" if other else _TRAIN
    split = (
        f": {len(_frames(train))} frames to train, {len(_frames(tests))} to test, as the files "
        "say, whatever data.test_every is"
        if other
        else f": {len(_frames(train))} frames"
    )
    unread = [name for name in (_VAL, _WHOLE) if name != other and (scene / name).is_file()]
    if unread:
        notes.append(f"{' and '.join(unread)} beside them: not read")
    return _Found(
        entries, points, [f"{kind} {files}{split}", *_moved(train), *notes], problems + more + named
    )


def _single(scene: Path) -> _Found:
    """transforms.json, its own lists of files deciding which views test."""
    file, problems = read_transforms(scene / _WHOLE)
    if file is None:
        return _Found([], None, [], problems)
    points, named = _named_points(scene, file)
    notes = [f"nerfstudio's {_WHOLE}: {len(file.frames)} frames", *_moved(file)]
    entries = [Entry(frame, None) for frame in file.frames]
    if file.splits:
        entries, more = _listed_entries(file)
        notes += more
    return _Found(entries, points, notes, problems + named)


def _listed_entries(file: TransformsFile) -> tuple[list[Entry], list[str]]:
    """Frames that train_filenames, and test_filenames or else val_filenames, list."""
    test_key = "test" if file.splits.get("test") else "val"
    tests = set(map(_plain, file.splits.get(test_key, [])))
    train = set(map(_plain, file.splits.get("train", []))) or None
    entries = []
    for frame in file.frames:
        name = _plain(frame.file)
        if name in tests:
            entries.append(Entry(frame, True))
        elif train is None or name in train:
            entries.append(Entry(frame, False))
    testing = sum(bool(entry.is_test) for entry in entries)
    note = (
        f"{len(entries) - testing} frames to train, {testing} to test, as its lists of files say, "
        "whatever data.test_every is"
    )
    unlisted = len(file.frames) - len(entries)
    return entries, [note + (f"; {unlisted} frames in neither are left out" if unlisted else "")]


def _plain(name: str) -> str:
    return name.removeprefix("./")


def _frames(file: TransformsFile | None) -> list[Frame]:
    return file.frames if file else []


def _moved(file: TransformsFile | None) -> list[str]:
    if not (file and file.moved):
        return []
    return [
        f"{file.path.name} was turned or scaled when it was written (applied_transform, "
        "applied_scale): the scene stays in the frame of its poses, which is that of the export"
    ]


def _named_points(scene: Path, file: TransformsFile | None) -> tuple[Path | None, list[str]]:
    """The file that ply_file_path names, if it does."""
    if file is None or file.points is None:
        return None, []
    try:
        return scene / name_inside(scene, file.points, "ply_file_path"), []
    except OutsideError as error:
        return None, [f"{file.path} {error}"]


def _no_points() -> Points:
    zeros = np.zeros((0, 3))
    return Points(zeros, zeros.astype(np.uint8), np.zeros(1, np.int64), np.zeros(0, np.int32))


def _model(shots: list[Shot], reduced: bool, points: Points, notes: list[str]) -> Model:
    """Cameras sorted by name."""
    shots = sorted(shots, key=attrgetter("camera.name"))
    lenses: dict[int, Lens] = {
        index: ColmapLens(shot.lens)
        for index, shot in enumerate(shots)
        if straighten(shot.lens) is not None
    }
    decided = [shot.is_test for shot in shots if shot.is_test is not None]
    sources = Sources(
        images=[shot.image for shot in shots],
        masks=[shot.mask for shot in shots],
        is_test=decided if decided else None,
        reduced=reduced,
    )
    return Model([shot.camera for shot in shots], points, notes, lenses, sources)
