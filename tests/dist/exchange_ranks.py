"""Run by every rank of tests/dist/test_exchange.py: strips over ranks against one process."""

from __future__ import annotations

import sys
from contextlib import closing

import torch

from grendel_odin.data.cameras import Camera
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.parallel.hybrid import Hybrid
from grendel_odin.parallel.launch import join_world
from grendel_odin.parallel.sharing import Share, first_rows
from grendel_odin.parallel.wire import Transport
from grendel_odin.parallel.world import World
from grendel_odin.render.cpu import CpuRenderer
from grendel_odin.render.protocol import Constants, Rect, RowGradients, Splats, tile_rows
from tests.scenes import random_camera, random_table

BACKGROUND = torch.tensor([0.1, 0.2, 0.3])


def pixel_gradient(camera: Camera) -> torch.Tensor:
    draw = torch.Generator().manual_seed(camera.width)
    return torch.randn(3, camera.height, camera.width, generator=draw)


def alone(renderer: CpuRenderer, table: PrimitiveTable, cameras: list[Camera]) -> torch.Tensor:
    """[N, 64] gradients of all rows in one process."""
    into = RowGradients(torch.arange(len(table), dtype=torch.int32), torch.zeros(len(table), 64), 4)
    for camera in cameras:
        splats = renderer.project(table, camera, 3)
        image = renderer.render(splats, camera, Rect.full(camera), BACKGROUND)
        gradients = renderer.render_backward(image, pixel_gradient(camera))
        renderer.project_backward(table, camera, 3, splats, gradients, into)
    return into.values


def render_share(renderer: CpuRenderer, share: Share, whole: torch.Tensor) -> torch.Tensor:
    """Checks the strip and its halo against the whole image; gives the strip's gradient rows."""
    for rows in (share.rows, share.rows_with_halo):
        image = renderer.render(share.splats, share.camera, share.rect(rows), BACKGROUND)
        assert torch.equal(image.color, whole[:, rows.start : rows.stop])
    return pixel_gradient(share.camera)[:, share.rows.start : share.rows.stop].contiguous()


def check(hybrid: Hybrid, owners: torch.Tensor, cameras: list[Camera], seed: int) -> None:
    renderer, rank = CpuRenderer(Constants(), 1), hybrid.world.rank
    table = random_table(len(owners), seed)
    expected = alone(renderer, table, cameras)
    own = (owners == rank).nonzero().squeeze(1)
    shard = PrimitiveTable(table.values[own].contiguous(), table.ids[own].contiguous())

    draw = torch.Generator().manual_seed(seed)
    rows = [tile_rows(camera.height) for camera in cameras]
    costs = [torch.randint(1, 100, (n,), generator=draw) for n in rows]
    hybrid.plan(costs)
    splats: dict[int, Splats] = {
        view: renderer.project(shard, camera, 3) for view, camera in enumerate(cameras)
    }
    shares = hybrid.send(cameras, splats)
    sums = []
    for share in shares:
        everything = renderer.project(table, share.camera, 3)
        whole = renderer.render(everything, share.camera, Rect.full(share.camera), BACKGROUND)
        gradient = render_share(renderer, share, whole.color)
        image = renderer.render(share.splats, share.camera, share.rect(share.rows), BACKGROUND)
        sums.append(renderer.strip_sums(image, gradient, first_rows(renderer, share)))
    gradients = hybrid.take_back(shares, sums)
    into = RowGradients(torch.arange(len(own), dtype=torch.int32), torch.zeros(len(own), 64), 4)
    for view, camera in enumerate(cameras):
        renderer.project_backward(shard, camera, 3, splats[view], gradients[view], into)
    assert torch.equal(into.values, expected[own]), f"rank {rank}, seed {seed}"


def check_all(world: World) -> None:
    """One to three views; rows in many hands, in one, and a single row."""
    hybrid = Hybrid(world, CpuRenderer(Constants(), 1))
    sizes = [(70, 150), (48, 33), (33, 200)]
    for seed in range(6):
        cameras = [random_camera(w, h, seed + i) for i, (w, h) in enumerate(sizes[: 1 + seed % 3])]
        rows = [300, 300, 40, 1, 300, 300][seed]
        owners = torch.randint(
            0, world.size, (rows,), generator=torch.Generator().manual_seed(seed)
        )
        if seed == 4:
            owners[:] = world.size - 1  # all rows on one rank
        check(hybrid, owners, cameras, seed)


def main() -> None:
    torch.set_num_threads(1)
    for transport in Transport:
        with closing(join_world(60, transport)) as world:
            check_all(world)
            medium = world.wire.medium if world.wire else "nothing"
            print(f"rank {world.rank} of {world.size}: ok through {medium}")


if __name__ == "__main__":
    sys.exit(main())
