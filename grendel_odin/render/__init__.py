"""Primitives to pixels: protocol, backends, losses."""

from grendel_odin.render.protocol import (
    INRIA,
    Constants,
    Rect,
    Renderer,
    Rendering,
    RowGradients,
    Splats,
)
from grendel_odin.render.settings import (
    Backend,
    Background,
    RendererSettings,
    background_color,
    make_renderer,
)

__all__ = [
    "INRIA",
    "Backend",
    "Background",
    "Constants",
    "Rect",
    "Renderer",
    "RendererSettings",
    "Rendering",
    "RowGradients",
    "Splats",
    "background_color",
    "make_renderer",
]
