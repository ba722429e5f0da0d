"""Clone, split, prune and opacity reset of 3DGS (Kerbl et al. 2023, section 5).

Thresholds are compared with what is stored (log scales, opacity logits), so that no rounding
depends on where a row lies; random draws and ids of children are keyed by the parent's id.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from grendel_odin import _kernels
from grendel_odin.config import setting
from grendel_odin.model.ids import child_ids
from grendel_odin.model.table import GAUSSIAN, PrimitiveTable
from grendel_odin.parallel.world import World
from grendel_odin.pipelines.growth import Choice, Room
from grendel_odin.pipelines.memory import NO_GUARD, MemoryGuard
from grendel_odin.pipelines.state import TrainingState

SCALES = GAUSSIAN["scales"].columns
OPACITY = GAUSSIAN["opacities"].columns
_FEWEST_LEFT = 0.1


@dataclass(frozen=True, slots=True)
class DensifySettings:
    """When and how the number of primitives changes; train.schedule_scale stretches iterations."""

    enabled: bool = setting(
        True, "Whether primitives are cloned, split and pruned, and opacities reset, at all."
    )
    refine_start_iter: int = setting(500, "Densify after this iteration.", min=0)
    refine_stop_iter: int = setting(15000, "Densify before this iteration.", min=0)
    refine_every: int = setting(100, "Iterations from one densification to the next.", min=1)
    reset_every: int = setting(3000, "Iterations from one opacity reset to the next.", min=1)
    reset_stop_iter: int = setting(
        0, "Reset opacity before this one; 0 stands for refine_stop_iter.", min=0
    )
    grow_grad2d: float = setting(
        2e-4,
        "Mean gradient of the 2D mean, in NDC units, from which a primitive is cloned or split.",
        min=0.0,
    )
    grow_scale3d: float = setting(
        0.01, "Largest scale that is cloned, a larger one is split; times scene extent.", min=0.0
    )
    prune_opa: float = setting(
        0.005,
        "Opacity below which a primitive is pruned; a reset limits opacity to twice this.",
        min_exclusive=0.0,
        max=0.4,
    )
    prune_scale3d: float = setting(
        0.1,
        "Scale above which a primitive is pruned after the first opacity reset; times extent.",
        min=0.0,
    )
    step_on_densify: bool = setting(
        False,
        "Whether iterations that densify or reset opacity take their optimizer step (gsplat does, "
        "3DGS does not).",
    )

    @property
    def stop(self) -> int:
        """Densification takes place before this iteration."""
        return self.refine_stop_iter if self.enabled else 0

    @property
    def reset_stop(self) -> int:
        """Opacity is reset before this iteration."""
        return (self.reset_stop_iter or self.stop) if self.enabled else 0


@dataclass(frozen=True, slots=True)
class Densification:
    """What one densification did."""

    cloned: int
    split: int
    pruned: int
    capped: int
    """Candidates that `model.max_primitives` left no room for."""
    kept_all: bool
    """Whether pruning was left out because no row would have remained."""
    kept_large: bool = False
    """Whether large rows were kept because hardly any other would have remained."""
    held_back: int = 0
    """Candidates that the memory guard left no room for."""
    num_primitives: int = field(default=0, compare=False)
    """Rows afterwards."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The thresholds of one event."""

    settings: DensifySettings
    extent: float
    max_primitives: int
    """0: no limit."""
    prune_large: bool
    memory: MemoryGuard = NO_GUARD

    def large(self, values: Tensor, share: float) -> Tensor:
        """[n] whether a row's largest scale exceeds a share of the extent."""
        limit = math.log(share * self.extent) if share > 0 else -math.inf
        return values[:, SCALES].amax(1) > limit

    def doomed(self, values: Tensor) -> Tensor:
        """[n] rows to prune."""
        faint = values[:, OPACITY].squeeze(1) < logit(self.settings.prune_opa)
        if not self.prune_large:
            return faint
        return faint | self.large(values, self.settings.prune_scale3d)

    def growing(self, state: TrainingState, world: World) -> tuple[Tensor, Choice]:
        """[n] own rows that are cloned or split, ascending; how they were chosen."""
        norms = state.statistics.mean_norms()
        rows = ((norms >= self.settings.grow_grad2d) & (norms > 0)).nonzero().squeeze(1)
        room = Room(self.max_primitives, self.memory)
        choice = room.choose(state.table.ids[rows], norms[rows], len(state.table), world)
        return rows[choice.chosen], choice


def densify(
    state: TrainingState, rules: Rules, seed: int, event: int, threads: int, world: World
) -> Densification:
    """Clone and split the rows with large gradients, then prune; statistics begin anew.

    Ranks do so with their own rows, and agree on what depends on numbers; counts are of all ranks.
    `event` names the densification: the iteration it belongs to.
    """
    table = state.table
    rows, choice = rules.growing(state, world)
    large = rules.large(table.values[rows], rules.settings.grow_scale3d)
    cloned, split = rows[~large], rows[large]
    ids = [
        child_ids(table.ids[cloned], event, 0),
        *(child_ids(table.ids[split], event, k) for k in (0, 1)),
    ]
    values = torch.cat([table.values[cloned], *children(table, split, seed, event, threads)])

    stays = torch.ones(len(table), dtype=torch.bool)
    stays[split] = False
    old, new = stays & ~rules.doomed(table.values), ~rules.doomed(values)
    own = (int(stays.sum()) + len(values), int(old.sum()) + int(new.sum()))
    before, left = world.sum_counts(*own)
    kept_large = False
    if rules.prune_large and left < _FEWEST_LEFT * before:
        faint = replace(rules, prune_large=False)
        old, new = stays & ~faint.doomed(table.values), ~faint.doomed(values)
        (now_left,) = world.sum_counts(int(old.sum()) + int(new.sum()))
        left, kept_large = now_left, now_left > left
    kept_all = left == 0
    if kept_all:
        old, new, left = stays, torch.ones_like(new), before
    state.rebuild(old.nonzero().squeeze(1), values[new], torch.cat(ids)[new])
    clones, splits = world.sum_counts(len(cloned), len(split))
    return Densification(
        *(clones, splits, before - left, choice.capped, kept_all, kept_large),
        *(choice.held_back, left),
    )


def children(
    table: PrimitiveTable, rows: Tensor, seed: int, event: int, threads: int
) -> list[Tensor]:
    """[n, 64] first and [n, 64] second child of each row."""
    parents, ids = table.values[rows], table.ids[rows]
    made = [torch.empty_like(parents), torch.empty_like(parents)]
    for k, values in enumerate(made):
        _kernels.split_children(parents, ids, values, seed, event, k, threads)
    return made


def reset_opacity(state: TrainingState, prune_opa: float) -> None:
    """Limit opacities to twice the pruning threshold (3DGS: 0.01) and forget their moments."""
    state.table.values[:, OPACITY].clamp_(max=logit(2 * prune_opa))
    state.adam.m[:, OPACITY] = 0
    state.adam.v[:, OPACITY] = 0


def logit(opacity: float) -> float:
    return math.log(opacity / (1 - opacity))
