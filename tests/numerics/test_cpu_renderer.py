"""The C++ backend against the torch reference, and what it promises about bits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grendel_odin.data.cameras import Camera
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.render.cpu import CpuRenderer
from grendel_odin.render.protocol import INRIA, Constants, Rect, Rendering, RowGradients, Splats
from grendel_odin.render.reference import ReferenceRenderer
from tests.scenes import random_camera, random_table

WIDTH, HEIGHT = 75, 53
BACKGROUND = torch.tensor([0.2, 0.5, 0.7])
CONSTANTS = {
    "gsplat": Constants(),
    "antialiased": replace(Constants(), antialiased=True),
    "inria": INRIA,
}


def scene(seed: int, rows: int = 300) -> tuple[PrimitiveTable, Camera]:
    return random_table(rows, seed), random_camera(WIDTH, HEIGHT, seed)


def pixel_gradients(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return (
        torch.randn(3, HEIGHT, WIDTH, generator=draw),
        torch.randn(HEIGHT, WIDTH, generator=draw),
        torch.randn(HEIGHT, WIDTH, generator=draw),
    )


def relative_error(ours: torch.Tensor, truth: torch.Tensor) -> float:
    """Largest error of a column, relative to the column's norm."""
    return float(((ours - truth).norm(dim=0) / (truth.norm(dim=0) + 1e-6)).max())


@pytest.mark.parametrize("name", CONSTANTS)
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_the_reference(name: str, seed: int) -> None:
    table, camera = scene(seed)
    ours, truth = CpuRenderer(CONSTANTS[name], 2), ReferenceRenderer(CONSTANTS[name])
    splats = truth.project(table, camera, 3)
    projected = ours.project(table, camera, 3)
    assert torch.equal(projected.rows, splats.rows)
    assert torch.equal(projected.keys, splats.keys)
    assert torch.equal(projected.radii, splats.radii)
    torch.testing.assert_close(projected.values, splats.values, rtol=1e-4, atol=1e-5)

    rect = Rect.full(camera)
    image = ours.render(splats, camera, rect, BACKGROUND, with_depth=True)
    expected = truth.render(splats, camera, rect, BACKGROUND, with_depth=True)
    torch.testing.assert_close(image.color, expected.color, rtol=0, atol=1e-5)
    torch.testing.assert_close(image.alpha, expected.alpha, rtol=0, atol=1e-5)
    torch.testing.assert_close(image.depth, expected.depth, rtol=0, atol=1e-4)

    gradients = pixel_gradients(seed)
    of_splats = truth.render_backward(expected, *gradients)
    assert relative_error(ours.render_backward(image, *gradients), of_splats) < 1e-5

    of_rows = [RowGradients(splats.rows, torch.zeros(len(splats), 64), 4) for _ in range(2)]
    ours.project_backward(table, camera, 3, splats, of_splats, of_rows[0])
    truth.project_backward(table, camera, 3, splats, of_splats, of_rows[1])
    assert relative_error(of_rows[0].values, of_rows[1].values) < 1e-5


@pytest.mark.parametrize("degree", range(4))
def test_lower_sh_degrees(degree: int) -> None:
    table, camera = scene(5)
    ours, truth = CpuRenderer(Constants(), 1), ReferenceRenderer(Constants())
    splats = ours.project(table, camera, degree)
    torch.testing.assert_close(
        splats.values, truth.project(table, camera, degree).values, rtol=1e-4, atol=1e-5
    )
    gradients = torch.randn(len(splats), 10, generator=torch.Generator().manual_seed(0))
    results = []
    for renderer in (ours, truth):
        into = RowGradients(splats.rows, torch.zeros(len(splats), 64), 4)
        renderer.project_backward(table, camera, degree, splats, gradients, into)
        results.append(into.values)
    assert relative_error(results[0], results[1]) < 1e-5


@given(
    seed=st.integers(0, 10_000),
    x0=st.integers(0, WIDTH - 1),
    y0=st.integers(0, HEIGHT - 1),
    width=st.integers(1, WIDTH),
    height=st.integers(1, HEIGHT),
)
@settings(max_examples=40, deadline=None)
def test_a_rectangle_equals_the_crop(seed: int, x0: int, y0: int, width: int, height: int) -> None:
    table, camera = scene(seed)
    rect = Rect(x0, y0, min(width, WIDTH - x0), min(height, HEIGHT - y0))
    renderer = CpuRenderer(Constants(), 1)
    splats = renderer.project(table, camera, 3)
    whole = renderer.render(splats, camera, Rect.full(camera), BACKGROUND, with_depth=True)
    part = renderer.render(splats, camera, rect, BACKGROUND, with_depth=True)
    rows, columns = slice(y0, y0 + rect.height), slice(x0, x0 + rect.width)
    assert torch.equal(part.color, whole.color[:, rows, columns])
    assert torch.equal(part.alpha, whole.alpha[rows, columns])
    assert part.depth is not None and whole.depth is not None
    assert torch.equal(part.depth, whole.depth[rows, columns])


