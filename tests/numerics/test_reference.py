"""The reference renderer against gsplat's torch functions, finite differences and a plain loop."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from gsplat.cuda._torch_impl import (
    _fully_fused_projection,
    _quat_scale_to_covar_preci,
    _spherical_harmonics,
)
from torch import Tensor

from grendel_odin.model.ids import sort_keys
from grendel_odin.model.sh import sh_color
from grendel_odin.model.table import ROW_WIDTH, PrimitiveTable, active_blocks
from grendel_odin.render.protocol import (
    COLOR,
    CONIC,
    DEPTH,
    INRIA,
    MEAN2D,
    OPACITY,
    TILE,
    Box,
    Constants,
    Rect,
    RowGradients,
    Splats,
)
from grendel_odin.render.reference import ReferenceRenderer
from grendel_odin.render.reference_projection import box_bounds, box_radii, project_rows
from tests.scenes import random_camera, random_table

pytestmark = pytest.mark.numerics

ANTIALIASED = Constants(antialiased=True)
ALL_CONSTANTS = {
    "gsplat": Constants(),
    "antialiased": ANTIALIASED,
    "inria": INRIA,
    "inria_antialiased": dataclasses.replace(INRIA, antialiased=True),
}
BACKGROUND = torch.tensor([0.1, 0.5, 0.9])

each_constants = pytest.mark.parametrize("constants", ALL_CONSTANTS.values(), ids=ALL_CONSTANTS)


def render_all(
    table: PrimitiveTable, constants: Constants, seed: int = 1, width: int = 52, height: int = 39
) -> tuple[Splats, Tensor]:
    """Splats and the image [5, H, W]: colour, alpha, depth."""
    renderer, camera = ReferenceRenderer(constants), random_camera(width, height, seed)
    splats = renderer.project(table, camera, 3)
    out = renderer.render(splats, camera, Rect.full(camera), BACKGROUND, with_depth=True)
    assert out.depth is not None
    return splats, torch.cat([out.color, out.alpha[None], out.depth[None]])


@pytest.mark.parametrize("antialiased", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_projection_equals_gsplat(antialiased: bool, seed: int) -> None:
    table = random_table(500, seed, dtype=torch.float64)
    camera = random_camera(64, 48, seed)
    scales = table.field("scales").exp()
    covariances, _ = _quat_scale_to_covar_preci(table.field("quats"), scales, True, False)
    radii, means2d, depths, conics, compensations = _fully_fused_projection(
        table.field("means"),
        covariances,
        torch.from_numpy(camera.world_to_camera)[None],
        torch.from_numpy(camera.K)[None],
        camera.width,
        camera.height,
        near_plane=0.2,
        calc_compensations=antialiased,
    )
    opacities = torch.sigmoid(table.field("opacities"))
    if antialiased:
        opacities = opacities * compensations[0][:, None]

    splats = ReferenceRenderer(Constants(antialiased=antialiased)).project(table, camera, 3)
    rows = splats.rows.long()
    assert 50 < len(splats) < 500
    for columns, theirs in (
        (MEAN2D, means2d[0]),
        (CONIC, conics[0]),
        (OPACITY, opacities),
        (DEPTH, depths[0][:, None]),
    ):
        torch.testing.assert_close(splats.values[:, columns], theirs[rows], rtol=1e-9, atol=1e-9)
    # gsplat's torch function knows 3.33 sigma only: ours are the visible rows with a tighter box.
    seen_by_gsplat = (radii[0] > 0).all(1)
    assert seen_by_gsplat[rows].all()
    assert (splats.radii <= radii[0][rows]).all()
    full_box = splats.values[:, OPACITY.start] * 255 > math.exp(3.33**2 / 2)
    torch.testing.assert_close(splats.radii[full_box], radii[0][rows][full_box])
    transparent = opacities[:, 0] < 1 / 255
    assert transparent.any()
    assert not transparent[rows].any()


@pytest.mark.parametrize("degree", range(4))
def test_spherical_harmonics_equal_gsplat(degree: int) -> None:
    table = random_table(200, degree, dtype=torch.float64)
    directions = torch.nn.functional.normalize(table.field("means"), dim=1)
    sh0, shN = table.field("sh0"), table.field("shN")
    coefficients = torch.cat([sh0[:, None], shN.unflatten(1, (15, 3))], dim=1)
    theirs = (_spherical_harmonics(degree, directions, coefficients) + 0.5).clamp(min=0)
    ours = sh_color(directions, sh0, shN, degree)
    assert (ours == 0).any()
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@each_constants
def test_box_holds_every_pixel_that_blends(constants: Constants) -> None:
    """gsplat's box never cuts; that of 3DGS does, near 3 sigma."""
    table, camera = random_table(300, 5, dtype=torch.float64), random_camera(64, 48, 5)
    splats = ReferenceRenderer(constants).project(table, camera, 3)
    low, high = box_bounds(splats.values, splats.radii, constants)
    y, x = torch.meshgrid(torch.arange(48) + 0.5, torch.arange(64) + 0.5, indexing="ij")
    pixels = torch.stack([x, y], dim=2).double()
    dx, dy = (pixels[..., None, :] - splats.values[:, MEAN2D]).unbind(-1)
    xx, xy, yy = splats.values[:, CONIC].unbind(1)
    power = 0.5 * (xx * dx**2 + yy * dy**2) + xy * dx * dy
    blends = splats.values[:, OPACITY.start] * torch.exp(-power) >= constants.alpha_min
    beyond = (pixels[..., None, :] < low) | (pixels[..., None, :] > high)
    cut = blends & beyond.any(-1)
    if constants.box is Box.OPACITY:
        assert not cut.any()
    else:  # its tile range is a pixel short where the box ends just behind a tile's border
        reach = torch.maximum(dx.abs(), dy.abs()) - splats.radii[:, 0]
        assert cut.any()
        assert not (cut & (reach < -1)).any()


