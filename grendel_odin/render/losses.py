"""The photometric loss of 3DGS with its gradient, and the image measures of an evaluation.

Loss: (1 - l) mean|x - y| + l (1 - mean SSIM); SSIM (Wang et al. 2004) with an 11 x 11 Gaussian
window of sigma 1.5, zero padding, C1 = 0.01^2, C2 = 0.03^2, the mean over pixels and channels.

Where a mask excludes pixels, the truth stands in for the render: they add no loss, they look the
same to every window that reaches them, and their gradient is 0. The mean stays over all pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from grendel_odin import _kernels

HALO = 10
"""Rows beside a strip that its loss and gradient read: 5 for the window, 5 for its gradient."""
WINDOW = 11
SIGMA = 1.5
C1 = 0.01**2
C2 = 0.03**2


@dataclass(frozen=True, slots=True)
class LossFigures:
    """Loss of a view."""

    value: float
    l1: float
    """mean |x - y|"""
    ssim: float
    """mean SSIM"""


@dataclass(frozen=True, slots=True)
class LossResult(LossFigures):
    """Loss of a view with its gradient."""

    grad: Tensor
    """[3, H, W] float32: d value / d color."""


@dataclass(slots=True)
class StripResult:
    """Loss of some rows of a view; the strips of a view add up to its loss, bit for bit."""

    row_sums: Tensor
    """[rows, 2] float64: |x - y| and SSIM of each row, summed over columns and channels."""
    grad: Tensor
    """[3, rows, W] float32: d value / d color, where value is the loss of the whole view."""


class PhotometricLoss:
    """L1 + D-SSIM, fused with its gradient; the same bits for any number of threads or strips."""

    def __init__(self, ssim_lambda: float, threads: int) -> None:
        self.ssim_lambda = ssim_lambda
        self.threads = threads

    def loss(self, color: Tensor, truth: Tensor, mask: Tensor | None = None) -> LossResult:
        """Loss of a whole view. color: [3, H, W] float32; truth: [3, H, W], uint8 or float32.

        mask: [H, W], 0 where pixels are excluded.
        """
        height = color.shape[1]
        strip = self.strip(color, truth, 0, range(height), height, mask)
        figures = self.combine(strip.row_sums, color.shape[2])
        return LossResult(figures.value, figures.l1, figures.ssim, strip.grad)

    def strip(
        self,
        color: Tensor,
        truth: Tensor,
        top: int,
        rows: range,
        height: int,
        mask: Tensor | None = None,
    ) -> StripResult:
        """Loss of `rows` of a view of `height` rows.

        color, truth: [3, h, W], mask: [h, W]: rows [top, top + h) of the view; they reach HALO
        rows beyond `rows` or to the edge of the image.
        """
        if mask is not None:
            color = composite(color, truth, mask)
        grad = torch.empty(3, len(rows), color.shape[2])
        row_sums = torch.empty(len(rows), 2, dtype=torch.float64)
        _kernels.photometric(
            render=color,
            truth=truth,
            gradient=grad,
            row_sums=row_sums,
            top=top,
            first=rows.start,
            height=height,
            ssim_lambda=self.ssim_lambda,
            threads=self.threads,
        )
        if mask is not None:
            grad.masked_fill_(mask[rows.start - top : rows.stop - top] == 0, 0.0)
        return StripResult(row_sums, grad)

    def combine(self, row_sums: Tensor, width: int) -> LossFigures:
        """The loss of a view from the sums of all its rows [H, 2], in order."""
        total_l1, total_ssim = _kernels.fold_rows(row_sums)
        pixels = 3 * row_sums.shape[0] * width
        l1, ssim = total_l1 / pixels, total_ssim / pixels
        value = (1.0 - self.ssim_lambda) * l1 + self.ssim_lambda * (1.0 - ssim)
        return LossFigures(value, l1, ssim)


def composite(color: Tensor, truth: Tensor, mask: Tensor) -> Tensor:
    """`color` [3, H, W] with the truth, uint8 or of color's dtype, where `mask` [H, W] is 0."""
    return torch.where(mask != 0, color, _unit(truth, color.dtype))


def ssim(x: Tensor, y: Tensor, threads: int = 1) -> float:
    """Mean SSIM of two images [3, H, W], float32 in [0, 1]."""
    return PhotometricLoss(1.0, threads).loss(x.contiguous(), y.contiguous()).ssim


def psnr(x: Tensor, y: Tensor) -> float:
    """Peak signal-to-noise ratio in dB of two images in [0, 1]; infinite where they are equal."""
    error = (x.double() - y.double()).square().mean().item()
    return math.inf if error == 0.0 else -10.0 * math.log10(error)


def ssim_map(x: Tensor, y: Tensor) -> Tensor:
    """[3, H, W] SSIM in plain torch, of any dtype and differentiable: the kernel's twin."""
    offsets = torch.arange(WINDOW, dtype=torch.float64) - WINDOW // 2
    taps = torch.exp(offsets.square() / (-2.0 * SIGMA**2))
    taps = (taps / taps.sum()).to(x.dtype)
    down, across = (taps.view(shape).expand(3, *shape) for shape in ((1, -1, 1), (1, 1, -1)))

    def blur(image: Tensor) -> Tensor:
        rows = functional.conv2d(image[None], down, padding=(WINDOW // 2, 0), groups=3)
        return functional.conv2d(rows, across, padding=(0, WINDOW // 2), groups=3)[0]

    mean_x, mean_y = blur(x), blur(y)
    var_x, var_y = blur(x * x) - mean_x**2, blur(y * y) - mean_y**2
    covariance = blur(x * y) - mean_x * mean_y
    means = (2 * mean_x * mean_y + C1) / (mean_x**2 + mean_y**2 + C1)
    return means * (2 * covariance + C2) / (var_x + var_y + C2)


def photometric_reference(
    color: Tensor, truth: Tensor, ssim_lambda: float, mask: Tensor | None = None
) -> Tensor:
    """The loss in plain torch, a scalar; truth: uint8 or of color's dtype in [0, 1]."""
    y = _unit(truth, color.dtype)
    if mask is not None:
        color = composite(color, y, mask)
    l1 = (color - y).abs().mean()
    return (1 - ssim_lambda) * l1 + ssim_lambda * (1 - ssim_map(color, y).mean())


def _unit(image: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes to [0, 1]; other types as they are."""
    return image.to(dtype) / 255 if image.dtype == torch.uint8 else image.to(dtype)
