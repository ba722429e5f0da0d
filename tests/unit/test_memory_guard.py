"""The memory guard: what it measures, and that growth keeps within it, alike on all ranks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from grendel_odin.parallel.world import ALONE, World
from grendel_odin.pipelines import growth
from grendel_odin.pipelines.growth import Choice, Room
from grendel_odin.pipelines.memory import (
    REBUILD_BYTES,
    ROW_BYTES,
    UNLIMITED,
    Memory,
    MemoryGuard,
    read_memory,
    room_for_growth,
)

GB = 10**9
MEMINFO = "MemTotal: 16000 kB\nMemFree: 1000 kB\nMemAvailable: 12000 kB\nHugePages_Total: 0\n"


class ThreadWorld:
    """Ranks as threads."""

    def __init__(self, rank: int, size: int, barrier: threading.Barrier, box: list[Any]) -> None:
        self.rank, self.size, self._barrier, self._box = rank, size, barrier, box

    def gather_rows(self, rows: Tensor) -> list[Tensor]:
        self._box[self.rank] = rows
        self._barrier.wait(20)
        gathered = list(self._box)
        self._barrier.wait(20)
        return gathered

    def gather_integers(self, row: Tensor) -> Tensor:
        return torch.stack(self.gather_rows(row))


def on_ranks(size: int, run: Callable[[World], Any]) -> list[Any]:
    """What `run` returns on each of some ranks."""
    barrier, box = threading.Barrier(size), [None] * size
    results: list[Any] = [None] * size

    def call(rank: int) -> None:
        results[rank] = run(cast(World, ThreadWorld(rank, size, barrier, box)))

    threads = [threading.Thread(target=call, args=(rank,), name=str(rank)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


def guard(room: int, present: int) -> MemoryGuard:
    """A guard whose memory has room for so many primitives beside those present."""
    free = REBUILD_BYTES * present + (ROW_BYTES + REBUILD_BYTES) * room
    return MemoryGuard(0.5, lambda: [Memory(GB - free, 2 * GB), Memory(0, 4 * GB)])


def test_room_by_hand() -> None:
    assert ROW_BYTES == 1108 and REBUILD_BYTES == 256
    assert room_for_growth(256 * 10 + 1364 * 7, 10) == 7
    assert room_for_growth(256 * 10 + 1364 * 7 - 1, 10) == 6
    assert room_for_growth(-5, 10) == room_for_growth(100, 10) == 0
    assert MemoryGuard(0.0, lambda: [Memory(9, 9)]).free_bytes() == UNLIMITED
    assert MemoryGuard(0.5, lambda: []).free_bytes() == UNLIMITED
    assert MemoryGuard(0.5, lambda: [Memory(30, 100), Memory(5, 20)]).free_bytes() == 5


def test_replicas_share_what_is_free_on_their_node() -> None:
    free = [1000, 900, 400]

    def measure(world: World) -> int:
        meter = [Memory(0, 2 * free[world.rank])]
        return MemoryGuard(0.5, lambda: meter, replicas=world).free_bytes()

    assert on_ranks(3, measure) == [133, 133, 133]


DRAWN = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=30)
"""Candidates: gradient and rank."""


def choose(drawn: list[tuple[int, int]], room: Room, world: World, ranks: int = 3) -> set[int]:
    """Ids of this rank that are chosen, out of candidates whose number is their id."""
    own = [i for i, (_, rank) in enumerate(drawn) if rank % ranks == world.rank]
    norms = torch.tensor([float(drawn[i][0]) for i in own], dtype=torch.float64)
    choice: Choice = room.choose(torch.tensor(own, dtype=torch.int64), norms, 5, world)
    return {i for i, taken in zip(own, choice.chosen.tolist(), strict=True) if taken}


@settings(max_examples=40, deadline=None)
@given(drawn=DRAWN, rows=st.integers(0, 35), cap=st.integers(0, 30))
def test_on_one_node_the_choice_is_that_of_one_process(
    drawn: list[tuple[int, int]], rows: int, cap: int
) -> None:
    ranked = sorted(range(len(drawn)), key=lambda i: (-drawn[i][0], i))
    limit = min(rows, max(0, cap - 15) if cap else len(drawn))
    room = Room(cap, guard(rows, 15))
    assert set().union(*on_ranks(3, lambda w: choose(drawn, room, w))) == set(ranked[:limit])


@settings(max_examples=40, deadline=None)
@given(drawn=DRAWN, rooms=st.tuples(st.integers(0, 12), st.integers(0, 12)))
def test_each_node_keeps_within_its_memory(
    drawn: list[tuple[int, int]], rooms: tuple[int, int]
) -> None:
    nodes = [0, 1, 0]

    def run(world: World) -> set[int]:
        node = nodes[world.rank]
        present = 5 * nodes.count(node)
        return choose(drawn, Room(0, guard(rooms[node], present)), world)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growth, "node_key", lambda: nodes[int(threading.current_thread().name)])
        chosen = set().union(*on_ranks(3, run))
    for node in (0, 1):
        there = [i for i, (_, rank) in enumerate(drawn) if nodes[rank] == node]
        ranked = sorted(there, key=lambda i: (-drawn[i][0], i))
        assert chosen & set(there) == set(ranked[: rooms[node]])


def test_counts_and_resumption() -> None:
    ids, norms = torch.arange(6), torch.arange(6.0)
    tight = Room(0, guard(2, 100)).choose(ids, norms, 100, ALONE)
    assert (tight.held_back, tight.capped) == (4, 0)
    assert tight.chosen.tolist() == [False] * 4 + [True] * 2
    both = Room(101, guard(2, 100)).choose(ids, norms, 100, ALONE)
    assert (both.held_back, both.capped, int(both.chosen.sum())) == (4, 1, 1)
    ample = Room(0, guard(6, 100)).choose(ids, norms, 100, ALONE)
    assert ample.held_back == ample.capped == 0 and bool(ample.chosen.all())


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_machine_without_control_groups(tmp_path: Path) -> None:
    assert read_memory(tmp_path) == []
    write(tmp_path, {"proc/meminfo": MEMINFO})
    assert read_memory(tmp_path) == [Memory(4000 * 1024, 16000 * 1024)]


def test_groups_of_version_2_and_their_parents_limit(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/job/step"
    write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/job/step\n",
            f"{group}/memory.max": "max\n",
            f"{group}/memory.current": "700\n",
            f"{group}/memory.stat": "anon 5\ninactive_file 100\n",
            "sys/fs/cgroup/job/memory.max": "5000\n",
            "sys/fs/cgroup/job/memory.current": "900\n",
            "sys/fs/cgroup/job/memory.stat": "inactive_file 200\n",
        },
    )
    assert read_memory(tmp_path)[1:] == [Memory(700, 5000)]


@pytest.mark.parametrize("path", ["/docker/abc", "/"])
def test_groups_of_version_1(tmp_path: Path, path: str) -> None:
    # Inside a container the path is often one that only the outside has.
    write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": f"5:cpu,cpuacct:/x\n4:memory:{path}\n0::{path}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "6000\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000\n",
            "sys/fs/cgroup/memory/memory.stat": "cache 7\ntotal_inactive_file 300\n",
        },
    )
    assert read_memory(tmp_path)[1:] == [Memory(700, 6000)]


def test_this_machine() -> None:
    machine = read_memory()[0]
    assert 0 < machine.used < machine.total
    assert "GB are in use here" in MemoryGuard(0.9).reading()
