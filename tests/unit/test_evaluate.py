"""Evaluation: known scores of known errors, 8-bit rounding, names, files on disk."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from grendel_odin.config import UserError
from grendel_odin.data.cameras import Camera
from grendel_odin.data.images import ImageStore
from grendel_odin.data.views import View
from grendel_odin.model.table import PrimitiveTable
from grendel_odin.parallel.world import ALONE
from grendel_odin.render.protocol import Rect, Rendering, Splats
from grendel_odin.render.reference import ReferenceRenderer
from grendel_odin.report.pictures import write_png
from grendel_odin.train.evaluate import evaluate, score
from grendel_odin.train.png_files import names_on_disk, pairs_on_disk, png_names
from grendel_odin.train.results import Pair, Scores, Split

BLACK = (0.0, 0.0, 0.0)
WIDTH, HEIGHT = 40, 30


class FlatRenderer(ReferenceRenderer):
    """Renders every pixel in one colour, whatever the model."""

    level = 0.0

    def render(
        self,
        splats: Splats,
        camera: Camera,
        rect: Rect,
        background: Tensor,
        with_depth: bool = False,
    ) -> Rendering:
        size = (rect.height, rect.width)
        return Rendering(torch.full((3, *size), self.level), torch.ones(size), None)


def views_of_levels(folder: Path, levels: list[int]) -> list[View]:
    """Flat grey photographs and the cameras that took them."""
    views = []
    for index, level in enumerate(levels):
        path = folder / f"{index:03d}.png"
        Image.fromarray(np.full((HEIGHT, WIDTH, 3), level, np.uint8)).save(path)
        camera = Camera(path.name, WIDTH, HEIGHT, np.diag([30.0, 30.0, 1.0]), np.eye(4))
        views.append(View(camera, path, index))
    return views


def evaluate_flat(views: list[View], level: float):  # type: ignore[no-untyped-def]
    images = ImageStore(views, BLACK, 1 << 20, 1)
    try:
        renderer = FlatRenderer()
        renderer.level = level
        return evaluate(renderer, PrimitiveTable.empty(0), views, images, BLACK, 0, 1)
    finally:
        images.close()


def test_scores_of_known_errors(tmp_path: Path) -> None:
    views = views_of_levels(tmp_path, [100, 151])
    result = evaluate_flat(views, 125 / 255)
    errors = [25 / 255, 26 / 255]
    psnrs = [-20 * math.log10(error) for error in errors]
    assert result.num_views == 2
    assert result.l1 == pytest.approx(sum(errors) / 2, rel=1e-5)
    assert result.psnr == pytest.approx(sum(psnrs) / 2, rel=1e-5)  # by image, then averaged
    assert [each.psnr for each in result.per_view.values()] == pytest.approx(psnrs, rel=1e-5)
    assert list(result.per_view) == ["000.png", "001.png"]
    assert 0.0 < result.ssim < 1.0


def test_renders_are_rounded_to_8_bits_first(tmp_path: Path) -> None:
    views = views_of_levels(tmp_path, [128])
    result = evaluate_flat(views, 128.4 / 255)
    assert (result.l1, result.psnr) == (0.0, math.inf)
    assert result.ssim == pytest.approx(1.0)


@pytest.mark.parametrize(("level", "shown"), [(-0.5, 0), (1.7, 255), (math.nan, 0)])
def test_colours_out_of_range_are_clamped(tmp_path: Path, level: float, shown: int) -> None:
    assert evaluate_flat(views_of_levels(tmp_path, [shown]), level).l1 == 0.0


def test_no_views_give_nan(tmp_path: Path) -> None:
    result = evaluate_flat([], 0.5)
    assert result.num_views == 0
    assert math.isnan(result.psnr)


def test_psnr_is_of_the_whole_image() -> None:
    truth = torch.zeros(3, HEIGHT, WIDTH, dtype=torch.uint8)
    render = truth.clone()
    render[0] = 51  # one channel off by 0.2: the mean of channel PSNRs would be infinite
    assert score(render, truth, 1).psnr == pytest.approx(-10 * math.log10(0.04 / 3), rel=1e-5)


def masked(view: View, mask: np.ndarray) -> View:
    path = view.image_path.with_suffix(".mask.png")
    Image.fromarray(mask).save(path)
    return replace(view, mask_path=path)


def test_excluded_pixels_do_not_count(tmp_path: Path) -> None:
    [view] = views_of_levels(tmp_path, [100])
    pixels = np.full((HEIGHT, WIDTH, 3), 100, np.uint8)
    pixels[:, WIDTH // 2 :] = 255  # all wrong, all excluded
    Image.fromarray(pixels).save(view.image_path)
    mask = np.full((HEIGHT, WIDTH), 255, np.uint8)
    mask[:, WIDTH // 2 :] = 0
    result = evaluate_flat([masked(view, mask)], 120 / 255)
    assert result.l1 == pytest.approx(20 / 255, rel=1e-5)
    assert result.psnr == pytest.approx(-20 * math.log10(20 / 255), rel=1e-5)
    perfect = evaluate_flat([masked(view, mask)], 100 / 255)
    assert (perfect.l1, perfect.psnr) == (0.0, math.inf)
    assert perfect.ssim == pytest.approx(1.0, abs=1e-6)


def test_a_white_mask_changes_no_score(tmp_path: Path) -> None:
    [view] = views_of_levels(tmp_path, [100])
    white = masked(view, np.full((HEIGHT, WIDTH), 255, np.uint8))
    assert evaluate_flat([white], 0.5) == evaluate_flat([view], 0.5)


def test_a_view_without_an_included_pixel_is_left_out_and_named(tmp_path: Path) -> None:
    views = views_of_levels(tmp_path, [100, 151])
    views[0] = masked(views[0], np.zeros((HEIGHT, WIDTH), np.uint8))
    result = evaluate_flat(views, 125 / 255)
    assert result.num_views == 1 and result.left_out == ["000.png"]
    assert result.psnr == pytest.approx(-20 * math.log10(26 / 255), rel=1e-5)
    alone = evaluate_flat(views[:1], 0.5)
    assert alone.num_views == 0 and math.isnan(alone.psnr)


def test_png_names_are_flat_and_unique() -> None:
    assert png_names(["a.jpg", "left/b.c.JPG", "noext"]) == ["a.png", "left_b.c.png", "noext.png"]
    names = png_names(["a.jpg", "a.png", "x/y.jpg", "x_y.jpg", "../up.jpg", "d\\e.jpg"])
    assert len({name.lower() for name in names}) == 6
    assert not any("/" in name or "\\" in name for name in names)


def noisy_pairs(count: int) -> list[Pair]:
    draw = torch.Generator().manual_seed(1)

    def image() -> Tensor:
        return torch.randint(0, 256, (3, HEIGHT, WIDTH), generator=draw, dtype=torch.uint8)

    return [Pair(f"{index}.png", image(), image()) for index in range(count)]


def test_scores_from_disk_equal_scores_from_memory(tmp_path: Path) -> None:
    pairs, memory, disk = noisy_pairs(3), Scores(None), Scores(None)
    for pair in pairs:
        memory.add(pair)
        write_png(tmp_path / "renders" / pair.name, pair.render)
        write_png(tmp_path / "gt" / pair.name, pair.truth)
    for pair in pairs_on_disk(tmp_path, names_on_disk(tmp_path)):
        disk.add(pair)
    assert disk.per_view == memory.per_view
    assert disk.means == memory.means


def test_masked_scores_from_disk_equal_scores_from_memory(tmp_path: Path) -> None:
    pairs, memory, disk = noisy_pairs(3), Scores(None), Scores(None)
    masks = torch.zeros(3, HEIGHT, WIDTH, dtype=torch.uint8)
    masks[1, 5:20, 3:30] = 255
    for pair, mask in zip(pairs, [None, *masks[1:]], strict=True):
        memory.add(replace(pair, mask=mask))
        write_png(tmp_path / "renders" / pair.name, pair.render)
        write_png(tmp_path / "gt" / pair.name, pair.truth)
        if mask is not None:
            write_png(tmp_path / "masks" / pair.name, mask.expand(3, -1, -1))
    for pair in pairs_on_disk(tmp_path, names_on_disk(tmp_path)):
        disk.add(pair)
    assert disk.per_view == memory.per_view and list(disk.per_view["PSNR"]) == ["0.png", "1.png"]
    assert disk.left_out == memory.left_out == ["2.png"]
    assert "exclude every pixel: 2.png" in disk.table("test")


def test_gathered_scores_come_in_the_order_of_names() -> None:
    own = Scores(None)
    image = torch.full((3, HEIGHT, WIDTH), 7, dtype=torch.uint8)
    masked = torch.zeros(HEIGHT, WIDTH, dtype=torch.uint8)
    for pair in [
        *noisy_pairs(2),
        Pair("same.png", image, image),
        Pair("m.png", image, image, masked),
    ]:
        own.add(pair)
    names = ["same.png", "m.png", "1.png", "0.png"]
    everybody = own.gather(ALONE, names)
    assert list(everybody.per_view["PSNR"]) == ["same.png", "1.png", "0.png"]
    assert everybody.per_view == own.per_view and everybody.per_view["PSNR"]["same.png"] == math.inf
    assert everybody.left_out == own.left_out == ["m.png"]


def test_nothing_to_score_is_no_error(tmp_path: Path) -> None:
    scores = Scores(None)
    black = torch.zeros(HEIGHT, WIDTH, dtype=torch.uint8)
    scores.add(replace(noisy_pairs(1)[0], mask=black))
    scores.save(tmp_path, Split.TEST, "ours_1")
    assert json.loads((tmp_path / "results.json").read_text())["ours_1"]["PSNR"] is None
    assert "no scores" in scores.table("test")


def test_results_files_have_the_usual_keys_and_keep_other_entries(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('{"ours_7000": {"PSNR": 20.0}}')
    scores = Scores(None)
    for pair in noisy_pairs(2):
        scores.add(pair)
    scores.save(tmp_path, Split.TEST, "ours_30000")
    results = json.loads((tmp_path / "results.json").read_text())
    assert set(results) == {"ours_7000", "ours_30000"}
    assert set(results["ours_30000"]) == {"SSIM", "PSNR"}
    per_view = json.loads((tmp_path / "per_view.json").read_text())["ours_30000"]
    assert set(per_view["SSIM"]) == set(per_view["PSNR"]) == {"0.png", "1.png"}
    assert results["ours_30000"]["PSNR"] == pytest.approx(sum(per_view["PSNR"].values()) / 2)


def test_infinite_psnr_is_null_in_json(tmp_path: Path) -> None:
    image = torch.zeros(3, HEIGHT, WIDTH, dtype=torch.uint8)
    scores = Scores(None)
    scores.add(Pair("a.png", image, image))
    scores.save(tmp_path, Split.TRAIN, "ours_1")
    content = (tmp_path / "results_train.json").read_text()
    assert json.loads(content)["ours_1"]["PSNR"] is None
    assert "Infinity" not in content


def test_damaged_results_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("{")
    scores = Scores(None)
    scores.add(noisy_pairs(1)[0])
    with pytest.raises(UserError, match=r"results\.json"):
        scores.save(tmp_path, Split.TEST, "ours_1")


def test_incomplete_folders_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no PNG files"):
        names_on_disk(tmp_path)
    pair = noisy_pairs(1)[0]
    write_png(tmp_path / "renders" / "a.png", pair.render)
    with pytest.raises(UserError, match=r"1 of 1 truths are missing: a\.png"):
        names_on_disk(tmp_path)
    write_png(tmp_path / "gt" / "a.png", pair.truth[:, :-1])
    with pytest.raises(UserError, match="differ in size"):
        list(pairs_on_disk(tmp_path, names_on_disk(tmp_path)))
    (tmp_path / "gt" / "a.png").write_bytes(b"not a PNG")
    with pytest.raises(UserError, match=r"a\.png: cannot read"):
        list(pairs_on_disk(tmp_path, names_on_disk(tmp_path)))
