"""A YAML file and `key=value` overrides to a tree of settings dataclasses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from grendel_odin.config.convert import Mismatch, convert, show, unwrap
from grendel_odin.config.errors import UserError
from grendel_odin.config.schema import Leaf, Section, join, sections
from grendel_odin.config.suggest import unknown_key
from grendel_odin.config.yaml_file import Scalar, Value, parse, read_mapping

T = TypeVar("T")
COMMAND_LINE = "command line"
MAX_PROBLEMS = 20


class Override(str):
    """A `key=value` word with where it comes from, if the user wrote something else."""

    source: str

    def __new__(cls, word: str, source: str) -> Override:
        made = super().__new__(cls, word)
        made.source = source
        return made


class Given(NamedTuple):
    """One `key: value` that the user wrote, and where."""

    source: str
    key: str
    value: Value


def bind(
    root: type[T], file: Path | None, overrides: Sequence[str], problems: Sequence[str] = ()
) -> T:
    """The settings that a file (possibly partial) and then `key.sub=value` overrides give.

    Raises:
        UserError: every problem, one per line; `problems` found before are among them.
    """
    settings: T = _Binder(root, problems).bind(file, overrides)
    return settings


class _Binder:
    def __init__(self, root: type, problems: Sequence[str]) -> None:
        self.sections = {section.key: section for section in sections(root)}
        self.leaves = {leaf.key: leaf for each in self.sections.values() for leaf in each.leaves}
        self.problems = list(problems)

    def bind(self, file: Path | None, overrides: Sequence[str]) -> Any:
        values: dict[str, Any] = {}
        given = [*self._from_file(file), *self._from_command_line(overrides)]
        for each in given:
            if each.key in self.leaves:
                self._convert(each, self.leaves[each.key], values)
            else:
                self._reject(each)
        self._stop_at_problems()
        required = (leaf.key for leaf in self.leaves.values() if leaf.default is MISSING)
        missing = [key for key in required if key not in values]
        self.problems += [f"{key}: not given; add {key}=VALUE" for key in missing]
        self._stop_at_problems()
        settings = self._build(self.sections[""], values)
        self._stop_at_problems()
        return settings

    def _from_file(self, file: Path | None) -> list[Given]:
        if file is None:
            return []
        try:
            given = list(self._flatten(str(file), "", read_mapping(file)))
        except UserError as error:
            self.problems.append(str(error))
            return []
        seen: set[str] = set()
        for each in given:
            if each.key in seen:
                self.problems.append(f"{file}: duplicate key '{each.key}'; keep one of the two")
            seen.add(each.key)
        return given

    def _from_command_line(self, overrides: Sequence[str]) -> list[Given]:
        given: list[Given] = []
        for text in overrides:
            source = text.source if isinstance(text, Override) else COMMAND_LINE
            key, equals, value = text.partition("=")
            key = key.strip()
            if not (key and equals):
                example = "write key=value without spaces, such as train.iterations=7000"
                self.problems.append(f"{source}: '{text}' is not an override; {example}")
                continue
            try:
                given += self._flatten(source, key, self._override(source, key, value.strip()))
            except UserError as error:
                self.problems.append(str(error))
        return given

    def _override(self, source: str, key: str, text: str) -> Value:
        """Text for a text setting is taken as it is: a path may hold `#`, `:` or `[`."""
        hint, optional = unwrap(self.leaves[key].hint) if key in self.leaves else (None, False)
        null = optional and Scalar(text, quoted=False).is_null
        if hint is str and not null and text[:1] not in ("'", '"'):
            return Scalar(text, quoted=True)
        return parse(text, f"{source}: {key}={text}")

    def _flatten(self, source: str, key: str, value: Value) -> Iterator[Given]:
        """Settings of a nested mapping under their dotted keys; an empty section gives none."""
        if isinstance(value, dict) and key not in self.leaves and (value or key in self.sections):
            for name, child in value.items():
                yield from self._flatten(source, join(key, name), child)
        elif not (key in self.sections and isinstance(value, Scalar) and value.is_null):
            yield Given(source, key, value)

    def _convert(self, given: Given, leaf: Leaf, values: dict[str, Any]) -> None:
        source, key, value = given
        shown = f"{source}: {key}={show(value)}"
        try:
            converted = convert(value, leaf.hint)
        except Mismatch as error:
            self.problems.append(f"{shown}: {error}")
            return
        items = converted if isinstance(converted, tuple) else (converted,)
        numbers = [item for item in items if isinstance(item, (int, float))]
        if not all(leaf.declaration.admits(number) for number in numbers):
            self.problems.append(f"{shown}: must be {leaf.declaration.bounds()}")
        values[key] = converted

    def _reject(self, given: Given) -> None:
        source, key, value = given
        if key in self.sections:
            inside = ", ".join(leaf.key for leaf in self.sections[key].leaves)
            reason = f"'{key}' is a group of settings, not one; it holds {inside}"
            self.problems.append(f"{source}: {key}={show(value)}: {reason}")
        elif len(self.problems) < MAX_PROBLEMS:  # looking for the nearest key takes a moment
            self.problems.append(f"{source}: {unknown_key(key, self.sections)}")
        else:
            self.problems.append(f"{source}: unknown key '{key}'")

    def _build(self, section: Section, values: dict[str, Any]) -> Any:
        arguments = {}
        for entry in fields(section.owner):
            key = join(section.key, entry.name)
            if key in self.sections:
                arguments[entry.name] = self._build(self.sections[key], values)
            elif key in values:
                arguments[entry.name] = values[key]
        settings = section.owner(**arguments)
        if hasattr(settings, "problems"):
            for problem in settings.problems():
                named = not section.key or problem.startswith(f"{section.key}.")
                self.problems.append(problem if named else f"{section.key}: {problem}")
        return settings

    def _stop_at_problems(self) -> None:
        left = len(self.problems) - MAX_PROBLEMS
        if left > 0:
            self.problems[MAX_PROBLEMS:] = [f"... and {left} more problems"]
        if self.problems:
            raise UserError("\n".join(self.problems))
