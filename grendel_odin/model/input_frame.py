"""A model in the frame of its input: `python -m grendel_odin.model.input_frame MODEL.ply OUT.ply`.

The PLY files of a run hold a local frame where coordinates are far from the origin, since viewers
read float32. This writes a copy for tools that read survey coordinates: x, y and z are doubles
with the offset added, all else is as it was. (SIBR, which takes every property for a float32,
does not read such a file.)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from grendel_odin.config import UserError, exit_code, replacing
from grendel_odin.model.ply import OFFSET
from grendel_odin.model.ply_header import header_bytes, open_ply
from grendel_odin.model.ply_read import header_offset, vertex_chunks


def write_in_input_frame(source: Path, target: Path) -> None:
    """Copy a PLY with its offset added to positions.

    Raises UserError if the file is no binary PLY with positions, or a file cannot be used.
    """
    try:
        header = open_ply(source)
        names = header.row.names or ()
        if not set("xyz") <= set(names):
            raise UserError(f"{source}: its vertices have no x, y and z.")
        offset = dict(zip("xyz", header_offset(header), strict=True))
        kinds = {name: "f8" if name in offset else header.row[name].str[1:] for name in names}
        row = np.dtype([(name, "<" + kind) for name, kind in kinds.items()])
        kept = [text for text in header.comments if not text.startswith(OFFSET + " ")]
        with replacing(target) as out:
            out.write(header_bytes(header.rows, row, kept))
            for _, chunk in vertex_chunks(header, source, range(header.rows)):
                moved = chunk.astype(row)
                for name, value in offset.items():
                    moved[name] += value
                out.write(moved.tobytes())
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror or error}.") from error


def main(arguments: Sequence[str]) -> int:
    """Exit code of the command."""
    parser = argparse.ArgumentParser(
        "python -m grendel_odin.model.input_frame", description=__doc__
    )
    parser.add_argument("model", type=Path, metavar="MODEL.ply")
    parser.add_argument("out", type=Path, metavar="OUT.ply")
    given = parser.parse_args(arguments)
    return exit_code(lambda: write_in_input_frame(given.model, given.out))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