def step(
    renderer: CpuRenderer, table: PrimitiveTable, camera: Camera
) -> tuple[Splats, Rendering, RowGradients]:
    splats = renderer.project(table, camera, 3)
    image = renderer.render(splats, camera, Rect.full(camera), BACKGROUND)
    gradients = renderer.render_backward(image, pixel_gradients(1)[0])
    into = RowGradients(splats.rows, torch.zeros(len(splats), 64), 4)
    renderer.project_backward(table, camera, 3, splats, gradients, into)
    return splats, image, into


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_bits_do_not_depend_on_threads(threads: int) -> None:
    table, camera = scene(7, rows=10_000)
    _, image, gradients = step(CpuRenderer(Constants(), 1), table, camera)
    _, other_image, other_gradients = step(CpuRenderer(Constants(), threads), table, camera)
    assert torch.equal(image.color, other_image.color)
    assert torch.equal(gradients.values, other_gradients.values)


@given(seed=st.integers(0, 10_000), rows=st.integers(1, 200))
@settings(max_examples=30, deadline=None)
def test_bits_do_not_depend_on_the_order_of_rows(seed: int, rows: int) -> None:
    table, camera = scene(seed, rows)
    # Duplicates lie at the same depth, so only their keys order them.
    table.values[rows // 2 :] = table.values[: rows - rows // 2].clone()
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    shuffled = PrimitiveTable(table.values[order].contiguous(), table.ids[order].contiguous())
    renderer = CpuRenderer(Constants(), 1)
    splats, image, gradients = step(renderer, table, camera)
    other_splats, other_image, other_gradients = step(renderer, shuffled, camera)
    assert torch.equal(image.color, other_image.color)
    by_row = torch.zeros(rows, 64)
    by_row[splats.rows.long()] = gradients.values
    other_by_row = torch.zeros(rows, 64)
    other_by_row[order[other_splats.rows.long()]] = other_gradients.values
    assert torch.equal(by_row, other_by_row)


def test_gradients_of_views_add_up() -> None:
    table, _ = scene(3)
    cameras = [random_camera(WIDTH, HEIGHT, seed) for seed in (3, 4)]
    renderer = CpuRenderer(Constants(), 2)
    total = RowGradients(torch.arange(len(table), dtype=torch.int32), torch.zeros(300, 64), 4)
    by_hand = torch.zeros(300, 64)
    for camera in cameras:
        splats, _, own = step(renderer, table, camera)
        image = renderer.render(splats, camera, Rect.full(camera), BACKGROUND)
        gradients = renderer.render_backward(image, pixel_gradients(1)[0])
        renderer.project_backward(table, camera, 3, splats, gradients, total)
        by_hand[splats.rows.long()] += own.values
    assert torch.equal(total.values, by_hand)


def test_thin_splats_that_start_far_below_the_smallest_float() -> None:
    # A long, thin, diagonal splat: its columns start below 2^-126 and pass 1/2 further down.
    table = PrimitiveTable.empty(1)
    table.field("scales")[:] = torch.tensor([[0.0, -7.0, -7.0]])
    angle = torch.tensor(torch.pi / 8)
    table.field("quats")[:] = torch.stack([angle.cos(), 0 * angle, 0 * angle, angle.sin()])
    world_to_camera = torch.eye(4, dtype=torch.float64)
    world_to_camera[2, 3] = 2.0
    camera = replace(random_camera(64, 64, 0), world_to_camera=world_to_camera.numpy())
    images = []
    for renderer in (CpuRenderer(Constants(), 1), ReferenceRenderer(Constants())):
        splats = renderer.project(table, camera, 0)
        images.append(renderer.render(splats, camera, Rect.full(camera), torch.ones(3)))
    _, _, xx, xy, yy = splats.values[0, :5]
    assert float(-0.5 * (xx - xy**2 / yy) * 15**2) > -8 > -126 > float(-0.5 * xx * 15**2)
    assert float(images[1].alpha.max()) > 0.4
    torch.testing.assert_close(images[0].color, images[1].color, rtol=0, atol=1e-4)


@pytest.mark.parametrize("rows", [0, 1])
def test_views_that_see_nothing(rows: int) -> None:
    table = PrimitiveTable.empty(rows)
    table.field("means")[:] = 1e6
    renderer = CpuRenderer(Constants(), 2)
    splats, image, gradients = step(renderer, table, random_camera(WIDTH, HEIGHT, 0))
    assert len(splats) == 0 and gradients.values.shape == (0, 64)
    assert torch.equal(image.color, BACKGROUND[:, None, None].expand(3, HEIGHT, WIDTH))


def test_scratch_memory_is_reused() -> None:
    table, camera = scene(0)
    renderer = CpuRenderer(Constants(), 1)
    for _ in range(3):
        step(renderer, table, camera)
    assert len(renderer._idle_states) == 1
