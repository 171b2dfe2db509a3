"""Operands of linear algebra: choices of algorithms, checks and types of matrices, NumPy references
per matrix.

In:   arrays whose last two dims are matrices; all other dims are batch dims.
Next: `linalg`, the factorizations.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.ir.types import ShapedArray
from weft._engine.ops.families import shape_error
from weft._engine.util import dtypes


class SvdAlgorithm(enum.Enum):
    """Algorithms of singular value decompositions."""

    __module__ = "weft.lax.linalg"

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


class EighImplementation(enum.Enum):
    """Implementations of Hermitian eigenvalue problems."""

    __module__ = "weft.lax.linalg"

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


class EigImplementation(enum.Enum):
    """Libraries for general eigenvalue problems."""

    __module__ = "weft.lax.linalg"

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


def check_choice(
    name: str, argument: str, value: Any, choices: type[enum.Enum], known: Sequence[enum.Enum]
) -> Any:
    """Return `value`, None or one of `choices`.

    Raise NotImplementedError unless it is None or in `known`.
    """
    if value is None or value in known:
        return value
    if not isinstance(value, choices):
        raise ValueError(f"{name}: {argument} must be a {choices.__name__}, got {value!r}.")
    raise NotImplementedError(
        f"{name}: {argument}={value} is not supported on this backend; use {' or '.join(map(str, known))}."
    )


def check_subset(name: str, bounds: tuple[int, int] | None, count: int) -> tuple[int, int] | None:
    if bounds is None:
        return None
    start, stop = bounds
    if not 0 <= start <= stop <= count:
        raise ValueError(
            f"{name}: subset_by_index must be within 0 and {count} and in order, got {bounds}."
        )
    return int(start), int(stop)


def check_matrix(name: str, aval: ShapedArray, square: bool) -> None:
    if not dtypes.issubdtype(aval.dtype, np.inexact) or aval.dtype.itemsize < 4:
        raise TypeError(
            f"{name}: takes float32, float64, complex64 or complex128, got {aval.str_short()}.\n"
            "  Cast the operand with .astype."
        )
    if aval.ndim < 2 or (square and aval.shape[-1] != aval.shape[-2]):
        raise shape_error(
            name,
            f"takes {'square ' if square else ''}matrices in the last two dims.",
            [("operand", aval.str_short())],
        )


def real_dtype(dtype: np.dtype[Any]) -> np.dtype:
    return (
        np.dtype(dtypes.to_real_dtype(dtype))
        if dtypes.issubdtype(dtype, np.complexfloating)
        else dtype
    )


def stacked_type(
    aval: ShapedArray, core: Sequence[int], dtype: np.dtype[Any] | None = None
) -> ShapedArray:
    return ShapedArray(
        (*aval.shape[:-2], *core), aval.dtype if dtype is None else dtype, False, None, aval.vma
    )


def map_matrices(
    x: np.ndarray,
    fn: Callable[[np.ndarray], Any],
    shapes: Sequence[tuple[int, ...]],
    kinds: Sequence[Any],
    many: bool = True,
) -> list[np.ndarray]:
    """Return `fn` of every matrix of `x`, with core `shapes` and dtypes `kinds`.

    The result is NaN (or 0) where it fails.

    `many`: `fn` accepts a batch of matrices as well as one.
    """
    if many and x.size:
        try:
            return [np.asarray(part, kind) for part, kind in zip(fn(x), kinds)]
        except np.linalg.LinAlgError:
            pass  # then one by one, since other matrices may have results
    lead = x.shape[:-2]
    outs = [np.zeros((*lead, *shape), kind) for shape, kind in zip(shapes, kinds)]
    for at in np.ndindex(lead):
        try:
            results = fn(x[at])
        except np.linalg.LinAlgError:
            results = [np.nan if np.issubdtype(kind, np.inexact) else 0 for kind in kinds]
        for out, result in zip(outs, results):
            out[at] = result
    return outs
