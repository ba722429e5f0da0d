"""Joins the processes of a run, and ends all of them when one fails."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import PrefixStore, Store

from grendel_odin.config import UserError
from grendel_odin.parallel import meeting
from grendel_odin.parallel.meeting import Guest
from grendel_odin.parallel.network import check_address, far_problem, interface_problem
from grendel_odin.parallel.node import open_mailboxes
from grendel_odin.parallel.place import Place, find_place
from grendel_odin.parallel.settings import ParallelSettings
from grendel_odin.parallel.watch import Watch
from grendel_odin.parallel.wire import Transport, Wire, first_line
from grendel_odin.parallel.world import ALONE, World

T = TypeVar("T")
TERMINATED = 143
"""Exit status after SIGTERM, as shells report it."""


@contextmanager
def ranks(
    parse: Callable[[], T],
    parallel: Callable[[T], ParallelSettings],
    on_cuda: Callable[[T], bool] = lambda parsed: False,
) -> Iterator[tuple[T, World]]:
    """Parses on every rank and joins the ranks; what fails inside on one of them ends all.

    Raises UserError, on all ranks and printed by one, if parsing or joining fails on any.
    """
    problem, parsed, settings, cuda = None, None, ParallelSettings(), False
    try:
        parsed = parse()
        settings, cuda = parallel(parsed), on_cuda(parsed)
    except UserError as error:
        problem = error

    def outcome() -> T:
        if problem:
            raise problem
        return cast(T, parsed)

    with ending_on_sigterm():
        world = join_world(settings.timeout_s, settings.transport, cuda)
        try:
            with world.ending_all():
                yield world.together(outcome), world
        finally:
            world.close()


def join_world(
    timeout_s: float,
    transport: Transport = Transport.AUTO,
    on_cuda: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> World:
    """The world that the launcher describes, with its collectives ready.

    Collectives of host memory go through gloo, those of a GPU's through NCCL. Raises UserError if
    the ranks cannot find each other.
    """
    place = find_place(environment)
    if place is None or place.size == 1:
        return ALONE
    try:
        watch, guests, store = _meet(place, timeout_s, environment)
    except UserError as error:
        # All processes of a node find the same wrong: one of them says so.
        error.said = error.said or bool(place.local_rank)
        raise
    here = [r for r, guest in enumerate(guests) if guest.host == guests[place.rank].host]
    local_rank = here.index(place.rank) if place.local_rank is None else place.local_rank
    world = World(
        place.rank,
        place.size,
        local_rank,
        len(here) if place.local_size is None else place.local_size,
        cores=share_of_cores(guests[place.rank].cores, [guests[r].cores for r in here]),
        hosts=tuple(guest.host for guest in guests),
        watch=watch,
    )
    with world.ending_all():
        device = use_device(on_cuda, local_rank)
        try:
            dist.init_process_group(
                "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl",
                store=store,
                rank=place.rank,
                world_size=place.size,
                timeout=timedelta(seconds=timeout_s),
            )
        except (RuntimeError, ValueError) as error:
            raise UserError(
                f"cannot connect to the other ranks: {first_line(error)}. Set GLOO_SOCKET_IFNAME, "
                "on each node, to the interface that the other nodes reach it by"
            ) from error
        world = world.wired(Wire(place.rank, place.size, timeout_s))
        if transport is Transport.AUTO:
            open_mailboxes(world)
        return world


def _meet(
    place: Place, timeout_s: float, environment: Mapping[str, str]
) -> tuple[Watch, list[Guest], Store]:
    """Meets the others; gives the watch over them, who they are, and a store for gloo."""
    several = place.local_size is not None and place.local_size < place.size
    if not place.store:  # or else the launcher has met at this address already
        check_address(place.address, place.port, several, place.far)
    own = Guest(
        *(place.rank, place.size, place.job, socket.gethostname()),
        cores=sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [],
        problem=interface_problem(environment),
        far_problem=far_problem(environment),
    )
    limit, port, board = timedelta(seconds=timeout_s), place.port, None
    if place.store:  # the launcher listens at this port: rank 0 leaves word there of another one
        attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
        launcher = TCPStore(place.address, place.port, is_master=False, timeout=limit)
        board = PrefixStore(f"grendel-odin/{attempt}", launcher)
        port = 0 if place.rank == 0 else int(board.get("port"))
    if place.rank:
        link, agreement = meeting.attend(own, place.address, port, timeout_s)
        store = TCPStore(place.address, agreement.port, is_master=False, timeout=limit)
        links = {0: link}
    else:
        store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False, timeout=limit)
        with meeting.listen(port) as listener:
            if board:
                board.set("port", str(listener.getsockname()[1]))
            links, agreement = meeting.host(own, listener, timeout_s, store.port)
    hosts = [guest.host for guest in agreement.guests]
    return Watch(place.rank, hosts, links), agreement.guests, store


def use_device(on_cuda: bool, local_rank: int) -> torch.device:
    """Where this rank computes; made the current GPU, if it is one. Raises UserError."""
    if not on_cuda:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UserError("no CUDA device is to be had here; use renderer.backend=cpu")
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def share_of_cores(own: Sequence[int], of_node: Sequence[Sequence[int]]) -> int:
    """Cores for each process of a node: of each core, its share. 0 if nothing is known.

    Launchers either give a process cores of its own (srun) or leave all cores to all (torchrun).
    """
    shares = sum(1.0 / sum(core in cores for cores in of_node) for core in own)
    return max(1, int(shares + 1e-6)) if own else 0


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """While entered, SIGTERM ends the process in good order, not on the spot."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
