"""The lines that scripts for Grendel-GS read, parsed as they parse them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from grendel_odin.parallel.world import World
from grendel_odin.pipelines.window import Window
from grendel_odin.train.evaluate import Evaluation
from grendel_odin.train.grendel_log import GrendelLog
from grendel_odin.train.progress import Scores
from grendel_odin.train.run_folder import MARKER, RunFolder

NUMBER = r"([-+\d.e]+)"
MEMORY = re.compile(
    r"iteration\[(\d+),(\d+)\) (densify_and_prune\. )?Now num of 3dgs: (\d+)\. "
    rf"Now Memory usage: {NUMBER} GB\. Max Memory usage: {NUMBER} GB\. "
    rf"Max Reserved Memory: {NUMBER} GB\. Now Reserved Memory: {NUMBER} GB\."
)


def scores(psnr: float, with_test: bool = True) -> Scores:
    each = Evaluation(psnr, 0.5, 0.0625, 3, {}, [])
    return Scores(each if with_test else None, each)


def log(folder: Path, rank: int = 0, done: int = 0, batch: int = 4) -> GrendelLog:
    run = RunFolder.__new__(RunFolder)
    run.path = folder
    return GrendelLog(run, World(rank, 2), 70 + rank, batch, views=6, done=done)


def train(text: GrendelLog, starts: range, densifies: int = 0) -> None:
    """Units of 4 views; the loss of image n is n / 100."""
    for start in starts:
        numbers = range(start, start + 4)
        names = [f"a/{number}.jpg" for number in numbers]
        losses = [number / 100 for number in numbers]
        text.unit(Window(start, 4), start == densifies, names, losses)


def at(lines: list[str], marks: set[int]) -> dict[str, list[float]]:
    """Time, test PSNR and memory at nominal iterations, by splitting lines as users do."""
    found: dict[str, list[float]] = {"time": [], "psnr": [], "memory": []}
    batch = 1
    for line in lines:
        if "bsz: " in line:
            batch = int(line.split("bsz: ")[1])
        if "end2end total_time:" in line:
            stop = int(line.split("iterations: ")[1].split(",")[0])
            if marks & set(range(stop - batch, stop)):
                found["time"].append(float(line.split("total_time: ")[1].split(" s")[0]))
        if "Evaluating test:" in line:
            start = int(line.split("[ITER ")[1].split("]")[0])
            if marks & set(range(start, start + batch)):
                found["psnr"].append(float(line.split("PSNR ")[1]))
        if "Max Reserved Memory: " in line:
            start, stop = map(int, line.split("iteration[")[1].split(")")[0].split(","))
            if marks & set(range(start, stop)):
                found["memory"].append(
                    float(line.split("Max Reserved Memory: ")[1].split(" GB")[0])
                )
    return found


def test_every_line_parses(tmp_path: Path) -> None:
    text = log(tmp_path)
    train(text, range(1, 14, 4), densifies=5)
    text.densified(90)
    text.evaluated([14], scores(20.5), 91, 2.5)
    text.timed(16, 3.0)
    text.close()
    lines = (tmp_path / "python_ws=2_rk=0.log").read_text().splitlines()
    assert lines[0] == "bsz: 4"
    found = re.fullmatch(r"rank: (\d+), Number of initialized points: (\d+)", lines[1])
    assert found and found.groups() == ("0", "70")
    first = re.fullmatch(r"iteration\[(\d+),(\d+)\) loss: \[(.*)\] image: \[(.*)\]", lines[2])
    assert first and first.groups()[:3] == ("1", "5", "0.01, 0.02, 0.03, 0.04")
    assert re.findall(r"'(.*?)'", first[4]) == [f"a/{number}.jpg" for number in range(1, 5)]
    epochs = [found for line in lines if (found := re.fullmatch(r"epoch (\d+) loss: (.*)", line))]
    assert [int(epoch[1]) for epoch in epochs] == [1, 2]
    assert [float(epoch[2]) for epoch in epochs] == pytest.approx([0.035, 0.095])
    kinds = ("test", "train")
    assert [f"[ITER 14] Evaluating {kind}: L1 0.0625 PSNR 20.5" in lines for kind in kinds] == [
        True,
        True,
    ]
    timed = [line for line in lines if line.startswith("end2end")]
    assert timed == [
        "end2end total_time: 2.500 s, iterations: 17, throughput 6.80 it/s",
        "end2end total_time: 3.000 s, iterations: 16, throughput 5.33 it/s",
    ]
    memory = [found for line in lines if (found := MEMORY.fullmatch(line))]
    assert [found.groups()[:4] for found in memory] == [
        ("13", "17", "densify_and_prune. ", "90"),
        ("13", "17", None, "91"),
    ]
    assert all(0 < float(found[5]) <= float(found[6]) for found in memory)


def test_one_figure_of_each_kind_at_each_nominal_iteration(tmp_path: Path) -> None:
    text = log(tmp_path)
    for start in range(1, 37, 4):
        train(text, range(start, start + 1), densifies=13)
        if start == 13:
            text.evaluated([14], scores(20.0), 70, 1.5)
            text.densified(90)
        if start == 33:
            text.evaluated([36], scores(21.0), 90, 4.5)
    text.timed(36, 4.5)
    text.close()
    lines = (tmp_path / "python_ws=2_rk=0.log").read_text().splitlines()
    found = at(lines, {14, 36})
    assert found["time"] == [1.5, 4.5] and found["psnr"] == [20.0, 21.0]
    assert len(found["memory"]) == 2


def test_other_ranks_have_their_own_rows_and_no_losses(tmp_path: Path) -> None:
    text = log(tmp_path, rank=1)
    train(text, range(1, 9, 4))
    text.evaluated([8], scores(20.0, with_test=False), 75, 1.0)
    text.close()
    lines = (tmp_path / "python_ws=2_rk=1.log").read_text().splitlines()
    assert lines[:2] == ["bsz: 4", "rank: 1, Number of initialized points: 71"]
    assert [line.split()[0] for line in lines[2:]] == ["end2end", "iteration[5,9)"]


def test_a_run_that_continues_takes_back_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    text = log(tmp_path)
    train(text, range(1, 13, 4))
    text.evaluated([12], scores(20.0), 70, 1.0)
    text.close()
    path = tmp_path / "python_ws=2_rk=0.log"
    whole = path.read_text().splitlines()
    text = log(tmp_path, done=8)
    assert path.read_text().splitlines() == [*whole[:5], "bsz: 4"]  # with the epoch of image 6
    train(text, range(9, 17, 4))
    text.close()
    epochs = re.findall(r"epoch (\d+) loss: ([\d.]+)", path.read_text())
    assert [int(number) for number, _ in epochs] == [1, 2]
    assert float(epochs[1][1]) == pytest.approx(0.105)  # images 9 to 12, as far as it was seen


def test_a_new_run_leaves_no_logs_of_other_ranks_behind(tmp_path: Path) -> None:
    (tmp_path / MARKER).touch()
    for name in ("python_ws=4_rk=3.log", "python_ws=4_rk=3.log.mine"):
        (tmp_path / name).touch()
    RunFolder(str(tmp_path), overwrite=True)
    assert {path.name for path in tmp_path.iterdir()} == {"logs", "python_ws=4_rk=3.log.mine"}
