"""What all ranks of a run must have in common before they start, and who they are."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from grendel_odin.config import flat
from grendel_odin.data.scene import Scene
from grendel_odin.data.views import View
from grendel_odin.parallel.agreement import Facts
from grendel_odin.parallel.modes import Mode
from grendel_odin.parallel.world import World
from grendel_odin.train.describe import installed_version
from grendel_odin.train.settings import Settings


def program_facts(settings: Settings) -> Facts:
    """Versions and configuration."""
    versions = {name: installed_version(name) for name in ("grendel-odin", "torch")}
    return {
        "program": [f"{name} {each or 'without a version'}" for name, each in versions.items()],
        "configuration": [f"{key}={value}" for key, value in flat(settings).items()],
    }


def scene_facts(scene: Scene) -> Facts:
    """Images with their cameras, and the points."""
    points = _hash(scene.points.xyz, scene.points.rgb)
    return {
        "images": [_image(view) for view in scene.views],
        "points": [f"{len(scene.points.xyz)} points {points}"],
    }


def _image(view: View) -> str:
    camera = view.camera
    numbers = _hash(camera.K, camera.world_to_camera)
    return f"{camera.name} {camera.width}x{camera.height} camera {numbers}"


def _hash(*arrays: NDArray[np.generic]) -> str:
    return sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in arrays)).hexdigest()[:8]


def describe_ranks(world: World, mode: Mode, threads: int) -> list[str]:
    """What a run over several ranks says first: who takes part, where, and how they talk."""
    by_rank = world.gather_integers(torch.tensor([threads]))[:, 0].tolist()
    if world.wire is None:
        return []
    hosts = [f"{host}: {_spans(ranks)}" for host, ranks in _by_host(world.hosts).items()]
    each = f"{threads} each" if len(set(by_rank)) == 1 else " ".join(map(str, by_rank))
    return [
        f"{world.size} ranks on {len(hosts)} host{'s' * (len(hosts) > 1)}: {'; '.join(hosts)}",
        f"{mode.value} mode; process group {dist.get_backend()}, exchange through "
        f"{world.wire.medium}; threads by rank: {each}",
    ]


def _by_host(hosts: Sequence[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        found.setdefault(host, []).append(rank)
    return found


def _spans(ranks: Sequence[int]) -> str:
    """[0, 1, 2, 5] is `rank 0-2, 5`."""
    starts = [rank for rank in ranks if rank - 1 not in ranks]
    ends = [rank for rank in ranks if rank + 1 not in ranks]
    spans = [str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True)]
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(spans)}"
