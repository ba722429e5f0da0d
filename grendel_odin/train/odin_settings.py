"""The keys of the plan."""

from __future__ import annotations

from dataclasses import dataclass

from grendel_odin.config import setting
from grendel_odin.odin.settings import (
    Builder,
    Mode,
    Partitioner,
    PlanSettings,
    UnitShape,
    Windows,
)

SHUFFLE, PLAN = "shuffle", "plan"
"""Values of odin.order; any other is the folder of a run."""


@dataclass(frozen=True, slots=True)
class OdinSettings:
    """In which order views are trained on, and what may overlap."""

    order: str = setting(
        SHUFFLE,
        "Order of views: `shuffle` is random; `plan` makes units that follow each other share "
        "little; or the folder of a run, whose order is repeated.",
    )
    rlg: Builder = setting(
        Builder.IMPORTANCE,
        "What views are taken to share: tracks of structure from motion (importance), points in "
        "sight (geometry), or rows that a trace of the model finds visible (computation).",
    )
    edges: int = setting(32, "Strongest edges of the graph that each view keeps.", min=1, max=4096)
    groups: int = setting(4, "Groups of views that take turns.", min=1, max=4096)
    partitioner: Partitioner = setting(
        Partitioner.METIS, "What cuts the graph into groups: metis or spectral."
    )
    unit: UnitShape = setting(
        UnitShape.SCATTERED,
        "Views of one unit come from all groups in turn (scattered) or from one (compact).",
    )
    sas: Windows = setting(
        Windows.AUTO,
        "Between which units overlap is planned: where a gain is expected (auto), always, or off.",
    )

    link_mbit: float = setting(
        0.0,
        "Rate of the link between ranks in Mbit/s, by which windows are planned; 0 stands for "
        "memory on one machine and 10,000 between machines.",
        min=0.0,
    )

    def plan_settings(self, batch: int, seed: int, mode: Mode = Mode.HYBRID) -> PlanSettings:
        """What the planner takes; the rest of it is known elsewhere in the tree."""
        return PlanSettings(
            batch=batch,
            builder=self.rlg,
            edges=self.edges,
            groups=self.groups,
            partitioner=self.partitioner,
            unit=self.unit,
            windows=self.sas,
            mode=mode,
            seed=seed,
        )
