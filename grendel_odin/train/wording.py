"""What a run says of its densifications, redistributions and evaluations."""

from __future__ import annotations

from collections.abc import Iterator

from grendel_odin.pipelines.densify import Densification
from grendel_odin.pipelines.memory import MemoryGuard
from grendel_odin.pipelines.redistribution import Move
from grendel_odin.train.progress import Progress, Scores
from grendel_odin.train.settings import Settings


def growth_notes(
    done: Densification, progress: Progress, settings: Settings, extent: float, memory: MemoryGuard
) -> Iterator[str]:
    """What limited a densification; what goes on is said once, and `progress` remembers it."""
    at = progress.iteration
    if done.capped and not progress.capped:
        progress.capped = True
        yield f"{at}: model.max_primitives={settings.model.max_primitives} limits growth"
    if bool(done.held_back) != progress.held_back:
        progress.held_back = not progress.held_back
        yield f"memory guard: {at}: {_guarded(done, settings, memory)}"
    if done.kept_large:
        yield (
            f"warning: {at}: pruning what is larger than densify.prune_scale3d x extent "
            f"({extent:.3g}) would have left hardly any primitive, so size was ignored; the "
            "cameras may stand too close together"
        )
    if done.kept_all:
        yield (
            f"warning: {at}: pruning would have left no primitive, so none was pruned; check the "
            "cameras and images, or lower densify.prune_opa"
        )


def _guarded(done: Densification, settings: Settings, memory: MemoryGuard) -> str:
    if not done.held_back:
        return "there is room again, growth resumes"
    grown = done.cloned + done.split
    return (
        f"{memory.reading()}, growth limited to {grown:,} of "
        f"{grown + done.held_back + done.capped:,} primitives; model.memory_limit="
        f"{settings.model.memory_limit:g} is the share that may be in use"
    )


def move_line(move: Move) -> str:
    """How many rows went to other ranks, and how many each has before and after."""
    before, after = (" ".join(f"{rows:,}" for rows in each) for each in (move.before, move.after))
    return (
        f"{move.rows_moved:,} rows ({move.bytes_moved / 1e6:,.1f} MB) went to other ranks; rows by "
        f"rank {before}, now {after}"
    )


def score_line(scores: Scores) -> str:
    """Scores in one line."""
    return ", ".join(
        f"{name} PSNR {each.psnr:.2f} SSIM {each.ssim:.3f} L1 {each.l1:.4f} ({each.num_views})"
        + (f", fully masked: {', '.join(each.left_out)}" if each.left_out else "")
        for name, each in [("test", scores.test), ("train", scores.train)]
        if each is not None
    )
