from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_helpers import save
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from transforms_helpers import (
    SIZE,
    frames,
    opengl_pose,
    ply,
    simple_scene,
    standing,
    write_images,
    write_json,
)

from grendel_odin.config import UserError
from grendel_odin.data.images import ImageStore
from grendel_odin.data.procedural import ProceduralSettings, write_procedural_scene
from grendel_odin.data.scene import Scene, load_scene
from grendel_odin.data.settings import DataSettings


def load(path: Path, **more: Any) -> Scene:
    return load_scene(DataSettings(path=str(path), **{"random_points": 50, **more}))


def refusal(path: Path, **more: Any) -> str:
    with pytest.raises(UserError) as caught:
        load(path, **more)
    return str(caught.value)


def notes(scene: Scene) -> str:
    return "\n".join(scene.notes)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    path = tmp_path_factory.mktemp("colmap") / "scene"
    write_procedural_scene(path, ProceduralSettings(views=8, width=160, height=120, points=900))
    return load_scene(DataSettings(path=str(path), test_every=4))


def exported(world: Scene, root: Path, kind: str) -> Path:
    """The procedural scene as Blender, nerfstudio or MatrixCity would have it."""
    root.mkdir()
    (root / "images").symlink_to(world.path / "images")
    ending = "" if kind == "blender" else ".png"
    scale = 0.01 if kind == "matrixcity" else 1.0
    pose = "rot_mat" if kind == "matrixcity" else "transform_matrix"

    def entry(view: Any) -> dict[str, Any]:
        stem = view.camera.name.removesuffix(".png")
        return {
            "file_path": f"./images/{stem}{ending}",
            pose: opengl_pose(view.camera, scale),
            **({} if kind == "blender" else {"fl_x": view.camera.K[0, 0]}),
        }

    camera = world.views[0].camera
    top: dict[str, Any] = {}
    if kind == "blender":
        top["camera_angle_x"] = 2 * math.atan(camera.width / 2 / camera.K[0, 0])
    if kind != "blender":
        fields = [*((axis, "double") for axis in "xyz"), *((c, "uchar") for c in ("red", "green"))]
        rows = [
            (*xyz, *map(int, rgb))
            for xyz, rgb in zip(world.points.xyz.tolist(), world.points.rgb.tolist(), strict=True)
        ]
        body = ply([*fields, ("blue", "uchar")], rows, "binary_little_endian")
        (root / "cloud.ply").write_bytes(body)
    if kind == "nerfstudio":
        top |= {"cx": camera.K[0, 2], "cy": camera.K[1, 2], "fl_y": camera.K[1, 1]}
        top |= {"w": camera.width, "h": camera.height, "ply_file_path": "cloud.ply"}
        return write_json(root, "transforms.json", frames=[*map(entry, world.views)], **top)
    write_json(root, "transforms_train.json", frames=[*map(entry, world.train)], **top)
    return write_json(root, "transforms_test.json", frames=[*map(entry, world.test)], **top)


@pytest.mark.parametrize("kind", ["blender", "nerfstudio", "matrixcity"])
def test_cameras_are_those_of_colmap(world: Scene, tmp_path: Path, kind: str) -> None:
    scene = load(exported(world, tmp_path / kind, kind), test_every=4)
    assert scene.notes[0].lower().startswith(f"{kind}'s transforms")
    for ours, theirs in (scene.train, world.train), (scene.test, world.test):
        assert [v.camera.name for v in ours] == [f"images/{v.camera.name}" for v in theirs]
        for one, other in zip(ours, theirs, strict=True):
            a, b = one.camera, other.camera
            assert (a.width, a.height) == (b.width, b.height)
            np.testing.assert_allclose(a.K, b.K, rtol=0, atol=1e-9)
            np.testing.assert_allclose(a.world_to_camera, b.world_to_camera, rtol=0, atol=1e-9)
    if kind != "blender":
        np.testing.assert_array_equal(scene.points.xyz, world.points.xyz)
        np.testing.assert_array_equal(scene.points.rgb, world.points.rgb)
    if kind == "matrixcity":
        assert "scaled by 0.01" in notes(scene)


