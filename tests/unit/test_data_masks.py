"""Masks: found by both conventions, resized by nearest, held beside their images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from data_helpers import noise, save, view_of
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from grendel_odin.config import UserError
from grendel_odin.data.cameras import Camera
from grendel_odin.data.images import ImageStore
from grendel_odin.data.masks import find_masks, read_mask
from grendel_odin.data.views import View

BLACK = (0.0, 0.0, 0.0)


def named(root: Path, *names: str) -> list[View]:
    views = []
    for index, name in enumerate(names):
        view = Camera(name, 8, 6, np.eye(3), np.eye(4))
        views.append(View(view, root / "images" / name, index))
        save(root / "images" / name, noise(8, 6, index))
    return views


def checker(width: int = 8, height: int = 6) -> NDArray[np.uint8]:
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    return (255 * ((x + y) % 2)).astype(np.uint8)


def test_both_conventions_and_folders(tmp_path: Path) -> None:
    views = named(tmp_path, "a.jpg", "b.JPG", "left/a.jpg", "right/a.jpg", "c.png", "v.01.jpg")
    files = ("a.png", "b.JPG.png", "left/a.jpg.png", "c.png", "v.01.png")
    for name in files:
        save(tmp_path / "masks" / name, checker())
    masked = find_masks(tmp_path, "masks", views)
    assert not masked.problems
    found = [view.mask_path and view.mask_path.relative_to(tmp_path) for view in masked.views]
    expected = ["a.png", "b.JPG.png", "left/a.jpg.png", None, "c.png", "v.01.png"]
    assert found == [name and Path("masks") / name for name in expected]
    [note] = masked.notes
    assert note.startswith("5 of 6 images have a mask in")
    assert note.endswith("used whole, without one: right/a.jpg")


def test_another_case_only_if_one_file_fits(tmp_path: Path) -> None:
    views = named(tmp_path, "A.jpg", "b.jpg")
    for name in ("a.PNG", "B.png", "b.PNG"):
        save(tmp_path / "masks" / name, checker())
    found = [view.mask_path for view in find_masks(tmp_path, "masks", views).views]
    assert found == [tmp_path / "masks" / "a.PNG", None]


def test_nothing_is_said_of_a_folder_that_nobody_asked_for(tmp_path: Path) -> None:
    views = named(tmp_path, "a.jpg")
    for folder in ("masks", ""):
        masked = find_masks(tmp_path, folder, views)
        assert masked.views == views and not masked.notes
    assert "data.masks=people" in find_masks(tmp_path, "people", views).notes[0]
    (tmp_path / "people").mkdir()
    assert "a.jpg.png and a.png were sought" in find_masks(tmp_path, "people", views).notes[0]


def test_broken_masks_are_named_and_odd_shapes_said(tmp_path: Path) -> None:
    views = named(tmp_path, "a.jpg", "b.jpg", "c.jpg", "d.jpg")
    save(tmp_path / "masks" / "a.png", checker(6, 8))
    save(tmp_path / "masks" / "d.png", checker(16, 12))
    (tmp_path / "masks" / "b.png").write_bytes(b"")
    (tmp_path / "masks" / "c.jpg.png").write_text("no picture")
    masked = find_masks(tmp_path, "masks", views)
    assert [problem.split("masks/")[1].split()[0] for problem in masked.problems] == [
        "b.png",
        "c.jpg.png",
    ]
    assert masked.notes[1].startswith("warning: 1 masks have not the shape")
    assert masked.notes[1].endswith("a.png")


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "I;16", "0/1"])
def test_masks_of_every_kind(tmp_path: Path, mode: str) -> None:
    white = checker()
    picture = Image.fromarray(white)
    if mode == "I;16":
        picture = Image.fromarray(white.astype(np.uint16) * 257)
    elif mode == "0/1":
        picture = Image.fromarray(white // 255)
    else:
        picture = picture.convert(mode)
    picture.save(tmp_path / "m.png")
    np.testing.assert_array_equal(read_mask(tmp_path / "m.png", (8, 6)), white)


@settings(max_examples=40, deadline=None)
@given(
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    mask_size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    seed=st.integers(0, 99),
)
def test_masks_are_resized_by_nearest(
    tmp_path_factory: pytest.TempPathFactory,
    size: tuple[int, int],
    mask_size: tuple[int, int],
    seed: int,
) -> None:
    root = tmp_path_factory.mktemp("masks")
    save(root / "a.png", noise(*size, seed))
    values = 255 * (noise(*mask_size, seed, 1)[..., 0] % 2)
    save(root / "m.png", values)
    view = replace(view_of(root / "a.png", size), mask_path=root / "m.png")
    store = ImageStore([view], BLACK, 10**6, 1)
    mask = store.mask(view)
    assert mask is not None and mask.shape == (size[1], size[0])
    columns = ((np.arange(size[0]) + 0.5) * mask_size[0] / size[0]).astype(int)
    rows = ((np.arange(size[1]) + 0.5) * mask_size[1] / size[1]).astype(int)
    agrees = mask.numpy() == values[np.ix_(rows, columns)]
    assert agrees.mean() > 0.9 or size != mask_size  # centres on an edge may go either way
    assert set(np.unique(mask)) <= {0, 255}
    image = store.get(view)
    assert image.is_contiguous()
    np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), noise(*size, seed))
    store.close()


def test_masks_count_against_the_limit_and_are_decoded_with_their_image(tmp_path: Path) -> None:
    views = named(tmp_path, "a.png", "b.png")
    save(tmp_path / "masks" / "a.png", checker())
    views = find_masks(tmp_path, "masks", views).views
    assert [view.nbytes for view in views] == [4 * 48, 3 * 48]
    store = ImageStore(views, BLACK, 4 * 48, 1)
    _, mask = store.with_mask(views[0])
    assert mask is not None and store.mask(views[0]) is not None
    np.testing.assert_array_equal(mask, checker())
    assert store.with_mask(views[1])[1] is None
    assert store.usage().startswith("2 images decoded")
    assert store.usage().endswith("at most 192 B were held")
    store.close()


def test_a_mask_that_breaks_later_is_named(tmp_path: Path) -> None:
    save(tmp_path / "a.png", noise(8, 6))
    view = replace(view_of(tmp_path / "a.png", (8, 6)), mask_path=tmp_path / "gone.png")
    with pytest.raises(UserError, match=r"the mask .*gone\.png cannot be decoded"):
        ImageStore([view], BLACK, 10**6, 1).mask(view)


@dataclass(frozen=True)
class Shifted:
    """Moves pictures two pixels to the right: what enters at the left is not valid."""

    def image(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return np.roll(pixels, 2, axis=1)

    def valid(self) -> NDArray[np.bool_]:
        return np.arange(8) >= np.full((6, 1), 2)


def test_warps_move_image_and_mask_and_exclude_what_they_do_not_cover(tmp_path: Path) -> None:
    save(tmp_path / "a.png", noise(8, 6))
    save(tmp_path / "m.png", checker())
    view = replace(view_of(tmp_path / "a.png", (8, 6)), warp=Shifted())
    store = ImageStore([view], BLACK, 10**6, 1)
    image, mask = store.with_mask(view)
    np.testing.assert_array_equal(image.permute(1, 2, 0), np.roll(noise(8, 6), 2, axis=1))
    assert mask is not None
    np.testing.assert_array_equal(mask, 255 * Shifted().valid())
    store.close()
    view = replace(view, mask_path=tmp_path / "m.png")
    mask = ImageStore([view], BLACK, 10**6, 1).mask(view)
    assert mask is not None
    np.testing.assert_array_equal(mask, np.roll(checker(), 2, axis=1) * Shifted().valid())
