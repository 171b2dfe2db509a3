"""The public functions, so wrapped that a call on values is one compiled program reached by native dispatch.

Inside the package the plain functions are used; traces see no difference.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from weft.api.jit import FaceFunction, face

_TWO = """add subtract multiply true_divide divide floor_divide remainder mod fmod maximum minimum arctan2 atan2 nextafter equal
not_equal less less_equal greater greater_equal logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor left_shift
right_shift bitwise_left_shift bitwise_right_shift logaddexp logaddexp2 hypot copysign heaviside fmax fmin float_power ldexp isclose
divmod dot matmul vdot inner outer kron tensordot vecdot cross array_equal allclose polyval convolve correlate searchsorted isin"""
_ONE = """abs absolute negative positive sign square conjugate conj real imag floor ceil trunc rint fix logical_not invert
bitwise_not exp exp2 expm1 log log1p log2 log10 sqrt cbrt sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh arccosh arctanh
asin acos atan asinh acosh atanh deg2rad radians rad2deg degrees sinc isfinite isnan isinf isposinf isneginf signbit nan_to_num
angle sum prod max amax min amin all any mean var std ptp argmax argmin cumsum cumprod nansum nanprod nanmax nanmin nanmean nanvar
nanstd count_nonzero reshape ravel transpose permute_dims swapaxes moveaxis expand_dims squeeze broadcast_to flip flipud fliplr
rot90 roll tile diag diagonal trace tril triu round around sort argsort copy astype median concatenate concat stack vstack hstack
matrix_transpose diff"""
_ARRAYS = {"take_along_axis": (0, 1), "interp": (0, 1, 2)}
_wrapped: dict[Callable, FaceFunction] = {}


def eager(fun: Callable, arrays=(0,)) -> FaceFunction:
    """The wrapped form of a public function; one per function."""
    found = _wrapped.get(fun)
    if found is None:
        found = _wrapped[fun] = face(fun, arrays)
    return found


_settings: dict[tuple, tuple] = {}


def same(setting):
    """The one object that stands for equal tuples of integers, so that native dispatch knows it again."""
    if type(setting) is not tuple or len(_settings) > 4096:
        return setting
    try:
        return _settings.setdefault(setting, setting)
    except TypeError:
        return setting


def wrapped(name: str, fun: Callable) -> Callable:
    """The wrapped form of the function that the tables call `name`; the function itself if they do not."""
    arrays = _table().get(name)
    return fun if arrays is None else eager(fun, arrays)


@functools.cache
def _table() -> dict[str, tuple]:
    return {**dict.fromkeys(_ONE.split(), (0,)), **dict.fromkeys(_TWO.split(), (0, 1)), **_ARRAYS}
