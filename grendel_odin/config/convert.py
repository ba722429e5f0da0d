"""Text to the type that a setting declares."""

from __future__ import annotations

import math
import types
from difflib import get_close_matches
from enum import Enum
from typing import Any, Union, get_args, get_origin

from grendel_odin.config.yaml_file import Scalar, Value

INTEGER_LIMIT = 2**63
BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False}
BOOLEANS["FALSE"] = False


class Mismatch(Exception):
    """A value that its setting's type does not take; the text says why."""


def convert(value: Value, hint: Any) -> Any:
    """A value of the declared type.

    Raises:
        Mismatch: it has another type.
    """
    inner, optional = unwrap(hint)
    if isinstance(value, Scalar) and value.is_null and optional:
        return None
    if get_origin(inner) is tuple:
        return _tuple(value, hint)
    if not isinstance(value, Scalar) or value.is_null:
        raise Mismatch(f"expected {describe(hint)}, got {show(value) or 'nothing'}")
    if inner is str:
        return value.text
    if isinstance(inner, type) and issubclass(inner, Enum):
        return _member(value, inner)
    plain = None if value.quoted else _plain(value.text, inner)
    if plain is None:
        raise Mismatch(f"expected {describe(hint)}, got {_quote(value.text)}")
    return plain


def unwrap(hint: Any) -> tuple[Any, bool]:
    """The type behind an `Optional`, and whether it was one."""
    if get_origin(hint) not in (Union, types.UnionType):
        return hint, False
    (inner,) = (item for item in get_args(hint) if item is not type(None))
    return inner, True


def describe(hint: Any) -> str:
    """A type in the user's words."""
    inner, optional = unwrap(hint)
    if get_origin(inner) is tuple:
        items = get_args(inner)
        count = "" if items[-1] is Ellipsis else f"{len(items)} "
        words = f"list of {count}{describe(items[0])}"
    elif isinstance(inner, type) and issubclass(inner, Enum):
        words = " | ".join(str(member.value) for member in inner)
    else:
        words = {str: "text", bool: "true | false"}.get(inner) or inner.__name__
    return f"{words} or null" if optional else words


def show(value: Value) -> str:
    """A value as the user wrote it, shortened."""
    if isinstance(value, Scalar):
        text = value.text
    elif isinstance(value, list):
        text = f"[{', '.join(show(item) for item in value[:20])}]"
    else:
        text = f"{{{', '.join(f'{key}: {show(item)}' for key, item in list(value.items())[:20])}}}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _tuple(value: Value, hint: Any) -> tuple[Any, ...]:
    items = get_args(unwrap(hint)[0])
    expected = f"expected {describe(hint)}, such as [a, b]"
    if not isinstance(value, list):
        got = show(value) if not isinstance(value, Scalar) else _quote(show(value))
        raise Mismatch(f"{expected}, got {got}")
    if items[-1] is Ellipsis:
        items = items[:1] * len(value)
    if len(items) != len(value):
        raise Mismatch(f"expected {describe(hint)}, got {len(value)} items")
    return tuple(convert(item, kind) for item, kind in zip(value, items, strict=True))


def _member(value: Scalar, kind: type[Enum]) -> Enum:
    members = {str(member.value): member for member in kind}
    if value.text in members:
        return members[value.text]
    near = get_close_matches(value.text.lower(), members, n=1)
    hint = f". Did you mean '{near[0]}'?" if near else ""
    raise Mismatch(f"expected one of {', '.join(members)}, got {_quote(value.text)}{hint}")


def _plain(text: str, kind: type) -> bool | int | float | None:
    """A bool, an integer or a finite float from unquoted text, None if it is not one."""
    if kind is bool:
        return BOOLEANS.get(text)
    try:
        number = float(text)
        if kind is float:
            return number if math.isfinite(number) else None
        # 3e4 is a usual way to write a count; 2**53 is where floats stop being exact.
        whole = int(number) if number.is_integer() and abs(number) < 2**53 else int(text)
    except (ValueError, OverflowError):
        return None
    return whole if abs(whole) < INTEGER_LIMIT else None


def _quote(text: str) -> str:
    return f"'{show(Scalar(text, quoted=True))}'"
