"""How well the model renders a set of views: PSNR, SSIM and L1 of 8-bit images.

Of images with masks, only the included pixels count.
"""

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
from grendel_odin.parallel.hybrid import Hybrid
from grendel_odin.parallel.sharing import Sharing
from grendel_odin.parallel.world import ALONE
from grendel_odin.render.losses import composite, psnr, ssim, ssim_map
from grendel_odin.render.protocol import Rect, Renderer, Splats

_AHEAD = 4
"""Images that are decoded while earlier views are rendered."""


@dataclass(frozen=True, slots=True)
class Score:
    """One view's rendering against its image."""

    psnr: float
    """dB, from the mean squared error of all included pixels; infinite for equal images."""
    ssim: float
    l1: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Means over views, and the views' own scores by image name."""

    psnr: float
    ssim: float
    l1: float
    num_views: int
    """Views with a score."""
    per_view: dict[str, Score]
    left_out: list[str]
    """Views without one: their masks exclude every pixel."""


@dataclass(frozen=True, slots=True)
class RenderedView:
    """A view's rendering and image, both uint8 [3, H, W], and the image's mask, if it has one."""

    view: View
    number: int
    """Its place among the views asked for."""
    render: Tensor
    truth: Tensor
    mask: Tensor | None
    """uint8 [H, W], 0 where pixels are excluded."""


def evaluate(
    renderer: Renderer,
    table: PrimitiveTable,
    views: Sequence[View],
    images: ImageStore,
    background: tuple[float, float, float],
    sh_degree: int,
    threads: int,
    sharing: Sharing | None = None,
) -> Evaluation:
    """Render every view and average the views' scores; NaN where there is no view.

    Renders are rounded to 8 bits first, so that figures equal those computed from PNG files. Over
    several ranks each renders whole views, and all ranks get all scores.
    """
    sharing = sharing or Hybrid(ALONE, renderer)
    rows = torch.zeros(len(views), 4, dtype=torch.float64)
    for each in render_views(renderer, table, views, images, background, sh_degree, sharing):
        found = score(each.render, each.truth, threads, each.mask)
        if found is not None:
            figures = [1.0, found.psnr, found.ssim, found.l1]
            rows[each.number] = torch.tensor(figures, dtype=torch.float64)
    sharing.world.sum_disjoint(rows)
    return average(
        {
            view.camera.name: Score(*figures) if there else None
            for view, (there, *figures) in zip(views, rows.tolist(), strict=True)
        }
    )


def average(scored: dict[str, Score | None]) -> Evaluation:
    """Plain means over the views that have a score."""
    per_view = {name: each for name, each in scored.items() if each is not None}
    scores = list(per_view.values())

    def mean(values: list[float]) -> float:
        return fmean(values) if values else float("nan")

    return Evaluation(
        mean([each.psnr for each in scores]),
        mean([each.ssim for each in scores]),
        mean([each.l1 for each in scores]),
        len(scores),
        per_view,
        [name for name, each in scored.items() if each is None],
    )


def render_views(
    renderer: Renderer,
    table: PrimitiveTable,
    views: Sequence[View],
    images: ImageStore,
    background: tuple[float, float, float],
    sh_degree: int,
    sharing: Sharing,
) -> Iterator[RenderedView]:
    """The views' renderings beside their images, one at a time and in order.

    Over several ranks each gets every so manyth view, and all must take all of theirs.
    """
    own = views[sharing.world.rank :: sharing.world.size]
    images.prefetch(own[:_AHEAD])
    cameras = [view.camera for view in views]
    turns = render_cameras(renderer, table, cameras, background, sh_degree, sharing)
    for done, turn in enumerate(turns, 1):
        for number, image in turn:
            yield RenderedView(views[number], number, image, *images.with_mask(views[number]))
        images.prefetch(own[done : done + _AHEAD])


@torch.no_grad()
def render_cameras(
    renderer: Renderer,
    table: PrimitiveTable,
    cameras: Sequence[Camera],
    background: tuple[float, float, float],
    sh_degree: int,
    sharing: Sharing,
) -> Iterator[list[tuple[int, Tensor]]]:
    """uint8 [3, H, W] images of cameras with their numbers, rounded as in PNG files.

    In each turn every rank gets at most one, the next one of all by its rank.
    """
    ranks = sharing.world.size
    for start in range(0, len(cameras), ranks):
        group = cameras[start : start + ranks]
        sharing.plan_whole_views(group)
        splats = {
            view: renderer.project(table, group[view], sh_degree) for view in sharing.views_here()
        }
        yield [
            (start + share.strip.view, _as_png(renderer, share.splats, share.camera, background))
            for share in sharing.send(group, splats)
        ]


def _as_png(
    renderer: Renderer, splats: Splats, camera: Camera, background: tuple[float, float, float]
) -> Tensor:
    rendering = renderer.render(splats, camera, Rect.full(camera), torch.tensor(background))
    return rendering.color.nan_to_num(0.0).clamp(0.0, 1.0).mul(255.0).round().to(torch.uint8)


def score(render: Tensor, truth: Tensor, threads: int, mask: Tensor | None = None) -> Score | None:
    """Scores of two uint8 images [3, H, W]; None if the mask [H, W] excludes every pixel.

    At excluded pixels the render counts as right for the windows of SSIM that reach them.
    """
    x, y = render.float() / 255.0, truth.float() / 255.0
    if mask is None or bool(mask.all()):
        return Score(psnr(x, y), ssim(x, y, threads), (x - y).abs().mean().item())
    used = mask != 0
    if not used.any():
        return None
    similarity = ssim_map(composite(x, y, mask), y)[:, used].mean().item()
    x, y = x[:, used], y[:, used]
    return Score(psnr(x, y), similarity, (x - y).abs().mean().item())
