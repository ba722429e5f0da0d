"""All ranks of a run must start from the same facts: what differs is found by hash, then named."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256

import torch

from grendel_odin.parallel.world import World

Facts = Mapping[str, Sequence[str]]
"""Name of each fact, such as the configuration, to the lines that it consists of."""
_MOST_LINES = 4


def agree(world: World, facts: Facts) -> None:
    """Compare the facts of all ranks: 32 bytes a rank, and all of them only if they differ.

    Raises UserError, on all ranks alike, that names the odd ranks and what differs.
    """
    text = json.dumps({name: list(lines) for name, lines in facts.items()}).encode()
    digest = torch.tensor(list(sha256(text).digest()), dtype=torch.uint8)
    digests = [bytes(each.tolist()) for each in world.gather_rows(digest)]
    if len(set(digests)) == 1:
        return
    texts = world.gather_rows(torch.frombuffer(bytearray(text), dtype=torch.uint8))
    everything = [json.loads(bytes(each.tolist())) for each in texts]
    usual = _usual(digests)
    lines = [
        f"the ranks do not start from the same {name}; {_who(world, ranks)} against "
        f"{_who(world, [usual])}:{_difference(theirs, everything[usual].get(name, []))}"
        for name in facts
        for ranks, theirs in _odd(name, everything, usual)
    ]
    raise world.agreed(
        "\n".join(lines) + "\nStart all ranks with the same command, program and data"
    )


def _usual(digests: Sequence[bytes]) -> int:
    """The first rank of those that most agree with."""
    counts = Counter(digests)
    return max(range(len(digests)), key=lambda rank: (counts[digests[rank]], -rank))


def _odd(
    name: str, everything: Sequence[Facts], usual: int
) -> list[tuple[list[int], Sequence[str]]]:
    """Ranks by what they have instead of the usual."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for rank, facts in enumerate(everything):
        groups.setdefault(tuple(facts.get(name, [])), []).append(rank)
    expected = tuple(everything[usual].get(name, []))
    return [(ranks, lines) for lines, ranks in groups.items() if lines != expected]


def _who(world: World, ranks: Sequence[int]) -> str:
    return ", ".join(
        f"rank {rank} ({world.hosts[rank]})" if world.hosts else f"rank {rank}" for rank in ranks
    )


def _difference(odd: Sequence[str], usual: Sequence[str]) -> str:
    """The lines that only one of them has, a few of each; or that their order differs."""
    only = [line for line in odd if line not in set(usual)]
    missing = [line for line in usual if line not in set(odd)]
    if not only and not missing:
        return " the order differs"
    return f" {_some(only)} against {_some(missing)}"


def _some(lines: Sequence[str]) -> str:
    more = f" and {len(lines) - _MOST_LINES} more" if len(lines) > _MOST_LINES else ""
    return ", ".join(lines[:_MOST_LINES]) + more if lines else "nothing"
