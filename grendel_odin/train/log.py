"""What a run says while it trains: a progress bar, a text log, metrics.jsonl, TensorBoard."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from contextlib import suppress
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

    def __init__(
        self,
        folder: RunFolder,
        iterations: int,
        tensorboard: bool,
        rank: int,
        quiet: bool = False,
        done: int = 0,
    ) -> None:
        """`done` iterations of the run are behind it already; files of that time are added to."""
        self._main = rank == 0
        self._speaks = self._main and not quiet
        self._metrics = Lines(folder.path / "metrics.jsonl" if self._main else Path(os.devnull))
        self._text = Lines(folder.path / "logs" / f"rank_{rank:04d}.log")
        self._board = _open_board(folder, done) if tensorboard and self._main else None
        interval = 0.1 if sys.stderr.isatty() else 10.0  # a log file keeps every refresh
        self._bar = tqdm(
            total=iterations,
            initial=done,
            dynamic_ncols=True,
            mininterval=interval,
            disable=not self._speaks,
        )
        self._loss: float | None = None
        self._shown = done

    def say(self, text: str) -> None:
        """Print a line above the bar and keep it in logs/."""
        if self._speaks:
            tqdm.write(text)
        self._text.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")

    def note(self, text: str) -> None:
        """Keep a line in this rank's log only."""
        self._text.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text.rstrip()}")

    def event(self, kind: str, iteration: int, **values: Any) -> None:
        """One line of metrics.jsonl; numbers go to TensorBoard, too."""
        self._metrics.write(to_json({"event": kind, "iteration": iteration, **values}))
        numbers = {name: each for name, each in values.items() if isinstance(each, (int, float))}
        try:
            for name, number in numbers.items():
                if self._board is not None:
                    self._board.add_scalar(f"{kind}/{name}", number, iteration)
        except OSError as error:
            self._board = None
            self.say(f"warning: TensorBoard's files end here: {error.strerror or error}")

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
            with suppress(OSError):
                self._board.close()


class Lines:
    """A file of lines. They are worth less than the run: those that find no space are left out."""

    def __init__(self, path: Path) -> None:
        """Raises UserError if there can be no such file."""
        self._path, self._warned = path, False
        try:
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115
            self._size = self._file.tell()
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from error

    def write(self, line: str) -> None:
        if self._file.closed:  # the watch over other ranks may still have something to say
            return
        data = f"{line}\n".encode()
        try:
            written, reason = self._file.write(data), "no space is left"
        except OSError as error:
            written, reason = 0, error.strerror or str(error)
        if written == len(data):
            self._size += written
            return
        with suppress(OSError):  # no half lines
            self._file.truncate(self._size)
            self._file.seek(self._size)
        if not self._warned:
            self._warned = True
            tqdm.write(f"warning: {self._path} lacks lines from here on: {reason}")

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()


def _open_board(folder: RunFolder, done: int) -> SummaryWriter:
    check_tensorboard()
    from torch.utils.tensorboard import SummaryWriter

    # Events of later iterations are those of a run that was taken back to a checkpoint.
    return SummaryWriter(str(folder.path / "tb"), purge_step=done + 1 if done else None)
