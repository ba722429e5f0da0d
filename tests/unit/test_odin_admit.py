"""Admission: few rows with small steps, by whole bins, the same on all ranks; and the audit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grendel_odin.odin.admit import Admission, Policy, conflict, pending
from grendel_odin.odin.audit import ReadAudit, WrongVersion
from grendel_odin.odin.gradient_bins import BINS, UNKNOWN, bins_of, histogram
from grendel_odin.odin.header import LateHeader, Shape


def test_a_row_is_pending_below_the_version_before_the_unit() -> None:
    versions = torch.tensor([3, 4, 5, 4], dtype=torch.int32)
    assert pending(versions, 6).tolist() == [True, True, False, True]
    visible = torch.tensor([True, False, True, True])
    assert conflict(versions, 6, visible).tolist() == [True, False, False, True]
    assert not pending(versions, 4).any()


def threshold(
    admission: Admission, candidates: int, sizes: list[float], others: list[float]
) -> tuple[int, Tensor]:
    """The bin, and which of the sizes are admitted; the others are written, but not in conflict."""
    bins, mantissas = bins_of(torch.tensor(sizes))
    counts, sums = histogram(bins, mantissas)
    total = sums + histogram(*bins_of(torch.tensor(others)))[1]
    place = admission.threshold(candidates, counts.tolist(), sums.tolist(), total.tolist())
    return place, bins < place


def test_limits_are_reached_but_not_passed() -> None:
    sizes = [1 / 1024, 9 / 1024, 10 / 1024, 100 / 1024]
    others = [904 / 1024]
    limits = Admission(Policy.THROUGHPUT, tau=0.3, grad_share=20 / 1024)
    assert threshold(limits, 10, sizes, others)[1].tolist() == [True, True, True, False]
    # Three of nine rows are more than 0.3, and a bin is admitted whole or not at all.
    assert threshold(limits, 9, sizes, others)[1].tolist() == [True, False, False, False]
    limits = Admission(Policy.THROUGHPUT, tau=0.3, grad_share=19.9 / 1024)
    assert threshold(limits, 10, sizes, others)[1].tolist() == [True, False, False, False]


def test_policies() -> None:
    sizes, others = [1e-6, float("inf")], [1.0]
    admitted = {
        policy: threshold(Admission(policy, 1.0, 1.0), 10, sizes, others)[1].tolist()
        for policy in Policy
    }
    assert admitted == {
        Policy.OFF: [False, False],
        Policy.QUALITY: [False, False],
        Policy.THROUGHPUT: [True, False],  # nothing is known of the second row
        Policy.HOGWILD: [True, True],
    }


sizes = st.lists(st.floats(0.0, 4.0, width=32), max_size=30)
shares = st.floats(0.0, 1.0)


@given(sizes, sizes, st.integers(0, 100), shares, shares)
def test_admission_is_the_longest_prefix_of_bins_within_the_limits(
    mine: list[float], others: list[float], extra: int, tau: float, share: float
) -> None:
    admission, candidates = Admission(Policy.THROUGHPUT, tau, share), len(mine) + extra
    place, admitted = threshold(admission, candidates, mine, others)

    def within(count: int, size: float, slack: float) -> bool:
        whole = float(torch.tensor(mine + others, dtype=torch.float64).sum())
        return count <= tau * candidates + slack and size <= share * whole + slack

    chosen = torch.tensor(mine, dtype=torch.float64)[admitted]
    assert within(len(chosen), float(chosen.sum()), 1e-6)
    left = bins_of(torch.tensor(mine))[0][~admitted]
    if len(left) and place < UNKNOWN:
        more = torch.tensor(mine, dtype=torch.float64)[bins_of(torch.tensor(mine))[0] <= place]
        assert not within(len(more), float(more.sum()), -1e-6)


@given(st.lists(st.tuples(sizes, sizes, st.integers(0, 50)), min_size=1, max_size=4), st.data())
def test_ranks_decide_as_one_process_would(
    parts: list[tuple[list[float], list[float], int]], data: st.DataObject
) -> None:
    admission = Admission(Policy.THROUGHPUT, tau=data.draw(shares), grad_share=data.draw(shares))
    shape, rows = Shape(1, 2, 0), []
    for mine, others, candidates in parts:
        counts, sums = histogram(*bins_of(torch.tensor(mine)))
        total = sums + histogram(*bins_of(torch.tensor(others)))[1]
        header = LateHeader(
            rows=torch.zeros(1).long(),
            candidates=torch.tensor([7, candidates]),
            counts=torch.stack([torch.zeros(BINS).long(), counts]),
            sums=torch.stack([torch.zeros(BINS).long(), sums]),
            total=total,
            work=torch.zeros(0).long(),
            alarms=torch.zeros(1).long(),
        )
        rows.append(header.pack())
    gathered = LateHeader.unpack(torch.stack(rows), shape)
    whole = threshold(
        admission,
        sum(part[2] for part in parts),
        [size for part in parts for size in part[0]],
        [size for part in parts for size in part[1]],
    )
    assert admission.threshold_of(gathered, 1) == whole[0]
    assert admission.threshold_of(gathered, 0) == UNKNOWN  # nothing is in conflict


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match=r"tau=1.5: a share from 0 to 1"):
        Admission(tau=1.5)
    with pytest.raises(ValueError, match="look_ahead=0: at least 1"):
        Admission(look_ahead=0)


def test_audit_passes_what_is_right_and_counts_it() -> None:
    audit, rows = ReadAudit(Policy.THROUGHPUT, 6), torch.tensor([1, 3, 4])
    audit.admit(5, torch.tensor([3], dtype=torch.int32))
    audit.read(5, rows, torch.tensor([4, 3, 4]))
    audit.read(5, rows[1:2], torch.tensor([3]))  # the backward pass, after unit 4 was published
    audit.read(6, rows, torch.tensor([5, 5, 5]))
    assert (audit.units[5].reads, audit.units[5].late) == (4, 2)
    assert (audit.units[6].reads, audit.units[6].late) == (3, 0)


@pytest.mark.parametrize(
    ("versions", "text"),
    [
        ([4, 4, 4], "unit 5 read row 3 at version 4, not 3"),  # has lost the row's old contents
        ([4, 3, 3], "unit 5 read row 4 at version 3, not 4"),  # not admitted
        ([5, 3, 4], "unit 5 read row 1 at version 5, not 4"),
    ],
)
def test_audit_finds_wrong_versions(versions: list[int], text: str) -> None:
    audit = ReadAudit(Policy.THROUGHPUT, 6)
    audit.admit(5, torch.tensor([3]))
    with pytest.raises(WrongVersion, match=text):
        audit.read(5, torch.tensor([1, 3, 4]), torch.tensor(versions))


def test_audit_of_quality_knows_no_late_read() -> None:
    audit = ReadAudit(Policy.QUALITY, 6)
    audit.admit(5, torch.empty(0).long())
    with pytest.raises(WrongVersion, match="policy quality admits no late read"):
        audit.admit(6, torch.tensor([3]))
    with pytest.raises(WrongVersion, match="at version 3, not 4"):
        audit.read(5, torch.tensor([2]), torch.tensor([3]))
