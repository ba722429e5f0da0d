"""What a renderer is: project at the owner of rows, render at the owner of pixels, both backward.

Legend for shapes: N primitives, M splats (visible rows of one view), A active rows of a unit,
H W pixels of the image, h w pixels of a rectangle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from torch import Tensor

from grendel_odin.data.cameras import Camera
from grendel_odin.model.table import PrimitiveTable

TILE = 16

# Columns of a splat row and of its gradient. Depth is carried for sorting; it has a gradient only
# where depth is rendered.
MEAN2D = slice(0, 2)  # pixels
CONIC = slice(2, 5)  # inverse 2D covariance: xx, xy, yy
OPACITY = slice(5, 6)  # after the anti-aliasing factor
COLOR = slice(6, 9)
DEPTH = slice(9, 10)
SPLAT_WIDTH = 10


class Box(str, Enum):
    """How far a splat reaches."""

    OPACITY = "opacity"  # every pixel with alpha >= 1/255 (gsplat 1.5.3)
    THREE_SIGMA = "three_sigma"  # the square of ceil(3 sigma) (the 3DGS rasterizer)


@dataclass(frozen=True, slots=True)
class Constants:
    """Constants of the image formation, shared by all backends. Defaults: gsplat 1.5.3's."""

    alpha_max: float = 0.999
    alpha_min: float = 1.0 / 255.0
    transmittance_min: float = 1e-4
    """A pixel is finished before the splat that would take T to this value or below."""
    stop_inclusive: bool = True
    """Whether T(1 - alpha) == transmittance_min stops, too (gsplat) or not (3DGS)."""
    low_pass: float = 0.3
    """Added to the diagonal of the 2D covariance, pixels^2."""
    near: float = 0.2
    box: Box = Box.OPACITY
    antialiased: bool = False


INRIA = Constants(alpha_max=0.99, stop_inclusive=False, box=Box.THREE_SIGMA)


@dataclass(frozen=True, slots=True)
class Rect:
    """Pixels [x0, x0 + width) x [y0, y0 + height) of a view."""

    x0: int
    y0: int
    width: int
    height: int

    @staticmethod
    def full(camera: Camera) -> Rect:
        return Rect(0, 0, camera.width, camera.height)


@dataclass(slots=True)
class Splats:
    """Primitives projected into one view: what travels from the owner of rows to that of pixels."""

    values: Tensor
    """[M, 10] float32, columns as above."""
    keys: Tensor
    """[M] int32: 32 mixed bits of the id (read as unsigned); splats are ordered by (depth, key)."""
    rows: Tensor
    """[M] int32: ascending row numbers at the owner."""
    radii: Tensor
    """[M, 2] int32: half extents of the box in pixels, as gsplat counts them; all > 0."""

    def __len__(self) -> int:
        return self.values.shape[0]


@dataclass(slots=True)
class Rendering:
    """Pixels of one rectangle of one view, and what its backward needs."""

    color: Tensor
    """[3, h, w] float32, background included, not clamped."""
    alpha: Tensor
    """[h, w]: 1 - final transmittance."""
    depth: Tensor | None
    """[h, w]: sum of alpha T z (not divided by alpha); None unless asked for."""
    saved: object = field(repr=False, default=None)
    """Owned by the backend."""


@dataclass(slots=True)
class SplatSums:
    """What the pixels of a strip of tile rows add to the gradients of its splats.

    Sums over tile rows, which the owner of the splats adds up from the top of the view to its
    bottom, so that a gradient has the same bits however the view was cut into strips.
    """

    counts: Tensor
    """[M] int32: rows of `values` that belong to each splat, in order."""
    values: Tensor
    """[K, 10] float32; what the columns mean is the backend's business."""


@dataclass(slots=True)
class RowGradients:
    """Gradients of the rows that a unit writes, packed."""

    rows: Tensor
    """[A] int32, ascending."""
    values: Tensor
    """[A, 64] float32, columns as in the table; inactive SH blocks are undefined."""
    blocks: int
    """Blocks of 16 columns that are defined (see model.table.active_blocks)."""
    empty: bool = False
    """Whether `values` is raw memory: the first view to be added fills it."""


class Renderer(Protocol):
    """A backend. Stateless between calls but for scratch memory."""

    constants: Constants
    threads: int
    """Of its kernels; results do not depend on it, and it may be set at any time."""

    def project(self, table: PrimitiveTable, camera: Camera, sh_degree: int) -> Splats:
        """Project all rows into the full view; keep the visible ones (radius > 0)."""

    def project_backward(
        self,
        table: PrimitiveTable,
        camera: Camera,
        sh_degree: int,
        splats: Splats,
        gradients: Tensor,
        into: RowGradients,
    ) -> None:
        """Add the gradient of rows, from gradients [M, 10] of splats, to `into`.

        `into.rows` holds every row of `splats.rows`; rows gain in the order of the calls.
        """

    def render(
        self,
        splats: Splats,
        camera: Camera,
        rect: Rect,
        background: Tensor,
        with_depth: bool = False,
    ) -> Rendering:
        """Render a rectangle; equals the crop of the full image. background: [3]."""

    def render_backward(
        self,
        rendering: Rendering,
        grad_color: Tensor,
        grad_alpha: Tensor | None = None,
        grad_depth: Tensor | None = None,
    ) -> Tensor:
        """[M, 10] gradient of the splats; the rectangle is the whole view."""

    def row_ranges(self, splats: Splats) -> Tensor:
        """[M, 2] int32: first and last pixel row that a splat may touch, not clipped."""

    def strip_sums(self, rendering: Rendering, grad_color: Tensor, tops: Tensor) -> SplatSums:
        """Sums of a strip: a rectangle of whole tile rows, as wide as its view.

        tops: [M] bool, the splats whose first tile row lies in this strip (or that lie in no other
        one); only their tile rows may be added up here.
        """

    def tile_row_costs(self, rendering: Rendering) -> Tensor:
        """[T] int64: what each tile row of a strip took to blend, counted in rows of 16 pixels."""

    def gather_sums(self, splats: Splats, strips: Sequence[tuple[Tensor, SplatSums]]) -> Tensor:
        """[M, 10] gradient of a view's splats from its strips, top to bottom.

        Each strip comes with the positions [m] int32 among `splats` of the splats that it had.
        """


def tile_rows(height: int) -> int:
    """Number of tile rows that cover so many pixel rows."""
    return -(-height // TILE)
