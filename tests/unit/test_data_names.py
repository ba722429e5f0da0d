"""Images of a model find their files, by name only."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from data_helpers import TextScene, noise, save

from grendel_odin.config import UserError
from grendel_odin.data.names import pair_images
from grendel_odin.data.scene import load_scene
from grendel_odin.data.settings import DataSettings


def _files(folder: Path, *names: str) -> Path:
    for name in names:
        save(folder / name, noise(4, 3))
    return folder


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("a/b c.png", "a/b c.png"),
        ("IMG_1.JPG", "IMG_1.jpg"),
        ("Cam/IMG_1.JPG", "cam/img_1.jpg"),
        ("a.jpg", "a.png"),
        ("A.JPEG", "a.png"),
        ("a", "a.png"),
        (unicodedata.normalize("NFC", "Größe é.png"), unicodedata.normalize("NFD", "Größe é.png")),
        (unicodedata.normalize("NFD", "Größe é.png"), unicodedata.normalize("NFC", "Größe é.png")),
        ("images/a.png", "a.png"),
        ("a//b.png", "a/b.png"),
    ],
)
def test_a_name_finds_its_file(tmp_path: Path, name: str, file: str) -> None:
    folder = _files(tmp_path / "images", file, "other.png")
    paired = pair_images([name], folder)
    assert paired.problems == [] and paired.missing == []
    assert paired.paths[0].samefile(folder / file)
    assert any("1 of 1 images are paired" in note for note in paired.notes) == (
        not (folder / name).is_file()
    )
    assert any("1 of 2 photos" in note and "other.png" in note for note in paired.notes)


def test_only_a_single_candidate_is_taken(tmp_path: Path) -> None:
    folder = _files(tmp_path, "a.png", "A.jpg", "x/c.png", "y/c.png")
    paired = pair_images(["a.JPEG", "c.png"], folder)
    assert paired.missing == [0, 1]
    (problem,) = paired.problems
    assert "a.png" in problem and "A.jpg" in problem
    assert "c.png" not in problem  # the basename alone is no candidate


def test_a_file_serves_one_image_only(tmp_path: Path) -> None:
    folder = _files(tmp_path, "a.png", "b.png")
    assert pair_images(["a.png", "a.jpg"], folder).missing == [1]
    (problem,) = pair_images(["b.jpg", "B.PNG"], folder).problems
    assert "b.jpg, B.PNG" in problem


def test_files_that_are_no_photos_are_not_counted(tmp_path: Path) -> None:
    folder = _files(tmp_path, "a.png")
    (folder / "notes.txt").write_text("")
    assert pair_images(["a.png"], folder).notes == []


def test_missing_files_stop_or_are_left_out(tmp_path: Path) -> None:
    TextScene().write(tmp_path)
    for name in ("02.png", "04.png"):
        (tmp_path / "images" / name).unlink()
    with pytest.raises(UserError) as caught:
        load_scene(DataSettings(str(tmp_path)))
    assert "2 of 6 image files are missing" in str(caught.value)
    assert "02.png, 04.png" in str(caught.value)
    assert "data.skip_missing" in str(caught.value)
    scene = load_scene(DataSettings(str(tmp_path), skip_missing=True))
    assert [view.camera.name for view in scene.views] == ["00.png", "01.png", "03.png", "05.png"]
    assert any("2 images have no file and are left out: 02.png, 04.png" in n for n in scene.notes)
    # Points 3, 5 and 9 are seen by nothing, by 05.png, and by 00.png and 02.png.
    assert scene.points.track_offsets.tolist() == [0, 0, 1, 2]
    assert scene.points.track_views.tolist() == [3, 0]


def test_nothing_left_to_train_on(tmp_path: Path) -> None:
    TextScene().write(tmp_path, files=False)
    with pytest.raises(UserError, match="none of the 6 images"):
        load_scene(DataSettings(str(tmp_path), skip_missing=True))


def test_several_models(tmp_path: Path) -> None:
    whole, part = TextScene(), TextScene(images={"00.png": 1, "01.png": 1}, points={})
    whole.write(tmp_path, "sparse/10")
    for folder, scene in (("sparse/2", part), ("sparse/9", whole)):
        scene.write(tmp_path / folder.replace("/", "_"), "m", files=False)
        (tmp_path / folder.replace("/", "_") / "m").rename(tmp_path / folder)
    scene = load_scene(DataSettings(str(tmp_path)))
    assert len(scene.views) == 6
    (note,) = (note for note in scene.notes if "models" in note)
    assert "3 models: sparse/9 with 6 registered" in note
    assert "sparse/10 has 6, sparse/2 has 2" in note
    chosen = load_scene(DataSettings(str(tmp_path), model="sparse/2"))
    assert len(chosen.views) == 2
    assert any("2 of 6 photos" in note for note in chosen.notes)
    with pytest.raises(UserError, match=r"nearest: data\.model=sparse/9"):
        load_scene(DataSettings(str(tmp_path), model="sparse/8"))


def test_a_path_that_names_the_model_is_told_where_the_scene_is(tmp_path: Path) -> None:
    TextScene().write(tmp_path)
    with pytest.raises(UserError, match=r"set data\.path="):
        load_scene(DataSettings(str(tmp_path / "sparse/0")))


def test_a_damaged_model_among_several_names_the_others(tmp_path: Path) -> None:
    TextScene().write(tmp_path, "sparse/0")
    TextScene(images={"00.png": 1}, points={}).write(tmp_path / "part", "m", files=False)
    (tmp_path / "part/m").rename(tmp_path / "sparse/1")
    (tmp_path / "sparse/0/points3D.txt").write_text("1 2\n")
    with pytest.raises(UserError, match=r"points3D.txt, line 1(.|\n)*data.model=sparse/1"):
        load_scene(DataSettings(str(tmp_path)))
