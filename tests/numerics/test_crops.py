"""Principal points anywhere: a crop renders as the crop of the whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from grendel_odin.data.cameras import Camera
from grendel_odin.render.cpu import CpuRenderer
from grendel_odin.render.protocol import Constants, Rect, Rendering, RowGradients
from tests.scenes import random_camera, random_table

WIDTH, HEIGHT = 96, 80
BACKGROUND = torch.tensor([0.2, 0.5, 0.7])


def cropped(camera: Camera, x0: int, y0: int, width: int, height: int) -> Camera:
    K = camera.K.copy()
    K[:2, 2] -= (x0, y0)
    return replace(camera, K=K, width=width, height=height)


def rendered(camera: Camera, seed: int) -> tuple[Rendering, RowGradients]:
    """The image, and the gradients of its sum."""
    table = random_table(200, seed)
    table.field("scales")[:] -= 1.0
    renderer = CpuRenderer(Constants(), 2)
    splats = renderer.project(table, camera, 3)
    image = renderer.render(splats, camera, Rect.full(camera), BACKGROUND)
    gradients = renderer.render_backward(image, torch.ones_like(image.color))
    into = RowGradients(splats.rows, torch.zeros(len(splats), 64), 4)
    renderer.project_backward(table, camera, 3, splats, gradients, into)
    return image, into


@pytest.mark.parametrize("corner", [(0, 0), (60, 0), (0, 52), (60, 52), (70, 60)])
@pytest.mark.parametrize("seed", range(2))
def test_a_crop_renders_as_the_crop_of_the_whole(corner: tuple[int, int], seed: int) -> None:
    """Corner crops leave the principal point outside. What differs is the Jacobian of splats whose
    middle lies well outside of the crop, where it is clamped at the crop's own border."""
    camera = random_camera(WIDTH, HEIGHT, seed)
    x0, y0 = corner
    width, height = min(36, WIDTH - x0), min(28, HEIGHT - y0)
    whole, _ = rendered(camera, seed)
    part, gradients = rendered(cropped(camera, x0, y0, width, height), seed)
    expected = whole.color[:, y0 : y0 + height, x0 : x0 + width]
    assert (part.color - expected).abs().mean() < 2e-3
    assert gradients.values.isfinite().all()


def test_a_view_that_sees_nothing_shows_the_background_and_has_no_gradient() -> None:
    camera = random_camera(WIDTH, HEIGHT, 0)
    away = cropped(camera, 10_000, -20_000, 40, 30)
    image, gradients = rendered(away, 0)
    assert torch.equal(image.color, BACKGROUND[:, None, None].expand(3, 30, 40))
    assert not gradients.values.any()
