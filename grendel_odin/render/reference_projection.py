"""EWA projection of primitives in plain torch (Zwicker et al. 2002), differentiable.

Every row is projected by itself: what decides visibility comes after, without a gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from grendel_odin.data.cameras import Camera
from grendel_odin.model.sh import sh_color
from grendel_odin.model.table import GAUSSIAN
from grendel_odin.render.protocol import MEAN2D, OPACITY, TILE, Box, Constants

_MAX_EXTENT = 3.33  # standard deviations: 255 exp(-3.33^2 / 2) < 1
_MAX_RADIUS = float(1 << 30)
_JACOBIAN_MARGIN = 0.3  # of half the image, beyond its sides
_MIN_DET_RATIO = 1e-12  # keeps the gradient of the square root finite


def project_rows(
    rows: Tensor, camera: Camera, sh_degree: int, constants: Constants
) -> tuple[Tensor, Tensor]:
    """Splats [N, 10] of rows [N, 64], and their 2D covariances [N, 3] (xx, xy, yy; low-passed).

    Rows behind the camera give values without meaning.
    """
    view = torch.from_numpy(camera.world_to_camera).to(rows.dtype)
    means, sh0, shN = (rows[:, GAUSSIAN[name].columns] for name in ("means", "sh0", "shN"))
    local = means @ view[:3, :3].T + view[:3, 3]
    focal = torch.tensor([camera.K[0, 0], camera.K[1, 1]], dtype=rows.dtype)
    center = torch.tensor([camera.K[0, 2], camera.K[1, 2]], dtype=rows.dtype)
    depth = local[:, 2:]
    mean2d = focal * local[:, :2] / depth + center

    spread = _jacobian(local, camera) @ view[:3, :3] @ _axes(rows)
    covariance = spread @ spread.mT
    raw = torch.stack([covariance[:, 0, 0], covariance[:, 0, 1], covariance[:, 1, 1]], dim=1)
    low_passed = raw + constants.low_pass * torch.tensor([1.0, 0.0, 1.0], dtype=rows.dtype)
    det = determinant(low_passed)
    conic = low_passed[:, [2, 1, 0]] * torch.tensor([1.0, -1.0, 1.0]).to(rows) / det

    opacity = torch.sigmoid(rows[:, GAUSSIAN["opacities"].columns])
    if constants.antialiased:
        opacity = opacity * (determinant(raw) / det).clamp(min=_MIN_DET_RATIO).sqrt()
    origin = torch.from_numpy(camera.center).to(rows.dtype)
    directions = torch.nn.functional.normalize(means - origin, dim=1)
    color = sh_color(directions, sh0, shN, sh_degree)
    return torch.cat([mean2d, conic, opacity, color, depth], dim=1), low_passed


def determinant(covariance: Tensor) -> Tensor:
    """[N, 1] determinant of symmetric matrices [N, 3] (xx, xy, yy)."""
    xx, xy, yy = covariance.unbind(1)
    return (xx * yy - xy * xy)[:, None]


def box_radii(values: Tensor, covariance: Tensor, constants: Constants) -> Tensor:
    """[N, 2] half extents of the boxes in pixels, integral; 0 for rows that no pixel can see."""
    det = determinant(covariance)
    depth = values[:, -1:]
    visible = (det > 0) & (depth >= constants.near)
    if constants.box is Box.OPACITY:
        visibility = values[:, OPACITY] / constants.alpha_min
        visible &= visibility >= 1
        extent = (2 * visibility.log()).sqrt().clamp(max=_MAX_EXTENT)
        radii = (extent * covariance[:, [0, 2]].sqrt()).ceil()
    else:
        middle = 0.5 * (covariance[:, :1] + covariance[:, 2:])
        largest = middle + (middle * middle - det).clamp(min=0.1).sqrt()
        radii = (3 * largest.sqrt()).ceil().expand(-1, 2)
    return torch.where(visible, radii, 0.0).clamp(max=_MAX_RADIUS)


def box_bounds(values: Tensor, radii: Tensor, constants: Constants) -> tuple[Tensor, Tensor]:
    """[N, 2] lower and upper bounds of the pixel centres that the splats may touch.

    The 3DGS rasterizer gives a splat all pixels of the tiles that its box touches; it puts pixel
    centres at whole numbers, half a pixel from ours.
    """
    means = values[:, MEAN2D]
    if constants.box is Box.OPACITY:
        return means - radii, means + radii
    low = ((means - 0.5 - radii) / TILE).floor() * TILE
    high = ((means - 0.5 + radii + TILE - 1) / TILE).floor() * TILE
    return low, high


def _axes(rows: Tensor) -> Tensor:
    """[N, 3, 3] R(q) diag(s): the axes of the ellipsoids, one a column."""
    quats = torch.nn.functional.normalize(rows[:, GAUSSIAN["quats"].columns], dim=1)
    w, x, y, z = quats.unbind(1)
    rotation = torch.stack(
        [
            *(1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
            *(2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
            *(2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
        ],
        dim=1,
    ).reshape(-1, 3, 3)
    return rotation * rows[:, GAUSSIAN["scales"].columns].exp()[:, None, :]


def _jacobian(local: Tensor, camera: Camera) -> Tensor:
    """[N, 2, 3] of the projection at local means [N, 3].

    Taken no farther off the image than 15 % of its size, where the linear approximation is good;
    beyond it x / z is constant (gsplat's limits, for any principal point).
    """
    x, y, z = local.unbind(1)
    fx, fy, cx, cy = (float(camera.K[i, j]) for i, j in ((0, 0), (1, 1), (0, 2), (1, 2)))
    margin_x = _JACOBIAN_MARGIN * 0.5 * camera.width
    margin_y = _JACOBIAN_MARGIN * 0.5 * camera.height
    slope_x = (x / z).clamp(-(cx + margin_x) / fx, (camera.width - cx + margin_x) / fx)
    slope_y = (y / z).clamp(-(cy + margin_y) / fy, (camera.height - cy + margin_y) / fy)
    zero = torch.zeros_like(z)
    return torch.stack(
        [fx / z, zero, -fx * slope_x / z, zero, fy / z, -fy * slope_y / z], dim=1
    ).reshape(-1, 2, 3)
