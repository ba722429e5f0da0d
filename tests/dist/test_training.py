"""A run has the same bits on any number of ranks, through densification, reset and saving."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grendel_odin.data.procedural import ProceduralSettings, write_procedural_scene
from tests.launch import torchrun

FAST = (
    *("train.iterations=60", "train.schedule_scale=0.02", "train.threads=1"),
    *("densify.reset_every=1000", "train.save_iterations=[20]", "train.eval_iterations=[31]"),
)
"""Densifies at 12, 14, ...; resets opacity at 20 and 40; SH degree 3 at 60."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "scene"
    write_procedural_scene(path, ProceduralSettings(views=10, width=64, height=49, points=300))
    return path


def run(scene: Path, output: Path, ranks: int, *overrides: str) -> dict[str, Any]:
    words = (f"data.path={scene}", f"output={output}", *FAST, *overrides)
    done = torchrun(ranks, "train.py", *words)
    assert done.returncode == 0, done.stderr[-3000:]
    content: dict[str, Any] = json.loads((output / "summary.json").read_text())
    assert content["world_size"] == ranks
    return content


SAME = ("state_sha256", "num_primitives", "psnr", "ssim", "l1", "num_test_views", "train_psnr")


@pytest.mark.parametrize(
    "overrides",
    [
        ("model.max_primitives=900",),
        ("train.batch_size=4", "optim.kind=selective_adam", "renderer.background=white"),
    ],
    ids=["capped", "batch"],
)
def test_ranks_do_not_change_the_model(
    scene: Path, tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    alone = run(scene, tmp_path / "1", 1, *overrides)
    assert alone["num_primitives"] > 400
    for ranks, mode in ((2, "hybrid"), (3, "hybrid"), (3, "replicated")):
        output = tmp_path / f"{ranks}_{mode}"
        together = run(scene, output, ranks, *overrides, f"parallel.mode={mode}")
        assert {key: together[key] for key in SAME} == {key: alone[key] for key in SAME}
        for iteration in (20, 60):
            name = f"point_cloud/iteration_{iteration}/point_cloud.ply"
            assert (output / name).read_bytes() == (tmp_path / "1" / name).read_bytes()
        assert {path.name for path in (output / "logs").iterdir()} == {
            f"rank_{rank:04d}.log" for rank in range(ranks)
        }
        log = (output / "logs" / "rank_0000.log").read_text()
        assert f"{ranks} ranks of this node: 10 images decoded" in log  # as many as alone


def test_more_ranks_than_rows_or_tile_rows(scene: Path, tmp_path: Path) -> None:
    # 4 tile rows a view, and one point: three ranks own nothing at first.
    few = ("data.downscale=2", "model.max_primitives=1", "train.iterations=12")
    alone = run(scene, tmp_path / "1", 1, *few)
    together = run(scene, tmp_path / "4", 4, *few)
    assert together["state_sha256"] == alone["state_sha256"]


def test_bad_input_is_one_message_from_rank_0(scene: Path, tmp_path: Path) -> None:
    words = (f"data.path={scene}", f"output={tmp_path / 'run'}", "train.batch_size=99")
    done = torchrun(2, "train.py", *words)
    assert done.returncode != 0
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and "train.batch_size=99" in errors[0]
    assert not (tmp_path / "run").exists()
