"""Pictures, films, tables, camera paths and LPIPS."""

from __future__ import annotations

import io
import pickle
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from grendel_odin.config import UserError
from grendel_odin.data.cameras import Camera
from grendel_odin.report.lpips import (
    HOW_TO_INSTALL,
    WEIGHTS_VARIABLE,
    Lpips,
    Net,
    find_lpips,
    read_lpips,
)
from grendel_odin.report.pictures import Row, heat_map, read_png, write_png, write_side_by_side
from grendel_odin.report.table import score_table, text_table
from grendel_odin.report.video import write_video
from grendel_odin.train.paths import PathKind, camera_path
from tests.scenes import random_camera

NO_POINTS = np.zeros((0, 3))


def random_image(seed: int, height: int = 48, width: int = 64) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (3, height, width), generator=draw, dtype=torch.uint8)


# Pictures


def test_png_round_trip(tmp_path: Path) -> None:
    image = random_image(0)
    write_png(tmp_path / "deep" / "folder" / "a.png", image)
    assert torch.equal(read_png(tmp_path / "deep" / "folder" / "a.png"), image)


def test_heat_map_runs_from_black_to_white() -> None:
    truth = torch.zeros(3, 1, 3, dtype=torch.uint8)
    render = truth.clone()
    render[:, 0, 1], render[:, 0, 2] = 20, 200
    colors = heat_map(truth, render)[0].astype(int)
    assert colors[0].tolist() == [0, 0, 0]
    assert 0 < colors[1].sum() < 765
    assert colors[2].tolist() == [255, 255, 255]


def test_side_by_side_shows_images_of_any_size(tmp_path: Path) -> None:
    sizes = [(48, 64), (900, 1200), (64, 48)]
    images = [random_image(index, *size) for index, size in enumerate(sizes)]
    rows = [Row("vue-\u00e9t\u00e9-\u590f.png", 31.5, image, image) for image in images]
    write_side_by_side(tmp_path / "out" / "picture.png", rows)
    with Image.open(tmp_path / "out" / "picture.png") as picture:
        width, height = picture.size
        pixels = np.asarray(picture)
    assert width == 3 * 480 + 2 * 4
    assert height == 16 + 3 * 16 + 48 + 360 + 64
    assert np.array_equal(pixels[32:80, :64], images[0].permute(1, 2, 0).numpy())
    assert np.array_equal(pixels[32:80, 68:132], images[0].permute(1, 2, 0).numpy())
    assert not pixels[32:80, 136:200].any()  # equal images: no error


# Films


@pytest.mark.parametrize("installed", [True, False])
def test_film_has_all_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    if installed and not find_spec("imageio_ffmpeg"):
        pytest.skip("imageio-ffmpeg is not installed: no MP4")
    if not installed:
        monkeypatch.setattr("grendel_odin.report.video.find_spec", lambda _: None)
    frames = [random_image(seed, 49, 65) for seed in range(5)]
    path = write_video(tmp_path / "videos" / "film_1.5", iter(frames), fps=25)
    assert path == tmp_path / "videos" / ("film_1.5.mp4" if installed else "film_1.5.gif")
    if installed:
        assert path.read_bytes()[4:8] == b"ftyp"
    else:
        with Image.open(path) as film:
            assert (film.n_frames, film.size) == (5, (65, 49))  # type: ignore[attr-defined]
            assert film.info["duration"] == 40


# Tables


def test_columns_line_up() -> None:
    lines = text_table(["view", "PSNR"], [["a.png", "9.50"], ["long name.png", "31.20"]]).split(
        "\n"
    )
    assert lines[2].endswith(" 9.50")
    assert len({len(line) for line in lines}) == 1


def test_score_table_shows_the_worst_views_and_the_mean_of_all() -> None:
    psnr = {f"{index:02d}.png": 20.0 + index for index in range(20)}
    table = score_table("test views", {"SSIM": dict.fromkeys(psnr, 0.9), "PSNR": psnr}, 3)
    assert "02.png" in table
    assert "03.png" not in table
    assert "(17 better views)" in table
    assert table.split("\n")[-1].split() == ["mean", "of", "20", "29.50", "0.9000"]


# Camera paths


def ring(count: int, radius: float = 3.0, height: float = 2.0) -> list[Camera]:
    """Cameras on a level circle around the z axis that look at the origin."""
    cameras = []
    for angle in np.linspace(0, 2 * np.pi, count, endpoint=False):
        center = np.array([radius * np.cos(angle), radius * np.sin(angle), height])
        forward = -center / np.linalg.norm(center)
        right = np.cross(forward, [0.0, 0.0, 1.0])
        right /= np.linalg.norm(right)
        pose = np.eye(4)
        pose[:3, :3] = [right, np.cross(forward, right), forward]
        pose[:3, 3] = -pose[:3, :3] @ center
        cameras.append(Camera("x.png", 64, 48, np.diag([50.0, 50.0, 1.0]), pose))
    return cameras


@pytest.mark.parametrize("kind", list(PathKind))
@pytest.mark.parametrize("count", [1, 2, 3, 12])
@pytest.mark.parametrize("frames", [1, 2, 50])
def test_paths_are_rigid_cameras(kind: PathKind, count: int, frames: int) -> None:
    path = camera_path(
        kind, [random_camera(64, 48, seed) for seed in range(count)], NO_POINTS, frames
    )
    assert len(path) == frames
    for camera in path:
        rotation = camera.world_to_camera[:3, :3]
        assert np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-9)
        assert np.linalg.det(rotation) == pytest.approx(1.0)
        assert (camera.width, camera.height) == (64, 48)


