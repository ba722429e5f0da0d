"""The procedural scene: its geometry, its images, and the COLMAP model that it writes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pycolmap
import pytest
from numpy.typing import NDArray
from PIL import Image

from grendel_odin.config import UserError
from grendel_odin.data import procedural
from grendel_odin.data.procedural import ProceduralSettings, main, write_procedural_scene
from grendel_odin.data.procedural_shapes import DOME_RADIUS, Shape, Solid, in_shadow, trace
from grendel_odin.data.procedural_world import World

SMALL = ProceduralSettings(seed=3, views=10, width=112, height=84, points=600)
TINY = ["views=4", "width=24", "height=16", "points=100"]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("procedural") / "scene"
    write_procedural_scene(path, SMALL)
    return path


@pytest.fixture(scope="module")
def model(scene: Path) -> pycolmap.Reconstruction:
    return pycolmap.Reconstruction(str(scene / "sparse" / "0"))


@pytest.fixture(scope="module")
def world() -> World:
    return World.build(np.random.default_rng(0))


def directions(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    rays = rng.normal(size=(3, count))
    return np.asarray(rays / np.linalg.norm(rays, axis=0))


def inside(solid: Solid, points: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether points [3, n] lie in a solid: its definition, without rays."""
    x, y, z = (solid.turn.T @ (points - solid.center[:, None])) / solid.size[:, None]
    match solid.shape:
        case Shape.BALL:
            within = x**2 + y**2 + z**2 < 1
        case Shape.BOX:
            within = (abs(x) < 1) & (abs(y) < 1) & (abs(z) < 1)
        case Shape.CYLINDER:
            within = (x**2 + y**2 < 1) & (abs(z) < 1)
    return np.asarray(within)


def digest(folder: Path) -> dict[str, str]:
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


def projections(
    model: pycolmap.Reconstruction,
) -> tuple[list[int], NDArray[np.float64], NDArray[np.bool_]]:
    """Point ids, pixels [V, P, 2] of every point in every image, and whether they lie inside."""
    ids = sorted(model.points3D)
    xyz = np.stack([model.points3D[i].xyz for i in ids])
    camera = model.cameras[1]
    pixels, valid = [], []
    for key in sorted(model.images):
        local = xyz @ (pose := model.images[key].cam_from_world().matrix())[:, :3].T + pose[:, 3]
        xy = camera.params[:2] * local[:, :2] / local[:, 2:] + camera.params[2:]
        pixels.append(xy)
        in_image = ((xy >= 0) & (xy < (camera.width, camera.height))).all(axis=1)
        valid.append(in_image & (local[:, 2] > 0))
    return ids, np.stack(pixels), np.stack(valid)


def membership(model: pycolmap.Reconstruction) -> NDArray[np.bool_]:
    """[V, P] whether a point's track names an image, from the points' side."""
    ids = sorted(model.points3D)
    seen = np.zeros((len(model.images), len(ids)), bool)
    for column, key in enumerate(ids):
        seen[[e.image_id - 1 for e in model.points3D[key].track.elements], column] = True
    return seen


@pytest.mark.parametrize("shape", Shape)
def test_rays_enter_and_leave_where_the_solid_begins_and_ends(shape: Shape) -> None:
    rng = np.random.default_rng(1)
    solid = Solid.place(shape, (0.3, -0.2, 1.0), (0.5, 0.7, 0.4), yaw=35)
    origins = solid.center[:, None] + 3 * directions(rng, 4000)
    rays = solid.center[:, None] + rng.uniform(-0.6, 0.6, origins.shape) - origins
    rays /= np.linalg.norm(rays, axis=0)
    near, far = solid.interval(origins, rays)
    steps = np.linspace(0, 6, 1200)
    samples = origins[:, :, None] + rays[:, :, None] * steps
    within = inside(solid, samples.reshape(3, -1)).reshape(len(near), -1)
    expected = (steps > near[:, None]) & (steps < far[:, None])
    close = np.minimum(abs(steps - near[:, None]), abs(steps - far[:, None])) < 1e-6
    assert ((within == expected) | close).all()
    assert 0.2 < (near < far).mean() < 0.99


@pytest.mark.parametrize("shape", Shape)
def test_normals_are_unit_and_point_out(shape: Shape) -> None:
    rng = np.random.default_rng(2)
    solid = Solid.place(shape, (0.3, -0.2, 1.0), (0.5, 0.7, 0.4), yaw=35)
    origins = solid.center[:, None] + 3 * directions(rng, 500)
    rays = (solid.center[:, None] - origins) / 3
    near, _ = solid.interval(origins, rays)
    hits = origins + near * rays
    normals = solid.turn @ solid.normals(solid.local(hits))
    np.testing.assert_allclose(np.linalg.norm(normals, axis=0), 1, rtol=1e-12)
    assert not inside(solid, hits + 1e-3 * normals).any()
    assert inside(solid, hits - 1e-3 * normals).all()


def test_every_ray_from_inside_the_dome_hits_something(world: World) -> None:
    rays = directions(np.random.default_rng(3), 20_000)
    origin = np.array([[3.0], [1.0], [1.5]])
    distance, surface = trace(world.solids, origin, rays)
    hits = origin + rays * distance
    assert np.isfinite(distance).all() and (distance > 0).all()
    assert (np.linalg.norm(hits, axis=0) < DOME_RADIUS + 1e-9).all()
    assert hits[2].min() > -1e-9
    assert set(np.unique(surface)) >= {-2, -1, 0, 1}


