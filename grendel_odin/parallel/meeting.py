"""How the processes of a run find each other: all come to rank 0, and begin when all are there."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from grendel_odin.config import UserError
from grendel_odin.parallel.link import Link

_NAME = "grendel-odin"
_GREETING_S = 10.0
_RETRY_S = 0.2


@dataclass(frozen=True, slots=True)
class Guest:
    """What a process says of itself."""

    rank: int
    size: int
    job: str
    host: str
    cores: list[int]
    """Those that it may use."""
    problem: str = ""
    """Why it cannot take part."""
    far_problem: str = ""
    """Why it cannot take part in a run over several hosts."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """What all processes know after the meeting."""

    guests: list[Guest]
    """By rank."""
    port: int
    """Of the key-value store that rank 0 runs."""


def listen(port: int) -> socket.socket:
    """Where the others come to. Raises UserError if the port is taken; 0 takes any."""
    try:
        if socket.has_dualstack_ipv6():
            with suppress(OSError):  # IPv6 may be off in the kernel
                return _server("::", port, True)
        return _server("", port, False)
    except OSError as error:
        raise UserError(
            f"MASTER_PORT={port} on {socket.gethostname()} cannot be listened to: "
            f"{error.strerror}. Another run may be using it: set MASTER_PORT to another one, the "
            "same for all ranks, or start with torchrun --standalone, which picks one"
        ) from error


def _server(address: str, port: int, dual: bool) -> socket.socket:
    family = socket.AF_INET6 if dual else socket.AF_INET
    return socket.create_server((address, port), family=family, dualstack_ipv6=dual, backlog=1024)


def host(
    own: Guest, listener: socket.socket, seconds: float, store_port: int
) -> tuple[dict[int, Link], Agreement]:
    """Rank 0's side. Raises UserError, also on those that have come."""
    links, guests, strangers = dict[int, Link](), {own.rank: own}, list[Link]()
    deadline = time.monotonic() + seconds
    try:
        while len(guests) < own.size:
            waiting: list[socket.socket | Link] = [listener, *strangers, *links.values()]
            ready = select.select(waiting, [], [], max(0.0, deadline - time.monotonic()))[0]
            if not ready:
                missing = _names([rank for rank in range(own.size) if rank not in guests])
                raise UserError(
                    f"{missing} of {own.size} did not come to {own.host} within {seconds:g} s "
                    "(parallel.timeout_s). Look at their output; check that every node starts the "
                    "same number of processes, and that nothing between the nodes blocks ports"
                )
            for each in ready:
                if isinstance(each, Link):
                    _hear(each, own, links, guests, strangers)
                else:
                    strangers.append(Link(listener.accept()[0]))
                    strangers[-1].send({"program": _NAME})
        agreement = Agreement([guests[rank] for rank in range(own.size)], store_port)
        _check(agreement.guests)
    except UserError as error:
        for link in links.values():
            link.send({"ended": str(error)})
        raise
    for link in links.values():
        link.send({"agreed": asdict(agreement)})
    return links, agreement


def _hear(
    link: Link, own: Guest, links: dict[int, Link], guests: dict[int, Guest], strangers: list[Link]
) -> None:
    """One message: a stranger becomes a guest, or is turned away. A guest stays, or ends all."""
    messages = link.receive()
    if link not in strangers:
        rank = next(rank for rank, each in links.items() if each is link)
        if messages is None:
            raise UserError(f"rank {rank} ({guests[rank].host}) ended before the run began")
        return
    if messages == []:
        return
    strangers.remove(link)
    guest = _guest(messages[0]) if messages else None
    if guest is None:
        return link.close()
    if (guest.job, guest.size) != (own.job, own.size) or guest.rank in guests:
        link.send({"refused": _taken(guest, own)})
        return link.close()
    links[guest.rank], guests[guest.rank] = link, guest


def _guest(message: dict[str, Any]) -> Guest | None:
    try:
        return Guest(**message)
    except TypeError:
        return None


def _taken(guest: Guest, own: Guest) -> str:
    return (
        f"rank {guest.rank} of {guest.size} ({guest.host}) came to a run of {own.size} processes "
        f"on {own.host} that has that rank or is not its own: set MASTER_PORT to another one for "
        "each run, and RANK to another one for each process"
    )


def _check(guests: Sequence[Guest]) -> None:
    """Raises UserError for the first problem."""
    several = len({guest.host for guest in guests}) > 1
    for guest in guests:
        if problem := guest.problem or (several and guest.far_problem):
            raise UserError(f"rank {guest.rank} ({guest.host}): {problem}")


def attend(own: Guest, address: str, port: int, seconds: float) -> tuple[Link, Agreement]:
    """The others' side. Raises UserError."""
    deadline = time.monotonic() + seconds
    place, who = f"{address}:{port}", f"rank {own.rank} of {own.size} ({own.host})"
    link = _connect(address, port, deadline)
    if link is None:
        raise UserError(
            f"{who} finds no rank 0 at {place} within {seconds:g} s (parallel.timeout_s). Check "
            "that rank 0 was started, that MASTER_ADDR is its node as this one sees it, and that "
            "MASTER_PORT is the same for all ranks and not blocked"
        )
    stranger = (
        f"{who}: what answers at {place} is another program: set MASTER_PORT to a free port, the "
        "same for all ranks"
    )
    try:
        if link.wait(time.monotonic() + _GREETING_S) != {"program": _NAME}:
            raise UserError(stranger)
        link.send(asdict(own))
    except (TimeoutError, EOFError) as error:
        raise UserError(stranger) from error
    try:
        decision = link.wait(deadline + _GREETING_S)
    except (TimeoutError, EOFError) as error:
        raise UserError(f"{who}: rank 0 at {place} ended before the run began") from error
    if "agreed" not in decision:
        problem = UserError(decision.get("refused") or decision.get("ended", stranger))
        problem.said = "ended" in decision  # rank 0 says it
        raise problem
    agreed = decision["agreed"]
    return link, Agreement([Guest(**each) for each in agreed["guests"]], agreed["port"])


def _connect(address: str, port: int, deadline: float) -> Link | None:
    """Tries until rank 0 listens, or the time is over."""
    while (left := deadline - time.monotonic()) > 0:
        with suppress(OSError):
            return Link(socket.create_connection((address, port), timeout=left))
        time.sleep(_RETRY_S)
    return None


def _names(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
