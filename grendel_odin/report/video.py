"""Frames to a film: MP4 through imageio-ffmpeg where it is installed, else GIF through PIL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from PIL import Image
from torch import Tensor

HOW_TO_GET_MP4 = "written as GIF; for MP4: pip install imageio-ffmpeg"


def write_video(path: Path, frames: Iterable[Tensor], fps: int = 30) -> Path:
    """Write uint8 frames [3, H, W] of one size; returns the path with the suffix it got.

    Frames are taken one at a time. `path` has no suffix. There must be a frame.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if find_spec("imageio_ffmpeg"):
        return _write_mp4(path.with_name(f"{path.name}.mp4"), iter(frames), fps)
    return _write_gif(path.with_name(f"{path.name}.gif"), iter(frames), fps)


def _write_mp4(path: Path, frames: Iterator[Tensor], fps: int) -> Path:
    import imageio_ffmpeg

    first = _even(next(frames))
    size = (first.shape[2], first.shape[1])
    writer = imageio_ffmpeg.write_frames(
        str(path), size, fps=fps, quality=8, macro_block_size=2, ffmpeg_log_level="error"
    )
    try:
        writer.send(None)
        for frame in chain([first], map(_even, frames)):
            writer.send(frame.permute(1, 2, 0).contiguous().numpy())
    finally:
        writer.close()
    return path


def _even(frame: Tensor) -> Tensor:
    """H.264's usual colour format wants even sizes: at most a row and a column are cut."""
    return frame[:, : frame.shape[1] // 2 * 2, : frame.shape[2] // 2 * 2]


def _write_gif(path: Path, frames: Iterator[Tensor], fps: int) -> Path:
    images = (Image.fromarray(frame.permute(1, 2, 0).contiguous().numpy()) for frame in frames)
    hundredths = max(2, round(100 / fps))  # GIF's unit of time; shorter ones are ignored by viewers
    next(images).save(path, save_all=True, append_images=images, duration=10 * hundredths, loop=0)
    return path
