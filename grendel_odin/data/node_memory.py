"""Memory that processes of one node can share: a file without a name, gone with its last user."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """A file in memory, open in each of the processes that share it.

    It has no name in any file system, so nothing is left behind however the processes end, and
    its size is not bounded by that of /dev/shm. It begins empty and reads as zeros where nothing
    was written.
    """

    file: int
    """The descriptor; one of this process alone, so that its locks exclude other processes."""
    rank: int = 0
    """Number of this process among those that share the file."""
    ranks: int = 1
    split: int = 1
    """Processes of the node that hold memory of their own, because they could not share it."""

    @classmethod
    def private(cls, split: int = 1) -> NodeMemory:
        """Memory of this process alone, one of `split` on its node."""
        return cls(new_memory_file(), split=split)

    def grow(self, size: int) -> None:
        """Give the file at least `size` bytes; pages cost nothing until they are written to."""
        if os.fstat(self.file).st_size < size:
            os.ftruncate(self.file, size)


def new_memory_file() -> int:
    """A descriptor of a new, empty file in memory."""
    return os.memfd_create("grendel-odin", os.MFD_CLOEXEC)


def open_memory_file(process: int, file: int) -> int:
    """A descriptor of the memory file that another process of this node has open as `file`.

    Raises OSError where that is not allowed, or it is no such file.
    """
    path = f"/proc/{process}/fd/{file}"
    if not os.readlink(path).startswith("/memfd:grendel-odin"):
        raise OSError(f"{path} is no memory of this program")
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)