@pytest.mark.parametrize("kind", ["blender", "nerfstudio"])
def test_points_have_their_colours_in_the_images(world: Scene, tmp_path: Path, kind: str) -> None:
    scene = load(exported(world, tmp_path / kind, kind))
    store = ImageStore(scene.views, (0.0, 0.0, 0.0), 10**8, 1)
    points, errors = world.points, []
    point = np.repeat(np.arange(len(points)), np.diff(points.track_offsets))
    for view in scene.views:
        seen = point[points.track_views == view.index]
        pose, K = view.camera.world_to_camera, view.camera.K
        local = points.xyz[seen] @ pose[:3, :3].T + pose[:3, 3]
        pixel = (local @ K.T)[:, :2] / local[:, 2:]
        x, y = np.floor(pixel).astype(int).T
        colors = store.get(view).numpy()[:, y, x].T
        errors.append(np.abs(colors.astype(float) - points.rgb[seen]).mean(axis=1))
    store.close()
    assert np.median(np.concatenate(errors)) < 12


@pytest.mark.parametrize(
    ("top", "own", "expected"),
    [
        ({"camera_angle_x": 1.0}, {}, (8 / math.tan(0.5), 8 / math.tan(0.5), 8, 6)),
        ({"camera_angle_y": 1.0}, {}, (6 / math.tan(0.5), 6 / math.tan(0.5), 8, 6)),
        ({"camera_angle_x": 1.0, "camera_angle_y": 0.5}, {},
         (8 / math.tan(0.5), 6 / math.tan(0.25), 8, 6)),
        ({"fl_x": 30, "camera_angle_x": 1.0, "cx": 7.5, "cy": 5.25}, {}, (30, 30, 7.5, 5.25)),
        ({"fl_x": 30, "fl_y": 31}, {"fl_x": 40}, (40, 40, 8, 6)),
        ({"fl_x": 30, "fl_y": 31}, {"fl_y": 40}, (40, 40, 8, 6)),
        ({"fl_x": 30, "fl_y": 31}, {"camera_angle_x": 1.0}, (8 / math.tan(0.5),) * 2 + (8, 6)),
        ({"camera_angle_x": 1.0}, {"fl_x": 20, "fl_y": 22, "cx": 1}, (20, 22, 1, 6)),
        ({"fl_x": 30, "w": 99, "h": 99}, {"w": 16, "h": 12}, (30, 30, 8, 6)),
        ({"fl_x": 60, "w": 32, "h": 24}, {}, (30, 30, 8, 6)),
    ],
)  # fmt: skip
def test_intrinsics_are_derived(
    tmp_path: Path, top: dict[str, Any], own: dict[str, Any], expected: tuple[float, ...]
) -> None:
    write_images(tmp_path, ["a.png", "b.png"])
    write_json(tmp_path, "transforms.json", frames=frames(["a.png", "b.png"], **own), **top)
    camera = load(tmp_path, test_every=0).train[1].camera
    assert (camera.width, camera.height) == SIZE
    K = camera.K
    np.testing.assert_allclose((K[0, 0], K[1, 1], K[0, 2], K[1, 2]), expected, atol=1e-12)


def test_windows_paths_missing_files_masks_and_depths(tmp_path: Path) -> None:
    entries = frames(["images\\0.png", "./images/1.png", "images/2", "images/gone.png"])
    entries[0] |= {"mask_path": "masks\\m.png", "depth_file_path": "depth/0.png"}
    entries[1] |= {"mask_path": "masks/lost.png"}
    save(tmp_path / "masks/m.png", np.full((12, 16), 255, np.uint8))
    scene = load(simple_scene(tmp_path, frames=entries), test_every=0)
    assert [view.camera.name for view in scene.train] == ["images/0.png", "images/2.png"]
    assert scene.train[0].mask_path == tmp_path / "masks/m.png"
    assert scene.train[1].mask_path is None
    told = notes(scene)
    assert "files of 2 of 4 frames are missing" in told
    for part in ("images/gone.png", "masks/lost.png", "depth_file_path of 1 frames is not used"):
        assert part in told


def test_no_file_at_all_is_refused(tmp_path: Path) -> None:
    path = simple_scene(tmp_path, frames=frames(["photos/0.png", "photos/1.png"]))
    assert "the files of 2 of 2 frames are missing, the first is photos/0.png" in refusal(path)


def test_splits_of_the_files_win(tmp_path: Path) -> None:
    names = [f"images/{i}.png" for i in range(4)]
    lists = {"train_filenames": names[:2], "val_filenames": [f"./{names[3]}"]}
    scene = load(simple_scene(tmp_path, **lists), test_every=2)
    assert [v.camera.name for v in scene.train] == names[:2]
    assert [v.camera.name for v in scene.test] == [names[3]]
    assert "1 frames in neither are left out" in notes(scene)


