"""Which rows may be visible after one more step of Adam, before its gradient is known.

A row that `VisibilityBound` does not flag has radius 0 in the view, whatever the gradient of the
step is, and also if the row takes no step. The proof, for one row and one view:

**A step of Adam is bounded** (Kingma and Ba 2015). With moments m, v before the step, gradient g,
m' = b1 m + (1 - b1) g and v' = b2 v + (1 - b2) g^2, an element moves by

    lr c |m'| / (sqrt(v') + e),    c = sqrt(1 - b2^t) / (1 - b1^t),    e = eps sqrt(1 - b2^t)

in step t of the dense form; c = 1 and e = eps in the selective one, which corrects no bias.
1. (sqrt(v') + e)^2 >= v' + e^2. The kernel sets v' < 2^-120 to zero; then the left side is e^2,
   which is more than v' + e^2 - 2^-120. So with f = e^2 - 2^-120 the denominator is at least
   sqrt(b2 v + f + (1 - b2) g^2) in both cases. Where f < 2^-120 nothing is claimed: infinity.
2. m' = [b1 m / sqrt(b2 v + f)] sqrt(b2 v + f) + [(1 - b1) / sqrt(1 - b2)] sqrt(1 - b2) g is an
   inner product; by Cauchy and Schwarz |m'| is at most that denominator times
   sqrt(b1^2 m^2 / (b2 v + f) + (1 - b1)^2 / (1 - b2)). Hence, for every g,

    |step| <= lr c sqrt(b1^2 m^2 / (b2 v + f) + (1 - b1)^2 / (1 - b2)).

   It is reached by g = (1 - b1) b2 v / (b1 (1 - b2) m). A gradient of 0 is one of these g, so a
   dense step of a row that was not seen is within it.
c is taken as it is. It is at most 1 at all t exactly if 1 - b2 <= (1 - b1)^2, which powers of the
betas inherit; at (0.9, 0.9), say, it starts at 3.2.

**Without a look at the moments.** Let h^2 = (1 - b1)^2 / ((1 - b2) (1 - b1^2 / b2)) and
F = 2^-120 / (1 - b2). If m^2 <= h^2 (v + F) before a step, then the inequality of 2 with F for f
gives m'^2 <= h^2 (v' + b2 F), and setting v' < 2^-120 to zero costs less than F - b2 F: so
m'^2 <= h^2 (v' + F). Moments start at zero; rows that skip a step keep theirs. Hence with one pair
of betas it holds for ever, and where F <= e^2 no step is longer than lr c h: 7.27 lr at
(0.9, 0.999). (h^2 is taken 2^-9 larger: each step then has room for its roundings.) Moments of
other betas are checked once, by `within_history`.

**Visible rows lie on the inner side of five planes.** Let x, y, z be a mean in camera space, s the
largest scale, and W the spectral norm of the camera's rotation (1). If the row is visible:
3. z >= near > 0.
4. Right side: u - r < w with u = fx x / z + cx, image width w and r = ceil(k sqrt(S)) the half
   width of the box. S is the variance along u: |first row of J|^2 (W s)^2 + low_pass at most,
   whatever the rotation of the row, and |first row of J|^2 = (fx / z)^2 (1 + X^2), X being x / z
   clamped to [low, high] (Zwicker et al. 2002; clamp of gsplat 1.5.3). k <= 3.33 whatever the
   opacity and the factor of anti-aliasing. With sqrt(a + b) <= sqrt(a) + sqrt(b) and
   ceil(a) < a + 1, times z / fx > 0:

    x - T z < k sqrt(1 + X^2) W s,    T = (w - cx + k sqrt(low_pass) + 1) / fx.

   Where x / z <= T this holds with any X, so X counts only for x / z > T: it lies between
   min(T, high) and high. The other three sides are alike.
5. Box of the 3DGS rasterizer (Kerbl et al. 2023): r = ceil(3 sqrt(l)) on both axes, with l at most
   the largest eigenvalue + sqrt(0.1). J = diag(fx, fy) / z [I | -(X, Y)], so the eigenvalue is at
   most (max(fx, fy) / z)^2 (1 + X^2 + Y^2) (W s)^2 + low_pass. Its sides lie on whole tiles.

**The step against the planes.** A plane is n . p + d + a s >= 0 in world space: linear in the mean
p, so a step that moves element j by up to b_j adds up to sum |n_j| b_j, and s grows to
max exp(log s_j + b_j) at most. A row is flagged if

    n . p + d + sum |n_j| b_j + a max exp(log s_j + b_j) >= 0    for all five planes.

It is no test of a sphere against the frustum: with |X| up to the clamp the footprint of a row off
the axis is longer than its sphere.

**Rounding** (unit 2^-24). The step: 2^-16 of it for the roundings of its factors, 2^-20 |m| in
b1 |m|. Stored mean, camera transform, u and our own n . p + d: under 20 units of
(1 + |T|)(max |R| sum |p_j| + max |t_j|); 32 are added. Radius: relative errors below 0.1 % (the
eigenvalue's square root cancels), so k is 3.34 for 3.33 and 3.01 for 3. Pixels: 1/16 more than
the 1 of ceil. Assumed: float32 projection by these formulas, and quaternions whose squared length
is a normal float32, so that rows are rotated and not stretched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grendel_odin import _kernels
from grendel_odin.data.cameras import Camera
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.optim.adam import Adam
from grendel_odin.optim.schedule import Rates
from grendel_odin.optim.settings import OptimizerKind
from grendel_odin.render.protocol import TILE, Box, Constants, Renderer

_KERNEL_ZERO = 2.0**-120  # csrc/adam.cpp sets smaller moments to zero
_STEP_ROUNDING = 1.0 + 2.0**-16
_CARRY_ROUNDING = 2.0**-20
_HISTORY_ROUNDING = 2.0**-9
_PLACE_ROUNDING = 32 * 2.0**-24
_PIXELS = 1.0 + 1.0 / 16.0
_REACH = {Box.OPACITY: 3.34, Box.THREE_SIGMA: 3.01}  # standard deviations
_LEAST_ROOT = math.sqrt(0.1)  # in the eigenvalue of the 3DGS rasterizer, pixels^2
_JACOBIAN_MARGIN = 0.15  # of the image, beyond its sides


@dataclass(frozen=True, slots=True)
class NextStep:
    """A step of Adam whose gradient is not known: what bounds it besides the moments.

    An element moves by at most rate sqrt(carry2 m^2 / (beta2 v + floor) + fresh2).
    """

    rates: Tensor
    """[64] float32, bias factor included."""
    carry2: float
    fresh2: float
    beta2: float
    floor: float
    history: float
    """The root's largest value over all histories of gradients, under these betas only."""

    @staticmethod
    def of(kind: OptimizerKind, number: int, rates: Rates, iteration: int) -> NextStep:
        """Step `number` of a table (from 1: `Adam.steps + 1`), taken at an iteration."""
        beta1, beta2 = rates.betas
        dense = kind is OptimizerKind.ADAM
        correction1, correction2 = (1.0 - b**number if dense else 1.0 for b in rates.betas)
        floor = rates.eps**2 * correction2 / _STEP_ROUNDING - _KERNEL_ZERO
        factor = math.sqrt(correction2) / correction1 * _STEP_ROUNDING
        known = floor >= _KERNEL_ZERO
        fresh2, room = (1.0 - beta1) ** 2 / (1.0 - beta2), beta2 - beta1**2
        forgets = room > _HISTORY_ROUNDING * beta2 and floor >= _KERNEL_ZERO / (1.0 - beta2)
        return NextStep(
            rates=rates.columns(iteration) * (factor if known else math.inf),
            carry2=(beta1 + _CARRY_ROUNDING) ** 2,
            fresh2=fresh2,
            beta2=beta2,
            floor=max(floor, _KERNEL_ZERO),
            history=math.sqrt(fresh2 * beta2 / room * (1.0 + _HISTORY_ROUNDING))
            if forgets
            else math.inf,
        )


