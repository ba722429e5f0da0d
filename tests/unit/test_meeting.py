"""How ranks find each other, and what they learn when one is missing, wrong, lost or late."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from grendel_odin.config import BrokenRun, UserError
from grendel_odin.parallel import meeting, network, roll, watch
from grendel_odin.parallel.launch import join_world
from grendel_odin.parallel.link import Link
from grendel_odin.parallel.meeting import Agreement, Guest
from grendel_odin.parallel.watch import Watch
from tests.launch import free_port

SECONDS = 5.0


def guest(rank: int, size: int = 3, host: str = "a", **other: str) -> Guest:
    return Guest(rank, size, "job", host, [0, 1], **other)


def meet(*guests: Guest, seconds: float = SECONDS) -> list[Future[Agreement]]:
    """Guest 0 is host to the others; gives what each of them learns."""
    listener = meeting.listen(0)
    port = listener.getsockname()[1]

    def start(own: Guest) -> Agreement:
        if own is guests[0]:
            with listener:
                return meeting.host(own, listener, seconds, 1234)[1]
        return meeting.attend(own, "127.0.0.1", port, seconds)[1]

    with ThreadPoolExecutor(len(guests)) as pool:
        return [pool.submit(start, own) for own in guests]


def test_all_learn_who_is_there() -> None:
    guests = [guest(0), guest(1, host="b"), guest(2)]
    for each in meet(*guests):
        assert each.result() == Agreement(guests, 1234)


def test_missing_ranks_are_named_everywhere() -> None:
    host, other = meet(guest(0, 5), guest(2, 5), seconds=0.5)
    with pytest.raises(UserError, match="ranks 1, 3, 4 of 5 did not come to a within") as at:
        host.result()
    assert not at.value.said
    with pytest.raises(UserError, match="ranks 1, 3, 4 of 5") as at:
        other.result()
    assert at.value.said  # rank 0 does


def test_a_process_of_another_run_is_turned_away() -> None:
    _, *others = meet(guest(0), guest(1), guest(1), seconds=1.0)
    assert sorted("MASTER_PORT" in str(each.exception()) for each in others) == [False, True]
    _, other = meet(guest(0, 2), guest(1, 4), seconds=1.0)
    assert "rank 1 of 4 (a) came to a run of 2 processes" in str(other.exception())


def test_a_problem_of_one_rank_ends_all() -> None:
    for each in meet(guest(0), guest(1, host="b", problem="no eth7"), guest(2)):
        with pytest.raises(UserError, match=r"rank 1 \(b\): no eth7"):
            each.result()


def test_a_problem_with_the_network_matters_between_hosts_only() -> None:
    shy = guest(1, far_problem="its name is 127.0.1.1")
    assert meet(guest(0), shy, guest(2))[0].result()
    with pytest.raises(UserError, match=r"127\.0\.1\.1"):
        meet(guest(0), shy, guest(2, host="b"))[0].result()


def test_another_program_at_the_port_is_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(1) as pool:
        port = other.getsockname()[1]
        future = pool.submit(meeting.attend, guest(1), "127.0.0.1", port, SECONDS)
        caller, _ = other.accept()
        caller.sendall(b"SSH-2.0-OpenSSH_9.9\r\n")
        with pytest.raises(UserError, match="another program: set MASTER_PORT"):
            future.result()
        caller.close()


def test_a_rank_without_rank_0_says_where_it_looked() -> None:
    port = free_port()
    with pytest.raises(UserError, match=rf"no rank 0 at 127.0.0.1:{port} within 0.3 s"):
        meeting.attend(guest(1), "127.0.0.1", port, 0.3)


def environment(**changes: str) -> dict[str, str]:
    return {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", **changes}


def test_what_is_wrong_with_the_address_shows_at_once() -> None:
    start = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        with pytest.raises(UserError, match=f"MASTER_PORT={port} .*in use.*standalone"):
            join_world(60, environment=environment(MASTER_PORT=port))
    for changes, text in (
        ({"MASTER_ADDR": "no.such.host.invalid"}, "does not know the host MASTER_ADDR=no.such"),
        ({"MASTER_PORT": "70000"}, "MASTER_PORT=70000: a port is"),
        ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, "look for rank 0 on itself"),
        (
            {"RANK": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "localhost"},
            "look for rank 0 on itself",
        ),
    ):
        with pytest.raises(UserError, match=text):
            join_world(60, environment=environment(**changes))
    assert time.monotonic() - start < 30


def test_interfaces_are_looked_up() -> None:
    assert network.interface_problem({}) == ""
    assert network.interface_problem({network.INTERFACE: "lo"}) == ""
    wrong = network.interface_problem({network.INTERFACE: "^lo,docker0"})
    assert "no interface '^lo' here (^, = and prefixes work for NCCL only)" in wrong
    assert "lo" in wrong.partition("this node has ")[2]
    assert "no interface 'eth77'" in network.interface_problem({network.INTERFACE: "lo,eth77"})


def connection() -> tuple[socket.socket, socket.socket]:
    """Both ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        return listener.accept()[0], near


