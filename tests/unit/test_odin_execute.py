"""The executor's loop: order, nesting, planned communication, causes of waiting, errors."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grendel_odin.odin.execute import Executor, Stuck
from grendel_odin.odin.graph import Event, Exchange, Gather, Stage, Task, Traffic, Urgency
from grendel_odin.odin.network import Speed
from grendel_odin.odin.world import World


def note(seen: list[str], name: str) -> Callable[[], None]:
    return lambda: seen.append(name)


def test_the_most_urgent_task_of_the_oldest_unit_runs_first() -> None:
    seen: list[str] = []

    def unit() -> list[Task]:
        draws = [(Urgency.WORK, 1), (Urgency.DUTY, 2), (Urgency.WORK, 0), (Urgency.RETURN, 3)]
        return [
            Task(Stage.RENDER, number, note(seen, f"{urgency.name} {number}"), (), urgency)
            for urgency, number in draws
        ]

    Executor().run([Task(Stage.EXTENT, 0, unit)])
    assert seen == ["DUTY 2", "RETURN 3", "WORK 0", "WORK 1"]


def test_a_task_is_done_when_those_that_it_has_given_are() -> None:
    seen: list[str] = []

    def grandchildren() -> list[Task]:
        return [Task(Stage.RENDER, 5, note(seen, "grandchild"))]

    def family() -> list[Task]:
        parent = Task(Stage.PROJECT, 5, lambda: [Task(Stage.PROJECT, 5, grandchildren)])
        follower = Task(Stage.UPDATE, 0, note(seen, "follower"), [parent], Urgency.DUTY)
        return [follower, parent]

    Executor().run([Task(Stage.EXTENT, 0, family)])
    assert seen == ["grandchild", "follower"]


@pytest.mark.parametrize("in_flight", [1, 2])
def test_no_more_units_are_begun_than_may_be_in_flight(in_flight: int) -> None:
    open_units: set[int] = set()
    most = 0

    def begin(unit: int) -> list[Task]:
        nonlocal most
        open_units.add(unit)
        most = max(most, len(open_units))
        return [Task(Stage.UPDATE, unit, lambda: open_units.remove(unit))]

    def unit(number: int) -> Task:
        return Task(Stage.EXTENT, number, lambda: begin(number), urgency=Urgency.DUTY)

    Executor().run((unit(number) for number in range(5)), in_flight)
    assert most == in_flight and not open_units


def test_a_task_can_be_hurried_while_it_waits_and_when_it_is_ready() -> None:
    seen: list[str] = []
    executor, gate = Executor(), Task(Stage.EXTENT, 0, lambda: None, urgency=Urgency.DUTY)
    tasks = [Task(Stage.RENDER, 0, note(seen, str(i)), [gate] * (i % 2)) for i in range(6)]

    def hurry() -> None:
        for number in (4, 5):
            executor.hurry(tasks[number], Urgency.RETURN)
        executor.hurry(tasks[0], Urgency.WORK)

    first = Task(Stage.PROJECT, 0, hurry, urgency=Urgency.DUTY)
    executor.run([Task(Stage.EXTENT, 0, lambda: [first, gate, *tasks])])
    assert seen == ["4", "5", "0", "2", "1", "3"]


def test_what_nobody_will_do_is_an_error_that_says_what() -> None:
    executor = Executor()
    exchange = Exchange(Traffic.LATE, 3)

    def begin() -> list[Task]:
        executor.mail.plan(exchange)
        return [Task(Stage.RENDER, 3, lambda: None, [exchange])]

    with pytest.raises(Stuck, match=r"nothing was given to send as late of unit 3.*render of unit"):
        executor.run([Task(Stage.EXTENT, 3, begin)])


def exchange_between_two(
    world: World, seconds: Sequence[float]
) -> tuple[list[Exchange], list[list[torch.Tensor]]]:
    """Each rank computes for a while, then sends 100 bytes; all wait for them. Gives the exchange
    of each rank, and the room for what comes to it."""
    exchanges = [Exchange(Traffic.FIRST, 7) for _ in seconds]
    rooms = [[torch.zeros(100, dtype=torch.uint8) for _ in seconds] for _ in seconds]

    def start(rank: int) -> None:
        executor, exchange = world.executors[rank], exchanges[rank]

        def send() -> None:
            world.clocks[rank].advance(seconds[rank])
            data = torch.full((100,), rank, dtype=torch.uint8)
            executor.mail.send(exchange, [data] * len(seconds))

        def begin() -> list[Task]:
            executor.mail.plan(exchange)
            executor.mail.receive(exchange, rooms[rank])
            after = Task(Stage.UPDATE, 7, lambda: None, [exchange])
            return [Task(Stage.BACKWARD, 7, send), after]

        executor.start([Task(Stage.EXTENT, 7, begin)])

    for rank in range(len(seconds)):
        start(rank)
    return exchanges, rooms


def test_blocked_time_has_a_cause() -> None:
    world = World(2, Speed(rate=100.0, latency_s=0.5))
    _, rooms = exchange_between_two(world, [1.0, 4.0])
    world.run()
    (wait,) = world.executors[0].waits
    assert (wait.traffic, wait.unit, wait.rank) == (Traffic.FIRST, 7, 1)
    assert (wait.start, wait.seconds) == (1.0, 4.0 + 0.5 + 1.0 - 1.0)
    assert world.executors[1].waits == []  # rank 0's message had come before it was done
    assert world.now == 5.5
    assert rooms[0][1].tolist() == [1] * 100
    assert rooms[1][0].tolist() == [0] * 100
    assert world.executors[0].seconds[Stage.BACKWARD] == 1.0


def test_an_exchange_is_done_only_when_this_rank_has_sent_too() -> None:
    world = World(2, Speed(rate=1e9))
    exchanges, _ = exchange_between_two(world, [3.0, 0.0])
    finished: list[float] = []
    inner = world.executors[0]._happen

    def watch(event: Event) -> None:
        if event is exchanges[0]:
            finished.append(world.clocks[0].now)
        inner(event)

    world.executors[0]._happen = watch  # type: ignore[method-assign]
    world.run()
    assert finished == [3.0]


def test_sends_keep_the_planned_order_whenever_they_are_given() -> None:
    executor = Executor()
    sent: list[int] = []
    executor.mail.transport.send = lambda tag, outgoing: sent.append(tag)  # type: ignore[method-assign]
    exchanges = [Exchange(traffic, 0) for traffic in (Traffic.EARLY, Traffic.FIRST, Traffic.LATE)]

    def give(number: int) -> Callable[[], None]:
        def run() -> None:
            executor.mail.receive(exchanges[number], [torch.empty(0)])
            executor.mail.send(exchanges[number], [torch.empty(0)])

        return run

    def begin() -> list[Task]:
        executor.mail.plan(*exchanges)
        return [Task(Stage.EXCHANGE, 0, give(number)) for number in (2, 0, 1)]

    executor.run([Task(Stage.EXTENT, 0, begin)])
    assert sent == [0, 1, 2] and all(each.done for each in exchanges)


@pytest.mark.parametrize("ranks", [*range(1, 12), 16, 17, 63, 64, 65, 100])
def test_a_gather_brings_all_rows_to_all_ranks(ranks: int) -> None:
    world = World(ranks, Speed(rate=1e6, latency_s=0.01))
    headers = [Gather(Traffic.EARLY_HEADER, 0) for _ in range(ranks)]
    for rank, executor in enumerate(world.executors):

        def begin(rank=rank, executor=executor) -> None:
            executor.mail.plan(headers[rank])
            row = torch.tensor([rank, rank * rank])
            executor.mail.gather(headers[rank], row, torch.full((ranks, 2), -1))

        executor.start([Task(Stage.EXTENT, 0, begin)])
    world.run()
    expected = [[rank, rank * rank] for rank in range(ranks)]
    assert all(header.rows.tolist() == expected for header in headers)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**9), ranks=st.integers(1, 4), units=st.integers(1, 5))
def test_random_graphs_run_every_task_once_after_what_it_waits_for(
    seed: int, ranks: int, units: int
) -> None:
    draw = random.Random(seed)
    world = World(ranks, Speed(draw.choice([1.0, 1e6]), draw.choice([0.0, 10.0])))
    shapes = [[draw.random() for _ in range(draw.randrange(1, 8))] for _ in range(units)]
    logs: list[list[tuple[int, int]]] = []
    for rank, executor in enumerate(world.executors):
        log: list[tuple[int, int]] = []
        logs.append(log)
        executor.start(random_units(world, rank, shapes, random.Random(seed + rank), log), 2)
    world.run()
    wanted = [(unit, number) for unit, shape in enumerate(shapes) for number in range(len(shape))]
    assert all(sorted(log) == wanted for log in logs)


def random_units(
    world: World,
    rank: int,
    shapes: list[list[float]],
    draw: random.Random,
    log: list[tuple[int, int]],
) -> list[Task]:
    """Tasks that depend on each other and on those of the unit before; some end in an exchange,
    which all ranks plan alike."""
    executor, clock, made = world.executors[rank], world.clocks[rank], {}

    def run(key: tuple[int, int], after: list[Event], exchange: Exchange | None) -> None:
        assert all(event.done for event in after) and key not in log
        log.append(key)
        clock.advance(draw.choice([0.0, 1.0, 20.0]))
        if exchange is not None:
            executor.mail.receive(exchange, [torch.empty(3)] * len(world.clocks))
            executor.mail.send(exchange, [torch.zeros(3)] * len(world.clocks))

    def begin(unit: int) -> list[Task]:
        tasks, known = [], [event for key, event in made.items() if key[0] == unit - 1]
        for number, chance in enumerate(shapes[unit]):
            key, after = (unit, number), draw.sample(known, min(len(known), draw.randrange(3)))
            exchange = Exchange(Traffic.REST, unit) if chance < 0.4 else None
            if exchange is not None:
                executor.mail.plan(exchange)
            task = Task(
                draw.choice(list(Stage)),
                unit,
                lambda key=key, after=after, exchange=exchange: run(key, after, exchange),
                after,
                draw.choice(list(Urgency)),
            )
            tasks.append(task)
            made[key] = exchange or task
            known.append(made[key])
        return tasks

    return [
        Task(Stage.EXTENT, unit, lambda unit=unit: begin(unit), urgency=Urgency.DUTY)
        for unit in range(len(shapes))
    ]
