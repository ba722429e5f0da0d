"""A plan in a few lines of text, and in numbers."""

from __future__ import annotations

from collections.abc import Sequence

from grendel_odin.odin.partition import Partition
from grendel_odin.odin.plan import Plan


def figures(plan: Plan) -> dict[str, float | int | str]:
    """What a plan is judged by."""
    planned, shuffled = plan.couplings, plan.shuffled
    return {
        **{"views": len(plan.graph), "edges": plan.graph.edge_count},
        **{"density": plan.graph.density, "mean_degree": plan.graph.mean_degree},
        **{"unknown_views": int(plan.graph.unknown.sum()), "kept_weight": plan.graph.kept},
        **{"groups": plan.partition.count, "method": plan.partition.method},
        **{"cut": plan.partition.cut, "balance": plan.partition.balance},
        **{"coupling_mean": planned.mean, "coupling_p90": planned.high},
        **{"coupling_max": planned.most, "random_mean": shuffled.mean},
        **{"random_p90": shuffled.high, "random_max": shuffled.most},
        **{"pairs_of_units": len(plan.open), "windows": int(plan.open.sum())},
        **{"expected_conflict": float(plan.conflict.mean()) if len(plan.conflict) else 0.0},
        "sha256": plan.sha256,
    }


def summary(plan: Plan, others: Sequence[Partition] = ()) -> str:
    """Lines for the console; `others` are partitions of the same graph to compare with."""
    graph, part, found = plan.graph, plan.partition, figures(plan)
    planned, shuffled = plan.couplings, plan.shuffled
    lines = [
        f"graph     {len(graph):,} views, {graph.edge_count:,} edges ({graph.builder.value}); "
        f"density {graph.density:.1%}, mean degree {graph.mean_degree:.1f}, "
        f"{graph.kept:.1%} of the weight kept",
        *(_line(one) for one in (part, *others)),
        f"order     units of {plan.settings.batch} ({plan.settings.unit.value}); "
        "coupling of neighbours: mean, 90th percentile, maximum",
        f"            plan    {planned.mean:.4f}  {planned.high:.4f}  {planned.most:.4f}",
        f"            random  {shuffled.mean:.4f}  {shuffled.high:.4f}  {shuffled.most:.4f}",
        f"windows   {found['windows']} of {found['pairs_of_units']} pairs of units "
        f"({plan.settings.windows.value}), expected conflict {found['expected_conflict']:.1%}",
        "time      " + ", ".join(f"{name} {took:.3f} s" for name, took in plan.seconds.items()),
        f"sha256    {plan.sha256}",
        *(f"note      {note}" for note in plan.notes),
    ]
    return "\n".join(lines)


def _line(part: Partition) -> str:
    return (
        f"groups    {part.count} ({part.method}): cut {part.cut:.1%} of the weight, "
        f"balance {part.balance:.3f}"
    )
