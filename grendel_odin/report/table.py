"""Small text tables for the console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_FORMATS = {"PSNR": "{:.2f}"}


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns, the first to the left and the others to the right, a line under the head."""
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    texts = [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join([texts[0], rule, *texts[1:]])


def score_table(
    title: str, per_view: Mapping[str, Mapping[str, float]], max_views: int = 10
) -> str:
    """A line a view and their means, from per_view.json's entry of a method.

    Of more than `max_views` views the worst by PSNR are shown.
    """
    metrics = [name for name in ("PSNR", "SSIM", "LPIPS") if name in per_view]
    psnr = per_view["PSNR"]
    worst = set(sorted(psnr, key=lambda name: psnr[name])[:max_views])
    rows = [
        [name, *(_show(metric, per_view[metric][name]) for metric in metrics)]
        for name in psnr
        if name in worst
    ]
    left = len(psnr) - len(worst)
    if left:
        rows.append([f"({left} better views)", *("" for _ in metrics)])
    means = [sum(per_view[metric].values()) / len(psnr) for metric in metrics]
    shown = [_show(metric, mean) for metric, mean in zip(metrics, means, strict=True)]
    return text_table([title, *metrics], [*rows, [f"mean of {len(psnr)}", *shown]])


def _show(metric: str, value: float) -> str:
    return _FORMATS.get(metric, "{:.4f}").format(value)
