"""How large the steps of rows are, in a form whose sums do not depend on who adds them, or when.

The size of a row's step is the largest |rate x gradient| among its columns: a maximum has no
rounding, so it is the same however the columns are read. Sizes fall into 64 bins, one a power of
two; of each bin there are the number of rows and the sum of their mantissas, both integers, so a
sum over any number of rows and ranks is exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

BINS = 64
UNKNOWN = BINS - 1
"""The bin of rows of which nothing is known, or no finite size below 2^3."""
LOWEST = -60
"""Bin b holds sizes from 2^(LOWEST + b); bin 0 also what is smaller, which counts as nothing."""
KEPT = 0.875
"""Of a running mean, at each new size."""
_MANTISSA_BITS = 23


def step_sizes(gradients: Tensor, rates: Tensor | float) -> Tensor:
    """[A] of gradients [A, W] and rates [W]."""
    return (gradients * rates).abs().amax(1)


def unknown_sizes(rows: int, device: torch.device | None = None) -> Tensor:
    """[N] float32 running means before anything is known."""
    return torch.full((rows,), torch.inf, device=device)


def running_mean(means: Tensor, sizes: Tensor) -> Tensor:
    """Means [A] with one more size [A] each.

    Two products and a sum, each rounded once: a fused form would round by the place of the row.
    """
    return torch.where(means.isfinite(), means * KEPT + sizes * (1.0 - KEPT), sizes)


def bins_of(sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Bins [n] and mantissas [n] (units of 2^(LOWEST + bin - 23)), int64, of sizes [n] >= 0."""
    bits = sizes.float().view(torch.int32).long()
    bins = (bits >> _MANTISSA_BITS) - 127 - LOWEST
    counted = (bins >= 0) & (bins < UNKNOWN)
    mantissas = (bits & ((1 << _MANTISSA_BITS) - 1)) | (1 << _MANTISSA_BITS)
    return bins.clamp(0, UNKNOWN), torch.where(counted, mantissas, 0)


def histogram(bins: Tensor, mantissas: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [64] and sums of mantissas [64] of each bin, int64; exact up to 2^39 rows."""
    sums = torch.zeros(BINS, dtype=torch.int64, device=bins.device)
    return torch.bincount(bins, minlength=BINS), sums.index_add_(0, bins, mantissas)


def weigh(sums: Sequence[int]) -> int:
    """The sum of all sizes, in units of 2^(LOWEST - 23)."""
    return sum(value << place for place, value in enumerate(sums))
