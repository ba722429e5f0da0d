"""Joins the processes of a run: torchrun, srun, or one process alone."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from grendel_odin.config import UserError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a launcher says that this process stands."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class World:
    """The processes of a run. Every rank enters every collective in the same order."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1

    def gather_integers(self, row: Tensor) -> Tensor:
        """[R, n] int64: the rows [n] of all ranks."""
        if self.size == 1:
            return row[None]
        rows = [torch.empty_like(row) for _ in range(self.size)]
        with self.naming("gather_integers"):
            dist.all_gather(rows, row)
        return torch.stack(rows)

    def sum_disjoint(self, values: Tensor) -> Tensor:
        """In place: the sum over ranks, where at most one rank holds a number that is not zero."""
        if self.size > 1:
            with self.naming("sum_disjoint"):
                dist.all_reduce(values)
        return values

    def sum_counts(self, *counts: int) -> list[int]:
        """Sums over ranks of a few integers."""
        rows = self.gather_integers(torch.tensor(counts))
        sums: list[int] = rows.sum(0).tolist()
        return sums

    def gather_rows(self, rows: Tensor) -> list[Tensor]:
        """Rows [n, ...] of every rank, on every rank; any number each."""
        lengths = self.gather_integers(torch.tensor([len(rows)]))[:, 0].tolist()
        incoming = [rows.new_empty(n, *rows.shape[1:]) for n in lengths]
        incoming[self.rank] = rows
        self.exchange([rows] * self.size, incoming)
        return incoming

    def first_text(self, text: str) -> str:
        """The text of the lowest rank that has one; empty if no rank has."""
        if self.size == 1:
            return text
        texts: list[str] = [""] * self.size
        with self.naming("first_text"):
            dist.all_gather_object(texts, text)
        return next((each for each in texts if each), "")

    def together(self, run: Callable[[], T]) -> T:
        """What `run` returns; a UserError of one rank is raised on all, so that none waits."""
        problem, made = "", None
        try:
            made = run()
        except UserError as error:
            problem = str(error)
        if found := self.first_text(problem):
            raise UserError(found)
        return cast(T, made)

    def on_main(self, run: Callable[[], object]) -> None:
        """Runs on the main rank, while the others wait; as `together`."""
        self.together(run if self.is_main else lambda: None)

    @property
    def is_main(self) -> bool:
        """Whether this rank speaks and writes for all."""
        return self.rank == 0

    def exchange(self, outgoing: list[Tensor], incoming: list[Tensor]) -> None:
        """Send outgoing[r] to rank r and fill incoming[r] from it; both know all sizes.

        Receives are posted before sends, so both directions of a link are busy at once; tensors
        without elements are not sent. This rank's own pair is left to the caller.
        """
        others = [rank for rank in range(self.size) if rank != self.rank]
        with self.naming("exchange"):
            pending = [dist.irecv(incoming[r], r) for r in others if incoming[r].numel()]
            pending += [dist.isend(outgoing[r], r) for r in others if outgoing[r].numel()]
            for work in pending:
                if work is not None:
                    work.wait()

    def close(self) -> None:
        """Leave the process group."""
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()

    @contextmanager
    def naming(self, operation: str) -> Iterator[None]:
        """Errors inside name this rank and the operation."""
        try:
            yield
        except RuntimeError as error:
            raise UserError(
                f"rank {self.rank} of {self.size}: {operation} failed: {_first_line(error)}. "
                "Another rank may have stopped; see logs/rank_*.log"
            ) from error


ALONE = World()
"""A process on its own."""


def join_world(timeout_s: float, environment: Mapping[str, str] = os.environ) -> World:
    """The world that the launcher describes, its process group ready (gloo).

    Raises UserError if the ranks cannot find each other.
    """
    place = find_place(environment)
    if place is None or place.size == 1:
        return ALONE
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://{place.address}:{place.port}",
            rank=place.rank,
            world_size=place.size,
            timeout=timedelta(seconds=timeout_s),
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"rank {place.rank} of {place.size} cannot join the others at "
            f"{place.address}:{place.port}: {_first_line(error)}. Check that the host name "
            "resolves on every node, that the port is free (torchrun --standalone picks one), and "
            "that GLOO_SOCKET_IFNAME, if set, names one network interface"
        ) from error
    return World(place.rank, place.size, place.local_rank, place.local_size)


def find_place(environment: Mapping[str, str]) -> Place | None:
    """Of torchrun's variables, or else of Slurm's; None for a process on its own."""
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return Place(
            int(environment["RANK"]),
            int(environment["WORLD_SIZE"]),
            int(environment.get("LOCAL_RANK", 0)),
            int(environment.get("LOCAL_WORLD_SIZE", 1)),
            environment.get("MASTER_ADDR", "127.0.0.1"),
            int(environment.get("MASTER_PORT", 29500)),
        )
    if "SLURM_PROCID" in environment and int(environment.get("SLURM_NTASKS", 1)) > 1:
        size, nodes = int(environment["SLURM_NTASKS"]), int(environment.get("SLURM_NNODES", 1))
        return Place(
            int(environment["SLURM_PROCID"]),
            size,
            int(environment.get("SLURM_LOCALID", 0)),
            -(-size // nodes),
            first_host(environment.get("SLURM_STEP_NODELIST", environment["SLURM_NODELIST"])),
            20000 + int(environment.get("SLURM_JOB_ID", 0)) % 10000,
        )
    return None


def first_host(nodes: str) -> str:
    """First name of a Slurm node list such as `gpu[03-07,12],login1`."""
    match = re.match(r"([^,\[]+)(?:\[(\d+))?", nodes)
    if match is None:
        raise UserError(f"SLURM_NODELIST={nodes!r} names no host; start the run with torchrun")
    return match.group(1) + (match.group(2) or "")


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")
