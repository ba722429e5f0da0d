"""Scores of renders; results.json and per_view.json, keyed as 3DGS's and 2DGS's tools key them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from grendel_odin.config import UserError, replacing
from grendel_odin.parallel.world import World
from grendel_odin.render.losses import composite
from grendel_odin.report.lpips import Lpips
from grendel_odin.report.table import score_table
from grendel_odin.train.evaluate import score
from grendel_odin.train.run_folder import to_json


class Split(str, Enum):
    """Which views; a value names the run's folder of renders."""

    TRAIN = "train"
    TEST = "test"

    def files(self, stem: str) -> list[str]:
        """results_SPLIT.json as Grendel names it; of test views also results.json, as 3DGS does."""
        named = f"{stem}_{self.value}.json"
        return [f"{stem}.json", named] if self is Split.TEST else [named]


@dataclass(frozen=True, slots=True)
class Pair:
    """A render and its truth, uint8 [3, H, W], under the name of their PNG files."""

    name: str
    render: Tensor
    truth: Tensor
    mask: Tensor | None = None
    """uint8 [H, W], 0 where pixels do not count."""


class Scores:
    """SSIM, PSNR and, where there are weights, LPIPS of pairs of images, by name."""

    def __init__(self, lpips: Lpips | None, threads: int = 1) -> None:
        self._lpips = lpips
        self._threads = threads
        self.per_view: dict[str, dict[str, float]] = {"SSIM": {}, "PSNR": {}}
        if lpips:
            self.per_view["LPIPS"] = {}
        self.left_out: list[str] = []
        """Pairs without a score: their masks exclude every pixel."""

    def add(self, pair: Pair) -> None:
        both = score(pair.render, pair.truth, self._threads, pair.mask)
        if both is None:
            self.left_out.append(pair.name)
            return
        self.per_view["SSIM"][pair.name] = both.ssim
        self.per_view["PSNR"][pair.name] = both.psnr
        if self._lpips:
            render, truth = pair.render / 255.0, pair.truth / 255.0
            if pair.mask is not None:
                render = composite(render, truth, pair.mask)
            self.per_view["LPIPS"][pair.name] = self._lpips(render, truth)

    def gather(self, world: World, names: Sequence[str]) -> Scores:
        """The scores of all ranks in the order of `names`, which has each pair of each rank once.

        Every rank calls it, and has the same metrics.
        """
        metrics = list(self.per_view)
        rows = torch.zeros(len(names), 1 + len(metrics), dtype=torch.float64)
        for number, name in enumerate(names):
            if name in self.per_view["PSNR"]:
                figures = [self.per_view[metric][name] for metric in metrics]
                rows[number] = torch.tensor([1.0, *figures], dtype=torch.float64)
        world.sum_disjoint(rows)
        everybody = Scores(self._lpips)
        for name, (there, *figures) in zip(names, rows.tolist(), strict=True):
            if not there:
                everybody.left_out.append(name)
                continue
            for metric, figure in zip(metrics, figures, strict=True):
                everybody.per_view[metric][name] = figure
        return everybody

    @property
    def means(self) -> dict[str, float]:
        return {
            metric: fmean(values.values()) if values else math.nan
            for metric, values in self.per_view.items()
        }

    def table(self, title: str) -> str:
        """The scores for the console."""
        text = score_table(title, self.per_view) if self.per_view["PSNR"] else f"{title}: no scores"
        out = f"left out, as their masks exclude every pixel: {', '.join(self.left_out)}"
        return f"{text}\n{out}" if self.left_out else text

    def save(self, run: Path, split: Split, method: str) -> None:
        """Put the scores under `method` in the files; other methods' entries stay."""
        results: dict[str, Any] = dict(self.means)
        if self._lpips:
            results["LPIPS_net"] = self._lpips.convention
        for stem, entry in (("results", results), ("per_view", self.per_view)):
            for name in split.files(stem):
                _merge(run / name, method, entry)


def _merge(path: Path, method: str, entry: Mapping[str, Any]) -> None:
    content: dict[str, Any] = {}
    if path.exists():
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: not JSON ({error}). Next: remove the file.") from error
        if not isinstance(content, dict):
            raise UserError(f"{path}: not a JSON object. Next: remove the file.")
    content[method] = entry
    with replacing(path) as file:
        file.write((to_json(content, indent=1) + "\n").encode())
