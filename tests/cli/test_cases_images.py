"""Shared data sets about images and masks, trained on as a user would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import train as entry_point
from grendel_odin.data.images import ImageStore
from grendel_odin.data.scene import Scene, load_scene
from grendel_odin.data.settings import DataSettings
from tests.cases import case
from tests.launch import ROOT, call

BLACK, WHITE = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
CONTROL = "00-plain"


def load(name: str, **more: Any) -> Scene:
    return load_scene(DataSettings(path=str(case(name)), **more))


def greys(scene: Scene, background: tuple[float, float, float] = BLACK) -> list[float]:
    """Mean of each decoded image in 0..1, in the order of names."""
    store = ImageStore(scene.views, background, 10**8, 1)
    means = [store.get(view).float().mean().item() / 255 for view in scene.views]
    store.close()
    return means


def train(name: str, output: Path, *overrides: str) -> tuple[str, dict[str, Any]]:
    """Its log and its summary."""
    done = call(
        *(entry_point.main, "-c", str(ROOT / "configs/3dgs.yaml"), f"data.path={case(name)}"),
        *(f"output={output}", "train.threads=1", "train.iterations=30", *overrides),
    )
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads((output / "summary.json").read_text())
    return (output / "logs" / "rank_0000.log").read_text(), summary


@pytest.mark.parametrize(
    "name", ["05-mixed-resolutions", "10-rgba-soft-alpha", "11-image-modes", "21-odd-size-pyramid"]
)
def test_cases_train_in_batches(name: str, tmp_path: Path) -> None:
    log, summary = train(name, tmp_path / "run", "train.batch_size=4", "train.iterations=40")
    assert summary["status"] == "complete" and summary["num_test_views"] == 2
    assert summary["psnr"] > summary["initial_psnr"]
    assert "images: " in log and "once decoded" in log and "images decoded" in log


def test_every_mode_is_as_bright_as_the_control() -> None:
    names = [view.camera.name for view in load("11-image-modes").views]
    for name, found, plain in zip(
        names, greys(load("11-image-modes")), greys(load(CONTROL)), strict=True
    ):
        assert abs(found - plain) < 0.08, name


def test_hidden_colours_never_show() -> None:
    """Magenta lies under alpha 0; on grey it would raise red and blue above green."""
    scene = load("10-rgba-soft-alpha")
    for background in (BLACK, WHITE):
        store = ImageStore(scene.views, background, 10**8, 1)
        for view in scene.views:
            corner = store.get(view)[:, :2, :2].float().mean(dim=(1, 2)) / 255
            assert np.allclose(corner.numpy(), background, atol=0.02), view.camera.name
        store.close()
    dark, bright = greys(scene), greys(scene, WHITE)
    for black, white, plain in zip(dark, bright, greys(load(CONTROL)), strict=True):
        assert black < plain < white


def test_alpha_and_the_background_are_said(tmp_path: Path) -> None:
    log, _ = train("10-rgba-soft-alpha", tmp_path / "run", "renderer.background=white")
    assert "10 of 10 images have transparency" in log
    assert "transparent pixels show rgb(255, 255, 255)" in log


@pytest.mark.parametrize(("downscale", "size"), [(1, (81, 61)), (2, (40, 30)), (4, (21, 16))])
def test_intrinsics_follow_the_files_of_a_pyramid(downscale: int, size: tuple[int, int]) -> None:
    plain = load("21-odd-size-pyramid").views[0].camera
    for view in load("21-odd-size-pyramid", downscale=downscale).views:
        camera = view.camera
        assert (camera.width, camera.height) == size
        assert np.allclose(camera.K[0], plain.K[0] * size[0] / 81)
        assert np.allclose(camera.K[1], plain.K[1] * size[1] / 61)


def test_three_sizes_in_one_set() -> None:
    scene = load("05-mixed-resolutions")
    assert {(v.camera.width, v.camera.height) for v in scene.views} == {
        (80, 60),
        (60, 80),
        (61, 45),
    }
    assert scene.notes[0] == "images: 4 of 80x60, 3 of 60x80, 3 of 61x45"


def test_masks_of_both_kinds_are_found() -> None:
    scene = load("26-masks")
    assert sum(view.mask_path is not None for view in scene.views) == 9
    [note] = [note for note in scene.notes if "mask" in note]
    assert note.startswith("9 of 10") and note.endswith("view_03.jpg")
    store = ImageStore(scene.views, BLACK, 10**8, 1)
    masks = {view.camera.name: store.mask(view) for view in scene.views}
    store.close()
    assert masks["view_03.jpg"] is None
    black, resized, usual = (masks[f"view_0{i}.jpg"] for i in (5, 4, 0))
    assert black is not None and not black.any()
    assert resized is not None and usual is not None and resized.shape == (60, 80)
    assert (resized == usual).float().mean() > 0.97


def test_masks_serve_in_loss_and_metrics(tmp_path: Path) -> None:
    # Every fifth view is a test view: the first, and the one whose mask is black.
    log, summary = train("26-masks", tmp_path / "run", "data.test_every=5", "train.batch_size=2")
    assert "9 of 10 images have a mask" in log
    assert "fully masked: view_05.jpg" in log
    assert summary["num_test_views"] == 1 and summary["psnr"] > summary["initial_psnr"]
    ignored, _ = train("26-masks", tmp_path / "whole", "data.test_every=5", "data.masks=people")
    assert "data.masks=people, but" in ignored and "fully masked" not in ignored


def test_three_images(tmp_path: Path) -> None:
    _, summary = train("28-three-images", tmp_path / "run")
    assert summary["status"] == "complete"
    _, summary = train("28-three-images", tmp_path / "all", "data.test_every=0")
    assert summary["num_test_views"] == 0 and summary["psnr"] is None
