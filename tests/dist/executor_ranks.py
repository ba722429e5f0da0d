"""Run by every rank of tests/dist/test_executor.py: units of integers over gloo; a lost rank."""

from __future__ import annotations

import os
import sys
import time

import torch.distributed as dist

from grendel_odin.odin.execute import Executor
from grendel_odin.odin.hybrid import hybrid_units
from grendel_odin.odin.messages import Messages
from grendel_odin.odin.torch_link import TorchLink
from grendel_odin.odin.transport import Lost
from tests.toy_rows import Toy, ToyRank

UNITS, ROWS = 6, 60


def check(executor: Executor, toy: Toy, overlap: bool) -> None:
    here = ToyRank(toy, dist.get_rank(), lambda: time.sleep(0.0003))
    works = map(here.work, range(UNITS))
    executor.run(hybrid_units(executor, works, overlap), 2 if overlap else 1)
    trained = toy.train()
    assert here.values == {row: trained[row] for row in here.values}
    assert set(here.versions.values()) <= {UNITS - 1}


def lose(executor: Executor, toy: Toy) -> None:
    """Rank 1 dies when its third unit begins."""
    here = ToyRank(toy, dist.get_rank(), lambda: None)

    def works():
        for unit in range(UNITS):
            if here.rank == 1 and unit == 3:
                os._exit(0)
            yield here.work(unit)

    try:
        executor.run(hybrid_units(executor, works(), True), 2)
    except Lost as error:
        print(f"rank {here.rank}: {error}", flush=True)
        os._exit(0)


def main() -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    link = TorchLink(timeout_s=20.0)
    executor = Executor(transport=Messages(link))
    for seed in range(12):
        for overlap in (True, False):
            check(executor, Toy.drawn(seed, size, UNITS, ROWS, overlap), overlap)
    print(f"rank {rank} of {size}: ok, {len(executor.waits)} waits", flush=True)
    dist.barrier()
    lose(executor, Toy.drawn(3, size, UNITS, ROWS, True))


if __name__ == "__main__":
    sys.exit(main())
