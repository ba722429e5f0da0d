"""How a command ends."""

from __future__ import annotations

import sys
from collections.abc import Callable

from grendel_odin.config.errors import BrokenRun, UserError

BROKEN_RUN, USER_ERROR, INTERRUPTED = 1, 2, 130


def exit_code(run: Callable[[], int | None], interrupted: str = "") -> int:
    """Of a command: what it returns, 2 for a UserError, 1 for a BrokenRun, 130 for Ctrl-C.

    A UserError is printed, unless it was; Ctrl-C is answered with `interrupted`, if given.
    """
    try:
        return run() or 0
    except UserError as error:
        if not error.said:
            print(f"error: {error}", file=sys.stderr)
        return USER_ERROR
    except BrokenRun:
        return BROKEN_RUN
    except KeyboardInterrupt:
        if interrupted:
            print(interrupted, file=sys.stderr)
        return INTERRUPTED
