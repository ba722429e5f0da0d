"""The planner's hot loops (csrc/planner*.cpp). Arrays are contiguous and taken without a copy."""

import numpy as np
from numpy.typing import NDArray

Ints32 = NDArray[np.int32]
Ints64 = NDArray[np.int64]
Floats32 = NDArray[np.float32]

class LocalityGraph:
    def __init__(
        self,
        starts: Ints64,
        neighbours: Ints32,
        weights: Floats32,
        sizes: Ints32,
        unknown: NDArray[np.bool_],
        unknown_weight: float,
    ) -> None: ...

def overlaps(
    offsets: Ints64, views: Ints32, place: Ints32, vertices: int, keep: int, threads: int
) -> tuple[int, Ints64, Ints32, Floats32, Ints32, NDArray[np.float64]]: ...
def strongest(
    starts: Ints64, neighbours: Ints32, weights: Floats32, keep: int
) -> tuple[Ints64, Ints32, Floats32]: ...
def epoch_order(
    graph: LocalityGraph,
    groups: Ints32,
    group_count: int,
    batch: int,
    compact: bool,
    previous: Ints32,
    open: Ints32,
    seed: int,
    epoch: int,
    candidates: int,
    trials: int,
    rounds: int,
) -> Ints32: ...
def neighbour_couplings(
    graph: LocalityGraph, order: Ints32, batch: int
) -> tuple[Floats32, Floats32]: ...
