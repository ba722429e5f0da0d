"""Initialisation of the table from points."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from grendel_odin.config import UserError
from grendel_odin.model.initialise import initialise, mean_squared_distances
from grendel_odin.model.settings import ModelSettings
from grendel_odin.model.sh import C0


def colors(points: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (points, 3), dtype=np.uint8)


def test_formulas() -> None:
    xyz = np.random.default_rng(1).normal(size=(40, 3))
    rgb = colors(40)
    table = initialise(xyz, rgb, ModelSettings(init_opacity=0.2))
    squared = ((xyz[:, None] - xyz[None]) ** 2).sum(2)
    expected = np.sort(squared, axis=1)[:, 1:4].mean(1)
    np.testing.assert_allclose(mean_squared_distances(xyz), expected)
    scales = table.field("scales").exp().numpy()
    np.testing.assert_allclose(scales, np.sqrt(expected)[:, None].repeat(3, 1), rtol=1e-5)
    np.testing.assert_allclose(table.field("means").numpy(), xyz, rtol=1e-6)
    assert torch.sigmoid(table.field("opacities")).allclose(torch.tensor(0.2))
    assert table.field("quats").eq(torch.tensor([1.0, 0.0, 0.0, 0.0])).all()
    np.testing.assert_allclose(0.5 + C0 * table.field("sh0").numpy(), rgb / 255.0, atol=1e-6)
    assert (table.field("shN") == 0).all()
    assert torch.equal(table.ids, torch.arange(40))
    assert table.values.dtype == torch.float32


@pytest.mark.parametrize("points", [1, 2, 3, 4])
def test_few_points(points: int) -> None:
    table = initialise(np.eye(4, 3)[:points], colors(points), ModelSettings())
    assert len(table) == points
    assert table.values.isfinite().all()


def test_points_at_one_place_have_the_least_scale() -> None:
    scales = initialise(np.ones((6, 3)), colors(6), ModelSettings()).field("scales")
    assert scales.allclose(torch.tensor(0.5 * math.log(1e-7)))


def test_points_repeated_often_take_the_distance_to_other_places() -> None:
    places = np.random.default_rng(2).normal(size=(9, 3))
    squared = mean_squared_distances(np.repeat(places, 5, axis=0))
    np.testing.assert_allclose(squared, np.repeat(mean_squared_distances(places), 5))


def test_the_floor_follows_a_tiny_scene() -> None:
    xyz = np.random.default_rng(1).normal(size=(40, 3))
    tiny = mean_squared_distances(1e-6 * xyz)
    np.testing.assert_allclose(tiny, 1e-12 * mean_squared_distances(xyz))
    pair = mean_squared_distances(np.concatenate([xyz, xyz[:1] + 1e-9]))
    assert (pair >= 1e-7).all()


def test_cap_takes_an_even_selection() -> None:
    xyz = np.arange(300, dtype=np.float64).reshape(100, 3)
    table = initialise(xyz, colors(100), ModelSettings(max_primitives=10))
    assert torch.equal(table.field("means"), torch.from_numpy(xyz[::10]).float())
    assert torch.equal(table.ids, torch.arange(10))


@pytest.mark.parametrize(
    ("xyz", "message"),
    [
        (np.empty((0, 3)), "no 3D points"),
        (np.array([[0.0, 0.0, 0.0], [np.nan, 0.0, 0.0]]), "1 of the 2 3D points"),
    ],
)
def test_bad_points(xyz: np.ndarray, message: str) -> None:
    with pytest.raises(UserError, match=message):
        initialise(xyz, colors(len(xyz)), ModelSettings())


@settings(max_examples=40, deadline=None)
@given(arrays(np.float64, st.tuples(st.integers(1, 12), st.just(3)), elements=st.floats(-9e5, 9e5)))
def test_any_points_give_a_finite_table(xyz: np.ndarray) -> None:
    table = initialise(xyz, colors(len(xyz)), ModelSettings())
    assert table.values.isfinite().all()
    assert (table.field("scales") >= 0.5 * math.log(1e-24) - 1e-4).all()
