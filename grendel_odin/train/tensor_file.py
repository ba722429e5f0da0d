"""Named tensors in one file: the safetensors format, which holds no code and which many tools read.

A file is the length of a header (8 bytes, little-endian), the header (JSON: name -> dtype, shape,
place of the data), and the data. Rows pass through memory in chunks, in both directions.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from grendel_odin.config import UserError

CHUNK = 1 << 16
"""Rows that are copied at a time."""
_BYTES = 1 << 22
_DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.int32: "I32", torch.int64: "I64"}


@dataclass(frozen=True, slots=True)
class FileSum:
    """What tells that a file is whole."""

    size: int
    """Bytes."""
    sha256: str


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> FileSum:
    """Write tensors [n, ...] of any strides, and wait until the disk has them. Raises OSError."""
    digest, size = hashlib.sha256(), 0
    with open(path, "wb") as file:

        def put(part: bytes | memoryview) -> None:
            nonlocal size
            file.write(part)
            digest.update(part)
            size += len(part)

        put(_header(tensors))
        for tensor in tensors.values():
            for start in range(0, len(tensor), CHUNK):
                rows = tensor[start : start + CHUNK].contiguous().numpy()
                put(rows.reshape(-1).view(np.uint8).data)
        file.flush()
        os.fsync(file.fileno())
    return FileSum(size, digest.hexdigest())


def file_sum(path: Path) -> FileSum:
    """Of a file that is there. Raises OSError."""
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while part := file.read(_BYTES):
            digest.update(part)
            size += len(part)
    return FileSum(size, digest.hexdigest())


class TensorFile:
    """The tensors of a file, read row by row."""

    def __init__(self, path: Path) -> None:
        """Reads the header. Raises UserError if there is none."""
        self.path = path
        try:
            with open(path, "rb") as file:
                length = int.from_bytes(file.read(8), "little")
                if length > os.fstat(file.fileno()).st_size:
                    raise ValueError("the header is longer than the file")
                self._entries = json.loads(file.read(length))
            self._start = 8 + length
            self.shapes = {name: tuple(each["shape"]) for name, each in self._entries.items()}
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path} is damaged: {error}") from error

    def read(self, name: str, out: Tensor, first: int = 0) -> None:
        """Fill `out` [n, ...], of any strides, with the rows from `first` on of a tensor.

        Raises UserError if the file does not hold them.
        """
        entry = self._entries.get(name)
        wanted = (_DTYPES[out.dtype], tuple(out.shape[1:]))
        if entry is None or (entry["dtype"], self.shapes[name][1:]) != wanted:
            raise UserError(f"{self.path} holds no tensor '{name}' of {wanted[0]} {wanted[1]}")
        width = prod(out.shape[1:]) * out.element_size()
        with open(self.path, "rb") as file:
            file.seek(self._start + entry["data_offsets"][0] + first * width)
            for start in range(0, len(out), CHUNK):
                rows = out[start : start + CHUNK]
                rows.copy_(self._next(file, rows))

    def read_all(self, name: str) -> Tensor:
        """A whole tensor of int64."""
        out = torch.empty(self.shapes.get(name, (0,)), dtype=torch.int64)
        self.read(name, out)
        return out

    def _next(self, file: BinaryIO, like: Tensor) -> Tensor:
        part = torch.empty(like.shape, dtype=like.dtype)
        if file.readinto(part.numpy().reshape(-1).view(np.uint8)) != part.nbytes:  # type: ignore[attr-defined]
            raise UserError(f"{self.path} is damaged: it ends too early")
        return part


def _header(tensors: Mapping[str, Tensor]) -> bytes:
    entries, end = {}, 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.numel() * tensor.element_size()
        entries[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)  # so that data is aligned
    return len(text).to_bytes(8, "little") + text
