"""Three pictures of a plan: the graph on the ground, couplings by group, and along the order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

SIZE, MARGIN, CAPTION = 800, 24, 22
MOST_EDGES = 6000
"""Edges that are drawn; the strongest."""
_PALETTE = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5")
_PLAN, _RANDOM = "#4269d0", "#b0b0b0"

Arrays = dict[str, NDArray[Any]]


def write_plan_pictures(folder: Path, positions: NDArray[np.float64]) -> None:
    """Write plan_graph.png, plan_matrix.png and plan_order.png beside plan.json and plan.npz.

    positions [V, 3]: camera centres. Raises OSError if files cannot be read or written.
    """
    told = json.loads((folder / "plan.json").read_bytes())
    with np.load(folder / "plan.npz", allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    graph_picture(arrays, positions).save(folder / "plan_graph.png")
    matrix_picture(arrays).save(folder / "plan_matrix.png")
    order_picture(arrays, told["shuffled"]).save(folder / "plan_order.png")


def graph_picture(arrays: Arrays, positions: NDArray[np.float64]) -> Image.Image:
    """Views where their cameras stand, seen along the axis in which they spread least; the colour
    is the group, the darkness of an edge its weight."""
    picture, draw = _canvas(f"{len(positions):,} views by group; edges by weight")
    at = _on_canvas(positions)
    rows = np.repeat(np.arange(len(positions)), np.diff(arrays["starts"]))
    once = np.flatnonzero(rows < arrays["neighbours"])
    weights = arrays["weights"][once]
    order = np.argsort(weights, kind="stable")[-MOST_EDGES:]
    for edge, weight in zip(once[order], weights[order] / weights.max(initial=1e-9), strict=True):
        ends = at[rows[edge]], at[arrays["neighbours"][edge]]
        draw.line([tuple(end) for end in ends], fill=(int(235 - 175 * weight),) * 3)
    radius = 5 if len(positions) <= 500 else 2
    for (x, y), group in zip(at, arrays["groups"], strict=True):
        box = (x - radius, y - radius, x + radius, y + radius)
        draw.ellipse(box, fill=_PALETTE[group % len(_PALETTE)], outline="black")
    return picture


def matrix_picture(arrays: Arrays) -> Image.Image:
    """Weights of all pairs with views sorted by group: dark blocks on the diagonal are groups."""
    groups = arrays["groups"]
    place = np.empty(len(groups), np.int64)
    place[np.argsort(groups, kind="stable")] = np.arange(len(groups))
    side = min(len(groups), SIZE)
    cell = place * side // len(groups)
    rows = np.repeat(cell, np.diff(arrays["starts"]))
    grid = np.zeros((side, side))
    np.add.at(grid, (rows, cell[arrays["neighbours"]]), arrays["weights"])
    level = np.sqrt(grid / max(float(grid.max()), 1e-9))
    shades = np.round(255 * (1 - level)).astype(np.uint8)
    picture, draw = _canvas("coupling of all pairs of views, sorted by group (dark: strong)")
    picture.paste(
        Image.fromarray(shades).resize((SIZE, SIZE), Image.Resampling.BOX), (MARGIN, CAPTION)
    )
    for edge in np.cumsum(np.bincount(groups))[:-1] * SIZE / len(groups):
        draw.line((MARGIN + edge, CAPTION, MARGIN + edge, CAPTION + SIZE), fill="#ff725c")
        draw.line((MARGIN, CAPTION + edge, MARGIN + SIZE, CAPTION + edge), fill="#ff725c")
    return picture


def order_picture(arrays: Arrays, shuffled: dict[str, float]) -> Image.Image:
    """Coupling of each unit with the unit before, along the order; lines: what random order has."""
    values = arrays["coupling"].astype(np.float64)
    picture, draw = _canvas(
        "coupling of each unit with the one before (blue; light: no window planned); "
        "grey: mean, 90th percentile, maximum of random order"
    )
    top = max(float(values.max(initial=0.0)), shuffled["most"], 1e-9)

    def height(value: float) -> float:
        return CAPTION + SIZE - value / top * (SIZE - 10)

    for value in (shuffled["mean"], shuffled["high"], shuffled["most"]):
        draw.line((MARGIN, height(value), MARGIN + SIZE, height(value)), fill=_RANDOM, width=2)
    columns = min(len(values), SIZE)
    for column in range(columns):  # of many pairs of units the worst of each column
        first, last = (len(values) * edge // columns for edge in (column, column + 1))
        left, right = (MARGIN + SIZE * edge // columns for edge in (column, column + 1))
        color = _PLAN if arrays["open"][first:last].all() else "#97bbf5"
        worst = height(float(values[first:last].max()))
        draw.rectangle((left, worst, max(left, right - 1), CAPTION + SIZE), fill=color)
    return picture


def _canvas(caption: str) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    picture = Image.new("RGB", (SIZE + 2 * MARGIN, SIZE + CAPTION + MARGIN), "white")
    draw = ImageDraw.Draw(picture)
    draw.text((MARGIN, 4), caption, fill="black", font=ImageFont.load_default())
    return picture, draw


def _on_canvas(positions: NDArray[np.float64]) -> NDArray[np.float64]:
    """[V, 2] pixels of positions [V, 3], along the two axes in which they spread most."""
    centered = positions - positions.mean(axis=0)
    axes = np.linalg.svd(centered, full_matrices=False)[2]
    flat = np.zeros((len(positions), 2))
    flat[:, : min(2, len(axes))] = centered @ axes[:2].T
    flat -= flat.min(axis=0)
    inner = SIZE - 2 * MARGIN
    place: NDArray[np.float64] = flat * (inner / max(float(flat.max()), 1e-9))
    place += np.array([2 * MARGIN, CAPTION + MARGIN])
    return place
