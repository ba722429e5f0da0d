"""Flags of other programs: a table says which `key=value` words each of them stands for.

`rewrite` goes through a command line once and puts words in the place of flags, so that both may
be mixed freely and the later one wins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from grendel_odin.config.binder import COMMAND_LINE, Override
from grendel_odin.config.errors import UserError


class Values(Enum):
    """What follows a flag."""

    NONE = "no value"
    ONE = "a value"
    MANY = "one or more values"


class Fate(Enum):
    """What becomes of a flag."""

    TAKEN = "taken"
    DEAD = "no effect"
    REFUSED = "refused"


Words = Callable[[Sequence[str]], Sequence[str]]
"""The values of a flag to `key=value` words. Raises UserError for a value that it does not take."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag, and what it means here."""

    names: tuple[str, ...]
    """The long one last; dashes inside of it may be written for underscores."""
    values: Values
    words: Words
    key: str
    """What stands for it here, for people; "" where nothing does."""
    note: str = ""
    """What differs, for people; of a refused flag, why."""
    fate: Fate = Fate.TAKEN
    off: Words | None = None
    """Of --no-NAME, where there is such a form."""
    needs: str = ""
    """The flag without which this one has no effect."""
    last: bool = False
    """Whether it wins over flags that come after it."""
    choices: tuple[str, ...] = ()
    """Its values, where it takes no others."""


@dataclass(slots=True)
class Rewritten:
    """A command line in which words stand for flags."""

    arguments: list[str] = field(default_factory=list)
    given: set[str] = field(default_factory=set)
    """Long names of the flags that were there."""
    dead: list[str] = field(default_factory=list)
    """Those without effect, as they were written."""
    notes: list[str] = field(default_factory=list)
    """What the user should know; a line each."""
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Given:
    """A flag as it was found, with what followed it."""

    flag: Flag
    name: str
    on: bool
    values: list[str]

    @property
    def source(self) -> str:
        return f"{COMMAND_LINE}: {' '.join([self.name, *self.values])}"

    def words(self) -> list[str]:
        """What stands for it. Raises UserError."""
        flag, count = self.flag, len(self.values)
        if flag.fate is Fate.REFUSED:
            raise UserError(flag.note)
        if flag.values is Values.NONE and count:
            raise UserError("it takes no value")
        if flag.values is not Values.NONE and not count:
            raise UserError(f"{flag.values.value} must follow")
        made = flag.words if self.on else flag.off
        assert made is not None
        return [Override(word, self.source) for word in made(self.values)]


def rewrite(flags: Sequence[Flag], arguments: Sequence[str]) -> Rewritten:
    """Put `key=value` words in the place of the flags of a table; all else stays as it is."""
    found, waiting = Rewritten(), list[_Given]()
    last, end = list[str](), 0
    by_name = _by_name(flags)
    left = deque(arguments)
    while left:
        word = left.popleft()
        given = _take(word, left, by_name)
        if given is None:
            found.arguments.append(word)
            continue
        found.given.add(given.flag.names[-1])
        if given.flag.needs and given.flag.needs not in found.given:
            waiting.append(given)
            continue
        ready = [given, *(other for other in waiting if other.flag.needs in found.given)]
        waiting = [other for other in waiting if other not in ready]
        for each in ready:
            try:
                (last if each.flag.last else found.arguments).extend(each.words())
            except UserError as error:
                found.problems.append(f"{each.source}: {error}")
        end = len(found.arguments)
        if given.flag.fate is Fate.DEAD and given.name not in found.dead:
            found.dead.append(given.name)
    found.arguments[end:end] = last
    found.notes += [
        f"{' '.join([each.name, *each.values])} has no effect without {each.flag.needs}"
        for each in waiting
    ]
    return found


def _by_name(flags: Sequence[Flag]) -> dict[str, tuple[Flag, bool]]:
    """Every form of every flag, and whether it switches on."""
    table = {_plain(name): (flag, True) for flag in flags for name in flag.names}
    for flag in flags:
        if flag.off is not None:
            table[f"--no_{_plain(flag.names[-1])[2:]}"] = (flag, False)
    return table


def _plain(name: str) -> str:
    """With underscores inside."""
    return f"--{name[2:].replace('-', '_')}" if name.startswith("--") else name


def _take(word: str, left: deque[str], by_name: Mapping[str, tuple[Flag, bool]]) -> _Given | None:
    """The flag that a word names, with its values, which are taken from what is left."""
    name, equals, value = word.partition("=")
    if not word.startswith("--") and word[:2] in by_name:  # -r2, -r=2
        name, value = word[:2], word[2:].removeprefix("=")
        equals = value
    if _plain(name) not in by_name:
        return None
    flag, on = by_name[_plain(name)]
    if equals:
        return _Given(flag, name, on, [value])
    wanted = {Values.NONE: 0, Values.ONE: 1, Values.MANY: len(left)}[flag.values]
    values: list[str] = []
    while left and len(values) < wanted and _is_value(left[0], flag.values):
        values.append(left.popleft())
    return _Given(flag, name, on, values)


def _is_value(word: str, values: Values) -> bool:
    """Not the next flag; of a list, not the next `key=value` word either."""
    if word.startswith("-") and not word[1:2].isdigit() and word[1:2] != ".":
        return False
    return values is Values.ONE or "=" not in word
