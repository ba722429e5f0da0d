"""Command lines of Grendel-GS and 3DGS for train.py and render.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from grendel_odin.config.flags import Fate, Flag, Rewritten, rewrite
from grendel_odin.train.flag_table import FLAGS, TABLE

FLAG_NAMES = tuple(name for flag in FLAGS for name in flag.names)
DOCUMENT = "docs/coming-from-grendel.md"
_ALL_VIEWS = "data.test_every=0"
_RENDERS_OWN = {"--model_path", "--source_path"}


def train_words(arguments: Sequence[str]) -> Rewritten:
    """train.py's command line with `key=value` words in the place of flags, in their order.

    Who names the scene by -s, without a file of settings, gets the split of Grendel-GS: without
    --eval there is no test view.
    """
    said = _rewritten(FLAGS, arguments)
    decided = "--eval" in said.given or any(_decides(word) for word in said.arguments)
    if "--source_path" in said.given and not decided:
        said.arguments.insert(0, _ALL_VIEWS)
        said.notes.append(
            f"{_ALL_VIEWS}: without --eval all views are trained on, as in Grendel-GS and 3DGS; "
            "--eval holds every 8th one back"
        )
    return said


def render_words(arguments: Sequence[str]) -> Rewritten:
    """render.py's command line with `key=value` words in the place of a trainer's flags.

    -m, -s and all that the table does not hold are render.py's own and stay as they are. The
    split is that of the run: --eval alone changes nothing, --llffhold N is data.test_every=N.
    """
    flags = [_for_render(flag) for flag in FLAGS if flag.names[-1] not in _RENDERS_OWN]
    return _rewritten(flags, arguments)


def flag_tables() -> str:
    """Every flag in Markdown, group by group, for docs/coming-from-grendel.md."""
    return "\n\n".join(
        "\n".join([f"### {group}", "", "| flag | here | |", "|---|---|---|", *_rows(flags)])
        for group, flags in TABLE.items()
    )


def _rows(flags: Sequence[Flag]) -> Iterator[str]:
    """Neighbours of which the same is to be said share a row."""
    for (here, note), alike in groupby(flags, key=lambda flag: (_here(flag), flag.note)):
        names = ", ".join(f"`{name}`" for flag in alike for name in flag.names)
        yield f"| {names} | {here} | {note} |"


def _here(flag: Flag) -> str:
    fates = {Fate.DEAD: "no effect", Fate.REFUSED: "refused"}
    needs = f", with `{flag.needs}`" if flag.needs else ""
    return (fates.get(flag.fate) or "; ".join(map(_code, flag.key.split("; ")))) + needs


def _code(shown: str) -> str:
    """Keys in code style; those of `value: words`, too; remarks as they are."""
    value, colon, words = shown.rpartition(": ")
    code = [f"`{word}`" if "." in word or word == "output" else word for word in words.split()]
    return f"{value}{colon}{' '.join(code)}"


def _rewritten(flags: Sequence[Flag], arguments: Sequence[str]) -> Rewritten:
    said = rewrite(flags, arguments)
    if said.dead:
        said.notes.append(f"without effect: {', '.join(said.dead)} ({DOCUMENT} says why)")
    return said


def _for_render(flag: Flag) -> Flag:
    """A run knows its split."""
    if flag.names[-1] == "--eval":
        return replace(flag, words=lambda _: [])
    return replace(flag, needs="")


def _decides(word: str) -> bool:
    """Whether a word gives the split, or a file of settings."""
    return word.startswith(("-c", "--config", "data.test_every="))
