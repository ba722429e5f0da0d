"""Photos to a COLMAP data set by pycolmap, laid out as 3DGS's convert.py leaves it.

SCENE/input holds the photos. SCENE/distorted receives the features and the models as they were
found, SCENE/images and SCENE/sparse/0 the straightened photos and their model.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pycolmap
from PIL import Image

from grendel_odin.config import UserError
from grendel_odin.data.headers import listed, read_header
from grendel_odin.data.names import photos_in

FACTORS = (2, 4, 8)
_FEWEST = 3
_QUALITY = 95
_MODEL_FILES = ("cameras.bin", "images.bin", "points3D.bin")


def convert(scene: Path, camera: str, gpu: bool, skip_matching: bool, resize: bool) -> list[str]:
    """Reconstruct the cameras of a scene's photos; says what was done, a line each.

    Args:
        camera: COLMAP's name of the camera model that all photos share.
        gpu: whether COLMAP may use one.
        skip_matching: take the model in distorted/sparse/0 as it is.
        resize: make images_2, images_4 and images_8, too.

    Raises UserError; what was there before is never written over.
    """
    photos = _check(scene, camera, skip_matching, resize)
    notes = []
    pycolmap.logging.minloglevel = pycolmap.logging.ERROR.value
    if not skip_matching:
        notes += _reconstruct(scene, photos, camera, gpu)
    notes.append(_straighten(scene))
    if resize:
        notes.append(_resize(scene))
    return notes


def _check(scene: Path, camera: str, skip_matching: bool, resize: bool) -> list[str]:
    """Names of the photos. Raises UserError that lists everything that is in the way."""
    folder, problems = scene / "input", list[str]()
    photos = dict(photos_in(folder))
    if not scene.is_dir():
        problems.append(f"{scene}: no such folder; -s names the one that holds input/")
    elif not folder.is_dir():
        problems.append(f"{folder}: no such folder; put the photos there")
    elif len(photos) < _FEWEST:
        problems.append(f"{folder} holds {len(photos)} photos; at least {_FEWEST} are needed")
    headers = [read_header(path) for path in photos.values()]
    problems += [f"{each.path} {each.fault}" for each in headers if each.fault][:20]
    if camera not in pycolmap.CameraModelId.__members__ or camera == "INVALID":
        names = ", ".join(name for name in pycolmap.CameraModelId.__members__ if name != "INVALID")
        problems.append(f"--camera {camera}: no model of COLMAP; one of {names}")
    made = ["images", "sparse", *(f"images_{factor}" for factor in FACTORS if resize)]
    if there := [name for name in made if (scene / name).exists()]:
        problems.append(
            f"{scene} already has {', '.join(there)}; move them away, they are not written over"
        )
    model = scene / "distorted/sparse/0"
    if skip_matching and not all((model / name).is_file() for name in _MODEL_FILES):
        problems.append(
            f"--skip_matching takes the model in {model}, which lacks some of "
            f"{', '.join(_MODEL_FILES)}; leave the flag out"
        )
    if problems:
        raise UserError("\n".join(problems))
    return sorted(photos)


def _reconstruct(scene: Path, photos: list[str], camera: str, gpu: bool) -> list[str]:
    """Features, matches of all pairs, cameras; what is in the database is not done again."""
    work, folder = scene / "distorted", scene / "input"
    work.mkdir(exist_ok=True)
    database, device = work / "database.db", pycolmap.Device.auto if gpu else pycolmap.Device.cpu
    reader, mapper = pycolmap.ImageReaderOptions(), pycolmap.IncrementalPipelineOptions()
    reader.camera_model, mapper.random_seed = camera, 0
    pycolmap.set_random_seed(0)
    print(f"features of {len(photos)} photos", flush=True)
    single = pycolmap.CameraMode.SINGLE
    pycolmap.extract_features(database, folder, photos, single, reader, device=device)
    print(f"matches of {len(photos) * (len(photos) - 1) // 2} pairs", flush=True)
    pycolmap.match_exhaustive(database, device=device)
    print("cameras and points", flush=True)
    with _all_or_nothing(work / "sparse") as part:
        models = pycolmap.incremental_mapping(database, folder, part, mapper)
        best = max(models, key=lambda number: models[number].num_reg_images(), default=None)
        if best is None or models[best].num_reg_images() < _FEWEST:
            raise UserError(
                f"{len(photos)} photos of {folder}, and none or two could be placed: they need "
                "texture, overlap (each thing in three photos or more) and different standpoints; "
                "a simpler --camera helps, too, such as SIMPLE_RADIAL"
            )
        order = [best, *(number for number in models if number != best)]
        for place, number in enumerate(order):
            (part / str(number)).rename(part / f"model_{place}")
        for place in range(len(order)):
            (part / f"model_{place}").rename(part / str(place))
    return _outcome(photos, models[best], len(models))


def _outcome(photos: list[str], model: pycolmap.Reconstruction, models: int) -> list[str]:
    placed = {image.name for image in model.images.values() if image.has_pose}
    lost = [name for name in photos if name not in placed]
    notes = [
        f"{len(placed)} of {len(photos)} photos placed, {model.num_points3D():,} points, "
        f"{model.compute_mean_reprojection_error():.2f} pixels mean error"
    ]
    if lost:
        notes.append(f"not placed: {listed(lost, 20)}")
    if models > 1:
        notes.append(
            f"{models} models were found, which share too little to be one: the largest is used, "
            "the others are in distorted/sparse"
        )
    return notes


def _straighten(scene: Path) -> str:
    """images/ and sparse/0: photos as a pinhole would have taken them."""
    print("straightened photos", flush=True)
    with tempfile.TemporaryDirectory(prefix=".straightened_", dir=scene) as name:
        part, model = Path(name), Path(name) / "model"
        pycolmap.undistort_images(part, scene / "distorted/sparse/0", scene / "input")
        model.mkdir()
        (part / "sparse").rename(model / "0")
        (part / "images").rename(scene / "images")
        model.rename(scene / "sparse")
    return f"{scene}/images and {scene}/sparse/0 are ready to train on"


def _resize(scene: Path) -> str:
    folder = scene / "images"
    for factor in FACTORS:
        with _all_or_nothing(scene / f"images_{factor}") as part:
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                target = part / path.relative_to(folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                with Image.open(path) as image:
                    size = tuple(max(1, round(side / factor)) for side in image.size)
                    image.resize(size, Image.Resampling.LANCZOS).save(target, quality=_QUALITY)
    return f"and smaller ones in {', '.join(f'images_{factor}' for factor in FACTORS)}"


@contextmanager
def _all_or_nothing(path: Path) -> Iterator[Path]:
    """A folder to fill, which takes the place of `path` if the block ends without an error."""
    part = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        part.mkdir()
        yield part
        shutil.rmtree(path, ignore_errors=True)
        part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
