"""YAML text to plain values, without ever constructing an object that the text names.

Scalars stay text: the setting's type decides what they mean, so that `1e-4`, `off`, `007` or
`2024-01-01` are never mistaken for what YAML 1.1 makes of them.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import yaml

from grendel_odin.config.errors import UserError

MAX_BYTES = 1_000_000
MAX_DEPTH = 20
LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


@dataclass(frozen=True, slots=True)
class Scalar:
    """The text of a scalar; a quoted one is always text, never a number, a bool or null."""

    text: str
    quoted: bool

    @property
    def is_null(self) -> bool:
        return not self.quoted and self.text in ("", "~", "null", "Null", "NULL")


Value: TypeAlias = "Scalar | list[Value] | dict[str, Value]"


def read_mapping(path: Path) -> dict[str, Value]:
    """The mapping that a YAML file holds; an empty file is an empty mapping.

    Raises:
        UserError: unreadable, larger than 1 MB, not YAML, or not a mapping.
    """
    value = parse(_read(path), str(path))
    if isinstance(value, Scalar) and value.is_null:
        return {}
    if not isinstance(value, dict):
        kind = "a list" if isinstance(value, list) else f"'{value.text[:40]}'"
        raise UserError(f"{path}: expected 'key: value' lines at the top level, found {kind}")
    return value


def parse(text: str, source: str) -> Value:
    """The value that one YAML document holds; `source` names it in error messages.

    Raises:
        UserError: not YAML; tags, aliases, several documents, duplicate keys, deep nesting.
    """
    try:
        _guard(text, source)
        node = yaml.compose(text, Loader=LOADER)
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise UserError(f"{source}: {where}not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{source}: not valid YAML: {' '.join(str(error).split())}") from None
    problems: list[str] = []
    value = Scalar("", quoted=False) if node is None else _value(node, problems)
    if problems:
        raise UserError("\n".join(f"{source}: {problem}" for problem in problems))
    return value


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UserError(f"{path}: larger than 1 MB; is it really a configuration file?")
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{path}: no such configuration file{_neighbour(path)}") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder; -c takes a YAML file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read: {reason}") from None


def _neighbour(path: Path) -> str:
    """The next step for somebody whose file is not there."""
    found = sorted(other.name for other in path.parent.glob("*.y*ml"))
    near = difflib.get_close_matches(path.name, found, n=1)
    if near:
        return f". Did you mean '{path.with_name(near[0])}'?"
    return "; check the path given with -c"


def _guard(text: str, source: str) -> None:
    """Refuses what a configuration never needs before anything is built from it."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=LOADER):
        documents += isinstance(event, yaml.DocumentStartEvent)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        problem = None
        if isinstance(event, yaml.AliasEvent):
            problem = f"aliases (*{event.anchor}) are not supported; write the value out"
        elif tag := getattr(event, "tag", None):
            problem = f"tags ({tag}) are not supported; write the plain value"
        elif depth > MAX_DEPTH:
            problem = f"nested more than {MAX_DEPTH} levels deep"
        elif documents > 1:
            problem = "more than one YAML document; keep the first"
        if problem:
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise UserError(f"{source}: line {line}: {problem}")


def _value(node: yaml.Node, problems: list[str]) -> Value:
    if isinstance(node, yaml.ScalarNode):
        return Scalar(node.value, quoted=bool(node.style))
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, problems) for item in node.value]
    mapping: dict[str, Value] = {}
    for key, child in node.value:
        where = f"line {key.start_mark.line + 1}"
        if not isinstance(key, yaml.ScalarNode):
            problems.append(f"{where}: a key must be a word, not a list or a mapping")
        elif key.value in mapping:
            problems.append(f"{where}: duplicate key '{key.value}'; keep one of the two")
        else:
            mapping[key.value] = _value(child, problems)
    return mapping