@contextmanager
def watches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Watch]]:
    """Of three ranks, in one process."""
    monkeypatch.setattr(watch, "BEAT_S", 0.1)
    monkeypatch.setattr(watch, "SETTLE_S", 0.3)
    monkeypatch.setattr(roll, "SILENT_S", 1.0)
    hosts = ["a", "b", "b"]
    ends = {rank: connection() for rank in (1, 2)}
    made = [Watch(0, hosts, {rank: Link(pair[0]) for rank, pair in ends.items()})]
    made += [Watch(rank, hosts, {0: Link(pair[1])}) for rank, pair in ends.items()]
    try:
        yield made
    finally:
        for each in made:
            each.close()


def reasons(of: list[Watch], seconds: float = 4.0) -> set[str]:
    """Why the run ended, as the ranks know it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not all(each.verdict for each in of):
        time.sleep(0.02)
    return {each.verdict.text for each in of if each.verdict}


def test_a_failure_is_told_to_all_and_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with watches(monkeypatch) as ranks:
        told: list[str] = []
        ranks[2].tell = told.append
        ranks[0].last_words = "The last saved model is here"
        ranks[1].fail("MemoryError: too little")
        ranks[0].fail("RuntimeError: a consequence")
        assert reasons(ranks) == {"rank 1 (b) failed: MemoryError: too little"}
    assert told == ["error: rank 1 (b) failed: MemoryError: too little"]
    assert capsys.readouterr().err.splitlines() == [f"{told[0]}. The last saved model is here"]


@pytest.mark.parametrize("lost", [0, 2])
def test_a_killed_rank_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lost: int
) -> None:
    with watches(monkeypatch) as ranks:
        ranks[lost]._closed.set()
        ranks[lost]._thread.join()
        for link in ranks[lost].links.values():  # as the kernel does
            link._socket.shutdown(socket.SHUT_RDWR)
        left = [each for each in ranks if each.rank != lost]
        (reason,) = reasons(left)
    assert f"rank {lost} ({ranks[0].roll.hosts[lost]}) is gone without a word" in reason
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if line] == [f"error: {reason}"]


def test_who_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with watches(monkeypatch) as ranks:
        for each in ranks:
            with each.inside("gather"):
                pass
        with pytest.raises(BrokenRun) as caught, ranks[1].inside("exchange"):
            raise RuntimeError("rank 0 did not answer for 60 s")
        assert reasons(ranks) == {str(caught.value)}
    # Rank 0 is not there either, as is rank 2.
    assert "rank 0 (a), rank 2 (b) lives, but did not come to exchange in time" in str(caught.value)
    assert "after gather" in str(caught.value) and "step_timeout_s" in str(caught.value)


def test_a_run_that_ends_well_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with watches(monkeypatch) as ranks:
        ranks[0].close()
        time.sleep(0.3)
        ranks[1].close()
        assert not any(each.verdict for each in ranks)
    assert capsys.readouterr().err == ""
