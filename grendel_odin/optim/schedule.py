"""Learning rates per column of the table, as functions of iteration and batch size."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from grendel_odin.model.table import GAUSSIAN, ROW_WIDTH, Layout
from grendel_odin.optim.settings import LrScaleMode, OptimSettings


def log_linear(start: float, end: float, progress: float) -> float:
    """exp((1 - t) ln start + t ln end), t = progress clipped to [0, 1]; 0 if both are 0."""
    if start <= 0.0 or end <= 0.0:
        return 0.0
    t = min(max(progress, 0.0), 1.0)
    return math.exp((1.0 - t) * math.log(start) + t * math.log(end))


class Rates:
    """What Adam needs at an iteration, scaled for batches of B views.

    The rules are those of Grendel-GS (Zhao et al. 2024, section 4.3): `sqrt` keeps the training
    dynamics of single views (rates x sqrt(B), betas^B, eps / sqrt(B)), `linear` multiplies the
    rates by B, `accumu` sums gradients instead of averaging them.
    """

    betas: tuple[float, float]
    eps: float
    gradient_scale: float
    """Factor of the gradient summed over the views of a unit, each with the mean loss of a view."""

    def __init__(
        self,
        settings: OptimSettings,
        batch_size: int,
        extent: float,
        schedule_scale: float = 1.0,
        layout: Layout = GAUSSIAN,
    ) -> None:
        mode = settings.lr_scale_mode
        by_mode = {LrScaleMode.SQRT: math.sqrt(batch_size), LrScaleMode.LINEAR: float(batch_size)}
        scale = by_mode.get(mode, 1.0)
        power = batch_size if mode is LrScaleMode.SQRT else 1
        self.betas = (settings.beta1**power, settings.beta2**power)
        self.eps = settings.eps / math.sqrt(power)
        self.gradient_scale = 1.0 if mode is LrScaleMode.ACCUMU else 1.0 / batch_size

        geometry = scale * settings.geometry_lr_scale
        self._means_span = (
            settings.means_lr * extent * geometry,
            settings.means_lr_final * extent * geometry,
        )
        self._means_steps = settings.means_lr_max_steps * schedule_scale
        self._means_columns = layout["means"].columns
        self._constant = torch.zeros(ROW_WIDTH)
        fields = {
            "scales": settings.scales_lr,
            "quats": settings.quats_lr,
            "opacities": settings.opacities_lr,
            "sh0": settings.sh0_lr,
            "shN": settings.shN_lr,
        }
        for name, rate in fields.items():
            factor = geometry if name == "scales" else scale
            self._constant[layout[name].columns] = rate * factor

    def means(self, iteration: int) -> float:
        """Rate of the means at an iteration (an image count; the first image of the unit)."""
        return log_linear(*self._means_span, iteration / self._means_steps)

    def columns(self, iteration: int) -> Tensor:
        """[64] float32: the rate of each column of the table; 0 where no field lies."""
        rates = self._constant.clone()
        rates[self._means_columns] = self.means(iteration)
        return rates
