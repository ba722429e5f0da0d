"""Ids: the mixer, the ids of children, the sort keys."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from grendel_odin.model.ids import child_ids, mix64, sort_keys

WORDS = st.integers(-(2**63), 2**63 - 1)
MASK = 2**64 - 1


def splitmix64(word: int) -> int:
    """The finaliser in unbounded integers."""
    word &= MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


def as_int64(words: list[int]) -> torch.Tensor:
    return torch.tensor(words, dtype=torch.int64)


@given(st.lists(WORDS, min_size=1, max_size=50))
def test_mixer_and_keys_equal_integer_arithmetic(words: list[int]) -> None:
    mixed = [int(word) & MASK for word in mix64(as_int64(words))]
    assert mixed == [splitmix64(word) for word in words]
    keys = sort_keys(as_int64(words))
    assert keys.dtype == torch.int32
    assert [int(key) & 0xFFFFFFFF for key in keys] == [word >> 32 for word in mixed]


def test_known_value() -> None:
    """The first output of SplitMix64 seeded with 0 is the mix of the golden gamma."""
    golden = 0x9E3779B97F4A7C15 - (1 << 64)
    assert int(mix64(as_int64([golden]))[0]) & MASK == 0xE220A8397B1DCDAF


def test_children_are_distinct_over_parents_events_and_k() -> None:
    parents = torch.arange(20_000)
    families = [child_ids(parents, event, k) for event in (0, 1, 600) for k in (0, 1)]
    grandchildren = [child_ids(families[0], 700, 0), child_ids(families[1], 700, 0)]
    ids = torch.cat([parents, *families, *grandchildren])
    assert len(ids.unique()) == len(ids)


@given(st.lists(WORDS, min_size=1, max_size=20), st.integers(0, 2**31), st.integers(0, 3))
def test_a_child_depends_on_its_parent_alone(parents: list[int], event: int, k: int) -> None:
    together = child_ids(as_int64(parents), event, k)
    apart = [child_ids(as_int64([parent]), event, k) for parent in parents]
    assert torch.equal(together, torch.cat(apart))


def test_empty() -> None:
    none = torch.empty(0, dtype=torch.int64)
    assert len(child_ids(none, 1, 0)) == len(sort_keys(none)) == 0
