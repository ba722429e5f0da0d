"""The processes of a run and what they do together."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from grendel_odin.config import BrokenRun, UserError
from grendel_odin.parallel.watch import Watch
from grendel_odin.parallel.wire import Wire

T = TypeVar("T")
_EXIT_S = 3.0


@dataclass(frozen=True, slots=True)
class World:
    """The processes of a run. Every rank enters every collective in the same order."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1

    wire: Wire | None = None
    """To the other ranks; none in a process on its own."""
    twin: bool = False
    """Whether another process holds the same and speaks and writes for it, too."""
    cores: int = 0
    """This rank's share of the cores that it may use; 0: all of them."""
    hosts: tuple[str, ...] = ()
    """By rank; empty for a process on its own."""
    watch: Watch | None = None
    """Over the other ranks."""

    def gather_integers(self, row: Tensor) -> Tensor:
        """[R, n] int64: the rows [n] of all ranks."""
        return self._gather(row, "gather_integers")

    def sum_disjoint(self, values: Tensor) -> Tensor:
        """In place: the sum over ranks, where at most one rank holds a number that is not zero."""
        if self.size > 1:
            torch.sum(self._gather(values, "sum_disjoint"), 0, out=values)
        return values

    def sum_counts(self, *counts: int) -> list[int]:
        """Sums over ranks of a few integers."""
        rows = self._gather(torch.tensor(counts), "sum_counts")
        sums: list[int] = rows.sum(0).tolist()
        return sums

    def gather_rows(self, rows: Tensor) -> list[Tensor]:
        """Rows [n, ...] of every rank, on every rank; any number each."""
        lengths = self.gather_integers(torch.tensor([len(rows)]))[:, 0].tolist()
        incoming = [rows.new_empty(n, *rows.shape[1:]) for n in lengths]
        incoming[self.rank] = rows
        self.exchange([rows] * self.size, incoming, "gather_rows")
        return incoming

    def first_text(self, text: str) -> str:
        """The text of the lowest rank that has one; empty if no rank has."""
        texts = self.gather_rows(torch.tensor(list(text.encode()), dtype=torch.uint8))
        return next((bytes(each.tolist()).decode() for each in texts if len(each)), "")

    def exchange(
        self, outgoing: list[Tensor], incoming: list[Tensor], operation: str = "exchange"
    ) -> None:
        """Wire.exchange. Raises BrokenRun if a rank was lost, or failed."""
        if self.wire is None:
            return
        others = (each.nbytes for rank, each in enumerate(outgoing) if rank != self.rank)
        self.wire.bytes_sent += sum(others)
        if self.watch is None:
            self.wire.exchange(outgoing, incoming)
            return
        with self.watch.inside(operation):
            self.wire.exchange(outgoing, incoming)

    def swap(self, outgoing: list[Tensor], sizes: Sequence[int], operation: str) -> list[Tensor]:
        """Flat tensors from all ranks, of known sizes, for those that go to them; its own stays."""
        incoming = [outgoing[self.rank].new_empty(size) for size in sizes]
        incoming[self.rank] = outgoing[self.rank]
        self.exchange(outgoing, incoming, operation)
        return incoming

    def _gather(self, values: Tensor, operation: str) -> Tensor:
        """[R, ...]: equally shaped values of all ranks."""
        values = values.contiguous()
        gathered = values.new_empty(self.size, *values.shape)
        gathered[self.rank] = values
        self.exchange([values] * self.size, list(gathered), operation)
        return gathered

    def together(self, run: Callable[[], T]) -> T:
        """What `run` returns; a UserError of one rank is raised on all, so that none waits."""
        problem, made = "", None
        try:
            made = run()
        except UserError as error:
            where = f"rank {self.rank} ({self.hosts[self.rank]}): " if self.hosts else ""
            problem = f"{where * (self.rank > 0)}{error}"
        if found := self.first_text(problem):
            raise self.agreed(found)
        return cast(T, made)

    def agreed(self, problem: str) -> UserError:
        """For all ranks to raise alike."""
        error = UserError(problem)
        if self.size > 1:
            error.agreed, error.said = True, not self.is_main
        return error

    @contextmanager
    def ending_all(self) -> Iterator[None]:
        """While entered, an error of this rank alone ends all ranks, which say why."""
        try:
            yield
        except BrokenRun:
            raise
        except Exception as error:
            lone = not (isinstance(error, UserError) and (error.agreed or error.said))
            if self.watch and lone:
                known = isinstance(error, UserError)
                self.watch.fail(str(error) if known else f"{type(error).__name__}: {error}")
                if isinstance(error, UserError):
                    error.said = True
            raise

    @contextmanager
    def waiting(self, seconds: float) -> Iterator[None]:
        """While entered, a rank that does not answer for so long counts as lost."""
        if self.wire is None:
            yield
            return
        before, self.wire.timeout_s = self.wire.timeout_s, seconds
        try:
            yield
        finally:
            self.wire.timeout_s = before

    def on_main(self, run: Callable[[], object]) -> None:
        """Runs on the main rank, while the others wait; as `together`."""
        self.together(run if self.is_main else lambda: None)

    @property
    def bytes_sent(self) -> int:
        """By this rank to others, so far."""
        return self.wire.bytes_sent if self.wire else 0

    @property
    def is_main(self) -> bool:
        """Whether this rank speaks and writes for all."""
        return self.rank == 0 and not self.twin

    def tell(self, listener: Callable[[str], None]) -> None:
        """Where the reason goes if another rank ends the run: a log."""
        if self.watch:
            self.watch.tell = listener

    def remember(self, text: str) -> None:
        """What is worth knowing then: where the last model lies."""
        if self.watch:
            self.watch.last_words = text

    def wired(self, wire: Wire) -> World:
        """Ready for collectives."""
        return replace(self, wire=wire)

    def close(self) -> None:
        """Part from the others."""
        broken = self.watch is not None and self.watch.verdict is not None
        if self.watch:
            self.watch.close()
        if broken:  # what is left of the connections must not hold the process up
            nowhere = os.open(os.devnull, os.O_WRONLY)
            faulthandler.dump_traceback_later(_EXIT_S, exit=True, file=nowhere)
        elif self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()


ALONE = World()
"""A process on its own."""
