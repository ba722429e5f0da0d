"""Small COLMAP scenes, written as text, for the tests of grendel_odin.data."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from grendel_odin.data.cameras import Camera
from grendel_odin.data.scene import View

PINHOLE = "PINHOLE 16 12 20 21 8.5 5.25"


@dataclass
class TextScene:
    """Files of a scene; image i stands at x = i and looks along z."""

    cameras: dict[int, str] = field(default_factory=lambda: {1: PINHOLE})
    images: dict[str, int] = field(default_factory=lambda: {f"{i:02}.png": 1 for i in range(6)})
    """Name -> camera id; image ids run downwards from 70 in steps of 3."""
    points: dict[int, tuple[str, str]] = field(
        default_factory=lambda: {
            9: ("0 0 4.000000001 255 0 7", "70 0 64 0 64 1"),
            3: ("1 2 3 1 2 3", ""),
            5: ("-1 0.5 2 9 8 7", "55 0"),
        }
    )
    """Id -> position and colour; track."""

    def write(self, root: Path, folder: str = "sparse/0", files: bool = True) -> Path:
        model = root / folder
        model.mkdir(parents=True)
        (root / "images").mkdir()
        lines = [f"{number} {text}" for number, text in self.cameras.items()]
        (model / "cameras.txt").write_text("\n".join(lines) + "\n")
        lines = []
        for i, (name, camera) in enumerate(self.images.items()):
            lines += [f"{70 - 3 * i} 1 0 0 0 {-i} 0 0 {camera} {name}", self._observed(70 - 3 * i)]
        (model / "images.txt").write_text("\n".join(lines) + "\n")
        lines = [f"{i} {where} 0.5 {track}" for i, (where, track) in self.points.items()]
        (model / "points3D.txt").write_text("\n".join(lines) + "\n")
        if files:
            self._write_images(root / "images")
        return root

    def _observed(self, image: int) -> str:
        seen = {}
        for point, (_, track) in self.points.items():
            numbers = [int(word) for word in track.split()]
            for image_id, slot in zip(numbers[::2], numbers[1::2], strict=True):
                if image_id == image:
                    seen[slot] = point
        return " ".join(f"1 1 {seen[slot]}" for slot in sorted(seen))

    def _write_images(self, folder: Path) -> None:
        for i, (name, camera) in enumerate(self.images.items()):
            width, height = (int(word) for word in self.cameras[camera].split()[1:3])
            save(folder / name, noise(width, height, seed=i))


def noise(width: int, height: int, seed: int = 0, channels: int = 3) -> np.ndarray:
    """uint8 [H, W, channels]"""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (height, width, channels), dtype=np.uint8)


def save(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def view_of(
    path: Path, size: tuple[int, int], index: int = 0, stored: tuple[int, int] | None = None
) -> View:
    camera = Camera(path.name, *size, K=np.eye(3), world_to_camera=np.eye(4))
    return View(camera, path, index, stored)
