"""What a run says while it trains: a progress bar, a text log, metrics.jsonl, TensorBoard."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from grendel_odin.config import UserError
from grendel_odin.train.run_folder import RunFolder, to_json

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

SMOOTHING = 0.1


def check_tensorboard() -> None:
    """Raise UserError if TensorBoard is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise UserError(
            "train.tensorboard=true needs a package that is not installed; run "
            "`pip install tensorboard`, or leave the setting out (metrics.jsonl has the same)"
        )


class RunLog:
    """The log of one rank. The main rank has the console, and metrics.jsonl for numbers."""

    def __init__(self, folder: RunFolder, iterations: int, tensorboard: bool, rank: int) -> None:
        self._main = rank == 0
        metrics = folder.path / "metrics.jsonl" if self._main else Path(os.devnull)
        text = folder.path / "logs" / f"rank_{rank:04d}.log"
        try:
            self._metrics = open(metrics, "w", buffering=1)  # noqa: SIM115
            self._text = open(text, "w", buffering=1)  # noqa: SIM115
        except OSError as error:
            raise UserError(f"cannot write {error.filename}: {error.strerror}") from error
        self._board = _open_board(folder) if tensorboard and self._main else None
        interval = 0.1 if sys.stderr.isatty() else 10.0  # a log file keeps every refresh
        self._bar = tqdm(
            total=iterations, dynamic_ncols=True, mininterval=interval, disable=not self._main
        )
        self._loss: float | None = None
        self._shown = 0

    def say(self, text: str) -> None:
        """Print a line above the bar and keep it in logs/."""
        if self._main:
            tqdm.write(text)
        self._text.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")

    def event(self, kind: str, iteration: int, **values: Any) -> None:
        """One line of metrics.jsonl; numbers go to TensorBoard, too."""
        self._metrics.write(to_json({"event": kind, "iteration": iteration, **values}) + "\n")
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, (int, float)):
                    self._board.add_scalar(f"{kind}/{name}", value, iteration)

    def progress(self, iteration: int, loss: float, primitives: int) -> None:
        """Move the bar to an iteration; `loss` is the mean of a view, and shown smoothed."""
        smooth = loss if self._loss is None else self._loss + SMOOTHING * (loss - self._loss)
        self._loss = smooth
        self._bar.set_postfix_str(f"loss {smooth:.4f}, {primitives:,} primitives", refresh=False)
        self._bar.update(iteration - self._shown)
        self._shown = iteration

    def close(self) -> None:
        """Close the bar and the files."""
        self._bar.close()
        self._metrics.close()
        self._text.close()
        if self._board is not None:
            self._board.close()


def _open_board(folder: RunFolder) -> SummaryWriter:
    check_tensorboard()
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder.path / "tb"))
