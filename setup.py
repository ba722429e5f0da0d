"""Builds the C++ modules `grendel_odin._kernels` (renderer, optimizer) and
`grendel_odin.odin._planner` (the planner's hot loops); everything else is in pyproject.toml.

GRENDEL_ODIN_PORTABLE=1 builds for any x86-64-v3 (AVX2) or armv8-a machine instead of this one.
"""

from __future__ import annotations

import hashlib
import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nanobind
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
NANOBIND = Path(nanobind.source_dir()) / "nb_combined.cpp"
PORTABLE = os.environ.get("GRENDEL_ODIN_PORTABLE", "0") not in ("", "0")


def architecture() -> str:
    """The -march that the kernels are compiled for."""
    if not PORTABLE:
        return "native"
    return "armv8-a" if platform.machine() in ("aarch64", "arm64") else "x86-64-v3"


# No fused multiply-add by the compiler's choice and no reassociation: results must not depend
# on how the compiler splits a loop. (errno and FP traps are not read by anyone.)
FLAGS = [
    f"-march={architecture()}",
    *("-std=c++17", "-O3", "-g0", "-fopenmp", "-Wall"),
    # GCC 12 takes the undefined operands of its own AVX-512 intrinsics for a mistake of ours.
    *("-Wno-uninitialized", "-Wno-maybe-uninitialized"),
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off"),
    *("-fvisibility=hidden", "-ffunction-sections", "-fdata-sections"),
]
MACROS = [("NDEBUG", "1"), ("NB_COMPACT_ASSERTIONS", "1")]
INCLUDES = [nanobind.include_dir(), str(NANOBIND.parents[1] / "ext/robin_map/include")]


class BuildKernels(build_ext):
    """Compiles the sources side by side, and only those that changed since the last build."""

    def build_extension(self, extension: Extension) -> None:
        settings = repr((FLAGS, MACROS, INCLUDES, nanobind.__version__, platform.node()))
        objects = Path(self.build_temp) / hashlib.sha256(settings.encode()).hexdigest()[:12]
        shared = max(os.path.getmtime(ROOT / file) for file in ["setup.py", *extension.depends])

        def build(source: str) -> str:
            target = objects / f"{Path(source).stem}.o"
            newest = max(shared, os.path.getmtime(source))
            if not target.exists() or target.stat().st_mtime < newest:
                self._compile(source, target)
            return str(target)

        # nanobind's own source takes longest, so it goes first.
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            built = list(pool.map(build, [str(NANOBIND), *extension.sources]))
        library = self.get_ext_fullpath(extension.name)
        flags = ["-fopenmp", "-Wl,-s", "-Wl,--gc-sections"]
        self.compiler.link_shared_object(
            built, library, extra_postargs=flags, build_temp=self.build_temp, target_lang="c++"
        )

    def _compile(self, source: str, target: Path) -> None:
        """One source to one object; a broken-off compilation leaves no object behind."""
        flags = [*FLAGS, "-fno-strict-aliasing"] if source == str(NANOBIND) else FLAGS
        folder = target.parent / f"{target.stem}.tmp"
        started = time.time()
        (made,) = self.compiler.compile(
            [source],
            output_dir=str(folder),
            macros=MACROS,
            include_dirs=[*INCLUDES, *self.include_dirs],
            extra_postargs=flags,
        )
        os.utime(made, (started, started))  # so that an edit during the compilation counts
        os.replace(made, target)


def sources(pattern: str) -> list[str]:
    """Files of csrc/, relative to the project as setuptools wants them."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "csrc").glob(pattern))


PLANNER = sources("planner*.cpp")

setup(
    ext_modules=[
        Extension(
            "grendel_odin._kernels",
            sources=sorted({*sources("*.cpp")} - {*PLANNER}),
            depends=sorted({*sources("*.h")} - {*sources("planner*.h")}),
        ),
        Extension(
            "grendel_odin.odin._planner",
            sources=PLANNER,
            depends=sources("planner*.h") + sources("arrays.h"),
        ),
    ],
    cmdclass={"build_ext": BuildKernels},
)
