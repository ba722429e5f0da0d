"""One number for the state of a model, whatever the order and spread of its rows."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray

from grendel_odin.model.ids import mix64
from grendel_odin.model.table import Layout, PrimitiveTable

_CHUNK = 1 << 14
_LANE_SEEDS = (0x243F6A8885A308D3, 0x13198A2E03707344)


def state_sha256(table: PrimitiveTable) -> str:
    """Hex SHA-256 of the sum, modulo 2^128, of a 128-bit hash of each row's id and fields.

    Equal for any order of rows; ranks may add their `state_sum` and take `sum_sha256` of that.
    """
    return sum_sha256(state_sum(table))


def sum_sha256(total: int) -> str:
    """Hex SHA-256 of a sum of row hashes, modulo 2^128."""
    return hashlib.sha256((total % (1 << 128)).to_bytes(16, "little")).hexdigest()


def state_sum(table: PrimitiveTable) -> int:
    """The sum of the 128-bit hashes of rows, modulo 2^128.

    Each 64-bit lane is a multilinear hash of the row's words under odd keys, mixed with the id.
    """
    columns = used_columns(table.layout)
    total = 0
    for start in range(0, len(table), _CHUNK):
        rows = table.values[start : start + _CHUNK, columns].contiguous()
        words = rows.numpy().view(np.uint32).astype(np.uint64)
        ids = table.ids[start : start + _CHUNK]
        low, high = (_row_hashes(words, ids, seed) for seed in _LANE_SEEDS)
        total += _exact_sum(low) + (_exact_sum(high) << 64)
    return total % (1 << 128)


def lanes(total: int) -> list[int]:
    """Four parts of 32 bits, the lowest first, which ranks may exchange and add up."""
    return [total >> (32 * lane) & 0xFFFFFFFF for lane in range(4)]


def used_columns(layout: Layout) -> torch.Tensor:
    """[floats] int64 columns of the row that hold a field."""
    return torch.cat([torch.arange(f.start, f.start + f.width) for f in layout.fields])


def _row_hashes(words: NDArray[np.uint64], ids: torch.Tensor, seed: int) -> NDArray[np.uint64]:
    """[n] hashes of words [n, w] and ids [n]."""
    base = torch.tensor(seed, dtype=torch.int64)
    keys = (mix64(base + torch.arange(words.shape[1])) | 1).numpy().view(np.uint64)
    # Mixing before the sum: in a plain sum over rows, changes of opposite sign would cancel.
    mixed = torch.from_numpy((words @ keys).view(np.int64))
    return mix64(mix64(ids + base) ^ mix64(mixed)).numpy().view(np.uint64)


def _exact_sum(words: NDArray[np.uint64]) -> int:
    """Sum of a chunk's words without wrap-around."""
    low = int((words & np.uint64(0xFFFFFFFF)).sum())
    return low + (int((words >> np.uint64(32)).sum()) << 32)
