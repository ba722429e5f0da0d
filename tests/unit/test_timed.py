"""Cutting by measured time: costs settle on an even cut, and the gates of Grendel hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from grendel_odin.data.cameras import Camera
from grendel_odin.data.views import View
from grendel_odin.parallel.strips import cut
from grendel_odin.parallel.timed import EvenCosts, TimedCosts
from grendel_odin.render.protocol import tile_rows

MS = 1_000_000


def view(index: int, width: int = 1200, height: int = 640) -> View:
    camera = Camera(str(index), width, height, np.eye(3), np.eye(4))
    return View(camera, Path(str(index)), index)


def even(each: View, value: int) -> torch.Tensor:
    return torch.full((tile_rows(each.camera.height),), value)


@pytest.mark.parametrize(("views", "ranks"), [(1, 3), (2, 4), (3, 2)])
def test_costs_settle_on_an_even_cut(views: int, ranks: int) -> None:
    """Only the time of a whole strip is measured, never that of a row."""
    unit = [view(i) for i in range(views)]
    true = [1 + (np.arange(40) - 13 * i) ** 2 for i in range(views)]
    costs = TimedCosts(decay=0.5, warmup=0, gated=False, whole_views=False)
    unevenness = []
    for _ in range(30):
        strips = cut([costs.of(each).numpy() for each in unit], ranks)
        load, told = np.zeros(ranks), [torch.zeros(40, dtype=torch.int64) for _ in unit]
        for strip in strips:
            spent = int(true[strip.view][strip.first : strip.last].sum())
            load[strip.rank] += spent
            evaluations = torch.zeros(strip.last - strip.first, dtype=torch.int64)
            told[strip.view][strip.first : strip.last] = costs.measure(evaluations, 1e-6 * spent)
        costs.learn(unit, told)
        unevenness.append(load.max() / load.mean())
    assert unevenness[0] > 1.2
    assert max(unevenness[-5:]) < 1.13


def test_running_mean_and_lag() -> None:
    unit = [view(0)]
    costs = TimedCosts(decay=0.25, warmup=0, gated=False, whole_views=False)
    costs.learn(unit, [even(unit[0], 8 * MS)])
    costs.learn(unit, [even(unit[0], 4 * MS)])
    assert costs.of(unit[0]).equal(even(unit[0], 8 * MS))  # the latest unit is not used yet
    costs.learn([], [])
    assert costs.of(unit[0]).equal(even(unit[0], 5 * MS))
    # A view that was never rendered: as dear by the pixel as the latest unit.
    twice = view(1, width=2400)
    assert costs.of(twice).equal(even(twice, 10 * MS))


def test_warmup_and_small_images_teach_nothing() -> None:
    small, wide, large = view(0, 900, 700), view(1, 1800, 1000), view(2, 2000, 1200)

    def taught(each: View, *, gated: bool, whole_views: bool, warmup: int = 0) -> bool:
        costs = TimedCosts(0.0, warmup, gated, whole_views)
        before = costs.of(each)
        costs.learn([each], [even(each, 7 * MS)])
        costs.learn([], [])
        return not costs.of(each).equal(before)

    assert not taught(small, gated=True, whole_views=False)
    assert taught(small, gated=False, whole_views=True)
    assert taught(wide, gated=True, whole_views=False)
    assert not taught(wide, gated=True, whole_views=True)
    assert taught(large, gated=True, whole_views=True)
    assert not taught(large, gated=True, whole_views=True, warmup=1)


def test_even_costs_learn_nothing() -> None:
    costs, each = EvenCosts(), view(0)
    before = costs.of(each)
    for _ in range(3):
        costs.learn([each], [even(each, 7)])
    assert costs.of(each).equal(before) and len(set(before.tolist())) == 1
