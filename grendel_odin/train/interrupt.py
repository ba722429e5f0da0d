"""Ctrl-C and SIGTERM end a run at the next unit, with its model saved.

A later Ctrl-C ends it at once. SIGTERM comes from schedulers shortly before they kill, and from
torchrun when a process has ended: then the next exchange fails, and nothing is saved.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType, TracebackType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SAID = b"\ninterrupted: saving the model; Ctrl-C again ends at once, without it\n"
_ONE_PRESS_S = 1.0
"""Launchers forward the signal that the terminal has sent already: both are one press."""


class Interrupt:
    """While entered, a first SIGINT, and any SIGTERM, only sets `requested`."""

    def __init__(self, speaks: bool = True) -> None:
        self.requested, self._speaks, self._first = False, speaks, 0.0

    def __enter__(self) -> Interrupt:
        self._previous = {number: signal.getsignal(number) for number in _SIGNALS}
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._on_press)
            signal.signal(signal.SIGTERM, self._on_request)
        return self

    def _on_request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True

    def _on_press(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self._first:
            self.requested, self._first = True, now
            if self._speaks:
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
            for number, handler in self._previous.items():
                signal.signal(number, handler)
