"""Settings of the model."""

from __future__ import annotations

from dataclasses import dataclass

from grendel_odin.config import setting


@dataclass
class ModelSettings:
    """The primitive table: how it starts and how large it may grow."""

    sh_degree: int = setting(
        3, "Degree of the spherical harmonics that colour a primitive.", min=0, max=3
    )
    init_opacity: float = setting(
        0.1, "Opacity of the initial primitives.", min_exclusive=0.0, max=0.99
    )
    max_primitives: int = setting(
        0, "Most primitives that the model may hold; 0 means no cap.", min=0
    )
    memory_limit: float = setting(
        0.9,
        "Share of a node's memory, in use by whatever program, beyond which primitives do not "
        "multiply; growth resumes when memory is free again. 0: no guard.",
        min=0.0,
        max=1.0,
    )
