"""The images of a scene, decoded when needed and held as uint8."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from grendel_odin.data.decode import decode
from grendel_odin.data.view_cache import ViewCache
from grendel_odin.data.views import View


class ImageStore:
    """Images composited on the run's background, and their masks, under one memory limit."""

    def __init__(
        self,
        views: Sequence[View],
        background: tuple[float, float, float],
        cache_bytes: int,
        workers: int,
    ) -> None:
        """`background` in [0, 1] shows through transparent pixels; `workers` threads load ahead."""
        red, green, blue = (round(255 * value) for value in background)
        self._cache = ViewCache(lambda view: decode(view, (red, green, blue)), cache_bytes, workers)
        shown = f"transparent pixels show rgb({red}, {green}, {blue})"
        self.estimate = f"{memory_note(views, cache_bytes)}; {shown}"
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
        """Decodes views in the background, the one needed first first, as room allows."""
        self._cache.prefetch(views)

    def usage(self) -> str:
        """What was decoded so far, in words."""
        counts = self._cache.counts
        return (
            f"{counts.decoded:,} images decoded ({_size(counts.decoded_bytes)}), "
            f"{counts.reused:,} taken from memory; at most {_size(counts.peak_bytes)} were held"
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


def _size(count: int) -> str:
    """Bytes in the unit that reads best."""
    if count < 1000:
        return f"{count} B"
    power = min(4, (len(str(count)) - 1) // 3)
    return f"{count / 1000**power:.1f} {('kB', 'MB', 'GB', 'TB')[power - 1]}"
