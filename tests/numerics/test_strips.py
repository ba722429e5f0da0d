"""A view that is cut into strips gives the gradients of the whole view, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grendel_odin.render.cpu import CpuRenderer
from grendel_odin.render.protocol import INRIA, TILE, Constants, Rect, Splats, SplatSums
from tests.scenes import random_camera, random_table

WIDTH, HEIGHT = 70, 150
BACKGROUND = torch.tensor([0.2, 0.5, 0.7])


def subset(splats: Splats, positions: torch.Tensor) -> Splats:
    return Splats(
        splats.values[positions],
        splats.keys[positions],
        splats.rows[positions],
        splats.radii[positions],
    )


@pytest.mark.parametrize("constants", [Constants(), INRIA], ids=["gsplat", "inria"])
@given(
    seed=st.integers(0, 10_000),
    cuts=st.lists(st.integers(1, -(-HEIGHT // TILE) - 1), unique=True, max_size=5),
)
@settings(max_examples=25, deadline=None)
def test_strips_add_up_to_the_view(constants: Constants, seed: int, cuts: list[int]) -> None:
    table, camera = random_table(250, seed), random_camera(WIDTH, HEIGHT, seed)
    table.field("scales")[:40] += 1.5  # some that reach over several strips
    renderer = CpuRenderer(constants, 1)
    splats = renderer.project(table, camera, 3)
    whole = renderer.render(splats, camera, Rect.full(camera), BACKGROUND)
    gradient = torch.randn(whole.color.shape, generator=torch.Generator().manual_seed(seed))
    expected = renderer.render_backward(whole, gradient)

    ranges = renderer.row_ranges(splats)
    borders = [0, *(cut * TILE for cut in sorted(cuts)), HEIGHT]
    strips: list[tuple[torch.Tensor, SplatSums]] = []
    seen = torch.zeros(len(splats), dtype=torch.bool)
    for top, bottom in pairwise(borders):
        touches = (ranges[:, 0] < bottom) & (ranges[:, 1] >= top)
        positions = touches.nonzero().squeeze(1)
        image = renderer.render(
            subset(splats, positions), camera, Rect(0, top, WIDTH, bottom - top), BACKGROUND
        )
        assert torch.equal(image.color, whole.color[:, top:bottom])
        sums = renderer.strip_sums(
            image, gradient[:, top:bottom].contiguous(), tops=~seen[positions]
        )
        seen |= touches
        strips.append((positions.int(), sums))
    assert torch.equal(renderer.gather_sums(splats, strips), expected)


def test_splats_in_one_strip_send_one_sum() -> None:
    table, camera = random_table(250, 0), random_camera(WIDTH, HEIGHT, 0)
    renderer = CpuRenderer(replace(Constants(), antialiased=True), 1)
    splats = renderer.project(table, camera, 3)
    image = renderer.render(splats, camera, Rect.full(camera), BACKGROUND)
    tops = torch.ones(len(splats), dtype=torch.bool)
    sums = renderer.strip_sums(image, torch.ones_like(image.color), tops)
    assert sums.counts.max() == 1 and len(sums.values) == int(sums.counts.sum())
    apart = renderer.strip_sums(image, torch.ones_like(image.color), ~tops)
    assert apart.counts.max() > 1 and len(apart.values) == int(apart.counts.sum())
