"""A run has the same bits on any number of ranks, through densification, reset and saving."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.launch import on_ranks, train_here, train_on_ranks

FAST = (
    *("train.iterations=60", "train.schedule_scale=0.02", "train.threads=1"),
    *("densify.reset_every=1000", "train.save_iterations=[20]", "train.eval_iterations=[31]"),
)
"""Densifies at 12, 14, ...; resets opacity at 20 and 40; SH degree 3 at 60."""
CASES = {
    "capped": ("model.max_primitives=900",),
    "batch": ("train.batch_size=4", "optim.kind=selective_adam", "renderer.background=white"),
}
SAME = ("state_sha256", "num_primitives", "psnr", "ssim", "l1", "num_test_views", "train_psnr")


@pytest.fixture(scope="module")
def runs(scene: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of CASE_alone, and of CASE_RANKS_MODE for 2 and 3 ranks in both modes."""
    folder, shared = tmp_path_factory.mktemp("runs"), (f"data.path={scene}", *FAST)
    for case, words in CASES.items():
        train_here(*shared, f"output={folder / case}_alone", *words)
    for ranks in (2, 3):
        cases = [
            (f"output={folder / case}_{ranks}_{mode}", f"parallel.mode={mode}", *words)
            for case, words in CASES.items()
            for mode in ("hybrid", "replicated")
        ]
        train_on_ranks(ranks, cases, *shared)
    return folder


def summary(output: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((output / "summary.json").read_text())
    return content


@pytest.mark.parametrize("mode", ["hybrid", "replicated"])
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("case", CASES)
def test_ranks_do_not_change_the_model(runs: Path, case: str, ranks: int, mode: str) -> None:
    output, first = runs / f"{case}_{ranks}_{mode}", runs / f"{case}_alone"
    together, alone = summary(output), summary(first)
    assert together["world_size"] == ranks and alone["num_primitives"] > 400
    assert {key: together[key] for key in SAME} == {key: alone[key] for key in SAME}
    for iteration in (20, 60):
        name = f"point_cloud/iteration_{iteration}/point_cloud.ply"
        assert (output / name).read_bytes() == (first / name).read_bytes()
    assert {path.name for path in (output / "logs").iterdir()} == {
        f"rank_{rank:04d}.log" for rank in range(ranks)
    }
    log = (output / "logs" / "rank_0000.log").read_text()
    assert f"{ranks} ranks of this node: 10 images decoded" in log  # as many as alone
    idle = f"only 1 of {ranks} ranks have a view to render"
    assert (idle in log) == (mode == "replicated" and case == "capped")


def test_more_ranks_than_rows_or_tile_rows(scene: Path, tmp_path: Path) -> None:
    # 2 tile rows a view, and one point: three ranks own nothing at first.
    few = ("data.downscale=2", "model.max_primitives=1", "train.iterations=12")
    shared = (f"data.path={scene}", *FAST, *few)
    train_here(*shared, f"output={tmp_path / 'alone'}")
    modes = ("hybrid", "replicated")
    cases = [(f"output={tmp_path / mode}", f"parallel.mode={mode}") for mode in modes]
    train_on_ranks(4, cases, *shared)
    for mode in modes:
        assert (
            summary(tmp_path / mode)["state_sha256"] == summary(tmp_path / "alone")["state_sha256"]
        )


def test_bad_input_is_one_message_from_rank_0(scene: Path, tmp_path: Path) -> None:
    words = (f"data.path={scene}", f"output={tmp_path / 'run'}", "train.batch_size=99")
    done = on_ranks(2, "train.py", *words)
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and "train.batch_size=99" in errors[0]
    assert not (tmp_path / "run").exists()
