"""args.json: the settings under the names of Grendel-GS's flags, for its users' scripts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grendel_odin.config import flat
from grendel_odin.config.flags import Fate, Flag, Values
from grendel_odin.train.flag_table import FLAGS
from grendel_odin.train.settings import Settings

FILE = "args.json"


def arguments(settings: Settings) -> dict[str, Any]:
    """Grendel's names where a setting stands for one, and then all settings by our keys."""
    ours = flat(settings)
    taken = [flag for flag in FLAGS if flag.fate is Fate.TAKEN]
    named = {flag.names[-1].lstrip("-"): _value(flag, ours) for flag in taken}
    output = str(Path(settings.output).resolve())
    named |= {
        "source_path": str(Path(settings.data.path).resolve()),
        **{"model_path": output, "log_folder": output},
        "eval": settings.data.test_every > 0,
        "feature_lr": settings.optim.sh0_lr,
    }
    return {name: value for name, value in named.items() if value is not None} | ours


def _value(flag: Flag, ours: Mapping[str, Any]) -> Any:
    """What the flag would have to be given for these settings; None if that is not known."""
    if flag.values is Values.NONE:
        words = flag.words(())
        return all(_holds(word, ours) for word in words) if words else None
    for choice in flag.choices:
        if all(_holds(word, ours) for word in flag.words([choice])):
            return choice
    if flag.key not in ours:
        return None
    value = ours[flag.key]
    unset = flag.values is Values.ONE and list(flag.words(["-1"])) == [f"{flag.key}={value}"]
    return -1 if unset else value  # -1 is what Grendel has for several of our zeros


def _holds(word: str, ours: Mapping[str, Any]) -> bool:
    key, _, value = word.partition("=")
    return _text(ours.get(key)) == value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
