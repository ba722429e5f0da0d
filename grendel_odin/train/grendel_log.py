"""The log of one rank in the lines that scripts for Grendel-GS read.

Grendel writes a file a rank, named after world size and rank, into the run folder itself. Its
iterations are half-open windows [first, first + batch), its GB are 2^30 bytes, and an epoch is as
many images as there are training views.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from statistics import fmean

from grendel_odin.config import UserError, replacing
from grendel_odin.parallel.world import World
from grendel_odin.pipelines.window import Window
from grendel_odin.train.log import Lines
from grendel_odin.train.progress import Scores, peak_rss_mb, rss_mb
from grendel_odin.train.run_folder import RunFolder

_HELD = 50
"""Lines of units that wait for one write: a unit may take a few milliseconds."""


class GrendelLog:
    """Writes what this rank knows; losses and scores are alike on all, and the main rank's."""

    def __init__(
        self, folder: RunFolder, world: World, rows: int, batch_size: int, views: int, done: int
    ) -> None:
        """`rows` of this rank; training `views` make an epoch; so many images are `done`.

        Of a run that continues, lines of what came after its checkpoint go. Raises UserError if
        there can be no such file.
        """
        self._main, self._views = world.is_main, views
        path = folder.path / f"python_ws={world.size}_rk={world.rank}.log"
        _rewind(path, done)
        self._lines = Lines(path)
        self._held: list[str] = []
        self._epochs, begun = divmod(done, views)
        self._left = views - begun
        self._losses: list[float] = []
        self._window = Window(1, 1)
        self._densifies = False
        self._write(f"bsz: {batch_size}")
        if not done:
            self._write(f"rank: {world.rank}, Number of initialized points: {rows}")

    def unit(self, window: Window, densifies: bool, names: list[str], losses: list[float]) -> None:
        """The views of a unit and the loss of each; `densifies` tells what comes after it."""
        self._window, self._densifies = window, densifies
        if not self._main:
            return
        rounded = [round(loss, 6) for loss in losses]
        self._held.append(f"{self._place} loss: {rounded} image: {names}")
        self._losses += losses
        while len(self._losses) >= self._left:
            epoch, self._losses = self._losses[: self._left], self._losses[self._left :]
            self._epochs, self._left = self._epochs + 1, self._views
            self._held.append(f"epoch {self._epochs} loss: {fmean(epoch)}")
        if len(self._held) >= _HELD:
            self._flush()

    def evaluated(
        self, iterations: Sequence[int], scores: Scores, rows: int, seconds: float
    ) -> None:
        """Scores under each of the iterations; training took so many `seconds` until now."""
        if self._main:
            for iteration in iterations:
                for name, each in (("test", scores.test), ("train", scores.train)):
                    if each is not None:
                        figures = f"L1 {each.l1} PSNR {each.psnr}"
                        self._write(f"[ITER {iteration}] Evaluating {name}: {figures}")
        self.timed(self._window.last + 1, seconds)
        if not self._densifies:  # scripts want one line of memory a unit
            self._memory("", rows)

    def densified(self, rows: int) -> None:
        """This rank has so many rows now."""
        self._memory("densify_and_prune. ", rows)

    def timed(self, iterations: int, seconds: float) -> None:
        """Training time, without evaluation and saving, until before an iteration."""
        speed = iterations / seconds if seconds else 0.0
        self._write(
            f"end2end total_time: {seconds:.3f} s, iterations: {iterations}, "
            f"throughput {speed:.2f} it/s"
        )

    def close(self) -> None:
        """Write what is held, and close the file."""
        self._flush()
        self._lines.close()

    @property
    def _place(self) -> str:
        return f"iteration[{self._window.start},{self._window.last + 1})"

    def _memory(self, event: str, rows: int) -> None:
        now = rss_mb() / 1024
        peak = max(now, peak_rss_mb() / 1024)
        # Main memory knows no difference between what is allocated and what is reserved.
        self._write(
            f"{self._place} {event}Now num of 3dgs: {rows}. Now Memory usage: {now:.3f} GB. "
            f"Max Memory usage: {peak:.3f} GB. Max Reserved Memory: {peak:.3f} GB. "
            f"Now Reserved Memory: {now:.3f} GB."
        )

    def _write(self, line: str) -> None:
        self._held.append(line)
        self._flush()

    def _flush(self) -> None:
        if self._held:
            self._lines.write("\n".join(self._held))
            self._held.clear()


def _rewind(path: Path, done: int) -> None:
    """Keep the lines until the first one of a later iteration."""
    try:
        if not path.exists():
            return
        lines = path.read_bytes().splitlines(keepends=True)
        kept = list(takewhile(lambda line: _iteration(line) <= done, lines))
        with replacing(path) as file:
            file.writelines(kept)
    except OSError as error:
        raise UserError(f"{path}: cannot be rewritten: {error.strerror}") from error


def _iteration(line: bytes) -> int:
    """The one that a line is about, 0 if it is about none."""
    if found := re.search(rb"iterations: (\d+)", line):
        return int(found[1]) - 1
    found = re.search(rb"(?:^iteration\[|\[ITER )(\d+)", line)
    return int(found[1]) if found else 0
