"""Photos in SCENE/input to a COLMAP data set: `python convert.py -s SCENE`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from grendel_odin.config import UserError, exit_code
from grendel_odin.data.photos import convert


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="convert.py", description=__doc__)
    add = parser.add_argument
    add("-s", "--source_path", type=Path, required=True, metavar="SCENE", help="holds input/")
    add("--camera", default="OPENCV", metavar="MODEL", help="COLMAP's camera model of all photos")
    add("--no_gpu", action="store_true", help="keep COLMAP off the GPU")
    add("--skip_matching", action="store_true", help="SCENE/distorted/sparse/0 is the model")
    add("--resize", action="store_true", help="make images_2, images_4 and images_8, too")
    for name in ("--colmap_executable", "--magick_executable"):
        add(name, default="", metavar="FILE", help="no effect: pycolmap and pillow do it")
    return parser.parse_args(arguments)


def run(args: argparse.Namespace) -> None:
    if args.colmap_executable or args.magick_executable:
        print("no program is called: --colmap_executable and --magick_executable have no effect")
    scene = args.source_path
    try:
        notes = convert(scene, args.camera, not args.no_gpu, args.skip_matching, args.resize)
    except OSError as error:
        raise UserError(f"cannot write {error.filename or scene}: {error.strerror}") from error
    print("\n".join(notes))


def main(arguments: Sequence[str] | None = None) -> int:
    return exit_code(lambda: run(parse(arguments)))


if __name__ == "__main__":
    sys.exit(main())
