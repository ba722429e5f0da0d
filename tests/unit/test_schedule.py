"""Learning rates over a run, and what a batch makes of them."""

from __future__ import annotations

import math

import pytest
import torch

from grendel_odin.model.table import GAUSSIAN
from grendel_odin.optim import LrScaleMode, OptimSettings, Rates

SETTINGS = OptimSettings()
EXTENT = 4.0


def test_rates_of_single_views_are_the_settings() -> None:
    rates = Rates(SETTINGS, 1, EXTENT)
    columns = rates.columns(0)
    assert columns.shape == (64,) and columns.dtype == torch.float32
    expected = {
        "means": SETTINGS.means_lr * EXTENT,
        "scales": SETTINGS.scales_lr,
        "quats": SETTINGS.quats_lr,
        "opacities": SETTINGS.opacities_lr,
        "sh0": SETTINGS.sh0_lr,
        "shN": SETTINGS.shN_lr,
    }
    for name, rate in expected.items():
        assert columns[GAUSSIAN[name].columns].tolist() == pytest.approx(
            [rate] * GAUSSIAN[name].width
        )
    assert int((columns > 0).sum()) == GAUSSIAN.floats == 59
    assert (rates.betas, rates.eps, rates.gradient_scale) == ((0.9, 0.999), 1e-15, 1.0)


def test_means_fall_log_linearly_and_then_stay() -> None:
    rates = Rates(SETTINGS, 1, EXTENT)
    start, end = EXTENT * 1.6e-4, EXTENT * 1.6e-6
    assert rates.means(0) == pytest.approx(start)
    assert rates.means(15_000) == pytest.approx(math.sqrt(start * end))
    assert rates.means(30_000) == rates.means(90_000) == pytest.approx(end)
    assert rates.columns(15_000)[:3].tolist() == pytest.approx([math.sqrt(start * end)] * 3)
    assert torch.equal(rates.columns(15_000)[3:], rates.columns(0)[3:])


def test_geometry_scale_is_that_of_means_and_scales() -> None:
    plain = Rates(SETTINGS, 4, EXTENT).columns(500)
    scaled = Rates(OptimSettings(geometry_lr_scale=3.0), 4, EXTENT).columns(500)
    expected = plain.clone()
    for name in ("means", "scales"):
        expected[GAUSSIAN[name].columns] *= 3
    torch.testing.assert_close(scaled, expected)


def test_schedule_scale_stretches() -> None:
    short, plain = Rates(SETTINGS, 1, EXTENT, 0.1), Rates(SETTINGS, 1, EXTENT)
    assert short.means(700) == pytest.approx(plain.means(7_000))


@pytest.mark.parametrize(
    ("mode", "rate", "betas", "eps", "gradient_scale"),
    [
        (LrScaleMode.SQRT, 2.0, (0.9**4, 0.999**4), 1e-15 / 2, 0.25),
        (LrScaleMode.LINEAR, 4.0, (0.9, 0.999), 1e-15, 0.25),
        (LrScaleMode.ACCUMU, 1.0, (0.9, 0.999), 1e-15, 1.0),
    ],
)
def test_batch_scaling(
    mode: LrScaleMode,
    rate: float,
    betas: tuple[float, float],
    eps: float,
    gradient_scale: float,
) -> None:
    one = Rates(SETTINGS, 1, EXTENT)
    rates = Rates(OptimSettings(lr_scale_mode=mode), 4, EXTENT)
    torch.testing.assert_close(rates.columns(500), rate * one.columns(500))
    assert rates.betas == pytest.approx(betas)
    assert rates.eps == pytest.approx(eps, rel=1e-12, abs=0)
    assert rates.gradient_scale == gradient_scale


def test_means_may_be_frozen_but_not_half() -> None:
    frozen = OptimSettings(means_lr=0.0, means_lr_final=0.0)
    assert frozen.problems() == [] and Rates(frozen, 1, EXTENT).means(10) == 0.0
    (problem,) = OptimSettings(means_lr=0.0).problems()
    assert "means_lr_final" in problem
