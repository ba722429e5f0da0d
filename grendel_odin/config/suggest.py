"""What to say about a key or a flag that does not exist."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import SequenceMatcher, get_close_matches

from grendel_odin.config.schema import Section, sections

CLOSE_ENOUGH = 0.65
FLAG_CLOSE_ENOUGH = 0.8
SECTION_WEIGHT = 0.25


def unknown_key(key: str, sections: Mapping[str, Section]) -> str:
    """The complaint, with the nearest key of the whole tree or else the keys beside it."""
    if nearest := nearest_key(key, sections):
        return f"unknown key '{key}'. Did you mean '{nearest}'?"
    home = key.rpartition(".")[0]
    beside = sections[home if home in sections else ""]
    groups = [name for name in sections if name and not beside.key]
    valid = [leaf.key for leaf in beside.leaves] + [f"{name}.*" for name in groups]
    return f"unknown key '{key}'. Valid here: {', '.join(valid)}"


def unknown_flags(root: type, words: Sequence[str], known: Collection[str] = ()) -> list[str]:
    """A complaint about each flag that was not understood, with the nearest flag or setting.

    Args:
        root: the dataclass of the settings.
        words: what was not understood; the values of flags may be among it.
        known: names of the flags that there are.
    """
    tree = {section.key: section for section in sections(root)}
    lines = []
    for word in words:
        flag, _, value = word.partition("=")
        name = flag.lstrip("-").replace("-", "_")
        if not word.startswith("-") or not name:
            continue
        near = get_close_matches(f"--{name}", known, n=1, cutoff=FLAG_CLOSE_ENOUGH)
        key = nearest_key(name, tree) if len(name) > 1 and not near else ""
        meant = near[0] if near else f"{key}={value or 'VALUE'}" if key else ""
        hint = f"Did you mean {meant}?" if meant else "Settings are key=value words; see --help"
        lines.append(f"command line: unknown flag '{flag}'. {hint}")
    return lines or [f"command line: not understood: {' '.join(words)}"]


def nearest_key(key: str, sections: Mapping[str, Section]) -> str:
    """The key or section of the whole tree that is most like `key`, "" if none is like it."""
    leaves = [leaf.key for section in sections.values() for leaf in section.leaves]
    nearest, closeness = "", 0.0
    for candidate in [*leaves, *filter(None, sections)]:
        score = _closeness(key, candidate)
        if score > closeness:
            nearest, closeness = candidate, score
    return nearest


def _closeness(key: str, candidate: str) -> float:
    """How alike two dotted keys are, 0 if too little; the last word counts most.

    A setting moves between sections more often than its name changes, so `train.ssim_lamda`
    finds `loss.ssim_lambda`; of equal names the one in the likelier section wins.
    """
    section, _, name = key.rpartition(".")
    other_section, _, other_name = candidate.rpartition(".")
    words, whole = _ratio(name, other_name), _ratio(key, candidate)
    if max(words, whole) < CLOSE_ENOUGH:
        return 0.0
    return max(words, whole) + SECTION_WEIGHT * _ratio(section, other_section)


def _ratio(a: str, b: str) -> float:
    """Likeness between 0 and 1; letters only, so that `max-steps` is `max_steps`."""
    a, b = (text[:100].lower().replace("-", "").replace("_", "") for text in (a, b))
    return 1.0 if a == b else SequenceMatcher(None, a, b, autojunk=False).ratio()
