"""Inputs as people have them: litter, parts that are missing, files that may not be read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pycolmap
import pytest
from data_helpers import PINHOLE, TextScene, noise, save
from PIL import Image
from transforms_helpers import frames, ply, simple_scene, write_images, write_json

from grendel_odin.config import UserError
from grendel_odin.data.__main__ import main
from grendel_odin.data.masks import read_mask
from grendel_odin.data.scene import Scene, load_scene
from grendel_odin.data.settings import DataSettings


def refusal(path: Path, **settings: object) -> str:
    with pytest.raises(UserError) as caught:
        load_scene(DataSettings(str(path), **settings))  # type: ignore[arg-type]
    return str(caught.value)


def told(scene: Scene) -> str:
    return "\n".join(scene.notes)


# ---------------------------------------------------------------- names and folders


def test_litter_is_no_photo(tmp_path: Path) -> None:
    TextScene().write(tmp_path)
    for name in ("._00.png", "__MACOSX/._01.png", "@eaDir/02.png/thumb.jpg", ".trash/9.png"):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / name).write_bytes(b"litter")
    (tmp_path / "images/00.png").rename(tmp_path / "images/00.PNG")
    scene = load_scene(DataSettings(str(tmp_path)))
    assert "not used" not in told(scene)
    assert "1 of 6 images are paired with files" in told(scene)
    save(tmp_path / "images/more.png", noise(16, 12))
    assert "6 of 7 photos in" in told(load_scene(DataSettings(str(tmp_path))))


def test_names_with_several_files_are_one_problem(tmp_path: Path) -> None:
    TextScene().write(tmp_path)
    for i in range(6):
        image = tmp_path / f"images/{i:02}.png"
        shutil.copy(image, image.with_suffix(".jpg"))
        image.rename(image.with_suffix(".tif"))
    message = refusal(tmp_path)
    assert message.count("several that are like it") == 1
    assert "6 images have no file of their name" in message
    assert "00.png (00.jpg, 00.tif)" in message


def test_links_to_folders_are_followed_once(tmp_path: Path) -> None:
    TextScene(images={f"cam/{i}.png": 1 for i in range(6)}).write(tmp_path / "scene")
    shutil.move(tmp_path / "scene/images/cam", tmp_path / "elsewhere")
    for i in range(6):
        (tmp_path / f"elsewhere/{i}.png").rename(tmp_path / f"elsewhere/{i}.PNG")
    (tmp_path / "scene/images/cam").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/again").symlink_to(tmp_path / "elsewhere")
    scene = load_scene(DataSettings(str(tmp_path / "scene")))
    assert "6 of 6 images are paired with files" in told(scene)
    assert "not used" not in told(scene)


def test_scenes_below_are_pointed_at(tmp_path: Path) -> None:
    TextScene().write(tmp_path / "dense/0")
    message = refusal(tmp_path)
    assert f"data.path={tmp_path / 'dense/0'}" in message
    assert "data.images" not in message
    write_json(tmp_path / "other", "transforms.json", frames=[])
    message = refusal(tmp_path / "other/transforms.json")
    assert f"give the folder of the scene, such as {tmp_path / 'other'}" in message


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize("part", [".", "sparse", "sparse/0", "images", "masks"])
def test_folders_that_may_not_be_read(
    tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    TextScene().write(tmp_path)
    (tmp_path / "masks").mkdir()
    closed = os.path.normpath(tmp_path / part)

    def guard(name: str) -> None:
        original = getattr(os, name)

        def guarded(path: object = ".", *args: object, **more: object) -> object:
            inside = os.path.normpath(os.fspath(path)) + os.sep  # type: ignore[call-overload]
            entry = name in ("listdir", "scandir")
            if inside.startswith(closed + os.sep) and (entry or inside != closed + os.sep):
                raise PermissionError(13, "Permission denied", str(path))
            return original(path, *args, **more)

        monkeypatch.setattr(os, name, guarded)

    for name in ("stat", "listdir", "scandir"):  # the superuser may read everything
        guard(name)
    message = refusal(tmp_path)
    assert "cannot be read (Permission denied)" in message
    assert str(tmp_path) in message


def test_an_unknown_home_is_a_folder_that_does_not_exist() -> None:
    assert "does not exist" in refusal(Path("~nobody-of-that-name/scene"))


# ---------------------------------------------------------------- COLMAP


def test_old_line_ends_and_lower_case_models(tmp_path: Path) -> None:
    TextScene(cameras={1: PINHOLE.lower()}).write(tmp_path)
    for file in (tmp_path / "sparse/0").glob("*.txt"):
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r"))
    scene = load_scene(DataSettings(str(tmp_path)))
    assert len(scene.views) == 6
    assert len(scene.points) == 3


@pytest.mark.parametrize("kind", ["ply", "txt"])
def test_points_in_another_form(tmp_path: Path, kind: str) -> None:
    model = TextScene().write(tmp_path) / "sparse/0"
    expected = load_scene(DataSettings(str(tmp_path))).points
    pycolmap.Reconstruction(str(model)).write_binary(str(model))
    (model / "points3D.bin").unlink()
    (model / "images.txt").unlink()
    if kind == "ply":
        (model / "points3D.txt").unlink()
        rows = [(*xyz, *rgb) for xyz, rgb in zip(expected.xyz, expected.rgb, strict=True)]
        fields = [(axis, "double") for axis in "xyz"]
        fields += [(color, "uchar") for color in ("red", "green", "blue")]
        (model / "points3D.ply").write_bytes(ply(fields, rows, "binary_little_endian"))
    scene = load_scene(DataSettings(str(tmp_path)))
    np.testing.assert_array_equal(scene.points.xyz, expected.xyz)
    np.testing.assert_array_equal(scene.points.rgb, expected.rgb)
    assert f"points are read from points3D.{kind}, as there is no points3D.bin" in told(scene)
    (model / f"points3D.{kind}").write_bytes(b"no points")
    assert f"points3D.{kind}" in refusal(tmp_path)
    (model / f"points3D.{kind}").unlink()
    assert "lacks points3D.bin" in refusal(tmp_path)


def test_a_damaged_binary_model_names_the_text_beside_it(tmp_path: Path) -> None:
    model = TextScene().write(tmp_path) / "sparse/0"
    pycolmap.Reconstruction(str(model)).write_binary(str(model))
    (model / "images.bin").write_bytes(b"")
    message = refusal(tmp_path)
    assert "images.bin is cut off" in message
    assert "also holds the model as text" in message


def test_which_of_two_formats_was_read(tmp_path: Path) -> None:
    scene = simple_scene(TextScene().write(tmp_path))
    assert "transforms.json is not read" in told(load_scene(DataSettings(str(scene))))
    (scene / "sparse/0/points3D.txt").unlink()
    loaded = load_scene(DataSettings(str(scene)))
    assert loaded.notes[0].startswith("nerfstudio's transforms.json")
    assert "lacks points3D.txt" in told(loaded)


# ---------------------------------------------------------------- images


def test_reduced_images_that_are_not_all_there(tmp_path: Path) -> None:
    TextScene().write(tmp_path)
    write_images(tmp_path, [f"images_2/{i:02}.png" for i in range(5)], (8, 6))
    scene = load_scene(DataSettings(str(tmp_path), downscale=2))
    assert "images_2 lacks 1 of 6 images" in told(scene)
    assert {view.image_path.parent.name for view in scene.views} == {"images"}
    assert {view.camera.width for view in scene.views} == {8}
    write_images(tmp_path, ["images_2/05.png"], (8, 6))
    scene = load_scene(DataSettings(str(tmp_path), downscale=2))
    assert {view.image_path.parent.name for view in scene.views} == {"images_2"}
    assert "images_2 lacks" not in told(scene)
    assert "reduced images are" not in told(scene)


def test_reduced_images_of_another_factor(tmp_path: Path) -> None:
    TextScene().write(tmp_path)
    write_images(tmp_path, [f"images_4/{i:02}.png" for i in range(6)], (16, 12))
    scene = load_scene(DataSettings(str(tmp_path), downscale=4))
    assert "warning: 6 of 6 reduced images are 1 times smaller" in told(scene)


def test_images_whose_orientation_the_model_has_undone(tmp_path: Path) -> None:
    TextScene(cameras={1: "PINHOLE 12 16 20 21 6 8"}).write(tmp_path, files=False)
    for i in range(6):
        image = Image.fromarray(noise(16, 12, seed=i))
        exif = image.getexif()
        exif[0x0112] = 6
        image.save(tmp_path / f"images/{i:02}.png", exif=exif)
    assert "EXIF orientation" in refusal(tmp_path)


def test_files_that_are_no_pictures(tmp_path: Path) -> None:
    TextScene().write(tmp_path)
    (tmp_path / "images/02.png").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "02.png cannot be decoded (its kind is not known)" in refusal(tmp_path)


# ---------------------------------------------------------------- masks


def left(width: int, height: int) -> np.ndarray:
    mask = np.zeros((height, width), np.uint8)
    mask[:, : width // 2] = 255
    return mask


@pytest.mark.parametrize("name", ["{0}.jpg", "{0}.png.jpg", "{0}.TIF", "{0}.png"])
def test_masks_with_other_endings(tmp_path: Path, name: str) -> None:
    TextScene().write(tmp_path)
    for i in range(6):
        save(tmp_path / "masks" / name.format(f"{i:02}"), left(16, 12))
    scene = load_scene(DataSettings(str(tmp_path)))
    assert [view.mask_path for view in scene.views] == [
        tmp_path / "masks" / name.format(f"{i:02}") for i in range(6)
    ]


@pytest.mark.parametrize("color", [0, 255])
def test_masks_that_are_in_alpha(tmp_path: Path, color: int) -> None:
    pixels = np.full((12, 16, 4), color, np.uint8)
    pixels[..., 3] = left(16, 12)
    save(tmp_path / "m.png", pixels)
    np.testing.assert_array_equal(read_mask(tmp_path / "m.png", (16, 12)), left(16, 12))
    pixels[..., :3], pixels[..., 3] = 0, 255
    save(tmp_path / "black.png", pixels)
    assert not np.asarray(read_mask(tmp_path / "black.png", (16, 12))).any()


def test_mask_folders_by_another_name_are_told(tmp_path: Path) -> None:
    TextScene().write(tmp_path)
    save(tmp_path / "mask/00.png", left(16, 12))
    assert "data.masks=mask takes masks" in told(load_scene(DataSettings(str(tmp_path))))
    scene = load_scene(DataSettings(str(tmp_path), masks="mask"))
    assert "1 of 6 images have a mask" in told(scene)


def test_masks_beside_the_images_of_transforms(tmp_path: Path) -> None:
    path = simple_scene(tmp_path)
    save(path / "masks/1.png", left(16, 12))
    scene = load_scene(DataSettings(str(path)))
    assert [view.mask_path is not None for view in scene.views] == [False, True, False, False]


# ---------------------------------------------------------------- transforms.json


@pytest.mark.parametrize("name", ["IMAGES/{}.PNG", "images/{}.jpg"])
def test_frames_are_paired_with_files_that_are_alike(tmp_path: Path, name: str) -> None:
    path = simple_scene(tmp_path, frames=frames([name.format(i) for i in range(4)]))
    scene = load_scene(DataSettings(str(path)))
    assert [view.camera.name for view in scene.views] == [f"images/{i}.png" for i in range(4)]
    assert "4 of 4 images are paired with files" in told(scene)
    write_images(path, [f"images_2/{i}.png" for i in range(4)], (8, 6))
    scene = load_scene(DataSettings(str(path), downscale=2))
    assert scene.views[0].image_path == path / "images_2/0.png"


def test_frames_that_two_files_fit_are_left_out(tmp_path: Path) -> None:
    path = simple_scene(tmp_path, frames=frames(["images/0.jpg", "images/1.png"]))
    shutil.copy(path / "images/0.png", path / "images/0.tif")
    assert "files of 1 of 2 frames are missing" in told(load_scene(DataSettings(str(path))))


@pytest.mark.parametrize(
    ("top", "part"),
    [({"frames": []}, "'frames' is empty"), ({"camera_angle_x": 50, "fl_x": None}, "angle_x=50")],
)
def test_one_fault_is_one_line(tmp_path: Path, top: dict[str, object], part: str) -> None:
    message = refusal(simple_scene(tmp_path, **top))
    assert part in message
    assert "\n" not in message


def test_a_list_of_no_test_frames(tmp_path: Path) -> None:
    write_images(tmp_path, ["a.png", "b.png"])
    write_json(tmp_path, "transforms_train.json", fl_x=20, frames=frames(["a.png", "b.png"]))
    write_json(tmp_path, "transforms_test.json", fl_x=20, frames=[])
    scene = load_scene(DataSettings(str(tmp_path)))
    assert (len(scene.train), len(scene.test)) == (2, 0)
    (tmp_path / "transforms_train.json").write_text("{")
    assert "\n" not in refusal(tmp_path)


# ---------------------------------------------------------------- geometry


def test_cameras_at_one_place_are_told(tmp_path: Path) -> None:
    TextScene().write(tmp_path)
    file = tmp_path / "sparse/0/images.txt"
    lines = file.read_text().removesuffix("\n").split("\n")
    lines[::2] = [" ".join([*line.split()[:5], "0 0 0", *line.split()[8:]]) for line in lines[::2]]
    file.write_text("\n".join(lines))
    assert "all cameras stand at one place" in told(load_scene(DataSettings(str(tmp_path))))


def test_tracks_that_projection_contradicts_are_told(tmp_path: Path) -> None:
    tracks = " ".join(f"{70 - 3 * i} 0" for i in range(6))
    sound, moved = TextScene(), TextScene()
    sound.points = {1: ("2.5 0 40 9 9 9", tracks)}
    moved.points = {1: ("2.5 0 -40 9 9 9", tracks)}
    assert "warning: 6 of 6 observations lie outside" not in told(
        load_scene(DataSettings(str(sound.write(tmp_path / "sound"))))
    )
    assert "warning: 6 of 6 observations lie outside" in told(
        load_scene(DataSettings(str(moved.write(tmp_path / "moved"))))
    )


# ---------------------------------------------------------------- doctor


def test_the_doctor_in_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    TextScene().write(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    assert main(["."]) == 0
    assert "picture  not drawn" in capsys.readouterr().out
    assert main([".", "--picture", "here.png"]) == 2
    assert sorted(tmp_path.rglob("*")) == before
