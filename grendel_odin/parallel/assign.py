"""Which rank renders which share of a unit: the one to which most of its splats are local."""

from __future__ import annotations

from scipy.optimize import linear_sum_assignment
from torch import Tensor


def assign(local: Tensor) -> list[int]:
    """Rank of each share, at most one share a rank, so that the fewest splats travel in total.

    local: [R, S] int64, S <= R: the splats of rank r that touch share s. The answer is a function
    of the numbers alone, ties included, so that ranks which hold the same counts agree.
    """
    ranks, shares = local.shape
    if shares > ranks:
        raise ValueError(f"{shares} shares cannot go to {ranks} ranks, one each")
    _, chosen = linear_sum_assignment(local.t().numpy(), maximize=True)
    ranks_of_shares: list[int] = chosen.tolist()
    return ranks_of_shares
