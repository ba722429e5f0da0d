"""The one exception that stands for a mistake of the user, not of the program."""

from __future__ import annotations


class UserError(Exception):
    """Bad input. Its text says what failed, with which value, where, and what to do next.

    Entry points print the text alone and exit with status 2.
    """
