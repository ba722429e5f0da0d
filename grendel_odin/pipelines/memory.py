"""The memory guard: primitives multiply only as far as the memory of their node goes.

Measured is what is in use at the moment, by whatever program, never a peak: when memory is free
again, growth goes on. Where the guard acts, the model depends on the machine; elsewhere it has no
influence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from grendel_odin.model.table import ROW_WIDTH
from grendel_odin.parallel.node import node_key
from grendel_odin.parallel.world import ALONE, World

ROW_BYTES = 3 * 4 * ROW_WIDTH + 5 * ROW_WIDTH + 8 + 12
"""Of one primitive: values and both moments; gradients, whose buffer is up to a quarter larger
than needed; its id; its statistics."""
REBUILD_BYTES = 4 * ROW_WIDTH
"""On top, for each primitive old and new, while the arrays are made anew one by one."""
UNLIMITED = 2**62


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that are in use, of those that there are: of a machine or of a control group."""

    used: int
    total: int


def read_memory(root: Path = Path("/")) -> list[Memory]:
    """Of this machine and of the control groups that limit this process (Linux; v1 and v2)."""
    found: list[Memory] = []
    with suppress(OSError, KeyError, ValueError):
        facts = _facts(root / "proc/meminfo")
        total = facts["MemTotal:"] * 1024
        found.append(Memory(total - facts["MemAvailable:"] * 1024, total))
    for folder, limit, usage, cache in _groups(root):
        with suppress(OSError, KeyError, ValueError):
            total, used = (int((folder / name).read_text()) for name in (limit, usage))
            # Pages of files that were read go when memory is asked for.
            found.append(Memory(used - _facts(folder / "memory.stat")[cache], total))
    return found


def _groups(root: Path) -> Iterator[tuple[Path, str, str, str]]:
    """Folders of the control groups of this process, up to the outermost; names of their facts."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, names = "", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            base = "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        top = root / "sys/fs/cgroup" / base
        folder = top / path.lstrip("/")
        for each in (folder, *folder.parents):
            yield each, *names
            if each == top:
                break


def _facts(path: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1}


@dataclass(frozen=True, slots=True)
class MemoryGuard:
    """Says how many bytes of a node's memory primitives may still take.

    A backend that keeps primitives elsewhere brings its own meter: on CUDA
    torch.cuda.mem_get_info says what is free now, and how much there is.
    """

    share: float
    """Of the memory that there is (`model.memory_limit`); 0: no guard."""
    meter: Callable[[], Sequence[Memory]] = read_memory
    replicas: World = ALONE
    """Ranks that each hold all rows, if they do: what is free is shared by those of a node."""

    def free_bytes(self) -> int:
        """Bytes from what is in use to the limit, alike on all replicas; negative beyond it."""
        if not self.share:
            return UNLIMITED
        free = min((int(self.share * m.total) - m.used for m in self.meter()), default=UNLIMITED)
        readings = self.replicas.gather_integers(torch.tensor([node_key(), free])).tolist()
        ranks = Counter(node for node, _ in readings)
        return min(int(there) // ranks[node] for node, there in readings)

    def reading(self) -> str:
        """The tightest of the memories, in words."""
        tightest = min(self.meter(), key=lambda m: self.share * m.total - m.used, default=None)
        if tightest is None:
            return "no memory is measured"
        return f"{tightest.used / 1e9:.1f} of {tightest.total / 1e9:.1f} GB are in use here"


def room_for_growth(free_bytes: int, present: int) -> int:
    """Primitives that fit on top of those present on a node."""
    return max(0, (free_bytes - REBUILD_BYTES * present) // (ROW_BYTES + REBUILD_BYTES))


NO_GUARD = MemoryGuard(0.0)
