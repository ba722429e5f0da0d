"""The images of a scene, decoded when needed and held as uint8."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from grendel_odin.data.decode import decode
from grendel_odin.data.node_memory import NodeMemory
from grendel_odin.data.view_cache import ViewCache
from grendel_odin.data.views import View


class ImageStore:
    """Images composited on the run's background, and their masks, under one limit for a node."""

    def __init__(
        self,
        views: Sequence[View],
        background: tuple[float, float, float],
        cache_bytes: int,
        workers: int,
        memory: NodeMemory | None = None,
    ) -> None:
        """`background` in [0, 1] shows through transparent pixels; `workers` threads load ahead.

        Ranks that share `memory` decode each image once, and hold `cache_bytes` together.
        """
        self._memory = memory = memory or NodeMemory.private()
        red, green, blue = (round(255 * value) for value in background)
        self._cache = ViewCache(
            views,
            lambda view, into: decode(view, (red, green, blue), into),
            cache_bytes // memory.split,
            workers,
            memory,
        )
        shown = f"transparent pixels show rgb({red}, {green}, {blue})"
        notes = [
            memory_note(views, cache_bytes),
            _sharing(memory),
            _scratch(views, workers, memory),
        ]
        self.estimate = "; ".join([*filter(None, notes), shown])
        """What the images need and what they get, in words."""

    def get(self, view: View) -> Tensor:
        """uint8 [3, H, W], contiguous, shared: not to be written to. Raises UserError."""
        return self._cache.get(view)[:3] if view.masked else self._cache.get(view)

    def mask(self, view: View) -> Tensor | None:
        """uint8 [H, W]: 255 where the image is to be used, 0 where not; None: all of it is."""
        return self._cache.get(view)[3] if view.masked else None

    def with_mask(self, view: View) -> tuple[Tensor, Tensor | None]:
        """Both, decoded once even where the cache has no room for them."""
        planes = self._cache.get(view)
        return (planes[:3], planes[3]) if view.masked else (planes, None)

    def prefetch(self, views: Iterable[View]) -> None:
        """Say what will be used next, the first first; the background decodes it as room allows.

        This replaces what was said before.
        """
        self._cache.prefetch(views)

    def usage(self) -> str:
        """What was decoded so far, in words; where ranks share, by all of the node and by this."""
        cache, ranks = self._cache, self._memory.ranks
        counts, own = cache.counts, cache.own_counts
        who = f"{ranks} ranks of this node: " if ranks > 1 else ""
        by = f", {own.decoded:,} of them by this rank" if ranks > 1 else ""
        apart = f", {counts.apart:,} of them for lack of room" if counts.apart else ""
        return (
            f"{who}{counts.decoded:,} images decoded ({_size(counts.decoded_bytes)}){apart}{by}, "
            f"{counts.reused:,} taken from memory; at most {_size(cache.peak_bytes)} were held"
        )

    def close(self) -> None:
        """Ends the threads and lets all images go."""
        self._cache.close()


def memory_note(views: Sequence[View], cache_bytes: int) -> str:
    """An estimate of the memory for decoded images, beside the limit."""
    total = sum(view.nbytes for view in views)
    how = "all are kept" if total <= cache_bytes else "they are decoded again and again as needed"
    return (
        f"{len(views):,} images take {_size(total)} once decoded; "
        f"data.cache_gb allows {_size(cache_bytes)}: {how}"
    )


def _sharing(memory: NodeMemory) -> str:
    """Who holds the images, where a node has several ranks."""
    if memory.split > 1:
        return (
            f"the {memory.split} ranks of a node cannot share memory: each decodes for itself, "
            f"and keeps 1/{memory.split} of data.cache_gb"
        )
    return f"shared by the {memory.ranks} ranks of a node" if memory.ranks > 1 else ""


def _scratch(views: Sequence[View], workers: int, memory: NodeMemory) -> str:
    """What decoding takes on top: in each thread a photograph as stored, and once resized."""
    stored = (4 * view.file_size[0] * view.file_size[1] for view in views)
    largest = max((a + view.nbytes for a, view in zip(stored, views, strict=True)), default=0)
    whose = " in each rank" if memory.ranks * memory.split > 1 else ""
    return f"decoding takes up to {_size((workers + 1) * largest)} on top{whose}"


def _size(count: int) -> str:
    """Bytes in the unit that reads best."""
    if count < 1000:
        return f"{count} B"
    power = min(4, (len(str(count)) - 1) // 3)
    return f"{count / 1000**power:.1f} {('kB', 'MB', 'GB', 'TB')[power - 1]}"
