"""What to say about a key that does not exist."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import SequenceMatcher

from grendel_odin.config.schema import Section

CLOSE_ENOUGH = 0.65
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
