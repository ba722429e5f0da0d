"""The oracle: projection and blending in plain torch, for every pixel and splat.

Slow and short. Values may be float32 or float64 (for finite differences), as the table's are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from grendel_odin.data.cameras import Camera
from grendel_odin.model.ids import sort_keys
from grendel_odin.model.table import BLOCK_WIDTH, PrimitiveTable
from grendel_odin.render.protocol import (
    COLOR,
    CONIC,
    DEPTH,
    MEAN2D,
    OPACITY,
    Constants,
    Rect,
    Rendering,
    RowGradients,
    Splats,
    SplatSums,
    tile_rows,
)
from grendel_odin.render.reference_projection import box_bounds, box_radii, project_rows

_BLOCK = 32
"""Side of the squares of pixels that are rendered at once: it bounds memory, nothing else."""


@dataclass(frozen=True, slots=True)
class _Block:
    """A square of pixels and the splats that may touch it."""

    window: tuple[slice, slice, slice]
    """Of an image [channels, h, w] of the rectangle."""
    pixels: Tensor
    """[P, 2] centres in the full image."""
    chosen: Tensor
    """[m] int64 splats by rising (depth, key)."""
    inside: Tensor
    """[P, m]: whether the box of the splat holds the pixel."""


@dataclass(frozen=True, slots=True)
class _Saved:
    splats: Splats
    rect: Rect
    background: Tensor


@dataclass(slots=True)
class ReferenceRenderer:
    """Renderer in plain torch; see render.protocol."""

    constants: Constants = field(default_factory=Constants)
    threads: int = 1
    """Torch has its own."""

    @torch.no_grad()
    def project(self, table: PrimitiveTable, camera: Camera, sh_degree: int) -> Splats:
        values, covariance = project_rows(table.values, camera, sh_degree, self.constants)
        radii = box_radii(values, covariance, self.constants)
        low, high = box_bounds(values, radii, self.constants)
        size = torch.tensor([camera.width, camera.height])
        visible = ((radii > 0) & (high > 0) & (low < size)).all(1)
        rows = visible.nonzero().squeeze(1)
        return Splats(values[rows], sort_keys(table.ids[rows]), rows.int(), radii[rows].int())

    def project_backward(
        self,
        table: PrimitiveTable,
        camera: Camera,
        sh_degree: int,
        splats: Splats,
        gradients: Tensor,
        into: RowGradients,
    ) -> None:
        rows = table.values[splats.rows.long()].detach().requires_grad_()
        values, _ = project_rows(rows, camera, sh_degree, self.constants)
        (gained,) = torch.autograd.grad(values, rows, gradients.to(values.dtype))
        columns = BLOCK_WIDTH * into.blocks
        places = torch.searchsorted(into.rows, splats.rows)
        if into.empty:
            into.values.zero_()
        into.empty = False
        into.values[places, :columns] += gained[:, :columns].to(into.values.dtype)

    @torch.no_grad()
    def render(
        self,
        splats: Splats,
        camera: Camera,
        rect: Rect,
        background: Tensor,
        with_depth: bool = False,
    ) -> Rendering:
        saved = _Saved(splats, rect, background.to(splats.values.dtype))
        image = splats.values.new_empty(5, rect.height, rect.width)
        for block in self._blocks(splats, rect):
            pixels = self._blend(splats.values[block.chosen], block, saved.background)
            image[block.window] = pixels.reshape_as(image[block.window])
        return Rendering(image[:3], image[3], image[4] if with_depth else None, saved)

    def render_backward(
        self,
        rendering: Rendering,
        grad_color: Tensor,
        grad_alpha: Tensor | None = None,
        grad_depth: Tensor | None = None,
    ) -> Tensor:
        saved = rendering.saved
        assert isinstance(saved, _Saved)
        values = saved.splats.values
        grad_image = values.new_zeros(5, saved.rect.height, saved.rect.width)
        for channels, grad in ((slice(3), grad_color), (3, grad_alpha), (4, grad_depth)):
            if grad is not None:
                grad_image[channels] = grad
        gradients = torch.zeros_like(values)
        for block in self._blocks(saved.splats, saved.rect):
            leaf = values[block.chosen].detach().requires_grad_()
            pixels = self._blend(leaf, block, saved.background)
            grad_pixels = grad_image[block.window].reshape_as(pixels)
            gradients[block.chosen] += torch.autograd.grad(pixels, leaf, grad_pixels)[0]
        return gradients

    def row_ranges(self, splats: Splats) -> Tensor:
        low, high = box_bounds(splats.values, splats.radii, self.constants)
        return torch.stack([low[:, 1].floor(), high[:, 1].ceil()], 1).clamp(-1e6, 1e6).int()

    def strip_sums(self, rendering: Rendering, grad_color: Tensor, tops: Tensor) -> SplatSums:
        gradients = self.render_backward(rendering, grad_color)
        return SplatSums(torch.ones(len(gradients), dtype=torch.int32), gradients)

    def tile_row_costs(self, rendering: Rendering) -> Tensor:
        return torch.zeros(tile_rows(rendering.alpha.shape[0]), dtype=torch.int64)

    def gather_sums(self, splats: Splats, strips: Sequence[tuple[Tensor, SplatSums]]) -> Tensor:
        gradients = torch.zeros_like(splats.values)
        for positions, sums in strips:
            gradients[positions.long()] += sums.values
        return gradients

    def _blocks(self, splats: Splats, rect: Rect) -> Iterator[_Block]:
        low, high = box_bounds(splats.values, splats.radii, self.constants)
        order = (splats.keys.long() & 0xFFFFFFFF).argsort(stable=True)
        order = order[splats.values[order, DEPTH.start].argsort(stable=True)]
        for top in range(0, rect.height, _BLOCK):
            for left in range(0, rect.width, _BLOCK):
                ys = torch.arange(top, min(top + _BLOCK, rect.height))
                xs = torch.arange(left, min(left + _BLOCK, rect.width))
                y, x = torch.meshgrid(ys + rect.y0, xs + rect.x0, indexing="ij")
                pixels = torch.stack([x.flatten(), y.flatten()], dim=1).to(low.dtype) + 0.5
                touches = ((high >= pixels[0]) & (low <= pixels[-1])).all(1)
                chosen = order[touches[order]]
                inside = (low[chosen] <= pixels[:, None]) & (pixels[:, None] <= high[chosen])
                window = (slice(None), slice(top, top + len(ys)), slice(left, left + len(xs)))
                yield _Block(window, pixels, chosen, inside.all(2))

    def _blend(self, values: Tensor, block: _Block, background: Tensor) -> Tensor:
        """[5, P] colour, alpha and depth of a block's pixels from splats [m, 10], front to back."""
        constants = self.constants
        dx, dy = (block.pixels[:, None] - values[:, MEAN2D]).unbind(2)
        xx, xy, yy = values[:, CONIC].unbind(1)
        power = 0.5 * (xx * dx * dx + yy * dy * dy) + xy * dx * dy
        alpha = values[:, OPACITY.start] * torch.exp(-power)
        alpha = alpha.clamp(max=constants.alpha_max)
        blends = block.inside & (power >= 0) & (alpha >= constants.alpha_min)
        alpha = torch.where(blends, alpha, 0.0)
        # Transmittance never grows, so all that follows the splat that ends a pixel fails, too.
        behind = (1.0 - alpha.detach()).cumprod(1)
        least = constants.transmittance_min
        live = behind > least if constants.stop_inclusive else behind >= least
        alpha = torch.where(live, alpha, 0.0)
        ones = values.new_ones(len(block.pixels), 1)
        transmittance = torch.cat([ones, (1.0 - alpha).cumprod(1)], dim=1)
        weights = alpha * transmittance[:, :-1]
        final = transmittance[:, -1:]
        color = weights @ values[:, COLOR] + final * background
        depth = weights @ values[:, DEPTH]
        return torch.cat([color, 1.0 - final, depth], dim=1).T
