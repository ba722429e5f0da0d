"""The kinds of flags that tables are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grendel_odin.config.errors import UserError
from grendel_odin.config.flags import Fate, Flag, Values, Words


def renamed(names: str, key: str, note: str = "", minus_one: str = "-1", needs: str = "") -> Flag:
    """A flag with a value that is a setting's; `minus_one` is what the setting has for -1."""

    def words(values: Sequence[str]) -> list[str]:
        return [f"{key}={minus_one if values[0] == '-1' else values[0]}"]

    return Flag(_split(names), Values.ONE, words, key, note, needs=needs)


def derived(names: str, keys: str, words: Words, note: str = "") -> Flag:
    """A flag whose value becomes that of settings in a way of its own."""
    return Flag(_split(names), Values.ONE, words, keys, note)


def marks(names: str, key: str, note: str = "") -> Flag:
    """A flag with a list of iterations; those below 1 never come, and are left out."""

    def words(values: Sequence[str]) -> list[str]:
        return [f"{key}=[{', '.join(value for value in values if not _is_never(value))}]"]

    return Flag(_split(names), Values.MANY, words, key, note)


def switch(names: str, words: str, note: str = "", last: bool = False) -> Flag:
    """A flag without a value; `words` are separated by blanks."""
    return Flag(_split(names), Values.NONE, _constant(words), words, note, last=last)


def toggle(name: str, on: str, off: str, note: str = "") -> Flag:
    """A flag with a --no- form."""
    shown = f"{on or 'as it is'}; --no-: {off or 'as it is'}"
    return Flag((name,), Values.NONE, _constant(on), shown, note, off=_constant(off))


def choice(names: str, words: Mapping[str, str], note: str = "", last: bool = False) -> Flag:
    """A flag whose values stand for words; a value without words changes nothing."""

    def chosen(values: Sequence[str]) -> list[str]:
        if values[0] not in words:
            raise UserError(f"expected one of {', '.join(words)}")
        return words[values[0]].split()

    shown = "; ".join(f"{value}: {word or 'as it is'}" for value, word in words.items())
    return Flag(_split(names), Values.ONE, chosen, shown, note, last=last, choices=tuple(words))


def only(names: str, value: str, reason: str) -> Flag:
    """A flag that is taken at its default alone."""

    def words(values: Sequence[str]) -> list[str]:
        if values[0] != value and not _equal(values[0], value):
            raise UserError(reason)
        return []

    return Flag(_split(names), Values.ONE, words, f"only {value}", reason)


def dead(names: str, note: str, values: Values = Values.NONE) -> Flag:
    """A flag that changes nothing."""
    return Flag(_split(names), values, _constant(""), "", note, Fate.DEAD)


def dead_toggle(name: str, note: str) -> Flag:
    """The same with a --no- form."""
    return Flag((name,), Values.NONE, _constant(""), "", note, Fate.DEAD, off=_constant(""))


def refused(names: str, reason: str, values: Values = Values.ONE) -> Flag:
    """A flag that cannot be honoured; the reason names what comes nearest."""
    return Flag(_split(names), values, _constant(""), "", reason, Fate.REFUSED)


def _split(names: str) -> tuple[str, ...]:
    return tuple(names.split())


def _constant(words: str) -> Words:
    return lambda _: words.split()


def _is_never(value: str) -> bool:
    return value.startswith("-") or _equal(value, "0")


def _equal(a: str, b: str) -> bool:
    """As numbers; False if they are none."""
    try:
        return float(a) == float(b)
    except ValueError:
        return False
