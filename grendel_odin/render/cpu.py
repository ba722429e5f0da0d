"""The C++ backend: deterministic, and the default on a machine without a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from grendel_odin import _kernels
from grendel_odin.data.cameras import Camera
from grendel_odin.model.table import PrimitiveTable, active_blocks
from grendel_odin.render.protocol import (
    SPLAT_WIDTH,
    Box,
    Constants,
    Rect,
    Rendering,
    RowGradients,
    Splats,
    SplatSums,
    tile_rows,
)


class _Lease:
    """Scratch memory of one rendering; the next one has it once this rendering is dropped."""

    def __init__(self, splats: Splats, idle: list[_kernels.RenderState]) -> None:
        self.splats = splats
        self.state = idle.pop() if idle else _kernels.RenderState()
        self._idle = idle

    def __del__(self) -> None:
        self._idle.append(self.state)


class CpuRenderer:
    """Renderer protocol over csrc/: float32, the same bits at any thread count."""

    def __init__(self, constants: Constants, threads: int) -> None:
        self.constants = constants
        self.threads = threads
        self._kernel_constants = _kernels.Constants(
            alpha_max=constants.alpha_max,
            alpha_min=constants.alpha_min,
            transmittance_min=_stop_threshold(constants),
            low_pass=constants.low_pass,
            near=constants.near,
            box=int(constants.box is Box.THREE_SIGMA),
            antialiased=constants.antialiased,
        )
        self._scratch = _kernels.ProjectScratch()
        self._idle_states: list[_kernels.RenderState] = []

    def project(self, table: PrimitiveTable, camera: Camera, sh_degree: int) -> Splats:
        """See Renderer.project."""
        packed = _pack(camera)
        count = _kernels.project_count(
            self._scratch, table.values, table.ids, packed, self._kernel_constants, self.threads
        )
        splats = Splats(
            values=torch.empty(count, SPLAT_WIDTH),
            keys=torch.empty(count, dtype=torch.int32),
            rows=torch.empty(count, dtype=torch.int32),
            radii=torch.empty(count, 2, dtype=torch.int32),
        )
        _kernels.project_emit(
            self._scratch,
            table.values,
            packed,
            sh_degree,
            splats.values,
            splats.keys,
            splats.rows,
            splats.radii,
            self.threads,
        )
        return splats

    def project_backward(
        self,
        table: PrimitiveTable,
        camera: Camera,
        sh_degree: int,
        splats: Splats,
        gradients: Tensor,
        into: RowGradients,
    ) -> None:
        """See Renderer.project_backward."""
        if into.blocks < active_blocks(sh_degree):
            raise ValueError(f"{into.blocks} blocks cannot hold SH degree {sh_degree}")
        whole = into.empty and len(into.rows) == len(splats)
        if into.empty and not whole:
            into.values.zero_()
        into.empty = False
        _kernels.project_backward(
            table.values,
            _pack(camera),
            self._kernel_constants,
            sh_degree,
            splats.values,
            splats.rows,
            gradients,
            into.rows,
            not whole,
            into.values,
            self.threads,
        )

    def render(
        self,
        splats: Splats,
        camera: Camera,
        rect: Rect,
        background: Tensor,
        with_depth: bool = False,
    ) -> Rendering:
        """See Renderer.render."""
        lease = _Lease(splats, self._idle_states)
        size = (rect.height, rect.width)
        rendering = Rendering(
            color=torch.empty(3, *size),
            alpha=torch.empty(size),
            depth=torch.empty(size) if with_depth else None,
        )
        _kernels.bin(
            lease.state,
            splats.values,
            splats.keys,
            camera.height,
            rect.x0,
            rect.y0,
            rect.width,
            rect.height,
            self._kernel_constants,
            self.threads,
        )
        _kernels.blend(
            lease.state,
            self._kernel_constants,
            background,
            rendering.color,
            rendering.alpha,
            rendering.depth,
            self.threads,
        )
        rendering.saved = lease
        return rendering

    def render_backward(
        self,
        rendering: Rendering,
        grad_color: Tensor,
        grad_alpha: Tensor | None = None,
        grad_depth: Tensor | None = None,
    ) -> Tensor:
        """See Renderer.render_backward."""
        lease = self._blend_backward(rendering, grad_color, grad_alpha, grad_depth)
        gradients = torch.empty_like(lease.splats.values)
        _kernels.fold(lease.state, lease.splats.values, gradients, self.threads)
        return gradients

    def row_ranges(self, splats: Splats) -> Tensor:
        """See Renderer.row_ranges."""
        ranges = torch.empty(len(splats), 2, dtype=torch.int32)
        _kernels.row_ranges(splats.values, self._kernel_constants, ranges, self.threads)
        return ranges

    def strip_sums(self, rendering: Rendering, grad_color: Tensor, tops: Tensor) -> SplatSums:
        """See Renderer.strip_sums."""
        lease = self._blend_backward(rendering, grad_color, None, None)
        counts = torch.empty(len(lease.splats), dtype=torch.int32)
        total = _kernels.count_sums(lease.state, tops.byte(), counts)
        values = torch.empty(total, SPLAT_WIDTH)
        _kernels.pack_sums(lease.state, counts, values)
        return SplatSums(counts, values)

    def tile_row_costs(self, rendering: Rendering) -> Tensor:
        """See Renderer.tile_row_costs."""
        lease = rendering.saved
        assert isinstance(lease, _Lease)
        costs = torch.empty(tile_rows(rendering.alpha.shape[0]), dtype=torch.int64)
        _kernels.tile_row_costs(lease.state, costs)
        return costs

    def gather_sums(self, splats: Splats, strips: Sequence[tuple[Tensor, SplatSums]]) -> Tensor:
        """See Renderer.gather_sums."""
        totals = torch.zeros_like(splats.values)
        begun = torch.zeros(len(splats), dtype=torch.uint8)
        for positions, sums in strips:
            _kernels.add_sums(positions, sums.counts, sums.values, begun, totals)
        gradients = torch.empty_like(totals)
        _kernels.finish(totals, splats.values, gradients, self.threads)
        return gradients

    def _blend_backward(
        self,
        rendering: Rendering,
        grad_color: Tensor,
        grad_alpha: Tensor | None,
        grad_depth: Tensor | None,
    ) -> _Lease:
        """Leaves the sums of tile rows in the state of the rendering."""
        lease = rendering.saved
        assert isinstance(lease, _Lease)
        _kernels.blend_backward(
            lease.state,
            self._kernel_constants,
            rendering.color,
            rendering.depth if grad_depth is not None else None,
            grad_color,
            grad_alpha,
            grad_depth,
            self.threads,
        )
        return lease


def _stop_threshold(constants: Constants) -> float:
    """The kernels stop at T(1 - alpha) <= threshold; a strict test is the next float below."""
    threshold = np.float32(constants.transmittance_min)
    if not constants.stop_inclusive:
        threshold = np.nextafter(threshold, np.float32(0))
    return float(threshold)


def _pack(camera: Camera) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The layout that csrc/view.h reads."""
    k = camera.K
    return np.concatenate(
        [
            camera.world_to_camera[:3, :3].ravel(),
            camera.world_to_camera[:3, 3],
            camera.center,
            [k[0, 0], k[1, 1], k[0, 2], k[1, 2], camera.width, camera.height],
        ]
    )