def test_three_sigma_box_is_that_of_3dgs() -> None:
    table, camera = random_table(400, 6, dtype=torch.float64), random_camera(64, 48, 6)
    splats = ReferenceRenderer(INRIA).project(table, camera, 3)
    _, covariance = project_rows(table.values, camera, 3, INRIA)
    eigenvalues = torch.linalg.eigvalsh(
        covariance[splats.rows.long()][:, [0, 1, 1, 2]].unflatten(1, (2, 2))
    )
    round_ones = eigenvalues[:, 1] - eigenvalues[:, 0] < 2 * math.sqrt(0.1)
    expected = (3 * eigenvalues[:, 1].sqrt()).ceil().int()
    assert (splats.radii[:, 0] == splats.radii[:, 1]).all()
    assert (splats.radii[~round_ones, 0] == expected[~round_ones]).all()
    assert (splats.radii[:, 0] >= expected).all()
    centers = (splats.values[:, MEAN2D] - 0.5).tolist()
    for center, radius in zip(centers, splats.radii[:, 0].tolist(), strict=True):
        for at, tiles in zip(center, (4, 3), strict=True):
            first = max(0, math.floor((at - radius) / TILE))
            last = min(tiles, math.floor((at + radius + TILE - 1) / TILE))
            assert last > first


def blend_pixel(
    splats: Splats, constants: Constants, px: float, py: float, background: list[float]
) -> list[float]:
    """The rules of one pixel, word for word."""
    low, high = box_bounds(splats.values, splats.radii, constants)
    unsigned = (splats.keys.long() & 0xFFFFFFFF).tolist()
    values = splats.values.tolist()
    order = sorted(range(len(values)), key=lambda i: (values[i][9], unsigned[i]))
    transmittance, out = 1.0, [0.0] * 5
    for i in order:
        u, v, xx, xy, yy, opacity, red, green, blue, depth = values[i]
        if not (low[i, 0] < px < high[i, 0] and low[i, 1] < py < high[i, 1]):
            continue
        dx, dy = px - u, py - v
        power = 0.5 * (xx * dx * dx + yy * dy * dy) + xy * dx * dy
        alpha = min(constants.alpha_max, opacity * math.exp(-power))
        if power < 0 or alpha < constants.alpha_min:
            continue
        after = transmittance * (1 - alpha)
        limit = constants.transmittance_min
        if after < limit or (constants.stop_inclusive and after == limit):
            break
        for channel, value in enumerate((red, green, blue, 1.0, depth)):
            out[channel] += alpha * transmittance * value
        transmittance = after
    return [out[c] + transmittance * background[c] for c in range(3)] + out[3:]


@each_constants
def test_image_equals_a_plain_loop(constants: Constants) -> None:
    table = random_table(120, 7, dtype=torch.float64)
    table.field("opacities").add_(2.0)  # so that pixels end and alphas clamp
    table.field("opacities")[:20] = 12.0
    table.field("scales").add_(0.5)
    splats, image = render_all(table, constants)
    assert (image[3] > 1 - 2e-3).any()
    for y in range(0, 39, 3):
        for x in range(0, 52, 3):
            expected = blend_pixel(splats, constants, x + 0.5, y + 0.5, BACKGROUND.tolist())
            np.testing.assert_allclose(image[:, y, x].numpy(), expected, rtol=1e-9, atol=1e-9)


