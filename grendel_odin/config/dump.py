"""Settings to YAML that `bind` reads back."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import yaml

from grendel_odin.config.schema import sections


class _Dumper(yaml.SafeDumper):
    """Block style for sections, one line for lists."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(
    tuple,
    lambda dumper, items: dumper.represent_sequence(
        "tag:yaml.org,2002:seq", list(items), flow_style=True
    ),
)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Line breaks of every kind (NEL, LS, PS among them) are kept only where they are escaped."""
    style = (
        '"' if len(text.splitlines()) > 1 or text != text.rstrip("\n\r\x85\u2028\u2029") else None
    )
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def dump(settings: Any) -> str:
    """All settings of a tree as YAML text, defaults included, in the order of declaration."""
    text: str = yaml.dump(
        _plain(settings), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100
    )
    return text


def flat(settings: Any) -> dict[str, Any]:
    """All settings of a tree by dotted key, as values that JSON knows."""
    values: dict[str, Any] = {}
    for section in sections(type(settings)):
        owner = settings
        for name in section.key.split(".") if section.key else ():
            owner = getattr(owner, name)
        for leaf in section.leaves:
            value = _plain(getattr(owner, leaf.key.rpartition(".")[2]))
            values[leaf.key] = list(value) if isinstance(value, tuple) else value
    return values


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        entries = (entry for entry in fields(value) if entry.init)
        return {entry.name: _plain(getattr(value, entry.name)) for entry in entries}
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in value)
    return value
