"""Units of both modes on several ranks in virtual time, with random rows, delays and windows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grendel_odin.odin.clock import VirtualClock
from grendel_odin.odin.hybrid import hybrid_units
from grendel_odin.odin.network import Speed
from grendel_odin.odin.replicated import replicated_units
from grendel_odin.odin.transport import Lost
from grendel_odin.odin.world import World
from tests.toy_replicas import Replica, ReplicaWork
from tests.toy_rows import Toy, ToyRank, ToyWork


def spend(clock: VirtualClock, draw: random.Random, slow: float) -> None:
    clock.advance(slow * draw.choice([0.0, 1.0, 1.0, 30.0]))


MODES = {"hybrid": (ToyRank, hybrid_units), "replicated": (Replica, replicated_units)}


def works_of(
    world: World, here: ToyRank | Replica, dies_at: int
) -> Iterator[ToyWork | ReplicaWork]:
    for unit in range(len(here.toy.active)):
        if here.rank == 1 and unit == dies_at:
            world.lose(1)
        yield here.work(unit)


def build(
    mode: str, toy: Toy, seed: int, overlap: bool, dies_at: int = -1
) -> tuple[World, list[ToyRank | Replica]]:
    """Ranks of different speed, behind a network whose speed is drawn; rank 1 may die in a unit."""
    draw = random.Random(seed)
    rate, latency = draw.choice([1.0, 100.0, 1e9]), draw.choice([0.0, 5.0, 300.0])
    place, units = MODES[mode]
    world, ranks = World(toy.ranks, Speed(rate, latency)), []
    for rank, (clock, executor) in enumerate(zip(world.clocks, world.executors, strict=True)):
        slow = draw.choice([0.1, 1.0, 5.0])
        here = place(toy, rank, partial(spend, clock, random.Random(seed + rank), slow))
        works = works_of(world, here, dies_at)
        executor.start(units(executor, works, overlap), 2 if overlap else 1)
        ranks.append(here)
    return world, ranks


def versions(place: ToyRank | Replica) -> list[int]:
    found = place.versions
    return list(found.values()) if isinstance(found, dict) else found


def trained(places: list[ToyRank | Replica]) -> list[list[int]]:
    """All rows, once in hybrid mode and by every rank in replicated."""
    if isinstance(places[0], Replica):
        return [place.values for place in places]
    rows = {row: value for place in places for row, value in place.values.items()}
    return [[rows[row] for row in range(len(rows))]]


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**9),
    ranks=st.integers(1, 4),
    units=st.integers(1, 7),
    rows=st.integers(0, 40),
    overlap=st.booleans(),
)
def test_rows_have_the_values_of_one_process(
    mode: str, seed: int, ranks: int, units: int, rows: int, overlap: bool
) -> None:
    toy = Toy.drawn(seed, ranks, units, rows, overlap)
    world, places = build(mode, toy, seed, overlap)
    orders = [[] for _ in places]
    for order, executor in zip(orders, world.executors, strict=True):
        watch_order(executor.mail, order)
    world.run()
    assert all(values == toy.train() for values in trained(places))
    assert all(version == units - 1 for place in places for version in versions(place))
    assert all(order == orders[0] for order in orders)
    assert all(executor.finished for executor in world.executors)


def watch_order(mail, order: list[str]) -> None:
    """Notes what a rank starts to send."""
    planned: dict[int, str] = {}
    plan, send, gather = mail.plan, mail.transport.send, mail.transport.gather

    def watched_plan(*communications) -> None:
        plan(*communications)
        planned.update({each.tag: str(each) for each in communications})

    def watched_send(tag, outgoing) -> None:
        order.append(planned[tag])
        send(tag, outgoing)

    def watched_gather(tag, row, rows) -> None:
        order.append(planned[tag])
        gather(tag, row, rows)

    mail.plan, mail.transport.send, mail.transport.gather = (
        watched_plan,
        watched_send,
        watched_gather,
    )


def sent_in_order(mode: str) -> list[str]:
    """By one rank, in four units of which the third does not overlap with the second."""
    toy = Toy.drawn(1, 2, 4, 20, True)
    toy.windows[:] = [False, True, False, True]
    world, _ = build(mode, toy, 1, True)
    order: list[str] = []
    watch_order(world.executors[0].mail, order)
    world.run()
    return order


def test_the_order_of_messages_in_hybrid_mode() -> None:
    assert sent_in_order("hybrid") == [
        *("late header of unit 0", "late of unit 0"),
        *("early header of unit 1", "early of unit 1", "counts of unit 0", "first of unit 0"),
        *("late header of unit 1", "late of unit 1", "rest of unit 0"),
        *("counts of unit 1", "rest of unit 1", "late header of unit 2", "late of unit 2"),
        *("early header of unit 3", "early of unit 3", "counts of unit 2", "first of unit 2"),
        *("late header of unit 3", "late of unit 3", "rest of unit 2"),
        *("counts of unit 3", "rest of unit 3"),
    ]


def test_the_order_of_messages_in_replicated_mode() -> None:
    def all_of(unit: int, *parts: str) -> list[str]:
        return [f"{part} of unit {unit}" for part in parts]

    active, rest = ("active header", "active"), ("rest", "rest sums")
    split = ("first", "first sums", *rest)
    assert sent_in_order("replicated") == [
        *(*all_of(0, *active), *all_of(0, *split)),
        *(*all_of(1, *active), *all_of(1, *rest)),
        *(*all_of(2, *active), *all_of(2, *split)),
        *(*all_of(3, *active), *all_of(3, *rest)),
    ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("unit", [0, 2, 5])
def test_a_rank_that_dies_in_a_window_ends_the_run(mode: str, unit: int) -> None:
    toy = Toy.drawn(5, 3, 6, 30, True)
    world, places = build(mode, toy, 5, True, dies_at=unit)
    with pytest.raises(Lost, match=r"rank 1 does not answer; rank 0 was waiting for .* of unit"):
        world.run()
    for here in (places[0], places[2]):
        assert all(version < 5 for version in versions(here))