def scalar_loss(
    table: PrimitiveTable, constants: Constants, degree: int, weights: Tensor
) -> tuple[float, Callable[[], Tensor]]:
    """A loss that weighs every channel of every pixel, and its gradient [N, 64]."""
    renderer, camera = ReferenceRenderer(constants), random_camera(26, 21, 3)
    splats = renderer.project(table, camera, degree)
    rect = Rect(2, 1, 22, 19)
    out = renderer.render(splats, camera, rect, BACKGROUND, with_depth=True)
    assert out.depth is not None
    image = torch.cat([out.color, out.alpha[None], out.depth[None]])

    def gradient() -> Tensor:
        values = renderer.render_backward(out, weights[:3], weights[3], weights[4])
        rows = splats.rows
        blocks = active_blocks(degree)
        into = RowGradients(rows, table.values.new_zeros(len(rows), ROW_WIDTH), blocks)
        renderer.project_backward(table, camera, degree, splats, values, into)
        full = torch.zeros_like(table.values)
        full[rows.long()] = into.values
        return full

    return float((image * weights).sum()), gradient


@each_constants
@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_gradients_equal_finite_differences(constants: Constants, degree: int) -> None:
    table = random_table(9, 11, dtype=torch.float64)
    table.field("scales").add_(0.7)
    table.field("opacities")[:3] = 9.0  # alphas that clamp
    table.field("sh0")[3] = -3.0  # colours that clamp
    weights = torch.randn(5, 19, 22, generator=torch.Generator().manual_seed(0)).double()
    _, gradient = scalar_loss(table, constants, degree, weights)
    ours = gradient()
    step = 1e-6
    live = 16 + 3 * ((degree + 1) ** 2 - 1)
    for field in table.layout.fields:
        for column in range(field.start, min(field.start + field.width, live)):
            for row in range(len(table)):
                kept = float(table.values[row, column])
                table.values[row, column] = kept + step
                above, _ = scalar_loss(table, constants, degree, weights)
                table.values[row, column] = kept - step
                below, _ = scalar_loss(table, constants, degree, weights)
                table.values[row, column] = kept
                expected = (above - below) / (2 * step)
                error = abs(float(ours[row, column]) - expected)
                assert error <= 1e-5 + 1e-4 * abs(expected), (field.name, row, column, expected)
    assert (ours[:, live:] == 0).all()
    assert (ours[:, :11].abs().amax(0) > 0).all()


def test_jacobian_clamp_stops_the_gradient() -> None:
    """Off the image by more than 15 %, x / z moves the centre but not the shape."""
    camera = random_camera(40, 30, 2)
    table = random_table(1, 0, dtype=torch.float64)
    rotation, origin = camera.world_to_camera[:3, :3], camera.center

    def conic_at(slope: float) -> Tensor:
        local = np.array([slope * 3.0, 0.0, 3.0])
        table.field("means")[0] = torch.from_numpy(rotation.T @ local + origin)
        values, _ = project_rows(table.values, camera, 0, Constants())
        return values[0, CONIC]

    limit = (camera.width - camera.K[0, 2] + 0.15 * camera.width) / camera.K[0, 0]
    torch.testing.assert_close(conic_at(limit * 1.01), conic_at(limit * 1.5), rtol=1e-9, atol=0)
    assert not torch.allclose(conic_at(limit * 0.99), conic_at(limit * 0.9), rtol=1e-3)


@each_constants
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rectangle_equals_the_crop(constants: Constants, dtype: torch.dtype) -> None:
    table = random_table(200, 8, dtype=dtype)
    splats, image = render_all(table, constants, seed=8, width=71, height=50)
    camera = random_camera(71, 50, 8)
    rect = Rect(13, 7, 41, 37)
    alone = ReferenceRenderer(constants).render(splats, camera, rect, BACKGROUND)
    crop = image[:3, rect.y0 : rect.y0 + rect.height, rect.x0 : rect.x0 + rect.width]
    assert alone.depth is None
    torch.testing.assert_close(alone.color, crop, rtol=1e-6, atol=1e-6)


def test_gradients_of_rectangles_add_up() -> None:
    table, camera = random_table(60, 9, dtype=torch.float64), random_camera(50, 40, 9)
    renderer = ReferenceRenderer()
    splats = renderer.project(table, camera, 3)
    weights = torch.randn(3, 40, 50, generator=torch.Generator().manual_seed(1)).double()
    whole = renderer.render(splats, camera, Rect.full(camera), BACKGROUND)
    parts = torch.zeros_like(splats.values)
    for y0, height in ((0, 17), (17, 23)):
        out = renderer.render(splats, camera, Rect(0, y0, 50, height), BACKGROUND)
        parts += renderer.render_backward(out, weights[:, y0 : y0 + height])
    torch.testing.assert_close(renderer.render_backward(whole, weights), parts)


