"""Real spherical harmonics up to degree 3, as 3DGS uses them for colour."""

from __future__ import annotations

import torch
from torch import Tensor

C0 = 0.28209479177387814
"""Y_0: colour = 0.5 + C0 sh0 + (higher bands)."""


def sh_basis(directions: Tensor, degree: int) -> Tensor:
    """[N, (degree + 1)^2] harmonics at unit directions [N, 3]."""
    x, y, z = directions.unbind(-1)
    xx, yy, zz = x * x, y * y, z * z
    basis = [torch.full_like(x, C0)]
    if degree >= 1:
        basis += [-0.4886025119029199 * y, 0.4886025119029199 * z, -0.4886025119029199 * x]
    if degree >= 2:
        basis += [
            1.0925484305920792 * x * y,
            -1.0925484305920792 * y * z,
            0.31539156525252005 * (2 * zz - xx - yy),
            -1.0925484305920792 * x * z,
            0.5462742152960396 * (xx - yy),
        ]
    if degree >= 3:
        basis += [
            -0.5900435899266435 * y * (3 * xx - yy),
            2.890611442640554 * x * y * z,
            -0.4570457994644658 * y * (4 * zz - xx - yy),
            0.3731763325901154 * z * (2 * zz - 3 * xx - 3 * yy),
            -0.4570457994644658 * x * (4 * zz - xx - yy),
            1.445305721320277 * z * (xx - yy),
            -0.5900435899266435 * x * (xx - 3 * yy),
        ]
    return torch.stack(basis, dim=-1)


def sh_color(directions: Tensor, sh0: Tensor, shN: Tensor, degree: int) -> Tensor:
    """[N, 3] colour = max(0, 0.5 + sum of c_k Y_k(d)).

    directions: [N, 3], unit; sh0: [N, 3]; shN: [N, 45], coefficient-major; bands above `degree`
    are not read.
    """
    coefficients = torch.cat([sh0, shN], dim=1).reshape(-1, 16, 3)[:, : (degree + 1) ** 2]
    basis = sh_basis(directions, degree)
    return (0.5 + (basis[..., None] * coefficients).sum(1)).clamp(min=0)