def step_bound(m: Tensor, v: Tensor, step: NextStep) -> Tensor:
    """[N, 64]: the farthest that the step can move each element. m, v: [N, 64] before it."""
    return step.rates * (step.carry2 * m * m / (step.beta2 * v + step.floor) + step.fresh2).sqrt()


def within_history(m: Tensor, v: Tensor, step: NextStep) -> bool:
    """Whether the step's betas may have made these moments [N, 64]: no bound needs them then.

    So it is in every run; a resumed run may have had others.
    """
    least = _KERNEL_ZERO / (1.0 - step.beta2)
    return bool((m.double().square() <= step.history**2 * (v.double() + least)).all())


@dataclass(frozen=True, slots=True)
class MayBeVisible:
    """Rows of a table by view of a unit."""

    views: Tensor
    """[C, n] bool."""
    any: Tensor
    """[n] bool: in any of the views."""


@dataclass(frozen=True, slots=True)
class VisibilityBound:
    """The test of the module's text, as a callable: cameras of a unit -> rows.

    Rows are read once for all cameras of a call.
    """

    table: PrimitiveTable
    moments: Adam | None
    """None: the largest step that any history allows. It names a few rows more, and costs a third:
    the test waits for memory."""
    step: NextStep
    constants: Constants
    threads: int

    def __call__(self, cameras: Sequence[Camera], rows: Tensor | None = None) -> MayBeVisible:
        """Test all rows, or n of them: rows [n] int32, in any order."""
        number = len(self.table) if rows is None else len(rows)
        found = MayBeVisible(
            torch.empty(len(cameras), number, dtype=torch.bool),
            torch.empty(number, dtype=torch.bool),
        )
        planes = [visible_planes(camera, self.constants) for camera in cameras]
        _kernels.may_be_visible(
            values=self.table.values,
            m=None if self.moments is None else self.moments.m,
            v=None if self.moments is None else self.moments.v,
            chosen=rows,
            rates=self.step.rates * (self.step.history if self.moments is None else 1.0),
            carry2=self.step.carry2,
            fresh2=self.step.fresh2,
            beta2=self.step.beta2,
            floor=self.step.floor,
            planes=torch.from_numpy(np.concatenate([*planes, np.empty((0, 6))])).float(),
            out=found.views.view(torch.uint8),
            any=found.any.view(torch.uint8),
            threads=self.threads,
        )
        return found


