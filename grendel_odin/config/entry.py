"""How a command ends."""

from __future__ import annotations

import sys
from collections.abc import Callable

from grendel_odin.config.errors import UserError

USER_ERROR, INTERRUPTED = 2, 130


def exit_code(run: Callable[[], int | None], speaks: bool = True, interrupted: str = "") -> int:
    """Of a command: what it returns, 2 for a UserError, whose text is printed, 130 for Ctrl-C.

    Of several ranks only one `speaks` of errors. Ctrl-C is answered with `interrupted`, if given.
    """
    try:
        return run() or 0
    except UserError as error:
        if speaks:
            print(f"error: {error}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        if interrupted:
            print(interrupted, file=sys.stderr)
        return INTERRUPTED
