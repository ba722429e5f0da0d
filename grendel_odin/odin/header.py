"""Headers: the few integers that open an exchange, so that all ranks decide alike.

No other control message exists: sizes of messages, the next unit, admission, stops and fences are
functions of headers, and every rank holds those of all ranks (`transport.Transport.gather`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

import torch
from torch import Tensor

from grendel_odin.odin.gradient_bins import BINS

WORD_BITS = 64


class Alarm(IntFlag):
    """What one rank has to tell all."""

    STOP = 1  # a signal asked to stop
    NONFINITE = 2  # a number is not finite
    MEMORY = 4  # memory runs short


@dataclass(frozen=True, slots=True)
class Shape:
    """What fixes the length of a header; alike on all ranks."""

    pieces: int
    """Receivers that rows are counted for: ranks, or their strips."""
    look_ahead: int
    """Units that may come next; 0 where no evidence about them is wanted."""
    tile_rows: int
    """Of all views of the unit that the header tells of."""

    @property
    def late(self) -> list[int]:
        """Words of the parts of a late header."""
        binned = self.look_ahead * BINS
        return [self.pieces, self.look_ahead, binned, binned, BINS, self.tile_rows, 1]

    @property
    def early(self) -> list[int]:
        """Words of the parts of an early header."""
        return [self.pieces, _words(self.tile_rows)]


@dataclass(frozen=True, slots=True)
class LateHeader:
    """Opens the late exchange of unit u, once its active rows are known.

    All int64. Headers of all ranks make one whose tensors have a leading dimension R (".." below).
    """

    rows: Tensor
    """[.., P] that go to each piece."""
    candidates: Tensor
    """[.., L] rows that each unit ahead may read."""
    counts: Tensor
    """[.., L, 64] active rows of u that the unit ahead may see, by the size of their step."""
    sums: Tensor
    """[.., L, 64] of those sizes, see `gradient_bins`."""
    total: Tensor
    """[.., 64] sums of the sizes of all active rows of u."""
    work: Tensor
    """[.., T] counted in the tile rows of unit u - 1; 0 where another rank has rendered."""
    alarms: Tensor
    """[.., 1] of `Alarm`."""

    @property
    def conflicts(self) -> Tensor:
        """[.., L] active rows of u that the unit ahead may see."""
        return self.counts.sum(-1)

    @property
    def alarm(self) -> Alarm:
        """What any rank has told."""
        return Alarm(sum(flag for flag in Alarm if bool((self.alarms & int(flag)).any())))

    def pack(self) -> Tensor:
        """[.., n] int64."""
        binned = (self.counts.flatten(-2), self.sums.flatten(-2))
        parts = (self.rows, self.candidates, *binned, self.total, self.work, self.alarms)
        return torch.cat(parts, -1)

    @classmethod
    def unpack(cls, words: Tensor, shape: Shape) -> LateHeader:
        """From what `pack` made."""
        parts = list(torch.split(words, shape.late, -1))
        for place in (2, 3):
            parts[place] = _split_last(parts[place], shape.look_ahead, BINS)
        return cls(*parts)


@dataclass(frozen=True, slots=True)
class EarlyHeader:
    """Opens the early exchange of unit u + 1."""

    rows: Tensor
    """[.., P] that go to each piece."""
    touched: Tensor
    """[.., T] bool: tile rows that a splat which comes late may still touch."""

    def pack(self) -> Tensor:
        """[.., n] int64."""
        return torch.cat([self.rows, pack_bits(self.touched)], -1)

    @classmethod
    def unpack(cls, words: Tensor, shape: Shape) -> EarlyHeader:
        """From what `pack` made."""
        rows, touched = torch.split(words, shape.early, -1)
        return cls(rows, unpack_bits(touched, shape.tile_rows))


def pack_bits(bits: Tensor) -> Tensor:
    """[.., n] bool to [.., ceil(n / 64)] int64; also for the splats to be returned first."""
    count = _words(bits.shape[-1])
    padded = torch.nn.functional.pad(bits.long(), (0, WORD_BITS * count - bits.shape[-1]))
    words = _split_last(padded, count, WORD_BITS) << torch.arange(WORD_BITS)
    return words.sum(-1)


def unpack_bits(words: Tensor, count: int) -> Tensor:
    """[.., count] bool of what `pack_bits` made."""
    bits = (words.unsqueeze(-1) >> torch.arange(WORD_BITS)) & 1
    return bits.flatten(-2)[..., :count].bool()


def _split_last(values: Tensor, rows: int, columns: int) -> Tensor:
    return values.reshape(*values.shape[:-1], rows, columns)


def _words(bits: int) -> int:
    return -(-bits // WORD_BITS)