def test_ellipse_gives_a_ring_back() -> None:
    path = camera_path(PathKind.ELLIPSE, ring(12), NO_POINTS, 40)
    centers = np.stack([camera.center for camera in path])
    assert np.allclose(np.linalg.norm(centers[:, :2], axis=1), 3.0)
    assert np.allclose(centers[:, 2], 2.0)
    for camera in path:
        seen = camera.world_to_camera[:3] @ [0.0, 0.0, 0.0, 1.0]
        assert np.allclose(seen[:2] / seen[2], 0.0, atol=0.02)  # the origin is in the middle
        assert seen[2] > 0
        assert camera.world_to_camera[1, 2] < 0  # upright: the world's up is the image's up


def test_interpolation_passes_through_the_ends_and_moves_evenly() -> None:
    cameras = ring(12)
    path = camera_path(PathKind.INTERP, cameras, NO_POINTS, 120)
    for here, there in ((path[0], cameras[0]), (path[-1], cameras[-1])):
        assert np.allclose(here.world_to_camera, there.world_to_camera, atol=1e-6)
    centers = np.stack([camera.center for camera in path])
    assert np.allclose(np.linalg.norm(centers[:, :2], axis=1), 3.0, atol=0.1)
    steps = np.linalg.norm(np.diff(centers, axis=0), axis=1)
    assert steps.max() < 1.6 * np.median(steps)


def test_cameras_that_share_a_place_still_make_a_path() -> None:
    camera = ring(4)[0]
    for kind in PathKind:
        path = camera_path(kind, [camera] * 5, NO_POINTS, 7)
        assert all(np.isfinite(each.world_to_camera).all() for each in path)


# LPIPS


def lpips_or_skip(net: Net) -> Lpips:
    lpips = find_lpips(net)
    if lpips is None:
        pytest.skip(HOW_TO_INSTALL)
    return lpips


@pytest.mark.parametrize("net", list(Net))
def test_lpips_is_zero_for_equal_images_and_grows_with_distortion(net: Net) -> None:
    lpips = lpips_or_skip(net)
    x = torch.nn.functional.interpolate(random_image(3, 8, 8)[None] / 255.0, (64, 64))[0]
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(4))
    noisy = [lpips(x, (x + level * noise).clamp(0, 1)) for level in (0.02, 0.1, 0.3)]
    assert lpips(x, x) == 0.0
    assert 0.0 < noisy[0] < noisy[1] < noisy[2] < 2.0
    assert lpips(x, 1 - x) == pytest.approx(lpips(1 - x, x))
    assert net.value in lpips.convention


def random_parameters(net: Net) -> dict[str, object]:
    """Parameters of the right names and shapes, small, for tests without weights."""
    draw = np.random.default_rng(0)
    shapes = {
        Net.VGG16: [64, 64, 128, 128, 256, 256, 256, *[512] * 6],
        Net.ALEXNET: [64, 192, 384, 256, 256],
    }[net]
    sides = {Net.VGG16: [3] * 13, Net.ALEXNET: [11, 5, 3, 3, 3]}[net]
    ends = {Net.VGG16: [64, 128, 256, 512, 512], Net.ALEXNET: shapes}[net]
    convolutions = {
        f"Conv_{i}": {
            "kernel": (draw.normal(size=(k, k, a, b)) * (2 / (k * k * a)) ** 0.5).astype("f4"),
            "bias": np.zeros(b, "f4"),
        }
        for i, (k, a, b) in enumerate(zip(sides, [3, *shapes], shapes, strict=False))
    }
    linear = {
        f"NetLinLayer_{i}": {"Conv_0": {"kernel": draw.random((1, 1, a, 1)).astype("f4") / a}}
        for i, a in enumerate(ends)
    }
    return {{Net.VGG16: "VGG16_0", Net.ALEXNET: "AlexNet_0"}[net]: convolutions, **linear}


@pytest.mark.parametrize("net", list(Net))
def test_lpips_of_a_folder_of_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, net: Net
) -> None:
    text = pickle.dumps(random_parameters(net), protocol=3)
    # The name that numpy 1 pickled under, as in the published files.
    text = text.replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")
    (tmp_path / f"{net.value}.ckpt").write_bytes(text)
    monkeypatch.setenv(WEIGHTS_VARIABLE, str(tmp_path))
    lpips = lpips_or_skip(net)
    x = random_image(5, 64, 64) / 255.0
    assert lpips(x, x) == 0.0
    assert 0.0 < lpips(x, (x + 0.1).clamp(0, 1)) < lpips(x, 1 - x)
    assert np.isnan(lpips(x[:, :8], x[:, :8]))


def test_missing_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WEIGHTS_VARIABLE, str(tmp_path))
    with pytest.raises(UserError, match=r"vgg16\.ckpt"):
        find_lpips()
    monkeypatch.delenv(WEIGHTS_VARIABLE)
    monkeypatch.setattr("grendel_odin.report.lpips.find_spec", lambda _: None)
    monkeypatch.chdir(tmp_path)
    assert find_lpips() is None


class Evil:
    """Unpickling one would run code."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("owned",))


@pytest.mark.parametrize("payload", [Evil(), [1, 2], {"a": io.BytesIO()}, {"a": np.float64(1)}])
def test_code_in_a_weights_file_does_not_run(
    tmp_path: Path, payload: object, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "vgg16.ckpt"
    path.write_bytes(pickle.dumps(payload, protocol=3))
    with pytest.raises(UserError, match=r"vgg16\.ckpt: not the LPIPS weights"):
        read_lpips(path, Net.VGG16)
    assert "owned" not in capsys.readouterr().out
