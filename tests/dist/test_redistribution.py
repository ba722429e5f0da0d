"""However rows are spread, and however often they move, a run has the same bits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grendel_odin.parallel.spread import Spread
from tests.launch import train_here, train_on_ranks

SHORT = (
    *("train.iterations=36", "train.schedule_scale=0.02", "train.threads=1"),
    *("densify.reset_every=1000", "train.batch_size=2", "train.eval_iterations=[]"),
    *("train.save_iterations=[]", "parallel.reshard_every=2", "parallel.reshard_threshold=1"),
)
"""Densifies at 12, 14, ...; resets opacity at 20; rows may move at every second densification."""

CUTS = {
    Spread.CONTIGUOUS: ("balance=timed", "balance_warmup=0", "balance_small=true"),
    Spread.RANDOM: ("balance=even",),
    Spread.MORTON: (),
    Spread.COVISIBILITY: (),
}
"""How pixels are cut does not matter, either; so both are tried at once."""


@pytest.fixture(scope="module")
def runs(scene: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run in one process, `alone`, and of one on three ranks for each spread."""
    folder = tmp_path_factory.mktemp("spread")
    shared = (f"data.path={scene}", *SHORT)
    train_here(*shared, f"output={folder / 'alone'}")
    cases = [
        [f"output={folder / spread.value}", f"parallel.spread={spread.value}"]
        + [f"parallel.{word}" for word in CUTS[spread]]
        for spread in Spread
    ]
    train_on_ranks(3, cases, *shared)
    return folder


def state(run: Path) -> str:
    return str(json.loads((run / "summary.json").read_text())["state_sha256"])


@pytest.mark.parametrize("spread", list(Spread))
def test_spread_does_not_change_the_model(runs: Path, spread: Spread) -> None:
    run = runs / spread.value
    assert state(run) == state(runs / "alone")

    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    moves = [line for line in lines if line["event"] == "redistribute"]
    densified = {line["iteration"]: line for line in lines if line["event"] == "densify"}
    at_start = [move for move in moves if move["iteration"] == 0]
    assert len(at_start) == (spread is not Spread.CONTIGUOUS)
    later = [move for move in moves if move["iteration"]]
    assert later and {move["iteration"] for move in later} <= set(list(densified)[1::2])
    for move in later:
        assert sum(move["before"]) == densified[move["iteration"]]["num_primitives"]
        assert max(move["before"]) > min(move["before"])
    for move in moves:
        after = move["after"]
        assert sum(after) == sum(move["before"]) and max(after) <= 1.05 * sum(after) / 3 + 1
        # 64 parameters and two moments of each, the id, and two statistics of 8 and 4 bytes
        assert move["bytes_moved"] == move["rows_moved"] * (3 * 256 + 8 + 12)