def test_shadows_agree_with_traced_rays(world: World) -> None:
    rng = np.random.default_rng(4)
    points = np.concatenate([rng.uniform(-2.5, 2.5, (2, 4000)), np.zeros((1, 4000))])
    sun = np.array([[0.5], [-0.5], [np.sqrt(0.5)]])
    free = ~np.any([inside(solid, points + 1e-6 * sun) for solid in world.solids], axis=0)
    _, surface = trace(world.solids, points, np.broadcast_to(sun, points.shape).copy())
    dark = in_shadow(world.solids, points, sun)
    assert (dark == (surface >= 0))[free].mean() > 0.999
    assert 0.05 < dark.mean() < 0.6


def test_the_model_loads_with_images_and_points(
    scene: Path, model: pycolmap.Reconstruction
) -> None:
    camera = model.cameras[1]
    assert camera.model.name == "PINHOLE"
    assert len(model.images) == SMALL.views and len(model.points3D) == SMALL.points
    assert model.compute_mean_track_length() > 4
    files = sorted(file.name for file in (scene / "images").iterdir())
    assert files == sorted(image.name for image in model.images.values())
    for name in files:
        with Image.open(scene / "images" / name) as image:
            assert (image.size, image.mode) == ((camera.width, camera.height), "RGB")
            assert np.asarray(image).std() > 20


def test_points_project_onto_their_observations(model: pycolmap.Reconstruction) -> None:
    ids, pixels, valid = projections(model)
    column = {key: place for place, key in enumerate(ids)}
    seen = membership(model)
    for row, key in enumerate(sorted(model.images)):
        observed = model.images[key].points2D
        points = [column[each.point3D_id] for each in observed]
        given = np.stack([each.xy for each in observed])
        np.testing.assert_allclose(pixels[row, points], given, atol=1e-7)
        assert sorted(points) == np.flatnonzero(seen[row]).tolist()
    assert (valid | ~seen).all()
    for key in ids[:50]:
        for element in model.points3D[key].track.elements:
            observation = model.images[element.image_id].points2D[element.point2D_idx]
            assert observation.point3D_id == key


def test_tracks_hold_exactly_the_views_that_see_a_point(
    model: pycolmap.Reconstruction, world: World
) -> None:
    ids, _, valid = projections(model)
    seen = membership(model)
    xyz = np.stack([model.points3D[i].xyz for i in ids]).T
    share = np.linspace(0, 1, 600)[:, None]
    for row, key in enumerate(sorted(model.images)):
        center = model.images[key].projection_center()[:, None, None]
        samples = center + (xyz[:, None] - center) * (share * 0.998)
        blocked = np.zeros(len(ids), bool)
        for solid in world.solids:
            blocked |= inside(solid, samples.reshape(3, -1)).reshape(len(share), -1).any(axis=0)
        # Samples miss a chord shorter than a step: that is the rare disagreement allowed.
        assert not (blocked & seen[row]).any()
        assert ((valid[row] & ~blocked) == seen[row]).mean() > 0.99
        assert (valid[row] & blocked).any()


def test_colours_are_those_of_the_images(scene: Path, model: pycolmap.Reconstruction) -> None:
    ids, pixels, valid = projections(model)
    seen = membership(model)
    rgb = np.stack([model.points3D[i].color for i in ids]).astype(int)
    shown: list[NDArray[np.int64]] = []
    hidden: list[NDArray[np.int64]] = []
    for row, key in enumerate(sorted(model.images)):
        with Image.open(scene / "images" / model.images[key].name) as file:
            image = np.asarray(file).astype(int)
        for mask, differences in ((seen[row], shown), (valid[row] & ~seen[row], hidden)):
            x, y = pixels[row, mask].astype(int).T
            differences.append(abs(image[y, x] - rgb[mask]).max(axis=1))
    assert np.median(np.concatenate(shown)) <= 12
    assert np.median(np.concatenate(hidden)) > 30


def test_same_settings_same_bytes_other_seed_other_images(tmp_path: Path) -> None:
    out = tmp_path / "scene"
    assert main([str(out), *TINY]) == 0
    first = digest(out)
    assert main([str(out), *TINY]) == 0
    assert digest(out) == first
    assert main([str(out), *TINY, "seed=1"]) == 0
    other = digest(out)
    assert set(other) == set(first)
    assert all(other[name] != first[name] for name in first if name.startswith("images"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["scene"]


@pytest.mark.parametrize("name", ["notes.txt", "images"])
def test_a_folder_with_other_content_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(UserError, match=name):
        write_procedural_scene(tmp_path, SMALL)
    assert digest(tmp_path).keys() == {name}


def test_a_file_added_to_an_old_scene_is_not_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "scene"
    assert main([str(out), *TINY]) == 0
    (out / "run.log").write_text("mine")
    assert main([str(out), *TINY]) == 2
    assert "run.log" in capsys.readouterr().err
    assert (out / "run.log").read_text() == "mine"


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "scene"
    target.write_text("mine")
    with pytest.raises(UserError, match="is a file"):
        write_procedural_scene(target, SMALL)
    with pytest.raises(UserError, match="cannot write"):
        write_procedural_scene(target / "below", SMALL)


def test_a_failure_leaves_the_old_scene_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "scene"
    assert main([str(out), *TINY]) == 0
    before = digest(out)

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(procedural, "write_model", fail)
    with pytest.raises(UserError, match="disk full"):
        write_procedural_scene(out, ProceduralSettings(0, 4, 24, 16, 100))
    assert digest(out) == before
    assert list(tmp_path.iterdir()) == [out]


def test_wrong_settings_are_named_and_exit_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "scene"
    assert main([str(out), "view=12", "width=three"]) == 2
    message = capsys.readouterr().err
    assert "views" in message and "width" in message
    assert not out.exists()
