"""How a command begins and ends."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable
from typing import NoReturn

from grendel_odin.config.errors import BrokenRun, UserError

BROKEN_RUN, USER_ERROR, INTERRUPTED = 1, 2, 130


class CommandLine(ArgumentParser):
    """A parser whose complaints are UserErrors, so that of several ranks one prints them."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"command line: {message}. {self.prog} --help explains all")


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
