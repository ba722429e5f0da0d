"""The fused loss against its twin in plain torch (float64), strips, threads, odd sizes."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from grendel_odin.render.losses import (
    HALO,
    PhotometricLoss,
    photometric_reference,
    psnr,
    ssim,
    ssim_map,
)


def images(height: int, width: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A smooth render with some values beyond [0, 1], and a truth that resembles it."""
    draw = torch.Generator().manual_seed(seed)
    noise = torch.rand(1, 3, height + 4, width + 4, generator=draw)
    smooth = functional.avg_pool2d(noise, 5, 1)[0] * 2 - 0.5
    color = smooth + 0.1 * torch.randn(3, height, width, generator=draw)
    truth = smooth + 0.1 * torch.randn(3, height, width, generator=draw)
    return color.contiguous(), (255 * truth).round().clamp(0, 255).byte()


def check(height: int, width: int, ssim_lambda: float, seed: int = 0) -> None:
    color, truth = images(height, width, seed)
    result = PhotometricLoss(ssim_lambda, 1).loss(color, truth)
    exact = color.double().requires_grad_()
    expected = photometric_reference(exact, truth, ssim_lambda)
    (gradient,) = torch.autograd.grad(expected, exact)
    y = truth.double() / 255
    assert result.value == pytest.approx(expected.item(), abs=1e-6)
    assert result.l1 == pytest.approx((exact - y).abs().mean().item(), abs=1e-7)
    assert result.ssim == pytest.approx(ssim_map(exact, y).mean().item(), abs=1e-6)
    scale = gradient.abs().amax().item()
    torch.testing.assert_close(result.grad.double(), gradient, rtol=0, atol=3e-6 * scale)


