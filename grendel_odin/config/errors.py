"""The exceptions that are no mistakes of the program."""

from __future__ import annotations


class UserError(Exception):
    """Bad input. Its text says what failed, with which value, where, and what to do next.

    Entry points print the text alone and exit with status 2.
    """

    agreed: bool = False
    """Whether all ranks of a run have raised it, so that they may still act together."""
    said: bool = False
    """Whether it has been printed, or another rank prints it."""


class BrokenRun(Exception):
    """Another rank was lost, or failed. It has been said; entry points exit with status 1."""
