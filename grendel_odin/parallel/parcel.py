"""Splats picked from others and laid out to travel: all columns, then all keys."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from grendel_odin import _kernels
from grendel_odin.render.protocol import SPLAT_WIDTH, Splats

WIDTH = SPLAT_WIDTH + 1
"""Floats of a splat: its columns and its key."""


def touching(ranges: Tensor, rows: range) -> Tensor:
    """[m] int32: positions of the splats that may touch some of the pixel rows.

    ranges: [M, 2] int32, from Renderer.row_ranges.
    """
    positions = torch.empty(len(ranges), dtype=torch.int32)
    return positions[: _kernels.touching(ranges, rows.start, rows.stop, positions)]


def pack(splats: Splats, positions: Tensor, into: Tensor) -> None:
    """Copy the splats at `positions` [m] to the flat tensor `into` [11 m]."""
    _kernels.take_splats(splats.values, splats.keys, positions, into)


def unpack(parcels: Sequence[Tensor]) -> Splats:
    """The splats of parcels, one behind the other; rows and radii do not travel."""
    counts = [len(each) // WIDTH * SPLAT_WIDTH for each in parcels]
    values = [each[:n].view(-1, SPLAT_WIDTH) for each, n in zip(parcels, counts, strict=True)]
    keys = [each[n:].view(torch.int32) for each, n in zip(parcels, counts, strict=True)]
    return Splats(
        torch.cat(values),
        torch.cat(keys),
        rows=torch.empty(0, dtype=torch.int32),
        radii=torch.empty(0, 2, dtype=torch.int32),
    )


def pick(splats: Splats, positions: Tensor) -> Splats:
    """The splats at `positions` [m]."""
    parcel = torch.empty(WIDTH * len(positions))
    pack(splats, positions, parcel)
    return unpack([parcel])
