"""The keys of a tree of settings dataclasses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from grendel_odin.config.setting import METADATA_KEY, Declaration


@dataclass(frozen=True, slots=True)
class Leaf:
    """One setting: what `key=value` can name."""

    key: str
    """Dotted from the root, such as `data.path`."""
    hint: Any
    default: Any
    """`dataclasses.MISSING` where the user must give a value."""
    declaration: Declaration


@dataclass(frozen=True, slots=True)
class Section:
    """One dataclass of the tree with the settings that stand directly in it."""

    key: str
    """"" for the root."""
    owner: type
    leaves: tuple[Leaf, ...]


def sections(root: type, key: str = "") -> Iterator[Section]:
    """The root and every nested dataclass, parents first."""
    hints = get_type_hints(root)
    own, nested = [], []
    for entry in fields(root):
        if not entry.init:
            continue
        hint, name = hints[entry.name], join(key, entry.name)
        if is_dataclass(hint) and isinstance(hint, type):
            nested.append((hint, name))
        else:
            declaration = entry.metadata.get(METADATA_KEY, Declaration())
            own.append(Leaf(name, hint, _default(entry), declaration))
    yield Section(key, root, tuple(own))
    for owner, name in nested:
        yield from sections(owner, name)


def join(section: str, name: str) -> str:
    """The dotted key of a name in a section."""
    return f"{section}.{name}" if section else name


def _default(entry: Field[Any]) -> Any:
    factory = entry.default_factory
    return entry.default if factory is MISSING else factory()
