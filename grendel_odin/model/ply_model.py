"""A model on disk: one PLY, or the files that the ranks of a Grendel-GS run wrote.

Grendel writes point_cloud_rk{R}_ws{W}.ply for rank R of W. One of them alone is a part of the
model, which renders without a complaint and scores badly; so a set is read whole or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grendel_odin.config import UserError, replacing
from grendel_odin.model.ply import ANTIALIASED_COMMENT
from grendel_odin.model.ply_header import PlyHeader, header_bytes, open_ply
from grendel_odin.model.ply_read import read_rows, sh_degree, vertex_chunks
from grendel_odin.model.table import PrimitiveTable

WHOLE = "point_cloud.ply"
PARTS = "point_cloud_rk*_ws*.ply"
_PART = re.compile(r"point_cloud_rk(\d+)_ws(\d+)\.ply")


@dataclass(frozen=True, slots=True)
class PlyModel:
    """The files of a model, by rank, with their headers."""

    files: tuple[tuple[Path, PlyHeader], ...]

    @classmethod
    def at(cls, path: Path) -> PlyModel:
        """Of a PLY, or of a folder: its point_cloud.ply, or else the files of all ranks.

        A file of one rank stands for those of all. Raises UserError where files are missing, cut
        short or do not belong together.
        """
        if path.is_dir():
            return cls.of_file(path / WHOLE) if (path / WHOLE).is_file() else cls.of_folder(path)
        part = _PART.fullmatch(path.name)
        if part and int(part[2]) > 1 and path.is_file():
            return cls.of_ranks(path.parent.glob(f"point_cloud_rk*_ws{part[2]}.ply"))
        return cls.of_file(path)

    @classmethod
    def of_file(cls, path: Path) -> PlyModel:
        """Of one file that holds all rows."""
        return cls(((path, open_ply(path)),))

    @classmethod
    def of_folder(cls, folder: Path) -> PlyModel:
        """Of the files of all ranks in a folder."""
        files = sorted(folder.glob(PARTS))
        if not files:
            raise UserError(f"{folder}: holds neither {WHOLE} nor {PARTS}.")
        return cls.of_ranks(files)

    @classmethod
    def of_ranks(cls, paths: Iterable[Path]) -> PlyModel:
        """Of the files of all ranks, in whatever order they are given."""
        by_rank = _by_rank(list(paths))
        files = tuple((path, open_ply(path)) for path in by_rank)
        _check_alike(files)
        return cls(files)

    @property
    def rows(self) -> int:
        """Primitives in all files."""
        return sum(header.rows for _, header in self.files)

    @property
    def path(self) -> Path:
        """The file, or the first of several."""
        return self.files[0][0]

    @property
    def antialiased(self) -> bool:
        """Whether the headers say that opacities are for the anti-aliased mode."""
        return ANTIALIASED_COMMENT in self.files[0][1].comments

    def read(
        self, frame: NDArray[np.float64] | None = None, rank: int = 0, size: int = 1
    ) -> PrimitiveTable:
        """One rank's share of the rows, contiguous; rows that are not finite are left out.

        Ids are row numbers, as in one file of all rows. For `frame` see `ply_read.read_rows`.
        """
        first, last = (self.rows * each // size for each in (rank, rank + 1))
        return read_rows(self.files, range(first, last), frame)

    def merge(self, target: Path) -> None:
        """Write one file of all rows with all of their properties, never holding many of them.

        It appears complete or not at all. Raises UserError if it cannot be written.
        """
        first = self.files[0][1]
        little_endian = first.row.newbyteorder("<")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(target) as out:
                out.write(header_bytes(self.rows, first.row, first.comments))
                for path, header in self.files:
                    for _, chunk in vertex_chunks(header, path, range(header.rows)):
                        out.write(chunk.astype(little_endian).data)
        except OSError as error:
            raise UserError(
                f"{target}: cannot write the PLY of {self.rows} primitives "
                f"({error.strerror or error}). Next: free space there, or choose another file."
            ) from error


def _by_rank(paths: list[Path]) -> list[Path]:
    """The files in the order of ranks, all of them there."""
    size = _world_size(paths)
    ranks: dict[int, Path] = {}
    for path in paths:
        rank, _ = _place(path)
        if rank in ranks:
            raise UserError(f"{ranks[rank]} and {path}: two files of rank {rank}. Next: give one.")
        if rank >= size:
            raise UserError(f"{path}: there is no rank {rank} among {size}.")
        ranks[rank] = path
    if missing := [rank for rank in range(size) if rank not in ranks]:
        raise UserError(
            f"{paths[0].parent}: of {size} ranks {', '.join(map(str, missing))} have no file: "
            f"point_cloud_rk{missing[0]}_ws{size}.ply is missing, and the others are only a part "
            "of the model. Next: copy it here."
        )
    return [ranks[rank] for rank in range(size)]


def _world_size(paths: list[Path]) -> int:
    """Number of ranks of the run that wrote the files."""
    sizes = sorted({_place(path)[1] for path in paths})
    if len(sizes) > 1:
        raise UserError(
            f"{paths[0].parent}: files of runs of {' and '.join(map(str, sizes))} ranks, which are "
            "different models. Next: name the files of one of them, or move the others away."
        )
    return sizes[0]


def _place(path: Path) -> tuple[int, int]:
    """Rank and number of ranks, from a file's name."""
    part = _PART.fullmatch(path.name)
    if part is None:
        raise UserError(f"{path}: not named point_cloud_rkR_wsW.ply, as a rank's file is.")
    return int(part[1]), int(part[2])


def _check_alike(files: tuple[tuple[Path, PlyHeader], ...]) -> None:
    """Rows of one structure, of one SH degree, and nothing but rows."""
    first_path, first = files[0]
    for path, header in files:
        degrees = sh_degree(first, first_path), sh_degree(header, path)
        if degrees[0] != degrees[1]:
            raise UserError(
                f"{path}: SH degree {degrees[1]}, but {first_path} has {degrees[0]}: not parts of "
                "one model."
            )
        if (header.row, header.comments) != (first.row, first.comments):
            raise UserError(
                f"{path}: its header differs from that of {first_path} in properties or comments: "
                "not parts of one model."
            )
        if (size := path.stat().st_size) != header.end:
            raise UserError(
                f"{path}: its header counts {header.rows} primitives in {header.end} bytes, the "
                f"file has {size}. Next: copy it again."
            )