def test_validation_views_stand_in_for_test_views(tmp_path: Path) -> None:
    write_images(tmp_path, [f"{part}/{i}.png" for part in ("train", "val") for i in range(2)])
    for part in ("train", "val"):
        names = [f"./{part}/{i}" for i in range(2)]
        write_json(tmp_path, f"transforms_{part}.json", camera_angle_x=1.0, frames=frames(names))
    assert [v.camera.name for v in load(tmp_path).test] == ["val/0.png", "val/1.png"]
    (tmp_path / "transforms_val.json").unlink()
    assert [v.camera.name for v in load(tmp_path, test_every=2).test] == ["train/0.png"]


def test_images_in_both_files_do_not_test(tmp_path: Path) -> None:
    names = ["a.png", "b.png"]
    write_images(tmp_path, names)
    write_json(tmp_path, "transforms_train.json", fl_x=20, frames=frames(names))
    write_json(tmp_path, "transforms_test.json", fl_x=20, frames=frames(names)[1:])
    scene = load(tmp_path)
    assert (len(scene.train), scene.test) == (2, [])
    assert "1 test views are training views, too" in notes(scene)


def test_frames_listed_twice(tmp_path: Path) -> None:
    twice = frames(["images/0.png", "images/1.png"])
    path = simple_scene(tmp_path, frames=[*twice, twice[0]])
    assert len(load(path, test_every=0).train) == 2
    moved = {**twice[0], "transform_matrix": standing(9)}
    write_json(path, "transforms.json", fl_x=20, frames=[*twice, moved])
    assert "'images/0.png' has two poses" in refusal(path)


def test_reduced_images_beside_the_named_ones(tmp_path: Path) -> None:
    path = simple_scene(tmp_path)
    write_images(path, [f"images_2/{i}.png" for i in range(4)], (8, 6))
    view = load(path, downscale=2).views[0]
    assert view.image_path == path / "images_2/0.png"
    assert (view.camera.width, view.camera.K[0, 0]) == (8, 10)
    (path / "images_2/3.png").unlink()
    view = load(path, downscale=2).views[0]
    assert view.image_path == path / "images/0.png"
    assert (view.camera.width, view.file_size) == (8, SIZE)


def test_distortion_is_undone_and_unknown_models_are_refused(tmp_path: Path) -> None:
    scene = load(simple_scene(tmp_path, camera_model="OPENCV", k1=0.1, p1=0.001, k2=0))
    assert all(view.warp is not None for view in scene.views)
    assert "have a lens that bends them (OPENCV)" in notes(scene)
    fish = write_json(tmp_path, "transforms.json", camera_model="OPENCV_FISHEYE", fl_x=20,
                      frames=frames(["images/0.png", "images/1.png"]))  # fmt: skip
    assert all(view.warp is not None for view in load(fish).views)
    plain = load(simple_scene(tmp_path, camera_model="OPENCV", k1=0, k2=0.0, p1=0, p2=0))
    assert all(view.warp is None for view in plain.views)
    assert "camera_model 'EQUIRECTANGULAR'" in refusal(
        simple_scene(tmp_path, camera_model="EQUIRECTANGULAR")
    )
    assert "has k4, which OPENCV does not know" in refusal(simple_scene(tmp_path, k4=0.1))


@pytest.mark.parametrize(
    "file", ["../0.png", "images/../../0.png", "/etc/passwd", "C:\\data\\0.png", "..", "//a/b.png"]
)
def test_paths_that_leave_the_folder_are_refused(tmp_path: Path, file: str) -> None:
    (tmp_path / "0.png").write_bytes(b"")
    entries = frames(["images/0.png", file])
    message = refusal(simple_scene(tmp_path / "scene", frames=entries))
    assert "frame 1 of" in message
    assert "is outside of" in message


def test_absolute_paths_inside_are_taken(tmp_path: Path) -> None:
    inside = str(tmp_path / "images/0.png")
    assert len(load(simple_scene(tmp_path, frames=frames([inside])), test_every=0).train) == 1


def test_poses_that_are_no_rotation(tmp_path: Path) -> None:
    entries = frames([f"images/{i}.png" for i in range(4)])
    entries[0]["transform_matrix"][0][0] = -1
    entries[1]["transform_matrix"][0][1] = 0.5
    entries[2]["transform_matrix"][2][2] = 0
    entries[3]["transform_matrix"] = [[1, 2], [3]]
    message = refusal(simple_scene(tmp_path, frames=entries))
    for part in ("mirrors", "skewed", "flat", "needs a transform_matrix of 4 rows"):
        assert part in message


