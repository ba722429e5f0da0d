"""Settings of the optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from grendel_odin.config import setting


class OptimizerKind(str, Enum):
    """Which rows a step moves."""

    ADAM = "adam"
    SELECTIVE_ADAM = "selective_adam"


class LrScaleMode(str, Enum):
    """How rates, betas and gradients follow the batch size."""

    SQRT = "sqrt"
    LINEAR = "linear"
    ACCUMU = "accumu"


@dataclass(frozen=True, slots=True)
class OptimSettings:
    """Adam and its learning rates, per field of the primitive table (defaults: 3DGS)."""

    kind: OptimizerKind = setting(
        OptimizerKind.ADAM,
        "adam moves every row in every step; selective_adam only the visible ones, "
        "without bias correction.",
    )
    means_lr: float = setting(1.6e-4, "Initial rate of means, times the scene's extent.", min=0.0)
    means_lr_final: float = setting(
        1.6e-6, "Rate of means from means_lr_max_steps on, times the scene's extent.", min=0.0
    )
    means_lr_max_steps: int = setting(
        30_000, "Iterations over which the rate of means falls (log-linearly).", min=1
    )
    scales_lr: float = setting(5e-3, "Rate of log scales.", min=0.0)
    quats_lr: float = setting(1e-3, "Rate of quaternions.", min=0.0)
    opacities_lr: float = setting(0.05, "Rate of opacity logits.", min=0.0)
    sh0_lr: float = setting(2.5e-3, "Rate of the SH coefficients of degree 0.", min=0.0)
    shN_lr: float = setting(1.25e-4, "Rate of the higher SH coefficients.", min=0.0)
    geometry_lr_scale: float = setting(1.0, "Factor of the rates of means and scales.", min=0.0)
    lr_scale_mode: LrScaleMode = setting(
        LrScaleMode.SQRT,
        "Rule for batches of B views: sqrt (rates x sqrt(B), betas to the power B), "
        "linear (rates x B) or accumu (gradients summed, not averaged).",
    )
    beta1: float = setting(0.9, "Decay of the first moment.", min=0.0, max=0.999999)
    beta2: float = setting(0.999, "Decay of the second moment.", min=0.0, max=0.999999)
    eps: float = setting(1e-15, "Added to the root of the second moment.", min=1e-16)

    def problems(self) -> list[str]:
        """Faults that concern several fields at once."""
        if (self.means_lr > 0) != (self.means_lr_final > 0):
            return [
                f"optim.means_lr={self.means_lr:g} falls log-linearly to "
                f"optim.means_lr_final={self.means_lr_final:g}: both must be positive, or both 0"
            ]
        return []
