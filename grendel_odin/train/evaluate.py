"""How well the model renders a set of views: PSNR, SSIM and L1 of 8-bit images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from grendel_odin.data.cameras import Camera
from grendel_odin.data.images import ImageStore
from grendel_odin.data.views import View
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.render.losses import psnr, ssim
from grendel_odin.render.protocol import Rect, Renderer

_AHEAD = 4
"""Images that are decoded while earlier views are rendered."""


@dataclass(frozen=True, slots=True)
class Score:
    """One view's rendering against its image."""

    psnr: float
    """dB, from the mean squared error of the whole image; infinite for equal images."""
    ssim: float
    l1: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Means over views, and the views' own scores by image name."""

    psnr: float
    ssim: float
    l1: float
    num_views: int
    per_view: dict[str, Score]


@dataclass(frozen=True, slots=True)
class RenderedView:
    """A view's rendering and image, both uint8 [3, H, W]."""

    view: View
    render: Tensor
    truth: Tensor


def evaluate(
    renderer: Renderer,
    table: PrimitiveTable,
    views: Sequence[View],
    images: ImageStore,
    background: tuple[float, float, float],
    sh_degree: int,
    threads: int,
) -> Evaluation:
    """Render every view and average the views' scores; NaN where there is no view.

    Renders are rounded to 8 bits first, so that figures equal those computed from PNG files.
    """
    rendered = render_views(renderer, table, views, images, background, sh_degree)
    return average(
        {each.view.camera.name: score(each.render, each.truth, threads) for each in rendered}
    )


def average(per_view: dict[str, Score]) -> Evaluation:
    """Plain means over views."""
    scores = list(per_view.values())

    def mean(values: list[float]) -> float:
        return fmean(values) if values else float("nan")

    return Evaluation(
        mean([each.psnr for each in scores]),
        mean([each.ssim for each in scores]),
        mean([each.l1 for each in scores]),
        len(scores),
        per_view,
    )


def render_views(
    renderer: Renderer,
    table: PrimitiveTable,
    views: Sequence[View],
    images: ImageStore,
    background: tuple[float, float, float],
    sh_degree: int,
) -> Iterator[RenderedView]:
    """The views' renderings beside their images, one at a time and in order."""
    for index, view in enumerate(views):
        images.prefetch(views[index : index + _AHEAD])
        image = render_image(renderer, table, view.camera, background, sh_degree)
        yield RenderedView(view, image, images.get(view))


@torch.no_grad()
def render_image(
    renderer: Renderer,
    table: PrimitiveTable,
    camera: Camera,
    background: tuple[float, float, float],
    sh_degree: int,
) -> Tensor:
    """uint8 [3, H, W] image of a camera, rounded as in a PNG file."""
    splats = renderer.project(table, camera, sh_degree)
    rendering = renderer.render(splats, camera, Rect.full(camera), torch.tensor(background))
    return rendering.color.nan_to_num(0.0).clamp(0.0, 1.0).mul(255.0).round().to(torch.uint8)


def score(render: Tensor, truth: Tensor, threads: int) -> Score:
    """Scores of two uint8 images [3, H, W]."""
    x, y = render.float() / 255.0, truth.float() / 255.0
    return Score(psnr(x, y), ssim(x, y, threads), (x - y).abs().mean().item())