def test_wrong_values_are_all_named(tmp_path: Path) -> None:
    entries = frames(["images/0.png", "images/1.png"])
    entries[0]["fl_x"] = "wide"
    entries[1] |= {"w": 1.5, "cx": math.inf}
    message = refusal(simple_scene(tmp_path, frames=entries, k1=True))
    for part in ("fl_x='wide'", "w=1.5", "cx=inf", "k1=True"):
        assert part in message
    assert message.count("k1=True") == 1


@pytest.mark.parametrize(
    ("content", "part"),
    [(b"", "not valid JSON"), (b"[]", "no JSON object"), (b"{}", "'frames' must be"),
     (b"\xff\xfe", "not valid JSON"), (b"[" * 100_000, "not valid JSON"),
     (b'{"frames": [3]}', "frame 0 of"), (b'{"frames": [{}]}', "has no file_path")],
)  # fmt: skip
def test_files_that_are_no_transforms(tmp_path: Path, content: bytes, part: str) -> None:
    (tmp_path / "transforms.json").write_bytes(content)
    assert part in refusal(tmp_path)


def test_a_scene_without_focal_length(tmp_path: Path) -> None:
    assert "fl_x or camera_angle_x is needed" in refusal(simple_scene(tmp_path, fl_x=None))


def test_matrixcity_blocks_number_their_images(tmp_path: Path) -> None:
    write_images(tmp_path, ["0000.png", "0001.png"])
    entries = [{"frame_index": i, "rot_mat": standing(i)} for i in range(2)]
    write_json(tmp_path, "transforms_train.json", camera_angle_x=1.0, frames=entries)
    assert [v.camera.name for v in load(tmp_path, test_every=0).train] == ["0000.png", "0001.png"]


def test_named_points_must_be_there(tmp_path: Path) -> None:
    message = refusal(simple_scene(tmp_path, ply_file_path="gone.ply"))
    assert "gone.ply" in message
    assert "is outside of" in refusal(simple_scene(tmp_path, ply_file_path="/gone.ply"))


def test_points_without_a_file_are_random_but_the_same(tmp_path: Path) -> None:
    path = simple_scene(tmp_path)
    one, two = load(path).points, load(path).points
    assert len(one) == 50
    np.testing.assert_array_equal(one.xyz, two.xyz)


def _damaged(draw: st.DrawFn, node: Any) -> Any:
    """The node, or with some chance something else in its place; or a part of it damaged."""
    junk = st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
        st.sampled_from(["..", "/", "\ud800", "a\0b", "x" * 5000, 10**400, [], {}, [[]], 1e308]),
    )  # fmt: skip
    if draw(st.integers(0, 9)) == 0:
        return draw(junk)
    node = copy.copy(node)
    if isinstance(node, dict) and node:
        key = draw(st.sampled_from(sorted(node)))
        if draw(st.integers(0, 4)) == 0:
            del node[key]
        else:
            node[key] = _damaged(draw, node[key])
    elif isinstance(node, list) and node:
        index = draw(st.integers(0, len(node) - 1))
        node[index] = _damaged(draw, node[index])
    return node


@st.composite
def damaged_scenes(draw: st.DrawFn) -> Any:
    names = [f"images/{i}.png" for i in range(3)]
    scene = {
        "fl_x": 20.0, "camera_angle_x": 1.0, "cx": 8, "w": 16, "h": 12, "k1": 0.0,
        "camera_model": "OPENCV", "ply_file_path": "p.ply", "train_filenames": names,
        "frames": frames(names, mask_path="m.png", fl_y=20, depth_file_path="d"),
    }  # fmt: skip
    for _ in range(draw(st.integers(1, 3))):
        scene = _damaged(draw, scene)
    return scene


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(scene=damaged_scenes())
@example(scene={"camera_model": "\ud800", "frames": frames(["images/0.png"], fl_x=20)})
def test_damage_is_refused_or_survived(
    tmp_path_factory: pytest.TempPathFactory, scene: Any
) -> None:
    root = tmp_path_factory.getbasetemp() / "damaged"
    if not root.is_dir():
        simple_scene(root, 3)
        save(root / "m.png", np.full((12, 16), 255, np.uint8))
        fields = [("x", "float"), ("y", "float"), ("z", "float")]
        (root / "p.ply").write_bytes(ply(fields, [(0, 0, -3), (1, 1, -4)], "ascii"))
    (root / "transforms.json").write_text(json.dumps(scene))
    try:
        loaded = load(root)
    except UserError as error:
        str(error).encode()  # can be printed
    else:
        "\n".join(loaded.notes).encode()
        assert loaded.train
        for view in loaded.views:
            assert np.isfinite(view.camera.K).all()
            assert np.isfinite(view.camera.world_to_camera).all()
