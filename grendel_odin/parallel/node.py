"""The ranks that run on one node, and the memory that they share."""

from __future__ import annotations

import hashlib
import os
import socket
from contextlib import suppress
from pathlib import Path

import torch

from grendel_odin import _kernels
from grendel_odin.data.node_memory import NodeMemory, new_memory_file, open_memory_file
from grendel_odin.parallel.world import World


def machine() -> str:
    """The same for processes on one machine."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{boot} {socket.gethostname()}"


def node_key() -> int:
    """A number that ranks have in common if they run on one node."""
    return int.from_bytes(hashlib.sha256(machine().encode()).digest()[:7], "big")


def open_mailboxes(world: World) -> None:
    """Let the ranks of each node talk through memory, if they can share it; every rank calls it."""
    if world.wire is None:
        return
    memory, here = _shared(world)
    mailbox = None
    with suppress(OSError, RuntimeError):
        if memory.ranks > 1:
            # Now, so that a lack of memory does not show in mid-run.
            os.posix_fallocate(memory.file, 0, _kernels.Mailbox.bytes(memory.ranks))
            path = f"/proc/self/fd/{memory.file}"
            mailbox = _kernels.Mailbox(path, memory.rank, memory.ranks)
    os.close(memory.file)
    ready = world.gather_integers(torch.tensor([mailbox is not None]).long())[here].all()
    if ready:
        world.wire.neighbours, world.wire.mailbox = here, mailbox


def share_memory(world: World) -> NodeMemory:
    """One piece of memory for all ranks of each node; every rank calls it.

    Where a rank cannot open that of the first rank of its node (containers that do not see each
    other's processes), all ranks of the node get memory of their own, which says so.
    """
    return NodeMemory.private() if world.size == 1 else _shared(world)[0]


def _shared(world: World) -> tuple[NodeMemory, list[int]]:
    """The memory, and the ranks of this node, ascending."""
    own = new_memory_file()
    place = torch.tensor([node_key(), os.getpid(), own, os.fstat(own).st_ino])
    places = world.gather_integers(place).tolist()
    here = [rank for rank, (key, *_) in enumerate(places) if key == places[world.rank][0]]
    _, process, file, inode = places[here[0]]
    shared = own if world.rank == here[0] else _open(process, file, inode)
    failed = world.gather_integers(torch.tensor([shared is None]).long())[here].any()
    if shared is None or failed:
        return NodeMemory(own, split=len(here)), here
    if shared != own:
        os.close(own)
    return NodeMemory(shared, here.index(world.rank), len(here)), here


def _open(process: int, file: int, inode: int) -> int | None:
    """The memory file of another process of this node; None where that is not to be had."""
    try:
        opened = open_memory_file(process, file)
    except OSError:
        return None
    if os.fstat(opened).st_ino == inode:
        return opened
    os.close(opened)
    return None
