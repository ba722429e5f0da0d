"""The list of all settings for --help."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import MISSING
from enum import Enum
from typing import Any

from grendel_odin.config.convert import describe
from grendel_odin.config.schema import Leaf, Section, sections

WIDTH = 100


def explain(root: type) -> str:
    """Every key with default, type, range and help, grouped by section."""
    return "\n\n".join(_section(section) for section in sections(root) if section.leaves)


def _section(section: Section) -> str:
    title = section.key or "general"
    summary = _summary(section.owner)
    heading = f"{title}: {summary}" if summary else f"{title}:"
    return "\n".join([heading, *(_leaf(leaf) for leaf in section.leaves)])


def _leaf(leaf: Leaf) -> str:
    default = "VALUE (required)" if leaf.default is MISSING else _show(leaf.default)
    bounds = leaf.declaration.bounds()
    kind = f"{describe(leaf.hint)}, {bounds}" if bounds else describe(leaf.hint)
    first = f"  {leaf.key}={default}  ({kind})"
    indent = " " * 6
    text = textwrap.fill(
        leaf.declaration.help, WIDTH, initial_indent=indent, subsequent_indent=indent
    )
    return f"{first}\n{text}" if text else first


def _summary(owner: type) -> str:
    """The first line of a docstring; a dataclass without one has its signature there."""
    text = inspect.cleandoc(owner.__doc__ or "").split("\n")[0]
    return "" if text.startswith(f"{owner.__name__}(") else text


def _show(value: Any) -> str:
    """A default as it is written after `key=`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(_show(item) for item in value)}]"
    if isinstance(value, Enum):
        return str(value.value)
    return "null" if value is None else str(value)
