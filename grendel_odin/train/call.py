"""The command line of train.py."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grendel_odin.config import CommandLine, UserError, bind, explain, unknown_flags
from grendel_odin.train.flags import FLAG_NAMES, train_words
from grendel_odin.train.settings import Settings


@dataclass(frozen=True, slots=True)
class Call:
    """What the command line asks for."""

    settings: Settings
    notes: list[str]
    """On its flags, to be said first."""
    plan_only: bool


def parse(arguments: Sequence[str]) -> Call:
    """Settings from a file, overrides and flags; --help explains every key."""
    parser = CommandLine(
        prog="train.py",
        description="Trains a 3D Gaussian splatting model of a scene.",
        usage="train.py [-c FILE] data.path=SCENE output=RUN [key=value ...] [flags of Grendel-GS]",
        epilog=explain(Settings),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="settings in YAML")
    parser.add_argument(
        "--plan-only", action="store_true", help="plan the order of views, and stop"
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings by name")
    said = train_words(arguments)
    given, unknown = parser.parse_known_intermixed_args(said.arguments)
    if unknown:  # what followed them would only be misunderstood, too
        complaints = unknown_flags(Settings, unknown, FLAG_NAMES)
        raise UserError("\n".join([*said.problems, *complaints]))
    settings = bind(Settings, given.config, given.overrides, said.problems)
    return Call(settings, said.notes, given.plan_only)
