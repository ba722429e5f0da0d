"""Check a data set before training: python -m grendel_odin.data SCENE [key=value ...]"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from grendel_odin.config import bind, exit_code, explain
from grendel_odin.data.doctor import report
from grendel_odin.data.picture import write_picture
from grendel_odin.data.scene import load_scene
from grendel_odin.data.settings import DataSettings

_PICTURE = Path("scene_check.png")


def main(arguments: Sequence[str]) -> int:
    """Prints what was found and draws it; 2 if training would be refused, with its message."""
    parser = argparse.ArgumentParser(
        "python -m grendel_odin.data",
        description="Says what a trainer finds in a data set, and draws its cameras and points.",
        epilog=explain(DataSettings),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scene", metavar="SCENE", help="folder of the data set")
    parser.add_argument("settings", metavar="key=value", nargs="*", help="settings, see below")
    parser.add_argument(
        "--picture",
        metavar="FILE",
        type=Path,
        help=f"default: {_PICTURE}, if not in the data folder",
    )
    given = parser.parse_intermixed_args(arguments)
    return exit_code(lambda: check(given.scene, given.settings, given.picture))


def check(folder: str, words: Sequence[str], wanted: Path | None) -> None:
    """The report of a data set, and its picture at the place wanted or at the usual one."""
    overrides = [text.removeprefix("data.") for text in words]
    settings = bind(DataSettings, None, [*overrides, f"path={folder}"])
    scene = load_scene(settings)
    print(report(scene, settings))
    picture = wanted or _PICTURE
    if wanted is None and picture.resolve().is_relative_to(scene.path.resolve()):
        print("picture  not drawn: this is the data folder; name a place with --picture FILE")
        return
    write_picture(scene, picture)
    print(f"picture {picture.resolve()}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
