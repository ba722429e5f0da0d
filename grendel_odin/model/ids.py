"""Ids name rows for ever; whatever must not depend on a row's place is keyed by its id."""

from __future__ import annotations

import torch
from torch import Tensor


def _signed(word: int) -> int:
    """The int64 with the bits of a 64-bit word."""
    word &= (1 << 64) - 1
    return word - (1 << 64) if word >> 63 else word


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_FIRST = _signed(0xBF58476D1CE4E5B9)
_SECOND = _signed(0x94D049BB133111EB)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64 words."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def mix64(x: Tensor) -> Tensor:
    """Finaliser of SplitMix64 (Steele et al. 2014, figure 16): a bijection of 64-bit words.

    x: int64 of any shape, read as unsigned; arithmetic wraps around.
    """
    x = (x ^ _shift_right(x, 30)) * _FIRST
    x = (x ^ _shift_right(x, 27)) * _SECOND
    return x ^ _shift_right(x, 31)


def child_ids(parents: Tensor, event: int, k: int) -> Tensor:
    """[n] int64 ids of the k-th child that each of parents [n] gets at a structural event.

    One (event, k) never gives two parents the same child; children of different (event, k)
    collide with probability 2^-64 a pair, so the caller checks that new ids are unique.
    """
    salt = mix64(mix64(torch.tensor(event, dtype=torch.int64) + _GOLDEN) + k)
    return mix64(mix64(parents + _GOLDEN) ^ salt)


def sort_keys(ids: Tensor) -> Tensor:
    """[n] int32 keys that order splats of equal depth: the high half of mix64, read as unsigned."""
    return (mix64(ids) >> 32).int()
