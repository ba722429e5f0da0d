"""The log of a run on a disk that is full, and the folders that a run accepts."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from grendel_odin.config import UserError
from grendel_odin.train.log import RunLog
from grendel_odin.train.run_folder import RunFolder, check_output


class Disk:
    """A raw file that takes only so many bytes, and part of a line at the end."""

    def __init__(self, file: Any, room: int) -> None:
        self.file, self.room = file, room

    def write(self, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written: int = self.file.write(data[: self.room])
        self.room -= written
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


@pytest.fixture
def log(tmp_path: Path) -> RunLog:
    return RunLog(RunFolder(str(tmp_path / "run"), overwrite=False), 10, False, 0)


def test_a_full_disk_costs_lines_not_the_run(
    log: RunLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = tmp_path / "run" / "metrics.jsonl"
    log.event("train", 1, loss=0.5)
    first = metrics.read_text()
    disk = log._metrics._file = Disk(log._metrics._file, len(first) + 7)  # type: ignore[assignment]
    for iteration in (2, 3, 4):
        log.event("train", iteration, loss=0.5)
    assert metrics.read_text() == first + first.replace(": 1,", ": 2,")
    disk.room = 1000
    log.event("train", 5, loss=0.5)
    log.close()
    assert len(metrics.read_text().splitlines()) == 3
    assert capsys.readouterr().out.count("lacks lines") == 1


def test_tensorboard_may_fail_without_the_run(
    log: RunLog, capsys: pytest.CaptureFixture[str]
) -> None:
    class Board:
        def add_scalar(self, *_: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    log._board = Board()  # type: ignore[assignment]
    log.event("train", 1, loss=0.5, l1=0.1)
    log.event("train", 2, loss=0.5, l1=0.1)
    log.close()
    assert capsys.readouterr().out.count("TensorBoard") == 1


def test_what_a_failed_start_leaves_is_no_obstacle(tmp_path: Path) -> None:
    RunFolder(str(tmp_path), overwrite=False)
    assert (tmp_path / "logs").is_dir()
    check_output(str(tmp_path), overwrite=False)
    (tmp_path / "logs" / "mine").touch()
    with pytest.raises(UserError, match="no run of this program"):
        check_output(str(tmp_path), overwrite=False)


def test_a_link_to_nowhere_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").symlink_to(tmp_path / "gone")
    with pytest.raises(UserError, match=r"link to .*gone, which does not exist"):
        check_output(str(tmp_path / "run"), overwrite=False)
