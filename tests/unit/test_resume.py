"""Where a run begins: what train.resume means, what may differ, what is taken back."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from grendel_odin.config import UserError
from grendel_odin.data.scene import Scene
from grendel_odin.data.views import View
from grendel_odin.parallel.balance import CountedCosts
from grendel_odin.parallel.world import ALONE
from grendel_odin.pipelines.window import windows
from grendel_odin.train.checkpoint import MANIFEST, read_manifest
from grendel_odin.train.resume import Start, check_start, find_start, scene_identity
from grendel_odin.train.settings import Settings
from tests.unit.test_checkpoint import write


def settings(output: Path, resume: str = "auto", **train: Any) -> Settings:
    base = Settings(output=str(output))
    return replace(base, train=replace(base.train, resume=resume, **train))


def scene(names: list[str], tests: list[str]) -> Scene:
    def views(of: list[str]) -> list[Any]:
        return [SimpleNamespace(camera=SimpleNamespace(name=name)) for name in of]

    return cast(Scene, SimpleNamespace(train=views(names), test=views(tests), path="scene"))


def damage_rows(checkpoint: Path) -> None:
    (checkpoint / "rank_0000_of_0001.safetensors").write_bytes(b"short")


def test_auto_takes_the_newest(tmp_path: Path) -> None:
    for iteration in (5, 20, 100):
        write(tmp_path / "checkpoints", iteration)
    start = find_start(settings(tmp_path), ALONE)
    assert start.checkpoint == tmp_path / "checkpoints/iteration_100"
    assert start.continues and not start.notes and start.images == 100


def test_auto_goes_back_to_a_whole_one_and_says_so(tmp_path: Path) -> None:
    for iteration in (5, 20):
        write(tmp_path / "checkpoints", iteration)
    damage_rows(tmp_path / "checkpoints/iteration_20")
    start = find_start(settings(tmp_path), ALONE)
    assert start.images == 5
    (note,) = start.notes
    assert "iteration_20/rank_0000" in note and "going back to iteration_5" in note
    damage_rows(tmp_path / "checkpoints/iteration_5")
    with pytest.raises(UserError, match=r"(?s)iteration_20/rank.*iteration_5/rank.*no other"):
        find_start(settings(tmp_path), ALONE)


def test_auto_begins_where_there_is_nothing(tmp_path: Path) -> None:
    start = find_start(settings(tmp_path / "run"), ALONE)
    assert start.checkpoint is None and "starts at the beginning" in start.notes[0]
    # Killed before its first checkpoint and its first model: nothing is lost.
    (tmp_path / "cfg.yml").touch()
    assert find_start(settings(tmp_path), ALONE).replaces
    (tmp_path / "point_cloud/iteration_7").mkdir(parents=True)
    (tmp_path / "point_cloud/iteration_7/point_cloud.ply").touch()
    with pytest.raises(UserError, match="has no checkpoint to go on from"):
        find_start(settings(tmp_path), ALONE)
    assert not find_start(settings(tmp_path, overwrite=True), ALONE).replaces


def test_a_checkpoint_or_a_run_may_be_named(tmp_path: Path) -> None:
    for iteration in (5, 20):
        write(tmp_path / "a/checkpoints", iteration)
    run = find_start(settings(tmp_path / "b", str(tmp_path / "a")), ALONE)
    assert run.images == 20 and not run.continues
    assert find_start(settings(tmp_path / "b", str(tmp_path / "a/checkpoints")), ALONE) == run
    named = find_start(settings(tmp_path / "a", str(tmp_path / "a/checkpoints/iteration_5")), ALONE)
    assert named.images == 5 and named.continues
    damage_rows(tmp_path / "a/checkpoints/iteration_5")
    with pytest.raises(UserError, match="iteration_5/rank_0000"):
        find_start(settings(tmp_path / "a", str(tmp_path / "a/checkpoints/iteration_5")), ALONE)
    with pytest.raises(UserError, match="is no folder that is there"):
        find_start(settings(tmp_path / "b", str(tmp_path / "nowhere")), ALONE)
    with pytest.raises(UserError, match="holds no checkpoint: name a run"):
        find_start(settings(tmp_path / "b", str(tmp_path)), ALONE)


def test_a_later_format_is_refused_not_passed_over(tmp_path: Path) -> None:
    for iteration in (5, 20):
        path = write(tmp_path / "checkpoints", iteration) / MANIFEST
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(UserError, match="format 2"):
        find_start(settings(tmp_path), ALONE)


def test_the_run_folder_goes_back_to_the_checkpoint(tmp_path: Path) -> None:
    for iteration in (5, 20, 30):
        write(tmp_path / "checkpoints", iteration)
    lines = [
        {"event": kind, "iteration": iteration}
        for kind, iteration in [("train", 5), ("eval", 20), ("end", 20), ("train", 21)]
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"event": "tr'
    (tmp_path / "metrics.jsonl").write_text(text)
    (tmp_path / "summary.json").touch()
    start = find_start(settings(tmp_path, str(tmp_path / "checkpoints/iteration_20")), ALONE)
    start.rewind(tmp_path)
    kept = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert kept == lines[:2]
    assert not (tmp_path / "summary.json").exists()
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {
        *("iteration_5", "iteration_20", "iteration_30.old1")
    }
    assert find_start(settings(tmp_path), ALONE).images == 20


def test_what_differs_is_said_once_each(tmp_path: Path) -> None:
    path = write(tmp_path)
    here = scene(["a", "b"], ["c"])
    stored = replace(read_manifest(path), scene=scene_identity(here))
    start = Start(path, stored, notes=["first"])
    changed = settings(tmp_path, batch_size=4, threads=3, iterations=50)
    changed = replace(changed, optim=replace(changed.optim, means_lr=0.5))
    assert check_start(start, changed, here) == [
        "first",
        "optim.means_lr: 0.00016 until iteration 20, 0.5 from here on",
        "train.batch_size: 1 until iteration 20, 4 from here on",
    ]
    with pytest.raises(UserError, match=r"train\.iterations=10 counts all"):
        check_start(start, settings(tmp_path, iterations=10), here)
    for other in (scene(["a", "b"], []), scene(["b", "a"], ["c"]), scene(["a", "b"], ["d"])):
        with pytest.raises(UserError, match=r"trained on 2 views and tested on 1"):
            check_start(start, changed, other)


def test_progress_goes_on(tmp_path: Path) -> None:
    path = write(tmp_path, 20, saved=20, resumed_at=[8])
    stored = read_manifest(path)
    progress = Start(path, stored, continues=True).progress(30)
    assert (progress.iteration, progress.saved, progress.resumed_at) == (20, 20, [8, 20])
    assert Start(path, stored).progress(30).saved is None


def test_units_go_on_where_they_ended() -> None:
    whole = list(windows(20, 3))
    assert list(windows(20, 3, done=6)) == list(islice(whole, 2, None))
    assert list(windows(8, 2, done=9)) == []
    assert [window.start for window in windows(20, 8, done=6)] == [7, 15]


def test_balancing_remembers(tmp_path: Path) -> None:
    def view(index: int, height: int) -> View:
        return cast(
            View, SimpleNamespace(index=index, camera=SimpleNamespace(height=height, width=8))
        )

    views = [view(0, 32), view(1, 16), view(2, 48)]
    costs, again = CountedCosts(), CountedCosts()
    for seen in ([views[0], views[1]], [views[2]]):
        costs.learn(seen, [torch.arange(each.camera.height // 16) + 5 for each in seen])
    memory = costs.memory()
    again.recall(memory, views)
    assert all(torch.equal(costs.of(each), again.of(each)) for each in views)
    assert {name: each.tolist() for name, each in again.memory().items()} == {
        name: each.tolist() for name, each in memory.items()
    }
    smaller = CountedCosts()
    smaller.recall(memory, [view(0, 16), views[1]])
    assert smaller.memory()["known.views"].tolist() == [1]