def test_order_of_rows_carries_no_meaning() -> None:
    table = random_table(150, 10)
    table.field("means")[75:] = table.field("means")[:75]  # equal depths: the key decides
    _, image = render_all(table, Constants())
    order = torch.randperm(150, generator=torch.Generator().manual_seed(3))
    shuffled = PrimitiveTable(table.values[order], table.ids[order])
    _, again = render_all(shuffled, Constants())
    assert torch.equal(image, again)
    renamed = PrimitiveTable(table.values, table.ids.flip(0))
    _, other = render_all(renamed, Constants())
    assert not torch.equal(image, other)


def test_ties_follow_the_unsigned_key() -> None:
    keys = torch.tensor([-5, 7], dtype=torch.int32)  # as unsigned, the first is the larger one
    row = torch.tensor([8.0, 8.0, 0.05, 0.0, 0.05, 0.9, 1.0, 0.0, 0.0, 2.0])
    values = torch.stack([row, row])
    values[1, COLOR] = torch.tensor([0.0, 1.0, 0.0])
    radii = torch.full((2, 2), 16, dtype=torch.int32)
    splats = Splats(values, keys, torch.arange(2, dtype=torch.int32), radii)
    camera = random_camera(16, 16, 0)
    out = ReferenceRenderer().render(splats, camera, Rect.full(camera), torch.zeros(3))
    assert out.color[1, 8, 8] > out.color[0, 8, 8]


def test_projection_keys_and_rows() -> None:
    table = random_table(100, 12)
    splats, _ = render_all(table, Constants())
    assert (splats.rows.diff() > 0).all()
    assert torch.equal(splats.keys, sort_keys(table.ids[splats.rows.long()]))
    assert splats.rows.dtype == splats.radii.dtype == splats.keys.dtype == torch.int32
    assert splats.values.dtype == torch.float32


def test_nothing_visible_gives_the_background() -> None:
    camera = random_camera(20, 20, 0)
    renderer = ReferenceRenderer()
    splats = renderer.project(PrimitiveTable.empty(0), camera, 3)
    out = renderer.render(splats, camera, Rect.full(camera), BACKGROUND, with_depth=True)
    assert out.depth is not None
    assert (out.alpha == 0).all()
    assert (out.depth == 0).all()
    assert torch.equal(out.color, BACKGROUND[:, None, None].expand(3, 20, 20))
    assert renderer.render_backward(out, torch.ones(3, 20, 20)).shape == (0, 10)


def test_broken_rows_are_invisible() -> None:
    """A row that is not finite, or overflows, neither shows nor spoils the image."""
    table = random_table(60, 13)
    for row, (field, value) in enumerate(
        [("means", math.nan), ("scales", 80.0), ("quats", math.nan), ("opacities", math.nan)]
    ):
        table.field(field)[row] = value
    splats, image = render_all(table, Constants())
    assert (splats.rows >= 4).all()
    assert image.isfinite().all()


def test_float32_is_close_to_float64() -> None:
    table = random_table(200, 14, dtype=torch.float64)
    single = PrimitiveTable(table.values.float(), table.ids)
    _, exact = render_all(table, Constants())
    _, rounded = render_all(single, Constants())
    differing = (exact - rounded).abs() > 1e-4
    assert differing.float().mean() < 1e-3  # pixels at a threshold


def test_near_plane() -> None:
    camera = random_camera(20, 20, 4)
    table = random_table(3, 4, dtype=torch.float64)
    rotation = camera.world_to_camera[:3, :3]
    for row, depth in enumerate((0.19, 0.21, -1.0)):
        local = rotation.T @ np.array([0.0, 0.0, depth]) + camera.center
        table.field("means")[row] = torch.from_numpy(local)
    table.field("scales")[:] = -5.0
    table.field("opacities")[:] = 2.0
    assert ReferenceRenderer().project(table, camera, 0).rows.tolist() == [1]


def test_radii_of_opacity_box() -> None:
    opacity = 0.02
    values = torch.zeros(1, 10)
    values[0, OPACITY], values[0, DEPTH] = opacity, 1.0
    covariance = torch.tensor([[9.0, 1.0, 30.0]])
    extent = math.sqrt(2 * math.log(255 * opacity))
    expected = [[math.ceil(extent * 3), math.ceil(extent * math.sqrt(30))]]
    assert box_radii(values, covariance, Constants()).tolist() == expected
