"""Ranks of a node decode an image once, and each is told of one that cannot be decoded."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
from PIL import Image

from tests.launch import on_ranks

IMAGES, RANKS = 8, 3


def test_a_node_decodes_an_image_once(tmp_path: Path) -> None:
    for index in range(IMAGES):
        Image.fromarray(np.full((10, 10, 3), 1 + index, np.uint8)).save(tmp_path / f"{index}.png")
    (tmp_path / "broken.png").write_bytes((tmp_path / "0.png").read_bytes()[:50])
    done = on_ranks(RANKS, "tests/dist/image_ranks.py", str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    seen = [json.loads((tmp_path / f"rank_{rank}.json").read_text()) for rank in range(RANKS)]

    assert all(each[case]["right"] for each in seen for case in each if case != "error")
    for each in seen:
        assert "broken.png cannot be decoded" in each["error"]
        assert f"shared by the {RANKS} ranks of a node" in each["all fit"]["estimate"]

    usage = [each["all fit"]["usage"] for each in seen]
    assert all(text.startswith(f"{RANKS} ranks of this node: {IMAGES} images") for text in usage)
    own = [re.search(r", (\d+) of them by this rank,", text) for text in usage]
    assert sum(int(found[1]) for found in own if found) == IMAGES

    assert "at most 900 B were held" in seen[0]["a few fit"]["usage"]
    assert "for lack of room" in seen[0]["none fits"]["usage"]
    assert "at most 0 B were held" in seen[0]["none fits"]["usage"]
