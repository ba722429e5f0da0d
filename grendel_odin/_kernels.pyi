"""The C++ kernels of csrc/. Tensors are contiguous, on the CPU, and taken without a copy."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

instruction_set: str

class Constants:
    def __init__(
        self,
        alpha_max: float,
        alpha_min: float,
        transmittance_min: float,
        low_pass: float,
        near: float,
        box: int,
        antialiased: bool,
    ) -> None: ...

class ProjectScratch: ...

class RenderState:
    pairs: int
    slots: int
    bytes: int

def project_count(
    scratch: ProjectScratch,
    values: Tensor,
    ids: Tensor,
    camera: NDArray[np.float64],
    constants: Constants,
    threads: int,
) -> int: ...
def project_emit(
    scratch: ProjectScratch,
    values: Tensor,
    camera: NDArray[np.float64],
    degree: int,
    splats: Tensor,
    keys: Tensor,
    rows: Tensor,
    radii: Tensor,
    threads: int,
) -> None: ...
def project_backward(
    values: Tensor,
    camera: NDArray[np.float64],
    constants: Constants,
    degree: int,
    splats: Tensor,
    rows: Tensor,
    gradients: Tensor,
    into_rows: Tensor,
    add: bool,
    into: Tensor,
    threads: int,
) -> None: ...
def bin(
    state: RenderState,
    splats: Tensor,
    keys: Tensor,
    image_height: int,
    x0: int,
    y0: int,
    width: int,
    height: int,
    constants: Constants,
    threads: int,
) -> None: ...
def blend(
    state: RenderState,
    constants: Constants,
    background: Tensor,
    color: Tensor,
    alpha: Tensor,
    depth: Tensor | None,
    threads: int,
) -> None: ...
def blend_backward(
    state: RenderState,
    constants: Constants,
    color: Tensor,
    depth: Tensor | None,
    grad_color: Tensor,
    grad_alpha: Tensor | None,
    grad_depth: Tensor | None,
    threads: int,
) -> None: ...
def row_ranges(splats: Tensor, constants: Constants, out: Tensor, threads: int) -> None: ...
def tile_row_costs(state: RenderState, out: Tensor) -> None: ...
def count_sums(state: RenderState, first: Tensor, counts: Tensor) -> int: ...
def pack_sums(state: RenderState, counts: Tensor, out: Tensor) -> None: ...
def add_sums(
    splats: Tensor, counts: Tensor, sums: Tensor, begun: Tensor, totals: Tensor
) -> None: ...
def finish(totals: Tensor, splats: Tensor, out: Tensor, threads: int) -> None: ...
def fold(state: RenderState, splats: Tensor, out: Tensor, threads: int) -> None: ...
def photometric(
    render: Tensor,
    truth: Tensor,
    gradient: Tensor,
    row_sums: Tensor,
    top: int,
    first: int,
    height: int,
    ssim_lambda: float,
    threads: int,
) -> None: ...
def fold_rows(row_sums: Tensor) -> tuple[float, float]: ...
def adam_step(
    values: Tensor,
    m: Tensor,
    v: Tensor,
    gradients: Tensor,
    rows: Tensor,
    rates: Tensor,
    beta1: float,
    beta2: float,
    eps: float,
    correction1: float,
    correction2: float,
    gradient_scale: float,
    blocks: int,
    dense: bool,
    threads: int,
) -> bool: ...
def first_nonfinite(values: Tensor, columns: int, threads: int) -> int: ...
def split_children(
    parents: Tensor,
    ids: Tensor,
    children: Tensor,
    seed: int,
    event: int,
    k: int,
    threads: int,
) -> None: ...
def accumulate_statistics(
    rows: Tensor,
    gradients: Tensor,
    width: int,
    height: int,
    unit: float,
    norms: Tensor,
    counts: Tensor,
    threads: int,
) -> None: ...
def cut(
    rows: NDArray[np.float64], borders: NDArray[np.uint8], halo: float, ranks: int
) -> list[int]: ...
def unite(sets: list[Tensor], total: int, out: Tensor) -> int: ...
def add_rows(into_rows: Tensor, into: Tensor, rows: Tensor, values: Tensor) -> None: ...
def may_be_visible(
    values: Tensor,
    m: Tensor | None,
    v: Tensor | None,
    chosen: Tensor | None,
    rates: Tensor,
    carry2: float,
    fresh2: float,
    beta2: float,
    floor: float,
    planes: Tensor,
    out: Tensor,
    any: Tensor,
    threads: int,
) -> None: ...
def touching(ranges: Tensor, start: int, stop: int, out: Tensor) -> int: ...
def take_splats(values: Tensor, keys: Tensor, positions: Tensor, out: Tensor) -> None: ...
def fma_rate(rounds: int, threads: int) -> float: ...

class Mailbox:
    def __init__(self, path: str, place: int, size: int) -> None: ...
    @staticmethod
    def bytes(size: int) -> int: ...
    def exchange(self, outgoing: list[Tensor], incoming: list[Tensor], timeout: float) -> int: ...
