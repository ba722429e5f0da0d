"""The portable build of the kernels gives the results of the native one, within rounding."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from grendel_odin import _kernels

ROOT = Path(__file__).resolve().parents[2]

# Runs one step of a random scene with the extension of a folder and keeps everything it computes.
STEP = """
import importlib.util, sys
from pathlib import Path
import torch
import grendel_odin

folder, out = map(Path, sys.argv[1:])
(library,) = folder.rglob("_kernels*.so")
spec = importlib.util.spec_from_file_location("grendel_odin._kernels", library)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
sys.modules["grendel_odin._kernels"] = grendel_odin._kernels = module

from grendel_odin.render.cpu import CpuRenderer
from grendel_odin.render.losses import PhotometricLoss
from grendel_odin.render.protocol import Constants, Rect, RowGradients
from tests.scenes import random_camera, random_table

table, camera = random_table(2000, 0), random_camera(150, 110, 0)
renderer = CpuRenderer(Constants(), 2)
splats = renderer.project(table, camera, 3)
image = renderer.render(splats, camera, Rect.full(camera), torch.full((3,), 0.3))
draw = torch.Generator().manual_seed(1)
truth = torch.randint(0, 256, (3, 110, 150), dtype=torch.uint8, generator=draw)
loss = PhotometricLoss(0.2, 2).loss(image.color, truth)
gradients = renderer.render_backward(image, loss.grad)
rows = RowGradients(splats.rows, torch.zeros(len(splats), 64), 4)
renderer.project_backward(table, camera, 3, splats, gradients, rows)
torch.save({"set": module.instruction_set, "splats": splats.values, "rows": splats.rows,
            "color": image.color, "loss": loss.grad, "gradients": rows.values}, out)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_portable_build_agrees(tmp_path: Path) -> None:
    environment = os.environ | {"GRENDEL_ODIN_PORTABLE": "1", "PYTHONPATH": str(ROOT)}
    build = [sys.executable, "setup.py", "-q", "build_ext"]
    folders = ["--build-lib", str(tmp_path / "portable"), "--build-temp", str(tmp_path / "objects")]
    subprocess.run([*build, *folders], cwd=ROOT, env=environment, check=True)
    results = []
    native = Path(_kernels.__file__).parent
    for name, folder in (("native", native), ("portable", tmp_path / "portable")):
        out = tmp_path / f"{name}.pt"
        command = [sys.executable, "-c", STEP, str(folder), str(out)]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        results.append(torch.load(out, weights_only=True))
    ours, other = results
    assert other["set"] != "AVX-512"
    assert torch.equal(ours["rows"], other["rows"])
    torch.testing.assert_close(ours["splats"], other["splats"], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours["color"], other["color"], rtol=0, atol=1e-5)
    for name in ("loss", "gradients"):
        scale = ours[name].abs().amax()
        torch.testing.assert_close(ours[name], other[name], rtol=0, atol=float(1e-5 * scale))
