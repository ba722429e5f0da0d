"""Two thousand photographs of 12 megapixels: decoded when needed, held within the limit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from grendel_odin.data.cameras import Camera
from grendel_odin.data.procedural_colmap import Observations, write_model

ROOT = Path(__file__).resolve().parents[2]
PHOTOS, FILES = 2000, 4
WIDTH, HEIGHT = 4000, 3000
DOWNSCALE = 8
CACHE_MB = 40
"""Of 1125 MB that all images would take at an eighth of their size."""


def write_many_photos(path: Path) -> None:
    """A few real JPEG files under 2000 names, and a ring of cameras around 500 points."""
    (path / "images").mkdir(parents=True)
    (path / "sparse" / "0").mkdir(parents=True)
    draw = np.random.default_rng(0)
    for number in range(FILES):
        small = draw.integers(0, 256, (30, 40, 3), dtype=np.uint8)
        photo = Image.fromarray(small).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
        photo.save(path / f"{number}.jpg", quality=85)
    K = np.array([[3000.0, 0, WIDTH / 2], [0, 3000.0, HEIGHT / 2], [0, 0, 1]])
    cameras = []
    for number, angle in enumerate(np.linspace(0, 2 * np.pi, PHOTOS, endpoint=False)):
        name = f"{number:04d}.jpg"
        os.link(path / f"{number % FILES}.jpg", path / "images" / name)
        pose = np.eye(4)
        pose[[0, 0, 2, 2], [0, 2, 0, 2]] = (
            np.cos(angle),
            -np.sin(angle),
            np.sin(angle),
            np.cos(angle),
        )
        pose[2, 3] = 5
        cameras.append(Camera(name, WIDTH, HEIGHT, K, pose))
    none = np.zeros(0, np.int64)
    xyz = draw.normal(size=(500, 3))
    rgb = draw.integers(0, 256, (500, 3), dtype=np.uint8)
    observations = Observations(none, none, np.zeros((0, 2)))
    write_model(path / "sparse" / "0", cameras, xyz, rgb, observations)


def train(scene: Path, output: Path, *overrides: str) -> tuple[str, dict[str, Any], float]:
    start = time.perf_counter()
    done = subprocess.run(
        [
            *(sys.executable, "train.py", "-c", "configs/3dgs.yaml", f"data.path={scene}"),
            *(f"output={output}", "data.test_every=500", f"data.downscale={DOWNSCALE}"),
            *("train.threads=1", "data.workers=2", *overrides),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads((output / "summary.json").read_text())
    log = (output / "logs" / "rank_0000.log").read_text()
    return log, summary, time.perf_counter() - start


@pytest.mark.slow
def test_a_large_set_trains_within_its_memory_limit(tmp_path: Path) -> None:
    write_many_photos(tmp_path / "scene")
    limit = f"data.cache_gb={CACHE_MB / 1000}"
    _, few, _ = train(tmp_path / "scene", tmp_path / "few", limit, "train.iterations=1")
    log, many, seconds = train(tmp_path / "scene", tmp_path / "many", limit, "train.iterations=160")
    assert "images: 2000 of 4000x3000 (trained at 500x375)" in log
    assert "2,000 images take 1.1 GB once decoded; data.cache_gb allows 40.0 MB" in log
    decoded, held = re.findall(r"([\d,]+) images decoded .* at most ([\d.]+) MB were held", log)[0]
    # Twice 9 views for evaluation, 160 for training and those that were decoded ahead.
    assert 160 <= int(decoded.replace(",", "")) <= 160 + 2 * 9 + 3 * 8
    assert float(held) <= CACHE_MB
    # What a short run needs, too: the program, and full-size scratch of three decoders.
    assert many["peak_rss_mb"] < few["peak_rss_mb"] + CACHE_MB + 100
    assert many["peak_rss_mb"] < 1100
    print(f"{seconds:.0f} s, {few['peak_rss_mb']:.0f} and {many['peak_rss_mb']:.0f} MB")
