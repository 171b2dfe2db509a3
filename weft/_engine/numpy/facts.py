"""Shapes and kinds of arrays, printing, and files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from weft._engine.numpy.creation import asarray
from weft._engine.numpy.promote import canonical_axes, value
from weft._engine.util import dtypes
from weft._engine.util.dtypes import DTypeLike, bfloat16
from weft._engine.util.source import warn_user

_Casting = Literal["no", "equiv", "safe", "same_kind", "unsafe"]


def _dims(api: str, a) -> tuple:
    a = value(a)
    if hasattr(a, "shape"):
        return tuple(a.shape)
    if isinstance(a, (list, tuple)):
        warn_user(
            f"{api} requires ndarray or scalar arguments; a {type(a).__name__} is converted for now. Convert it with "
            "weft.numpy.asarray, or ask NumPy.",
            DeprecationWarning,
        )
    return np.shape(a)


def shape(a) -> tuple:
    """Return the shape of an array-like; raise DeprecationWarning for lists."""
    return _dims("shape", a)


def ndim(a) -> int:
    """Return the number of dims of an array-like; raise DeprecationWarning for lists."""
    return len(_dims("ndim", a))


def size(a, axis: int | Sequence[int] | None = None) -> int:
    """Return the number of elements of an array-like, or the product of the sizes of some dims.

    Raise DeprecationWarning for lists.

    >>> wnp.size(np.ones((2, 3, 4))), wnp.size(np.ones((2, 3, 4)), 1), wnp.size(np.ones((2, 3, 4)), (0, -1))
    (24, 3, 8)
    """
    dims = _dims("size", a)
    axes = range(len(dims)) if axis is None else canonical_axes(axis, len(dims), "size")
    return math.prod([dims[d] for d in axes])


def isscalar(element) -> bool:
    """Return whether `element` is a number or an array of rank 0."""
    element = value(element)
    return np.isscalar(element) or (hasattr(element, "ndim") and element.ndim == 0)


def issubdtype(arg1: DTypeLike, arg2: DTypeLike) -> bool:
    """Return whether dtype `arg1` belongs to `arg2`: a dtype, or an abstract type such as `wnp.floating`.

    Raises TypeError for values that are not dtypes.

    >>> wnp.issubdtype("bfloat16", wnp.floating), wnp.issubdtype(wnp.int32, wnp.inexact)
    (True, False)
    """
    return dtypes.issubdtype(arg1, arg2)


def iscomplexobj(x) -> bool:
    """Return whether the dtype, or the dtype of a list element, is complex.

    >>> wnp.iscomplexobj(wnp.zeros(2, complex)), wnp.iscomplexobj([1.0, 2j]), wnp.iscomplexobj("text")
    (True, True, False)
    """
    if isinstance(x, (list, tuple)):
        return any(map(iscomplexobj, x))
    x = value(x)
    return (
        dtypes.issubdtype(x.dtype, np.complexfloating)
        if hasattr(x, "dtype")
        else np.iscomplexobj(x)
    )


def isrealobj(x) -> bool:
    """Return whether the dtype is not complex."""
    return not iscomplexobj(x)


def can_cast(from_, to, casting: _Casting = "safe") -> bool:
    """Return whether a dtype can be converted under a casting rule."""
    return np.can_cast(from_, to, casting)


def _collect_print_options(**options):
    """Return NumPy's print options without None values."""
    return np.printoptions(**{name: value for name, value in options.items() if value is not None})


def array_repr(
    arr,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """Return the text of `repr`, with NumPy's print options if given."""
    with _collect_print_options(
        linewidth=max_line_width, precision=precision, suppress=suppress_small
    ):
        return repr(arr)


def array_str(
    a,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """Return the text of `str`, with NumPy's print options if given."""
    with _collect_print_options(
        linewidth=max_line_width, precision=precision, suppress=suppress_small
    ):
        return str(a)


def save(file, arr, allow_pickle: bool = True) -> None:
    """Write an array to a .npy file."""
    np.save(file, np.asarray(arr), allow_pickle=allow_pickle)


def savez(file, *args, allow_pickle: bool = True, **kwds) -> None:
    """Write arrays to a .npz file."""
    np.savez(
        file,
        *map(np.asarray, args),
        allow_pickle=allow_pickle,
        **{k: np.asarray(v) for k, v in kwds.items()},
    )


def load(file, *args, **kwargs):
    """Read an array from a .npy or .npz file.

    NumPy stores bfloat16 as two untyped bytes; these are read as bfloat16.
    """
    out = np.load(file, *args, **kwargs)
    if isinstance(out, np.ndarray) and out.dtype == np.dtype("V2"):
        out = out.view(bfloat16)
    return asarray(out) if isinstance(out, np.ndarray) else out
