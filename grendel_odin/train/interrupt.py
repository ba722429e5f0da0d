"""Ctrl-C ends a run at the next unit, with its model saved; a later one ends it at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType, TracebackType

_SAID = b"\ninterrupted: saving the model; Ctrl-C again ends at once, without it\n"
_ONE_PRESS_S = 1.0
"""Launchers forward the signal that the terminal has sent already: both are one press."""


class Interrupt:
    """While entered, the first SIGINT only sets `requested`."""

    requested: bool = False
    _first: float = 0.0

    def __enter__(self) -> Interrupt:
        self._previous = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._on_signal)
        return self

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.requested:
            self.requested, self._first = True, now
            os.write(2, _SAID)
        elif now - self._first > _ONE_PRESS_S:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._previous)
