"""What can be known to be wrong with a node's network before anyone waits for it."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping

from grendel_odin.config import UserError

INTERFACE = "GLOO_SOCKET_IFNAME"


def check_address(address: str, port: int, several: bool, far: bool) -> None:
    """Raises UserError unless MASTER_ADDR and MASTER_PORT can be where the ranks meet.

    several: whether the run is on several nodes; far: whether rank 0 is on another one than this.
    """
    if not 0 < port < 65536:
        raise UserError(f"MASTER_PORT={port}: a port is a number from 1 to 65535")
    found = addresses(address)
    if not found:
        raise UserError(
            f"{socket.gethostname()} does not know the host MASTER_ADDR={address}: set it to a "
            "name or an IP address of rank 0's node that every node can look up "
            f"(try: getent hosts {address})"
        )
    # A node may well know its own name as 127.0.1.1, and then rank 0 is found there.
    if found[0].is_loopback and (far or (several and is_loopback_name(address))):
        raise UserError(
            f"MASTER_ADDR={address} is {found[0]} on {socket.gethostname()}: every node would look "
            "for rank 0 on itself; set it to an address of rank 0's node in the network"
        )


def is_loopback_name(address: str) -> bool:
    """Whether every host takes this for itself."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def interface_problem(environment: Mapping[str, str]) -> str:
    """What is wrong with GLOO_SOCKET_IFNAME; empty if nothing is."""
    given = environment.get(INTERFACE, "")
    present = [name for _, name in socket.if_nameindex()]
    wrong = [name for name in given.split(",") if name not in present] if given else []
    if not wrong:
        return ""
    hint = " (^, = and prefixes work for NCCL only)" if given[0] in "^=" else ""
    return (
        f"{INTERFACE}={given}: there is no interface {wrong[0]!r} here{hint}; this node has "
        f"{', '.join(present)}. Name one of them, or unset the variable"
    )


def far_problem(environment: Mapping[str, str]) -> str:
    """Why other hosts could not reach this one by its name; empty if they could."""
    name = socket.gethostname()
    found = addresses(name)
    if environment.get(INTERFACE) or (found and not any(each.is_loopback for each in found)):
        return ""
    present = ", ".join(each for _, each in socket.if_nameindex() if each != "lo")
    says = f"is {found[0]} to itself" if found else "cannot look up its own name"
    return (
        f"this node {says}, so that others could not connect to it: set {INTERFACE} to the "
        f"interface that they reach it by ({present})"
    )


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def addresses(name: str) -> list[Address]:
    """Of a host; none if nobody knows it."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]
