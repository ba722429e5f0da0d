"""The primitive table: one row a primitive, its fields declared once.

A row is 64 floats (256 bytes). The first 16 hold what projection needs, so that a renderer reads
one cache line of an invisible primitive; the other 48 hold the higher SH bands, coefficient-major,
so that the inactive bands of a young model are a suffix that nobody touches.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

ROW_WIDTH = 64
CORE_WIDTH = 16
BLOCK_WIDTH = 16
MAX_SH_DEGREE = 3


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the row: its name and the columns that it takes."""

    name: str
    start: int
    width: int

    @property
    def columns(self) -> slice:
        return slice(self.start, self.start + self.width)


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of one kind of primitive; PLY, optimizer and exchange read this declaration."""

    fields: tuple[Field, ...]

    def __getitem__(self, name: str) -> Field:
        return next(field for field in self.fields if field.name == name)

    @property
    def floats(self) -> int:
        """Number of columns in use."""
        return sum(field.width for field in self.fields)


GAUSSIAN = Layout(
    (
        Field("means", 0, 3),
        Field("scales", 3, 3),  # log
        Field("quats", 6, 4),  # wxyz, any length
        Field("opacities", 10, 1),  # logit
        Field("sh0", 11, 3),  # SH band 0 of R, G, B
        Field("shN", 16, 45),  # 15 coefficients of 3 channels, coefficient-major
    )
)


def active_blocks(sh_degree: int) -> int:
    """Blocks of 16 columns of a row that an SH degree makes live: 1 (degree 0) to 4 (degree 3)."""
    return 1 + -(-3 * ((sh_degree + 1) ** 2 - 1) // BLOCK_WIDTH)


@dataclass(slots=True)
class PrimitiveTable:
    """Rows and the ids that name them for ever. The order of rows carries no meaning."""

    values: Tensor
    """[N, 64] float32; columns that no field uses are zero."""
    ids: Tensor
    """[N] int64, unique."""
    layout: Layout = GAUSSIAN

    def __len__(self) -> int:
        return self.values.shape[0]

    def field(self, name: str) -> Tensor:
        """[N, width] view of a field; writing to it writes to the table."""
        return self.values[:, self.layout[name].columns]

    @staticmethod
    def empty(rows: int, layout: Layout = GAUSSIAN) -> PrimitiveTable:
        return PrimitiveTable(
            torch.zeros(rows, ROW_WIDTH), torch.zeros(rows, dtype=torch.int64), layout
        )
