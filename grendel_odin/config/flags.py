"""What to say about `--flags` where settings are `key=value` words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grendel_odin.config.schema import sections
from grendel_odin.config.suggest import nearest_key


def unknown_flags(root: type, words: Sequence[str], habits: Mapping[str, str]) -> str:
    """The complaint, with the setting that each flag may mean.

    Args:
        root: the dataclass of the settings.
        words: what was not understood; the values of flags may be among it.
        habits: the settings that stand for flags of other programs, such as `-s`.
    """
    tree = {section.key: section for section in sections(root)}
    lines = []
    for word in words:
        flag, _, value = word.partition("=")
        name = flag.lstrip("-")
        if not word.startswith("-") or not name:
            continue
        near = nearest_key(name, tree) if len(name) > 1 else ""
        meant = habits.get(flag) or (f"{near}={value or 'VALUE'}" if near else "")
        hint = f"Did you mean {meant}?" if meant else "See --help"
        lines.append(f"command line: unknown flag '{flag}': settings are key=value words. {hint}")
    return "\n".join(lines) or f"command line: not understood: {' '.join(words)}"