@pytest.mark.parametrize("ssim_lambda", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("size", [(1, 1), (5, 3), (10, 11), (16, 16), (17, 33), (61, 47)])
def test_loss_and_gradient_match_torch(size: tuple[int, int], ssim_lambda: float) -> None:
    check(*size, ssim_lambda)


@settings(max_examples=25, deadline=None)
@given(height=st.integers(1, 70), width=st.integers(1, 70), seed=st.integers(0, 9))
def test_any_size_matches_torch(height: int, width: int, seed: int) -> None:
    check(height, width, 0.2, seed)


def test_gradient_matches_finite_differences() -> None:
    color, truth = images(23, 19)
    grad = PhotometricLoss(0.2, 1).loss(color, truth).grad.double()
    draw = torch.Generator().manual_seed(1)
    for _ in range(8):
        direction = torch.randn(color.shape, generator=draw, dtype=torch.float64)
        # So short a step crosses no kink of |x - y|.
        step = 1e-7
        values = [
            photometric_reference(color.double() + sign * step * direction, truth, 0.2).item()
            for sign in (1, -1)
        ]
        slope = (values[0] - values[1]) / (2 * step)
        assert slope == pytest.approx((grad * direction).sum().item(), rel=1e-4, abs=1e-6)


def test_equal_images_have_no_loss_and_no_gradient() -> None:
    truth = torch.arange(256, dtype=torch.uint8).repeat(3, 1).reshape(3, 16, 16).contiguous()
    result = PhotometricLoss(0.2, 1).loss(truth.float() / 255, truth)
    assert result.l1 == 0.0  # the kernel divides bytes by 255 as torch does
    assert result.ssim == pytest.approx(1.0, abs=1e-6)
    assert result.grad.abs().amax() < 1e-7


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_strips_equal_the_whole_bit_for_bit(data: st.DataObject) -> None:
    height = data.draw(st.integers(1, 90), label="height")
    width = data.draw(st.integers(1, 40), label="width")
    cuts = data.draw(st.sets(st.integers(0, height), max_size=4), label="cuts")
    color, truth = images(height, width)
    loss = PhotometricLoss(0.2, 1)
    whole = loss.loss(color, truth)
    bounds = sorted(cuts | {0, height})
    strips = []
    for first, last in pairwise(bounds):
        # What lies beyond the halo must not matter, so some strips are given more of it.
        more = data.draw(st.integers(0, 3), label="more")
        top, bottom = max(0, first - HALO - more), min(height, last + HALO + more)
        given_rows = (color[:, top:bottom].contiguous(), truth[:, top:bottom].contiguous())
        strips.append(loss.strip(*given_rows, top, range(first, last), height))
    joined = loss.combine(torch.cat([strip.row_sums for strip in strips]), whole.grad.shape[2])
    assert torch.equal(torch.cat([strip.grad for strip in strips], dim=1), whole.grad)
    assert (joined.value, joined.l1, joined.ssim) == (whole.value, whole.l1, whole.ssim)


@pytest.mark.parametrize("size", [(3, 200), (33, 50), (150, 65)])
@pytest.mark.parametrize("threads", [2, 3, 7])
def test_threads_do_not_change_a_bit(size: tuple[int, int], threads: int) -> None:
    color, truth = images(*size)
    one, many = (PhotometricLoss(0.2, n).loss(color, truth) for n in (1, threads))
    assert torch.equal(one.grad, many.grad)
    assert (one.value, one.l1, one.ssim) == (many.value, many.l1, many.ssim)


def test_memory_of_an_earlier_call_does_not_leak() -> None:
    loss = PhotometricLoss(0.2, 1)
    color, truth = images(40, 30)
    first = loss.loss(color, truth)
    loss.loss(torch.full((3, 50, 64), float("nan")), torch.zeros(3, 50, 64, dtype=torch.uint8))
    again = loss.loss(color, truth)
    assert torch.equal(first.grad, again.grad) and first.value == again.value


def test_a_value_that_is_not_finite_shows_in_the_loss() -> None:
    color, truth = images(20, 20)
    color[1, 7, 9] = float("nan")
    assert math.isnan(PhotometricLoss(0.2, 1).loss(color, truth).value)


def test_halo_too_short_is_refused() -> None:
    color, truth = images(40, 20)
    with pytest.raises(ValueError, match="10 beyond the strip"):
        PhotometricLoss(0.2, 1).strip(
            color[:, 6:].contiguous(), truth[:, 6:].contiguous(), 6, range(15, 20), 40
        )
    with pytest.raises(ValueError, match="differ in shape"):
        PhotometricLoss(0.2, 1).loss(color, truth[:, 1:].contiguous())


def test_measures_of_float_images() -> None:
    color, truth = images(31, 45)
    x, y = color.clamp(0, 1), truth.float() / 255
    assert ssim(x, y) == pytest.approx(ssim_map(x.double(), y.double()).mean().item(), abs=1e-6)
    error = (x.double() - y.double()).square().mean().item()
    assert psnr(x, y) == pytest.approx(-10 * math.log10(error))
    assert psnr(y, y) == math.inf
    assert ssim(y, y) == pytest.approx(1.0, abs=1e-6)


def blobs(height: int, width: int, seed: int) -> Tensor:
    """A mask of uint8 [H, W] with connected regions."""
    draw = torch.Generator().manual_seed(seed)
    noise = torch.rand(1, 1, height + 6, width + 6, generator=draw)
    return ((functional.avg_pool2d(noise, 7, 1)[0, 0] > 0.5) * 255).byte()


@settings(max_examples=25, deadline=None)
@given(
    height=st.integers(1, 60),
    width=st.integers(1, 60),
    seed=st.integers(0, 9),
    ssim_lambda=st.sampled_from([0.0, 0.2, 1.0]),
)
def test_masked_loss_matches_torch(height: int, width: int, seed: int, ssim_lambda: float) -> None:
    color, truth = images(height, width, seed)
    mask = blobs(height, width, seed)
    result = PhotometricLoss(ssim_lambda, 1).loss(color, truth, mask)
    exact = color.double().requires_grad_()
    expected = photometric_reference(exact, truth, ssim_lambda, mask)
    (gradient,) = torch.autograd.grad(expected, exact)
    assert result.value == pytest.approx(expected.item(), abs=1e-6)
    scale = max(gradient.abs().amax().item(), 1e-9)
    torch.testing.assert_close(result.grad.double(), gradient, rtol=0, atol=3e-6 * scale)
    assert not result.grad[:, mask == 0].any()


def test_what_is_rendered_at_excluded_pixels_changes_nothing() -> None:
    color, truth = images(40, 50)
    mask = blobs(40, 50, 3)
    wild = torch.where(mask != 0, color, torch.tensor(float("nan")))
    loss = PhotometricLoss(0.2, 1)
    one, other = loss.loss(color, truth, mask), loss.loss(wild, truth, mask)
    assert torch.equal(one.grad, other.grad) and one.value == other.value


def test_masks_of_one_colour() -> None:
    color, truth = images(33, 21)
    loss = PhotometricLoss(0.2, 1)
    plain = loss.loss(color, truth)
    white = loss.loss(color, truth, torch.full((33, 21), 255, dtype=torch.uint8))
    assert torch.equal(plain.grad, white.grad) and plain.value == white.value
    black = loss.loss(color, truth, torch.zeros(33, 21, dtype=torch.uint8))
    assert black.value == pytest.approx(0.0, abs=1e-6) and black.l1 == 0.0
    assert not black.grad.any()


def test_masked_strips_equal_the_whole_bit_for_bit() -> None:
    color, truth = images(70, 30)
    mask, loss = blobs(70, 30, 1), PhotometricLoss(0.2, 1)
    whole = loss.loss(color, truth, mask)
    strips = []
    for first, last in ((0, 16), (16, 41), (41, 70)):
        top, bottom = max(0, first - HALO), min(70, last + HALO)
        given_rows = (color[:, top:bottom].contiguous(), truth[:, top:bottom].contiguous())
        strips.append(loss.strip(*given_rows, top, range(first, last), 70, mask[top:bottom]))
    joined = loss.combine(torch.cat([strip.row_sums for strip in strips]), whole.grad.shape[2])
    assert torch.equal(torch.cat([strip.grad for strip in strips], dim=1), whole.grad)
    assert joined.value == whole.value
