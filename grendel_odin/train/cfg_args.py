"""cfg_args: the settings as 3DGS, Grendel-GS and the SIBR viewer keep them with a run."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from grendel_odin.config import UserError
from grendel_odin.render.settings import Background, ConstantSet
from grendel_odin.train.settings import Settings

FILE = "cfg_args"
_HOLD_OUT = 8
"""3DGS tests on every 8th view, and does not write it down."""


def write_text(settings: Settings) -> str:
    """The file's text."""
    white = settings.renderer.background is Background.WHITE
    return (
        f"Namespace(sh_degree={settings.model.sh_degree}, "
        f"source_path={str(Path(settings.data.path).resolve())!r}, "
        f"model_path={str(Path(settings.output).resolve())!r}, "
        f"images={settings.data.images!r}, white_background={white}, "
        f"eval={settings.data.test_every > 0})"
    )


def read_words(path: Path) -> list[str]:
    """`key=value` words of another trainer's file. The text is parsed, and never run.

    Such models were rasterized with INRIA's constants. Raises UserError if it cannot be read.
    """
    given = _namespace(path)
    words = [f"renderer.constants={ConstantSet.INRIA.value}"]
    for name, key in (("source_path", "data.path"), ("images", "data.images")):
        if given.get(name):
            words.append(f"{key}={given[name]}")
    if "sh_degree" in given:
        words.append(f"model.sh_degree={given['sh_degree']}")
    if given.get("white_background"):
        words.append(f"renderer.background={Background.WHITE.value}")
    words.append(f"data.test_every={_HOLD_OUT if given.get('eval') else 0}")
    if given.get("resolution") in (2, 4, 8):
        words.append(f"data.downscale={given['resolution']}")
    return words


def _namespace(path: Path) -> dict[str, Any]:
    """The keywords of `Namespace(name=literal, ...)`."""
    try:
        call = ast.parse(path.read_text(encoding="utf-8"), mode="eval").body
        if not isinstance(call, ast.Call) or call.args or not all(w.arg for w in call.keywords):
            raise ValueError("it is not Namespace(name=value, ...)")
        return {word.arg or "": ast.literal_eval(word.value) for word in call.keywords}
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise UserError(
            f"{path}: cannot be read as settings ({error}). Next: name the model alone, with "
            "--ply FILE -s DATA."
        ) from error