def visible_planes(camera: Camera, constants: Constants) -> NDArray[np.float64]:
    """[5, 6]: near plane, then left, right, top, bottom; columns normal 3, offset, slack, extent.

    A visible row with mean p and largest scale s has
    normal . p + offset + slack sum |p_j| + extent s >= 0 for each.
    """
    rotation, shift = camera.world_to_camera[:3, :3], camera.world_to_camera[:3, 3]
    sides = [_Side(np.array([0.0, 0.0, 1.0]), -constants.near, 0.0), *_sides(camera, constants)]
    stretch = float(np.linalg.norm(rotation, 2))
    planes = []
    for side in sides:
        unit = _PLACE_ROUNDING * (1.0 + abs(side.normal[2]))
        offset = side.normal @ shift + side.offset + unit * np.abs(shift).max()
        slack = unit * np.abs(rotation).max()
        planes.append([*(side.normal @ rotation), offset, slack, side.extent * stretch])
    return np.array(planes)


@dataclass(frozen=True, slots=True)
class _Side:
    """A plane in camera space."""

    normal: NDArray[np.float64]
    offset: float
    extent: float


def _sides(camera: Camera, constants: Constants) -> list[_Side]:
    """The four sides of the image."""
    reach = _REACH[constants.box]
    focal = (camera.K[0, 0], camera.K[1, 1])
    size = (camera.width, camera.height)
    slopes = []  # by axis: of the two sides, and the Jacobian's clamps at them; outwards
    for axis in (0, 1):
        center, length = camera.K[axis, 2], size[axis]
        if constants.box is Box.OPACITY:
            end, blur = float(length), reach * math.sqrt(constants.low_pass)
        else:  # pixel centres half a pixel from ours
            end = -(-length // TILE) * TILE + 0.5
            blur = reach * math.sqrt(constants.low_pass + _LEAST_ROOT)
        margin = _JACOBIAN_MARGIN * length
        slopes.append(
            [
                ((edge + blur + _PIXELS) / focal[axis], (clamp + margin) / focal[axis])
                for edge, clamp in ((center, center), (end - center, length - center))
            ]
        )
    sides = []
    for axis in (0, 1):
        across = max(abs(clamp) for _, clamp in slopes[1 - axis])
        for sign, (slope, clamp) in zip((1.0, -1.0), slopes[axis], strict=True):
            largest = max(abs(clamp), abs(min(slope, clamp)))
            if constants.box is Box.OPACITY:
                extent = reach * math.hypot(1.0, largest)
            else:
                extent = reach * max(focal) / focal[axis] * math.hypot(1.0, largest, across)
            normal = np.zeros(3)
            normal[axis], normal[2] = sign, slope
            sides.append(_Side(normal, 0.0, extent))
    return sides


def assert_invisible(
    renderer: Renderer, table: PrimitiveTable, camera: Camera, rows: Tensor
) -> None:
    """Raise AssertionError if one of the rows [n] int32 is visible: it was read as if it were not.

    For debug runs: rows that were published after a unit had read its own, and were not flagged.
    """
    chosen = rows.long()
    part = PrimitiveTable(table.values[chosen], table.ids[chosen], table.layout)
    seen = renderer.project(part, camera, 0).rows.long()
    if len(seen):
        ids = part.ids[seen[:5]].tolist()
        raise AssertionError(
            f"{len(seen)} of {len(rows)} rows are visible in {camera.name} although the bound of "
            f"the step ruled it out; their ids begin with {ids}"
        )
