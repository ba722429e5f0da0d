"""Which renderer, with which constants, against which background."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from grendel_odin.config import UserError, setting
from grendel_odin.render.protocol import INRIA, Constants, Renderer
from grendel_odin.render.reference import ReferenceRenderer

_NEAR_SHARE = 0.1


class Backend(str, Enum):
    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"
    REFERENCE = "reference"


class Background(str, Enum):
    BLACK = "black"
    WHITE = "white"


class ConstantSet(str, Enum):
    GSPLAT = "gsplat"
    INRIA = "inria"


@dataclass(frozen=True, slots=True)
class RendererSettings:
    """How primitives become pixels."""

    backend: Backend = setting(
        Backend.AUTO,
        "auto takes cpu; cpu is the C++ backend; reference is plain torch, for very small scenes; "
        "cuda is not in this version",
    )
    background: Background = setting(
        Background.BLACK, "behind the scene, and behind images with an alpha channel"
    )
    antialiased: bool = setting(
        False, "compensate opacity for the low-pass filter (Mip-Splatting's 2D filter)"
    )
    near_plane: float = setting(
        0.2,
        "primitives nearer than this are culled; at most a tenth of the scene's median depth is "
        "taken, so that small scenes are not culled whole",
        min_exclusive=0,
    )
    constants: ConstantSet = setting(
        ConstantSet.GSPLAT, "alpha clamp, stop rule and extent of splats as in gsplat or in 3DGS"
    )

    def problems(self) -> list[str]:
        if self.backend is Backend.CUDA:
            return [
                "renderer.backend=cuda: this version renders on the CPU only. "
                "Use renderer.backend=cpu (or auto)"
            ]
        return []


def for_depth(settings: RendererSettings, depth: float) -> RendererSettings:
    """The settings for a scene whose points are seen at a median depth; 0: not known."""
    limit = _NEAR_SHARE * depth
    return replace(settings, near_plane=limit) if 0 < limit < settings.near_plane else settings


def make_renderer(settings: RendererSettings, threads: int) -> Renderer:
    """The backend that the settings name.

    Raises UserError if the C++ extension is not built.
    """
    constants = INRIA if settings.constants is ConstantSet.INRIA else Constants()
    constants = replace(constants, near=settings.near_plane, antialiased=settings.antialiased)
    if settings.backend is Backend.REFERENCE:
        return ReferenceRenderer(constants)
    try:
        from grendel_odin.render.cpu import CpuRenderer
    except ImportError as error:
        raise UserError(
            f"renderer.backend={settings.backend.value}: the C++ kernels cannot be loaded "
            f"({error}). Build them with `pip install -e .`, or use renderer.backend=reference "
            "for a very small scene"
        ) from error
    return CpuRenderer(constants, threads)


def background_color(settings: RendererSettings) -> tuple[float, float, float]:
    """Red, green and blue in [0, 1]."""
    level = float(settings.background is Background.WHITE)
    return (level, level, level)
