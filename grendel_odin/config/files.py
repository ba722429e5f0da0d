"""Files that appear complete or not at all, and what to say where they cannot be written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from grendel_odin.config.errors import UserError

_unfinished = set[Path]()


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` if the block ends without an error.

    Raises OSError, and then leaves nothing behind.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    _unfinished.add(temporary)
    try:
        with open(temporary, "wb") as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    finally:
        _unfinished.discard(temporary)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns a failure to write (disk full, no permission) into a UserError.

    It names `path`, the file or the folder of what is written, unless the failure names a file.
    """
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write {error.filename or path}: {error.strerror or error}. Next: free space "
            "there, or choose another output folder"
        ) from error


def drop_unfinished() -> None:
    """Remove what `replacing` has not finished, just before the process ends on the spot."""
    for temporary in list(_unfinished):
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
