"""Ranks that do not start from the same facts are found, and what differs is named."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from grendel_odin.config import UserError
from grendel_odin.parallel.agreement import agree
from grendel_odin.parallel.world import ALONE
from grendel_odin.train.facts import _spans
from tests.threaded_world import run_on_ranks


def problems(*by_rank: dict[str, Sequence[str]]) -> set[str]:
    """What the ranks raise."""

    def compare(world):  # type: ignore[no-untyped-def]
        try:
            agree(world, by_rank[world.rank])
        except UserError as error:
            return str(error) if error.agreed else "lone"
        return ""

    return set(run_on_ranks(len(by_rank), compare))


def test_equal_facts_pass() -> None:
    agree(ALONE, {"configuration": ["seed=0"]})
    facts = {"program": ["1.0"], "images": [], "configuration": ["seed=0", "a=ä"]}
    assert problems(facts, dict(facts), dict(facts)) == {""}


def test_the_odd_rank_and_its_values_are_named() -> None:
    usual = {"program": ["1.0"], "configuration": ["seed=0", "batch=4", "sh=3"]}
    odd = {"program": ["1.0"], "configuration": ["seed=7", "batch=4", "sh=2"]}
    (text,) = problems(usual, odd, usual)
    assert text.splitlines()[0] == (
        "the ranks do not start from the same configuration; rank 1 against rank 0: "
        "seed=7, sh=2 against seed=0, sh=3"
    )
    (text,) = problems(odd, usual, usual)
    assert "rank 0 against rank 1: seed=7, sh=2 against seed=0, sh=3" in text


def test_missing_and_disordered_lines() -> None:
    images = [f"{n}.png" for n in range(9)]
    (text,) = problems({"images": images}, {"images": images[:2]})
    assert "rank 1 against rank 0: nothing against 2.png, 3.png, 4.png, 5.png and 3 more" in text
    (text,) = problems({"images": images}, {"images": images[::-1]})
    assert "the order differs" in text


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([0], "rank 0"), ([0, 1, 2], "ranks 0-2"), ([0, 2, 3, 7], "ranks 0, 2-3, 7")],
)
def test_spans(ranks: list[int], text: str) -> None:
    assert _spans(ranks) == text
