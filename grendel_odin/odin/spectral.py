"""Groups by repeated bisection along the second eigenvector of the normalised Laplacian."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse import linalg as sparse_linalg

DENSE = 400
"""Vertices up to which eigenvectors are computed in full."""
_ITERATIONS = 60


def bisections(matrix: sparse.csr_array, count: int, seed: int) -> NDArray[np.int32]:
    """[V] groups 0..count - 1 of a symmetric matrix [V, V] of weights, as even as they can be."""
    groups = np.zeros(matrix.shape[0], np.int32)
    parts = [(np.arange(matrix.shape[0]), 0, count)]
    while parts:
        members, first, number = parts.pop()
        if number == 1 or not len(members):
            groups[members] = first
            continue
        left = number // 2
        order = members[_fiedler_order(matrix[members][:, members], seed)]
        split = round(len(members) * left / number)
        parts.append((np.sort(order[:split]), first, left))
        parts.append((np.sort(order[split:]), first + left, number - left))
    return groups


def _fiedler_order(matrix: sparse.csr_array, seed: int) -> NDArray[np.int64]:
    """Vertices by their entry in the second eigenvector of I - D^-1/2 W D^-1/2, over D^1/2."""
    degrees = np.asarray(matrix.sum(axis=1), np.float64).ravel()
    root = np.sqrt(np.where(degrees > 0, degrees, 1.0))
    scaled = sparse.diags_array(1 / root) @ matrix.astype(np.float64) @ sparse.diags_array(1 / root)
    laplacian = sparse.eye_array(len(root)) - scaled
    if len(root) <= DENSE:
        # The trivial vector is moved out of the way, to the largest eigenvalue.
        trivial = root / np.linalg.norm(root)
        dense = laplacian.toarray() + 3.0 * np.outer(trivial, trivial)
        vector = np.asarray(linalg.eigh(dense, subset_by_index=[0, 0])[1][:, 0], np.float64)
    else:
        vector = _second(sparse.csr_array(laplacian), root, seed)
    vector *= np.sign(vector[np.argmax(np.abs(vector))])  # either sign is an eigenvector
    place: NDArray[np.int64] = np.argsort(np.round(vector / root, 12), kind="stable")
    return place


def _second(
    laplacian: sparse.csr_array, trivial: NDArray[np.float64], seed: int
) -> NDArray[np.float64]:
    """Approximate: an order needs few digits, so it is well if the iterations end early."""
    start = np.random.default_rng(seed).standard_normal((len(trivial), 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        values, vectors = sparse_linalg.lobpcg(
            laplacian, start, Y=trivial[:, None], largest=False, maxiter=_ITERATIONS, tol=1e-4
        )
    return np.asarray(vectors[:, int(np.argmin(values))], np.float64)
