"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001, E501
# fmt: off

import builtins as _builtins
import numpy as np
from collections.abc import Callable, Sequence
from numpy import (
    character, complexfloating, dtype, flexible, floating, generic, inexact, integer, number,
    object_, signedinteger, unsignedinteger,
)
from typing import Any, Literal, SupportsIndex, overload
from weft._engine.backends.base import Device
from weft._engine.ir.shardings import NamedSharding, Sharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.numpy.array_api_info import __array_namespace_info__
from weft._engine.numpy.facts import _Casting
from weft._engine.numpy.grids import c_, index_exp, mgrid, ogrid, r_, s_
from weft._engine.numpy.sets import UniqueAll, UniqueCounts, UniqueInverse
from weft._engine.numpy.ufunc_type import ufunc as _ufunc, ufunc
from weft._engine.ops.contraction import PrecisionLike
from weft._engine.ops.indexing import GatherScatterMode
from weft._engine.runtime.array import Array, Array as ndarray
from weft._engine.util.dtypes import finfo, float0, iinfo
from weft.dtypes import extended, prng_key
from weft.errors import TypePromotionError
from weft.numpy import fft, linalg
from weft.typing import ArrayLike, DTypeLike

class _ScalarType:
    """A dtype; called with a value, it returns an array of this dtype."""

    dtype: np.dtype[Any]
    __name__: str

    def __call__(self, x: Any = 0) -> Array: ...
class _BinaryUfunc(_ufunc):
    def __call__(
        self, x: ArrayLike, y: ArrayLike, /, *, out: None = None, where: None = None
    ) -> Array: ...
class _UnaryUfunc(_ufunc):
    def __call__(self, x: ArrayLike, /, *, out: None = None, where: None = None) -> Array: ...
@overload
def where(
    condition: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    /,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Array: ...
@overload
def where(
    condition: ArrayLike,
    x: None = None,
    y: None = None,
    /,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> tuple[Array, ...]: ...
@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: _builtins.bool = True,
    retstep: Literal[False] = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Array: ...
@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: _builtins.bool = True,
    *,
    retstep: Literal[True],
    dtype: DTypeLike | None = None,
    axis: int = 0,
    device: Any = None,
) -> tuple[Array, Array]: ...
@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: _builtins.bool = True,
    retstep: _builtins.bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any: ...
@overload
def average(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    weights: ArrayLike | None = None,
    returned: Literal[False] = False,
    keepdims: _builtins.bool = False,
) -> Array: ...
@overload
def average(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    weights: ArrayLike | None = None,
    *,
    returned: Literal[True],
    keepdims: _builtins.bool = False,
) -> tuple[Array, Array]: ...
@overload
def average(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    weights: ArrayLike | None = None,
    returned: _builtins.bool = False,
    keepdims: _builtins.bool = False,
) -> Any: ...
@overload
def unique(
    ar: ArrayLike | Sequence[Any],
    return_index: Literal[False] = False,
    return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False,
    axis: int | None = None,
    *,
    equal_nan: _builtins.bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    sorted: _builtins.bool = True,
) -> Array: ...
@overload
def unique(
    ar: ArrayLike | Sequence[Any],
    return_index: _builtins.bool = False,
    return_inverse: _builtins.bool = False,
    return_counts: _builtins.bool = False,
    axis: int | None = None,
    *,
    equal_nan: _builtins.bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    sorted: _builtins.bool = True,
) -> Any: ...
@overload
def frompyfunc(
    func: Callable[[Any, Any], Any], /, nin: Literal[2], nout: Literal[1], *, identity: Any = None
) -> _BinaryUfunc: ...
@overload
def frompyfunc(
    func: Callable[..., Any], /, nin: int, nout: int, *, identity: Any = None
) -> _ufunc: ...
def clip(
    arr: ArrayLike | None = None,
    /,
    min: ArrayLike | None = None,
    max: ArrayLike | None = None,
    *,
    a: ArrayLike | None = None,
    a_min: ArrayLike | None = None,
    a_max: ArrayLike | None = None,
) -> Array: ...
@overload
def result_type(*args: Any, return_weak_type_flag: Literal[False] = False) -> np.dtype[Any]: ...
@overload
def result_type(
    *args: Any, return_weak_type_flag: Literal[True]
) -> tuple[np.dtype[Any], _builtins.bool]: ...
@overload
def result_type(*args: Any, return_weak_type_flag: _builtins.bool) -> Any: ...
ComplexWarning: Any
def abs(x: ArrayLike, /) -> Array:
    r"""Return the absolute value; the modulus of complex numbers."""
def absolute(x: ArrayLike, /) -> Array:
    r"""Return the absolute value; the modulus of complex numbers."""
def acos(x: ArrayLike, /) -> Array:
    r"""Return the angle between 0 and pi whose cosine is `x`."""
def acosh(x: ArrayLike, /) -> Array:
    r"""Return the non-negative number whose hyperbolic cosine is `x`."""
add: _BinaryUfunc
def all(a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, keepdims: _builtins.bool = False, *, where: ArrayLike | None = None) -> Array:
    r"""Return whether every element over `axis` is true (nonzero), as bools."""
def allclose(a: ArrayLike, b: ArrayLike, rtol: ArrayLike = ..., atol: ArrayLike = ..., equal_nan: _builtins.bool = False) -> Array:
    r"""Return whether all elements are close; see `isclose`."""
def amax(a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, keepdims: _builtins.bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None) -> Array:
    r"""Return the maximum of elements over `axis`, one dim or several (all by default); NaN propagates."""
def amin(a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, keepdims: _builtins.bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None) -> Array:
    r"""Return the minimum of elements over `axis`, one dim or several (all by default); NaN propagates."""
def angle(z: ArrayLike, deg: _builtins.bool = False) -> Array:
    r"""Return the argument of complex numbers, in radians (or degrees)."""
def any(a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, keepdims: _builtins.bool = False, *, where: ArrayLike | None = None) -> Array:
    r"""Return whether some element over `axis` is true (nonzero), as bools."""
def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> Array:
    r"""Return `arr` with `values` appended."""
def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: ArrayLike, *args: Any, **kwargs: Any) -> Array:
    r"""Return `func1d` of every 1-d slice along `axis`."""
def apply_over_axes(func: Callable[..., Any], a: ArrayLike, axes: int | Sequence[int] | None) -> Array:
    r"""Return the result of `func(a, axis)` applied successively over `axes`; dims are kept."""
def arange(start: ArrayLike, stop: ArrayLike | None = None, step: ArrayLike | None = None, dtype: DTypeLike | None = None, *, device: Device | Sharding | None = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return evenly spaced values from `start` (or 0) up to, not including, `stop`."""
def arccos(x: ArrayLike, /) -> Array:
    r"""Return the angle between 0 and pi whose cosine is `x`."""
def arccosh(x: ArrayLike, /) -> Array:
    r"""Return the non-negative number whose hyperbolic cosine is `x`."""
def arcsin(x: ArrayLike, /) -> Array:
    r"""Return the angle between -pi/2 and pi/2 whose sine is `x`."""
def arcsinh(x: ArrayLike, /) -> Array:
    r"""Return the number whose hyperbolic sine is `x`."""
def arctan(x: ArrayLike, /) -> Array:
    r"""Return the angle between -pi/2 and pi/2 whose tangent is `x`."""
def arctan2(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return the angle of the point (y, x): of `x / y`, in the right quadrant."""
def arctanh(x: ArrayLike, /) -> Array:
    r"""Return the number whose hyperbolic tangent is `x`."""
def argmax(a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, keepdims: _builtins.bool | None = None) -> Array:
    r"""Return the index of the first maximum along `axis` (of the flattened array by default); NaN counts as extreme."""
def argmin(a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, keepdims: _builtins.bool | None = None) -> Array:
    r"""Return the index of the first minimum along `axis` (of the flattened array by default); NaN counts as extreme."""
def argpartition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    r"""Return the positions of `partition`, as int32 (here: of all elements sorted)."""
def argsort(a: ArrayLike, axis: int | None = -1, *, kind: str | None = None, order: str | None = None, stable: _builtins.bool = True, descending: _builtins.bool = False, dtype: DTypeLike | None = None) -> Array:
    r"""Return the positions that sort `a` along `axis`."""
def argwhere(a: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    r"""Return the positions of nonzero elements as rows."""
def around(a: ArrayLike, decimals: int = 0, out: None = None) -> Array:
    r"""Round to `decimals` places, halves to even."""
def array(object: Any, dtype: DTypeLike | None = None, copy: _builtins.bool = True, order: str | None = 'K', ndmin: int = 0, *, device: Device | Sharding | None = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return an array of the values in `object`: a number, an array, or nested lists of them."""
def array_equal(a1: Any, a2: Any, equal_nan: _builtins.bool = False) -> Array:
    r"""Return whether shapes and all elements are equal."""
def array_equiv(a1: Any, a2: Any) -> Array:
    r"""Return whether all elements are equal after broadcasting."""
def array_repr(arr: Any, max_line_width: int | None = None, precision: int | None = None, suppress_small: _builtins.bool | None = None) -> str:
    r"""Return the text of `repr`, with NumPy's print options if given."""
def array_split(ary: ArrayLike, indices_or_sections: int | Sequence[int] | Array | np.ndarray, axis: int = 0) -> list[Array]:
    r"""Return the parts of `ary` as `split` does; the sizes of sections may differ by one."""
def array_str(a: Any, max_line_width: int | None = None, precision: int | None = None, suppress_small: _builtins.bool | None = None) -> str:
    r"""Return the text of `str`, with NumPy's print options if given."""
def asarray(a: Any, dtype: DTypeLike | None = None, order: str | None = None, *, copy: _builtins.bool | None = None, device: Device | Sharding | None = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return `a` as an array, without a copy if it is one; shapes and dtypes are as in `array`."""
def asin(x: ArrayLike, /) -> Array:
    r"""Return the angle between -pi/2 and pi/2 whose sine is `x`."""
def asinh(x: ArrayLike, /) -> Array:
    r"""Return the number whose hyperbolic sine is `x`."""
def astype(x: ArrayLike, dtype: DTypeLike | None, /, *, copy: _builtins.bool = False, device: Device | Sharding | None = None) -> Array:
    r"""Convert `x` to `dtype`; the shape is unchanged."""
def atan(x: ArrayLike, /) -> Array:
    r"""Return the angle between -pi/2 and pi/2 whose tangent is `x`."""
def atan2(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return the angle of the point (y, x): of `x / y`, in the right quadrant."""
def atanh(x: ArrayLike, /) -> Array:
    r"""Return the number whose hyperbolic tangent is `x`."""
def atleast_1d(*arys: Any) -> Any:
    r"""Return arguments with at least one dim."""
def atleast_2d(*arys: Any) -> Any:
    r"""Return arguments with at least two dims."""
def atleast_3d(*arys: Any) -> Any:
    r"""Return arguments with at least three dims."""
def bartlett(M: int) -> Array:
    r"""Return the triangular window of `M` points."""
bfloat16: _ScalarType
def bincount(x: ArrayLike, weights: ArrayLike | None = None, minlength: int = 0, *, length: int | None = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return the number of occurrences of each non-negative integer, or the sum of its weights."""
bitwise_and: _BinaryUfunc
def bitwise_count(x: ArrayLike, /) -> Array:
    r"""Return the number of one bits of |x|."""
def bitwise_invert(x: ArrayLike, /) -> Array:
    r"""Return bitwise ~x of integers; logical not of bools."""
def bitwise_left_shift(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return x << y."""
def bitwise_not(x: ArrayLike, /) -> Array:
    r"""Return bitwise ~x of integers; logical not of bools."""
bitwise_or: _BinaryUfunc
def bitwise_right_shift(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return x >> y, keeping the sign."""
bitwise_xor: _BinaryUfunc
def blackman(M: int) -> Array:
    r"""Return the Blackman window of `M` points."""
def block(arrays: Any) -> Array:
    r"""Return a matrix assembled from nested lists of blocks."""
bool: _ScalarType
bool_: _ScalarType
def broadcast_arrays(*args: Any) -> list[Array]:
    r"""Return the arguments broadcast to their common shape."""
def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    r"""Return the shape to which all of `shapes` broadcast."""
def broadcast_to(array: ArrayLike, shape: int | Sequence[SupportsIndex], *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return `array` broadcast to `shape` by NumPy's rule."""
def can_cast(from_: Any, to: Any, casting: _Casting = 'safe') -> _builtins.bool:
    r"""Return whether a dtype can be converted under a casting rule."""
def canonicalize_dtype(dtype: DTypeLike, allow_extended_dtype: _builtins.bool = True) -> np.dtype[Any]:
    r"""Return the dtype object in native byte order."""
def cbrt(x: ArrayLike, /) -> Array:
    r"""Return the cube root of `x`, with the sign of `x`."""
cdouble: _ScalarType
def ceil(x: ArrayLike, /) -> Array:
    r"""Return the smallest integer not below each element."""
def choose(a: ArrayLike, choices: Array | np.ndarray | Sequence[ArrayLike], out: None = None, mode: str = 'raise') -> Array:
    r"""Return elements of `choices`, selected by the integers in `a`; all broadcast together."""
def column_stack(tup: Array | np.ndarray | Sequence[ArrayLike]) -> Array:
    r"""Return a matrix with 1-d arrays as columns."""
complex128: _ScalarType
complex64: _ScalarType
complex_: _ScalarType
def compress(condition: ArrayLike, a: ArrayLike, axis: int | None = None, *, size: int | None = None, fill_value: ArrayLike = 0, out: None = None) -> Array:
    r"""Return the slices of `a` along `axis` where `condition` holds."""
def concat(arrays: Array | np.ndarray | Sequence[ArrayLike], axis: int | None = 0, dtype: DTypeLike | None = None) -> Array:
    r"""Return arrays joined along an existing dim (flattened first if `axis` is None)."""
def concatenate(arrays: Array | np.ndarray | Sequence[ArrayLike], axis: int | None = 0, dtype: DTypeLike | None = None) -> Array:
    r"""Return arrays joined along an existing dim (flattened first if `axis` is None)."""
def conj(x: ArrayLike, /) -> Array:
    r"""Return the complex conjugate."""
def conjugate(x: ArrayLike, /) -> Array:
    r"""Return the complex conjugate."""
def convolve(a: ArrayLike, v: ArrayLike, mode: str = 'full', *, precision: PrecisionLike | None = None, preferred_element_type: DTypeLike | None = None) -> Array:
    r"""Return the convolution of two vectors."""
def copy(a: ArrayLike, order: str | None = None) -> Array:
    r"""Return a copy of `a`, with the sharding of `a`."""
def copysign(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return |x| with the sign of y."""
def corrcoef(x: ArrayLike, y: ArrayLike | None = None, rowvar: _builtins.bool = True, dtype: DTypeLike | None = None) -> Array:
    r"""Return the matrix of correlation coefficients, in `dtype` if given."""
def correlate(a: ArrayLike, v: ArrayLike, mode: str = 'valid', *, precision: PrecisionLike | None = None, preferred_element_type: DTypeLike | None = None) -> Array:
    r"""Return the cross-correlation of two vectors."""
def cos(x: ArrayLike, /) -> Array:
    r"""Return the cosine of `x` in radians."""
def cosh(x: ArrayLike, /) -> Array:
    r"""Return the hyperbolic cosine of `x`."""
def count_nonzero(a: ArrayLike, axis: int | Sequence[int] | None = None, keepdims: _builtins.bool = False) -> Array:
    r"""Return the number of nonzero elements over `axis`."""
def cov(m: ArrayLike, y: ArrayLike | None = None, rowvar: _builtins.bool = True, bias: _builtins.bool = False, ddof: int | None = None, fweights: ArrayLike | None = None, aweights: ArrayLike | None = None, dtype: DTypeLike | None = None) -> Array:
    r"""Return the covariance matrix of variables in rows (or columns)."""
def cross(a: ArrayLike, b: ArrayLike, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Array:
    r"""Return the cross product of 3-vectors (or 2-vectors) along a dim."""
csingle: _ScalarType
def cumprod(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: None = None) -> Array:
    r"""Return the running product along `axis` (of the flattened array by default)."""
def cumsum(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: None = None) -> Array:
    r"""Return the running sum along `axis` (of the flattened array by default)."""
def cumulative_prod(x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: _builtins.bool = False) -> Array:
    r"""Return the running product along `axis`, optionally with a leading one."""
def cumulative_sum(x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: _builtins.bool = False) -> Array:
    r"""Return the running sum along `axis`, optionally with a leading zero."""
def deg2rad(x: ArrayLike, /) -> Array:
    r"""Convert degrees to radians."""
def degrees(x: ArrayLike, /) -> Array:
    r"""Convert radians to degrees."""
def delete(arr: ArrayLike, obj: slice | Sequence[int] | ArrayLike, axis: int | None = None, *, assume_unique_indices: _builtins.bool = False) -> Array:
    r"""Return `arr` without the slices at positions `obj`."""
def diag(v: ArrayLike, k: int = 0) -> Array:
    r"""Return diagonal `k` of a matrix, or the matrix with that diagonal."""
def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    r"""Return positions of the main diagonal."""
def diag_indices_from(arr: ArrayLike) -> tuple[Array, ...]:
    r"""Return positions of the main diagonal of an array whose dims are equal."""
def diagflat(v: ArrayLike, k: int = 0) -> Array:
    r"""Return a matrix with the flattened `v` on diagonal `k`."""
def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    r"""Return the diagonals of `a` in the plane of two dims, along a new last dim."""
def diff(a: ArrayLike, n: int = 1, axis: int = -1, prepend: ArrayLike | None = None, append: ArrayLike | None = None) -> Array:
    r"""Return differences of neighbors along `axis`, `n` times."""
def digitize(x: ArrayLike, bins: ArrayLike | Sequence[float] | Sequence[ArrayLike] | str, right: _builtins.bool = False, *, method: str | None = None) -> Array:
    r"""Return the index of the bin of each element."""
def divide(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return x / y, always floating."""
def divmod(x: ArrayLike, y: ArrayLike, /) -> tuple[Array, Array]:
    r"""Return `(floor_divide(x, y), remainder(x, y))`."""
def dot(a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike | None = None, preferred_element_type: DTypeLike | None = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return NumPy's dot: the product over the last dim of `a` and the second to last dim of `b`."""
double: _ScalarType
def dsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int] | Array | np.ndarray) -> list[Array]:
    r"""Return the parts of `ary` along dim 2, as `split` does."""
def dstack(tup: Array | np.ndarray | Sequence[ArrayLike], dtype: DTypeLike | None = None) -> Array:
    r"""Return arrays joined along dim 2."""
e: float
def ediff1d(ary: ArrayLike, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None) -> Array:
    r"""Return differences of neighbors in the flattened array, between `to_begin` and `to_end`."""
def einsum(subscripts: Any, /, *operands: ArrayLike, out: None = None, optimize: _builtins.bool | str | Sequence[Any] = 'auto', precision: PrecisionLike | None = None, preferred_element_type: DTypeLike | None = None, _dot_general: ArrayLike | None = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return the Einstein summation of the operands."""
def einsum_path(subscripts: Any, /, *operands: ArrayLike, optimize: _builtins.bool | str | Sequence[Any] = 'greedy') -> tuple[list[Any], str]:
    r"""Return the order in which `einsum` contracts its operands."""
def empty(shape: int | Sequence[SupportsIndex], dtype: DTypeLike | None = None, *, device: Device | Sharding | None = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return an array of zeros of `shape`, an integer or several (float32 by default)."""
def empty_like(prototype: Any, dtype: DTypeLike | None = None, shape: int | Sequence[SupportsIndex] | None = None, *, device: Device | Sharding | None = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return an array like `prototype` with unspecified values; they are zeros."""
def equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return x == y."""
euler_gamma: float
def exp(x: ArrayLike, /) -> Array:
    r"""Return e to the power `x`."""
def exp2(x: ArrayLike, /) -> Array:
    r"""Return 2 to the power `x`."""
def expand_dims(a: ArrayLike, axis: int | Sequence[int] | None) -> Array:
    r"""Return `a` with new dims of size one at positions `axis` of the result."""
def expm1(x: ArrayLike, /) -> Array:
    r"""Return `exp(x) - 1`, accurate near 0."""
def extract(condition: ArrayLike, arr: ArrayLike, *, size: int | None = None, fill_value: ArrayLike = 0) -> Array:
    r"""Return the elements of `arr` where `condition` holds."""
def eye(N: int, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None, *, device: Device | Sharding | None = None) -> Array:
    r"""Return a matrix of shape (N, M) with ones on diagonal `k` and zeros elsewhere."""
def fabs(x: ArrayLike, /) -> Array:
    r"""Return the absolute value as a float."""
def fill_diagonal(a: ArrayLike, val: ArrayLike, wrap: _builtins.bool = False, *, inplace: _builtins.bool = True) -> Array:
    r"""Return `a` with `val` on its main diagonal (a new array: pass inplace=False)."""
def fix(x: ArrayLike) -> Array:
    r"""Return the integer part of each element."""
def flatnonzero(a: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    r"""Return the positions of nonzero elements of the flattened array."""
def flip(m: ArrayLike, axis: int | Sequence[int] | None = None) -> Array:
    r"""Return `m` with the order along `axis` (all dims by default) reversed."""
def fliplr(m: ArrayLike) -> Array:
    r"""Return `m` with the order along dim 1 reversed."""
def flipud(m: ArrayLike) -> Array:
    r"""Return `m` with the order along dim 0 reversed."""
float16: _ScalarType
float32: _ScalarType
float4_e2m1fn: _ScalarType
float64: _ScalarType
float6_e2m3fn: _ScalarType
float6_e3m2fn: _ScalarType
float8_e3m4: _ScalarType
float8_e4m3: _ScalarType
float8_e4m3b11fnuz: _ScalarType
float8_e4m3fn: _ScalarType
float8_e4m3fnuz: _ScalarType
float8_e5m2: _ScalarType
float8_e5m2fnuz: _ScalarType
float8_e8m0fnu: _ScalarType
float_: _ScalarType
def float_power(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return x to the power y in floating point."""
def floor(x: ArrayLike, /) -> Array:
    r"""Return the largest integer not above each element."""
def floor_divide(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return the largest integer not above x / y."""
def fmax(x1: ArrayLike, x2: ArrayLike) -> Array:
    r"""Return the larger of `x1` and `x2`, ignoring NaN where the other is a number."""
def fmin(x1: ArrayLike, x2: ArrayLike) -> Array:
    r"""Return the smaller of `x1` and `x2`, ignoring NaN where the other is a number."""
def fmod(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return the remainder with the sign of x; bools give int32."""
def frexp(x: ArrayLike, /) -> tuple[Array, Array]:
    r"""Return mantissa in [0.5, 1) and exponent: `x == mantissa * 2**exponent`."""
def from_dlpack(x: Any, /, *, device: Device | Sharding | None = None, copy: _builtins.bool | None = None) -> Array:
    r"""Return an array from any object that supports DLPack."""
def frombuffer(buffer: Any, dtype: DTypeLike | None = ..., count: int = -1, offset: int = 0) -> Array:
    r"""Return a 1-d array from the bytes of a buffer."""
def fromfile(file: Any, dtype: DTypeLike | None = ..., count: int = -1, sep: str = '', offset: int = 0) -> Array:
    r"""Return a 1-d array from a file, as bytes or, with `sep`, as text; arguments are NumPy's."""
def fromfunction(function: Callable[..., Any], shape: int | Sequence[SupportsIndex], *, dtype: DTypeLike | None = ..., **kwargs: Any) -> Array:
    r"""Return `function` mapped over all indices of an array of `shape` by `vmap`."""
def fromiter(iter: Any, dtype: DTypeLike | None, count: int = -1) -> Array:
    r"""Return a 1-d array from an iterable."""
def fromstring(string: str, dtype: DTypeLike | None = ..., count: int = -1, *, sep: str) -> Array:
    r"""Return a 1-d array from text."""
def full(shape: int | Sequence[SupportsIndex], fill_value: ArrayLike, dtype: DTypeLike | None = None, *, device: Device | Sharding | None = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return an array of `shape` filled with `fill_value`."""
def full_like(a: Any, fill_value: ArrayLike, dtype: DTypeLike | None = None, shape: int | Sequence[SupportsIndex] | None = None, *, device: Device | Sharding | None = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return an array filled with `fill_value`."""
def gcd(x1: ArrayLike, x2: ArrayLike) -> Array:
    r"""Return greatest common divisor of integers, by Euclid's algorithm."""
def geomspace(start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: _builtins.bool = True, dtype: DTypeLike | None = None, axis: int = 0) -> Array:
    r"""Return `num` values from start to stop in geometric progression; the ends are exact."""
def get_printoptions() -> dict[str, Any]:
    r"""Return the current print options."""
def gradient(f: ArrayLike, *varargs: ArrayLike | Sequence[float], axis: int | Sequence[int] | None = None, edge_order: int | None = None) -> Any:
    r"""Return central differences along each dim (or `axis`), one-sided at the ends."""
def greater(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return x > y."""
def greater_equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return x >= y."""
def hamming(M: int) -> Array:
    r"""Return the Hamming window of `M` points."""
def hanning(M: int) -> Array:
    r"""Return the Hann window of `M` points."""
def heaviside(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return 0 where x < 0, y where x == 0, 1 where x > 0."""
def histogram(a: ArrayLike, bins: ArrayLike | Sequence[float] | Sequence[ArrayLike] | str = 10, range: Any = None, weights: ArrayLike | None = None, density: _builtins.bool | None = None) -> tuple[Array, Array]:
    r"""Return the counts (or sums of weights) of elements per bin, and the edges of the bins."""
def histogram2d(x: ArrayLike, y: ArrayLike, bins: ArrayLike | Sequence[float] | Sequence[ArrayLike] | str = 10, range: Any = None, weights: ArrayLike | None = None, density: _builtins.bool | None = None) -> tuple[Array, Array, Array]:
    r"""Return the counts of points (x, y) per cell of a grid, and the edges along x and y."""
def histogram_bin_edges(a: ArrayLike, bins: ArrayLike | Sequence[float] | Sequence[ArrayLike] | str = 10, range: Any = None, weights: ArrayLike | None = None) -> Array:
    r"""Return the edges of `bins` equal bins over the range of `a` (or the given edges)."""
def histogramdd(sample: Array | np.ndarray | Sequence[ArrayLike], bins: ArrayLike | Sequence[float] | Sequence[ArrayLike] | str = 10, range: Any = None, weights: ArrayLike | None = None, density: _builtins.bool | None = None) -> tuple[Array, list[Array]]:
    r"""Return the counts of points (rows) per cell of a grid, and the bin edges of each dim."""
def hsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int] | Array | np.ndarray) -> list[Array]:
    r"""Return the parts of `ary` along dim 1 (dim 0 of 1-d arrays), as `split` does."""
def hstack(tup: Array | np.ndarray | Sequence[ArrayLike], dtype: DTypeLike | None = None) -> Array:
    r"""Return arrays joined along dim 1; 1-d arrays along dim 0."""
def hypot(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return sqrt(x**2 + y**2) without overflow."""
def i0(x: ArrayLike) -> Array:
    r"""Return the modified Bessel function of order 0."""
def identity(n: int, dtype: DTypeLike | None = None) -> Array:
    r"""Return the identity matrix of size n."""
def imag(x: ArrayLike, /) -> Array:
    r"""Return the imaginary part."""
def indices(dimensions: Sequence[int], dtype: DTypeLike | None = None, sparse: _builtins.bool = False) -> Any:
    r"""Return index grids of an array of shape `dimensions`, stacked."""
inf: float
def inner(a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike | None = None, preferred_element_type: DTypeLike | None = None) -> Array:
    r"""Return the product over the last dims of both arrays."""
def insert(arr: ArrayLike, obj: slice | Sequence[int] | ArrayLike, values: ArrayLike | Sequence[Any], axis: int | None = None) -> Array:
    r"""Return `arr` with `values` inserted before the positions `obj`."""
int1: _ScalarType
int16: _ScalarType
int2: _ScalarType
int32: _ScalarType
int4: _ScalarType
int64: _ScalarType
int8: _ScalarType
int_: _ScalarType
def interp(x: ArrayLike, xp: ArrayLike, fp: ArrayLike, left: ArrayLike | None = None, right: ArrayLike | None = None, period: ArrayLike | None = None) -> Array:
    r"""Return the piecewise linear interpolation of the points (xp, fp) at `x`."""
def intersect1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: _builtins.bool = False, return_indices: _builtins.bool = False, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Any:
    r"""Return the sorted elements that are in both arrays."""
def invert(x: ArrayLike, /) -> Array:
    r"""Return bitwise ~x of integers; logical not of bools."""
def isclose(a: ArrayLike, b: ArrayLike, rtol: ArrayLike = ..., atol: ArrayLike = ..., equal_nan: _builtins.bool = False) -> Array:
    r"""Return whether |a - b| <= atol + rtol * |b|; random keys are compared for equality."""
def iscomplex(x: ArrayLike) -> Array:
    r"""Return whether the imaginary part is not zero."""
def iscomplexobj(x: Any) -> _builtins.bool:
    r"""Return whether the dtype, or the dtype of a list element, is complex."""
def isdtype(dtype: DTypeLike, kind: str | None) -> _builtins.bool:
    r"""Return whether a dtype is of a kind: a dtype, 'bool', 'signed integer', …, or a tuple of these."""
def isfinite(x: ArrayLike, /) -> Array:
    r"""Return whether each element is neither infinite nor NaN."""
def isin(element: ArrayLike, test_elements: ArrayLike, assume_unique: _builtins.bool = False, invert: _builtins.bool = False, *, method: str = 'auto') -> Array:
    r"""Return a mask of the elements that are among `test_elements`."""
def isinf(x: ArrayLike, /) -> Array:
    r"""Return whether each element is positive or negative infinity."""
def isnan(x: ArrayLike, /) -> Array:
    r"""Return whether each element is NaN."""
def isneginf(x: ArrayLike, /, out: None = None) -> Array:
    r"""Return whether each element is negative infinity; `out` must be None."""
def isposinf(x: ArrayLike, /, out: None = None) -> Array:
    r"""Return whether each element is positive infinity; `out` must be None."""
def isreal(x: ArrayLike) -> Array:
    r"""Return whether the imaginary part is zero."""
def isrealobj(x: Any) -> _builtins.bool:
    r"""Return whether the dtype is not complex."""
def isscalar(element: Any) -> _builtins.bool:
    r"""Return whether `element` is a number or an array of rank 0."""
def issubdtype(arg1: DTypeLike, arg2: DTypeLike) -> _builtins.bool:
    r"""Return whether dtype `arg1` belongs to `arg2`: a dtype, or an abstract type such as `wnp.floating`."""
def itemsize_bits(dtype: DTypeLike) -> int:
    r"""Return the number of bits of information in one element."""
def iterable(y: Any) -> _builtins.bool:
    r"""Return whether `y` can be iterated over."""
def ix_(*args: Any) -> tuple[Array, ...]:
    r"""Return index arrays, one per dim, that select the cross product of positions."""
def kaiser(M: int, beta: ArrayLike) -> Array:
    r"""Return the Kaiser window of `M` points and shape `beta`."""
def kron(a: ArrayLike, b: ArrayLike) -> Array:
    r"""Return the Kronecker product."""
def lcm(x1: ArrayLike, x2: ArrayLike) -> Array:
    r"""Return least common multiple of integers; 0 if either is 0."""
def ldexp(x: ArrayLike, n: ArrayLike, /) -> Array:
    r"""Return x * 2**n."""
def left_shift(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return x << y."""
def less(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return x < y."""
def less_equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return x <= y."""
def lexsort(keys: Array | np.ndarray | Sequence[ArrayLike], axis: int = -1) -> Array:
    r"""Return the positions that sort by several keys; the last key is the most significant."""
def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    r"""Read an array from a .npy or .npz file."""
def log(x: ArrayLike, /) -> Array:
    r"""Return the natural logarithm of `x`."""
def log10(x: ArrayLike, /) -> Array:
    r"""Return the logarithm to base 10."""
def log1p(x: ArrayLike, /) -> Array:
    r"""Return `log(1 + x)`, accurate near 0."""
def log2(x: ArrayLike, /) -> Array:
    r"""Return the logarithm to base 2."""
logaddexp: _BinaryUfunc
logaddexp2: _BinaryUfunc
logical_and: _BinaryUfunc
def logical_not(x: ArrayLike, /) -> Array:
    r"""Return the logical not of x, elementwise."""
logical_or: _BinaryUfunc
logical_xor: _BinaryUfunc
def logspace(start: ArrayLike, stop: ArrayLike, num: int = 50, endpoint: _builtins.bool = True, base: float = ..., dtype: DTypeLike | None = None, axis: int = 0) -> Array:
    r"""Return `num` values from base**start to base**stop, evenly spaced on a log scale."""
def mask_indices(n: int, mask_func: Callable[..., Any], k: int = 0, *, size: int | None = None) -> tuple[Array, ...]:
    r"""Return the positions that `mask_func(ones((n, n)), k)` keeps."""
def matmul(a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike | None = None, preferred_element_type: DTypeLike | None = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return the matrix product of the last two dims, broadcast over the others."""
def matrix_transpose(x: ArrayLike, /) -> Array:
    r"""Return `x` with its last two dims exchanged."""
def matvec(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    r"""Return matrix times vector, broadcast over leading dims."""
def max(a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, keepdims: _builtins.bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None) -> Array:
    r"""Return the maximum of elements over `axis`, one dim or several (all by default); NaN propagates."""
maximum: _BinaryUfunc
def mean(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: None = None, keepdims: _builtins.bool = False, *, where: ArrayLike | None = None) -> Array:
    r"""Return the arithmetic mean over `axis`, one dim or several (all of them by default)."""
def median(a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, overwrite_input: _builtins.bool = False, keepdims: _builtins.bool = False) -> Array:
    r"""Return the median of elements over `axis`."""
def meshgrid(*xi: ArrayLike, copy: _builtins.bool = True, sparse: _builtins.bool = False, indexing: str = 'xy') -> list[Array]:
    r"""Return coordinate matrices from coordinate vectors."""
def min(a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, keepdims: _builtins.bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None) -> Array:
    r"""Return the minimum of elements over `axis`, one dim or several (all by default); NaN propagates."""
minimum: _BinaryUfunc
def mod(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return x - floor(x / y) * y: the remainder with the sign of y."""
def modf(x: ArrayLike, /, out: None = None) -> tuple[Array, Array]:
    r"""Return the fractional and integral part of each element."""
def moveaxis(a: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Array:
    r"""Return `a` with dims `source` moved to positions `destination`."""
multiply: _BinaryUfunc
nan: float
def nan_to_num(x: ArrayLike, copy: _builtins.bool = True, nan: float = ..., posinf: ArrayLike | None = None, neginf: ArrayLike | None = None) -> Array:
    r"""Return `x` with NaN replaced by `nan` and infinities by `posinf` and `neginf`."""
def nanargmax(a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, keepdims: _builtins.bool | None = None) -> Array:
    r"""Return `argmax` along `axis`, ignoring NaN; -1 where all are."""
def nanargmin(a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, keepdims: _builtins.bool | None = None) -> Array:
    r"""Return `argmin` along `axis`, ignoring NaN; -1 where all are."""
def nancumprod(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: None = None) -> Array:
    r"""Return the running product along `axis` (of the flattened array by default)."""
def nancumsum(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: None = None) -> Array:
    r"""Return the running sum along `axis` (of the flattened array by default)."""
def nanmax(a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, keepdims: _builtins.bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None) -> Array:
    r"""Return `max` over `axis`, ignoring NaN; `initial`, else NaN, where all are."""
def nanmean(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: None = None, keepdims: _builtins.bool = False, where: ArrayLike | None = None) -> Array:
    r"""Return `mean` over `axis`, ignoring NaN."""
def nanmedian(a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, overwrite_input: _builtins.bool = False, keepdims: _builtins.bool = False) -> Array:
    r"""Return `median` over `axis`, ignoring NaN."""
def nanmin(a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, keepdims: _builtins.bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None) -> Array:
    r"""Return `min` over `axis`, ignoring NaN; `initial`, else NaN, where all are."""
def nanpercentile(a: ArrayLike, q: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, overwrite_input: _builtins.bool = False, method: str = 'linear', keepdims: _builtins.bool = False, *, weights: ArrayLike | None = None) -> Array:
    r"""Return `percentile` over `axis`, ignoring NaN."""
def nanprod(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: None = None, keepdims: _builtins.bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None) -> Array:
    r"""Return `prod` over `axis`, ignoring NaN."""
def nanquantile(a: ArrayLike, q: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, overwrite_input: _builtins.bool = False, method: str = 'linear', keepdims: _builtins.bool = False, *, weights: ArrayLike | None = None) -> Array:
    r"""Return `quantile` over `axis`, ignoring NaN."""
def nanstd(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: None = None, ddof: int = 0, keepdims: _builtins.bool = False, where: ArrayLike | None = None, mean: ArrayLike | None = None) -> Array:
    r"""Return `std` over `axis`, ignoring NaN."""
def nansum(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: None = None, keepdims: _builtins.bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None) -> Array:
    r"""Return `sum` over `axis`, ignoring NaN."""
def nanvar(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: None = None, ddof: int = 0, keepdims: _builtins.bool = False, where: ArrayLike | None = None, mean: ArrayLike | None = None) -> Array:
    r"""Return `var` over `axis`, ignoring NaN; NaN where at most `ddof` numbers remain."""
def ndim(a: Any) -> int:
    r"""Return the number of dims of an array-like; raise DeprecationWarning for lists."""
negative: _UnaryUfunc
newaxis: None
def nextafter(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return the next number after x toward y."""
def nonzero(a: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | tuple[int, ...] | None = None) -> tuple[Array, ...]:
    r"""Return the positions of nonzero elements, one array per dim."""
def not_equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return x != y."""
def ones(shape: int | Sequence[SupportsIndex], dtype: DTypeLike | None = None, *, device: Device | Sharding | None = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return an array of ones of `shape`, an integer or several (float32 by default)."""
def ones_like(a: Any, dtype: DTypeLike | None = None, shape: int | Sequence[SupportsIndex] | None = None, *, device: Device | Sharding | None = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return ones with the shape, dtype and sharding of `a` unless given."""
def outer(a: ArrayLike, b: ArrayLike, out: None = None) -> Array:
    r"""Return all products of elements of two flattened arrays."""
def packbits(a: ArrayLike, axis: int | None = None, bitorder: str = 'big') -> Array:
    r"""Return bytes whose bits are the elements of `a`, eight by eight along `axis`."""
def pad(array: ArrayLike, pad_width: int | Sequence[int] | Sequence[Sequence[int]] | Array | np.ndarray, mode: str | GatherScatterMode | None = 'constant', **kwargs: Any) -> Array:
    r"""Return `array` with `pad_width` elements before and after each dim, of the same dtype."""
def partition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    r"""Return the elements with the `kth` one in its sorted position (here: all sorted)."""
def percentile(a: ArrayLike, q: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, overwrite_input: _builtins.bool = False, method: str = 'linear', keepdims: _builtins.bool = False, *, weights: ArrayLike | None = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return the percentiles `q` (0 to 100) of elements over `axis`."""
def permute_dims(a: ArrayLike, /, axes: Sequence[int]) -> Array:
    r"""Return `transpose` with the given dims."""
pi: float
def piecewise(x: ArrayLike, condlist: Array | np.ndarray | Sequence[ArrayLike], funclist: Sequence[Any], *args: Any, **kw: Any) -> Array:
    r"""Return the value of the function (or constant) whose condition holds, elementwise."""
def place(arr: ArrayLike, mask: ArrayLike, vals: ArrayLike, *, inplace: _builtins.bool = True) -> Array:
    r"""Return a new array: `arr` with the values `vals`, cyclically, where `mask` holds."""
def poly(seq_of_zeros: ArrayLike) -> Array:
    r"""Return the monic polynomial with the given roots."""
def polyadd(a1: ArrayLike, a2: ArrayLike) -> Array:
    r"""Return the sum of two polynomials."""
def polyder(p: ArrayLike, m: int = 1) -> Array:
    r"""Return the derivative of order `m`."""
def polydiv(u: ArrayLike, v: ArrayLike, *, trim_leading_zeros: _builtins.bool = False) -> tuple[Array, Array]:
    r"""Return quotient and remainder of two polynomials."""
def polyfit(x: ArrayLike, y: ArrayLike, deg: int, rcond: ArrayLike | None = None, full: _builtins.bool = False, w: ArrayLike | None = None, cov: _builtins.bool = False) -> Any:
    r"""Return the coefficients of the least-squares polynomial of degree `deg` for the points."""
def polyint(p: ArrayLike, m: int = 1, k: ArrayLike | None = None) -> Array:
    r"""Return the integral of order `m`, with constants `k`."""
def polymul(a1: ArrayLike, a2: ArrayLike, *, trim_leading_zeros: _builtins.bool = False) -> Array:
    r"""Return the product of two polynomials."""
def polysub(a1: ArrayLike, a2: ArrayLike) -> Array:
    r"""Return the difference of two polynomials."""
def polyval(p: ArrayLike, x: ArrayLike, *, unroll: int = 16) -> Array:
    r"""Return the polynomial with coefficients `p` at `x`, by Horner's rule."""
def positive(x: ArrayLike, /) -> Array:
    r"""Return the value itself."""
def pow(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""See `power`."""
def power(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return x to the power y; an integer constant y is computed by repeated squaring."""
def printoptions(*args: Any, **kwargs: Any) -> Any:
    r"""Context manager for setting print options."""
def prod(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: None = None, keepdims: _builtins.bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None, promote_integers: _builtins.bool = True) -> Array:
    r"""Return the product of elements over `axis`, one dim or several (all of them by default)."""
def promote_types(a: DTypeLike, b: DTypeLike) -> np.dtype[Any]:
    r"""Return the dtype to which both are promoted; Python's int, float and complex stand for weak numbers."""
def ptp(a: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, keepdims: _builtins.bool = False) -> Array:
    r"""Return maximum minus minimum over `axis`."""
def put(a: ArrayLike, ind: ArrayLike, v: ArrayLike, mode: str | None = None, *, inplace: _builtins.bool = True) -> Array:
    r"""Return `a` with values `v` at flat positions `ind` (a new array: pass inplace=False)."""
def put_along_axis(arr: ArrayLike, indices: ArrayLike, values: ArrayLike, axis: int | None, inplace: _builtins.bool = True, *, mode: str | GatherScatterMode | None = None) -> Array:
    r"""Return a new array: `arr` with `values` written along `axis` at `indices`."""
def quantile(a: ArrayLike, q: ArrayLike, axis: int | Sequence[int] | None = None, out: None = None, overwrite_input: _builtins.bool = False, method: str = 'linear', keepdims: _builtins.bool = False, *, weights: ArrayLike | None = None) -> Array:
    r"""Return the quantiles `q` (0 to 1) of elements over `axis`; NaN if any element is NaN."""
def rad2deg(x: ArrayLike, /) -> Array:
    r"""Convert radians to degrees."""
def radians(x: ArrayLike, /) -> Array:
    r"""Convert degrees to radians."""
def ravel(a: ArrayLike, order: str = 'C', *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return `a` as one dim, row-major or (`order="F"`) column-major."""
def ravel_multi_index(multi_index: Sequence[ArrayLike], dims: Sequence[int], mode: str = 'raise', order: str = 'C', *, dtype: DTypeLike | None = None) -> Array:
    r"""Return positions per dim as flat positions."""
def real(x: ArrayLike, /) -> Array:
    r"""Return the real part."""
def reciprocal(x: ArrayLike, /) -> Array:
    r"""Return 1 / x, always floating."""
def remainder(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return x - floor(x / y) * y: the remainder with the sign of y."""
def repeat(a: ArrayLike, repeats: ArrayLike | Sequence[int], axis: int | None = None, *, total_repeat_length: int | None = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return each element (or slice along `axis`) repeated `repeats` times."""
def reshape(a: ArrayLike, shape: int | Sequence[SupportsIndex], order: str = 'C', *, copy: _builtins.bool | None = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return `a` with the same elements in row-major order and another shape."""
def resize(a: ArrayLike, new_shape: int | Sequence[int]) -> Array:
    r"""Return the elements of `a`, repeated or cut to fill `new_shape`."""
def right_shift(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return x >> y, keeping the sign."""
def rint(x: ArrayLike, /) -> Array:
    r"""Return the nearest integer as a float, halves to even."""
def roll(a: ArrayLike, shift: ArrayLike | Sequence[int], axis: int | Sequence[int] | None = None) -> Array:
    r"""Return `a` with elements shifted cyclically along `axis` by `shift`."""
def rollaxis(a: ArrayLike, axis: int, start: int = 0) -> Array:
    r"""Return `a` with dim `axis` moved before position `start`."""
def roots(p: ArrayLike, *, strip_zeros: _builtins.bool = True) -> Array:
    r"""Return the roots of a polynomial; coefficients must be concrete unless strip_zeros is False."""
def rot90(m: ArrayLike, k: int = 1, axes: tuple[int, int] = ...) -> Array:
    r"""Return `m` rotated by `k` quarter turns in the plane of `axes`."""
def round(a: ArrayLike, decimals: int = 0, out: None = None) -> Array:
    r"""Round to `decimals` places, halves to even."""
def save(file: Any, arr: ArrayLike, allow_pickle: _builtins.bool = True) -> None:
    r"""Write an array to a .npy file."""
def savez(file: Any, *args: Any, allow_pickle: _builtins.bool = True, **kwds: Any) -> None:
    r"""Write arrays to a .npz file."""
def scalar_type_of(x: ArrayLike) -> type[Any]:
    r"""Return the Python type of an element: bool, int, float or complex."""
def searchsorted(a: ArrayLike, v: ArrayLike, side: str = 'left', sorter: ArrayLike | None = None, *, method: str = 'scan') -> Array:
    r"""Return the positions at which `v` can be inserted into sorted `a`, by bisection."""
def select(condlist: Array | np.ndarray | Sequence[ArrayLike], choicelist: Sequence[ArrayLike], default: ArrayLike = 0) -> Array:
    r"""Return the first choice whose condition holds, elementwise."""
def set_printoptions(precision: PrecisionLike | None = None, threshold: ArrayLike | None = None, edgeitems: ArrayLike | None = None, linewidth: ArrayLike | None = None, suppress: ArrayLike | None = None, nanstr: ArrayLike | None = None, infstr: ArrayLike | None = None, formatter: ArrayLike | None = None, sign: ArrayLike | None = None, floatmode: ArrayLike | None = None, *, legacy: ArrayLike | None = None, override_repr: ArrayLike | None = None) -> None:
    r"""Set printing options."""
def setdiff1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: _builtins.bool = False, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    r"""Return the sorted elements of the first array that are not in the second."""
def setxor1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: _builtins.bool = False, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    r"""Return the sorted elements that are in exactly one of two arrays."""
def shape(a: Any) -> tuple[int, ...]:
    r"""Return the shape of an array-like; raise DeprecationWarning for lists."""
def sign(x: ArrayLike, /) -> Array:
    r"""Return -1, 0 or 1 by the sign of each element."""
def signbit(x: ArrayLike, /) -> Array:
    r"""Return whether the sign bit is set."""
def sin(x: ArrayLike, /) -> Array:
    r"""Return the sine of `x` in radians."""
def sinc(x: ArrayLike, /) -> Array:
    r"""Return sin(pi x) / (pi x), 1 at 0."""
single: _ScalarType
def sinh(x: ArrayLike, /) -> Array:
    r"""Return the hyperbolic sine of `x`."""
def size(a: Any, axis: int | Sequence[int] | None = None) -> int:
    r"""Return the number of elements of an array-like, or the product of the sizes of some dims."""
def sort(a: ArrayLike, axis: int | None = -1, *, kind: str | None = None, order: str | None = None, stable: _builtins.bool = True, descending: _builtins.bool = False) -> Array:
    r"""Return the elements in ascending (or descending) order along `axis`; NaN last."""
def sort_complex(a: ArrayLike) -> Array:
    r"""Return `a` sorted along the last dim, as complex numbers."""
def spacing(x: ArrayLike, /) -> Array:
    r"""Return the distance to the next number away from zero, with the sign of x."""
def split(ary: ArrayLike, indices_or_sections: int | Sequence[int] | Array | np.ndarray, axis: int = 0) -> list[Array]:
    r"""Return the parts of `ary` along `axis`, in equal sections or split at the given indices."""
def sqrt(x: ArrayLike, /) -> Array:
    r"""Return the square root of `x`."""
def square(x: ArrayLike, /) -> Array:
    r"""Return the square of each element."""
def squeeze(a: ArrayLike, axis: int | Sequence[int] | None = None) -> Array:
    r"""Return `a` without its dims of size one: all of them, or those in `axis`."""
def stack(arrays: Array | np.ndarray | Sequence[ArrayLike], axis: int = 0, out: None = None, dtype: DTypeLike | None = None) -> Array:
    r"""Return arrays of one shape joined along a new dim, `axis` of the result."""
def std(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: None = None, ddof: int = 0, keepdims: _builtins.bool = False, *, where: ArrayLike | None = None, mean: ArrayLike | None = None, correction: ArrayLike | None = None) -> Array:
    r"""Return the standard deviation over `axis`."""
subtract: _BinaryUfunc
def sum(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: None = None, keepdims: _builtins.bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None, promote_integers: _builtins.bool = True) -> Array:
    r"""Return the sum of elements over `axis`, one dim or several (all of them by default)."""
def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Array:
    r"""Return `a` with two dims exchanged."""
def take(a: ArrayLike, indices: ArrayLike, axis: int | None = None, out: None = None, mode: str | None = None, unique_indices: _builtins.bool = False, indices_are_sorted: _builtins.bool = False, fill_value: ArrayLike | None = None) -> Array:
    r"""Return elements (or slices along `axis`) at `indices`."""
def take_along_axis(arr: ArrayLike, indices: ArrayLike, axis: int | None = -1, mode: str | GatherScatterMode | None = None, fill_value: ArrayLike | None = None, *, wrap_negative_indices: _builtins.bool | None = None) -> Array:
    r"""Return elements along `axis` at positions in an array of the same rank."""
def tan(x: ArrayLike, /) -> Array:
    r"""Return the tangent of `x` in radians."""
def tanh(x: ArrayLike, /) -> Array:
    r"""Return the hyperbolic tangent of `x`."""
def tensordot(a: ArrayLike, b: ArrayLike, axes: int | Sequence[Any] = 2, *, precision: PrecisionLike | None = None, preferred_element_type: DTypeLike | None = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return the product over chosen dims of both arrays."""
def tile(A: ArrayLike, reps: ArrayLike | Sequence[int]) -> Array:
    r"""Return `A` repeated `reps` times along each dim."""
def trace(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike | None = None, out: None = None) -> Array:
    r"""Return the sum of the diagonal `offset` in the plane of two dims, in the dtype of `sum`."""
def transpose(a: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    r"""Return `a` with its dims permuted (reversed by default)."""
def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: float = ..., axis: int = -1) -> Array:
    r"""Return the integral of samples `y` by the trapezoidal rule."""
def tri(N: int, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None) -> Array:
    r"""Return a matrix with ones at and below diagonal `k`."""
def tril(m: ArrayLike, k: int = 0) -> Array:
    r"""Return the lower triangle of matrices, with zeros above diagonal `k`."""
def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    r"""Return the positions of the lower triangle of an n by m matrix."""
def tril_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    r"""Return positions of the lower triangle of a matrix."""
def trim_zeros(filt: Any, trim: str = 'fb', axis: int | Sequence[int] | None = None) -> Array:
    r"""Return an array without leading ('f') and trailing ('b') zero slices along `axis` (all dims)."""
def triu(m: ArrayLike, k: int = 0) -> Array:
    r"""Return the upper triangle of matrices, with zeros below diagonal `k`."""
def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    r"""Return positions of the upper triangle of an n by m matrix."""
def triu_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    r"""Return positions of the upper triangle of a matrix."""
def true_divide(x: ArrayLike, y: ArrayLike, /) -> Array:
    r"""Return x / y, always floating."""
def trunc(x: ArrayLike) -> Array:
    r"""Return the integer part of each element."""
uint: _ScalarType
uint1: _ScalarType
uint16: _ScalarType
uint2: _ScalarType
uint32: _ScalarType
uint4: _ScalarType
uint64: _ScalarType
uint8: _ScalarType
def union1d(ar1: ArrayLike, ar2: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    r"""Return the sorted elements that are in either array."""
def unique_all(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> UniqueAll:
    r"""Return distinct elements with indices, inverse and counts."""
def unique_counts(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> UniqueCounts:
    r"""Return distinct elements with counts."""
def unique_inverse(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> UniqueInverse:
    r"""Return distinct elements with the inverse."""
def unique_values(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    r"""Return the sorted distinct elements."""
def unpackbits(a: ArrayLike, axis: int | None = None, count: int | None = None, bitorder: str = 'big') -> Array:
    r"""Return the bits of bytes as elements 0 and 1 along `axis`."""
def unravel_index(indices: ArrayLike, shape: int | Sequence[SupportsIndex]) -> tuple[Array, ...]:
    r"""Return flat positions as positions per dim."""
def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Array, ...]:
    r"""Return the slices of `x` along `axis`, without that dim."""
def unwrap(p: ArrayLike, discont: ArrayLike | None = None, axis: int = -1, period: ArrayLike = ...) -> Array:
    r"""Return phases without jumps of more than half a `period` along `axis`."""
def vander(x: ArrayLike, N: int | None = None, increasing: _builtins.bool = False) -> Array:
    r"""Return the matrix whose columns are powers of `x`."""
def var(a: ArrayLike, axis: int | Sequence[int] | None = None, dtype: DTypeLike | None = None, out: None = None, ddof: int = 0, keepdims: _builtins.bool = False, *, where: ArrayLike | None = None, mean: ArrayLike | None = None, correction: ArrayLike | None = None) -> Array:
    r"""Return the variance over `axis`; the divisor is the number of elements minus `ddof`."""
def vdot(a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike | None = None, preferred_element_type: DTypeLike | None = None) -> Array:
    r"""Return the dot product of flattened arrays; the first one is conjugated."""
def vecdot(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1, precision: PrecisionLike | None = None, preferred_element_type: DTypeLike | None = None) -> Array:
    r"""Return dot products along `axis`, broadcast over the other dims."""
def vecmat(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    r"""Return conjugated vector times matrix, broadcast over leading dims."""
def vectorize(pyfunc: Callable[..., Any], *, excluded: Any = ..., signature: str | None = None) -> Callable[..., Any]:
    r"""Return `pyfunc`, a function of scalars, mapped over broadcast arguments."""
def vsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int] | Array | np.ndarray) -> list[Array]:
    r"""Return the parts of `ary` along dim 0, as `split` does."""
def vstack(tup: Array | np.ndarray | Sequence[ArrayLike], dtype: DTypeLike | None = None) -> Array:
    r"""Return arrays joined along dim 0; 1-d arrays are rows."""
def zeros(shape: int | Sequence[SupportsIndex], dtype: DTypeLike | None = None, *, device: Device | Sharding | None = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return an array of zeros of `shape`, an integer or several (float32 by default)."""
def zeros_like(a: Any, dtype: DTypeLike | None = None, shape: int | Sequence[SupportsIndex] | None = None, *, device: Device | Sharding | None = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return zeros with the shape, dtype and sharding of `a` unless given."""

__all__ = [
    "ComplexWarning", "TypePromotionError", "__array_namespace_info__", "abs", "absolute", "acos",
    "acosh", "add", "all", "allclose", "amax", "amin", "angle", "any", "append",
    "apply_along_axis", "apply_over_axes", "arange", "arccos", "arccosh", "arcsin", "arcsinh",
    "arctan", "arctan2", "arctanh", "argmax", "argmin", "argpartition", "argsort", "argwhere",
    "around", "array", "array_equal", "array_equiv", "array_repr", "array_split", "array_str",
    "asarray", "asin", "asinh", "astype", "atan", "atan2", "atanh", "atleast_1d", "atleast_2d",
    "atleast_3d", "average", "bartlett", "bfloat16", "bincount", "bitwise_and", "bitwise_count",
    "bitwise_invert", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "blackman", "block", "bool", "bool_", "broadcast_arrays", "broadcast_shapes",
    "broadcast_to", "c_", "can_cast", "canonicalize_dtype", "cbrt", "cdouble", "ceil", "character",
    "choose", "clip", "column_stack", "complex128", "complex64", "complex_", "complexfloating",
    "compress", "concat", "concatenate", "conj", "conjugate", "convolve", "copy", "copysign",
    "corrcoef", "correlate", "cos", "cosh", "count_nonzero", "cov", "cross", "csingle", "cumprod",
    "cumsum", "cumulative_prod", "cumulative_sum", "deg2rad", "degrees", "delete", "diag",
    "diag_indices", "diag_indices_from", "diagflat", "diagonal", "diff", "digitize", "divide",
    "divmod", "dot", "double", "dsplit", "dstack", "dtype", "e", "ediff1d", "einsum",
    "einsum_path", "empty", "empty_like", "equal", "euler_gamma", "exp", "exp2", "expand_dims",
    "expm1", "extended", "extract", "eye", "fabs", "fft", "fill_diagonal", "finfo", "fix",
    "flatnonzero", "flexible", "flip", "fliplr", "flipud", "float0", "float16", "float32",
    "float4_e2m1fn", "float64", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3",
    "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
    "float8_e8m0fnu", "float_", "float_power", "floating", "floor", "floor_divide", "fmax", "fmin",
    "fmod", "frexp", "from_dlpack", "frombuffer", "fromfile", "fromfunction", "fromiter",
    "frompyfunc", "fromstring", "full", "full_like", "gcd", "generic", "geomspace",
    "get_printoptions", "gradient", "greater", "greater_equal", "hamming", "hanning", "heaviside",
    "histogram", "histogram2d", "histogram_bin_edges", "histogramdd", "hsplit", "hstack", "hypot",
    "i0", "identity", "iinfo", "imag", "index_exp", "indices", "inexact", "inf", "inner", "insert",
    "int1", "int16", "int2", "int32", "int4", "int64", "int8", "int_", "integer", "interp",
    "intersect1d", "invert", "isclose", "iscomplex", "iscomplexobj", "isdtype", "isfinite", "isin",
    "isinf", "isnan", "isneginf", "isposinf", "isreal", "isrealobj", "isscalar", "issubdtype",
    "itemsize_bits", "iterable", "ix_", "kaiser", "kron", "lcm", "ldexp", "left_shift", "less",
    "less_equal", "lexsort", "linalg", "linspace", "load", "log", "log10", "log1p", "log2",
    "logaddexp", "logaddexp2", "logical_and", "logical_not", "logical_or", "logical_xor",
    "logspace", "mask_indices", "matmul", "matrix_transpose", "matvec", "max", "maximum", "mean",
    "median", "meshgrid", "mgrid", "min", "minimum", "mod", "modf", "moveaxis", "multiply", "nan",
    "nan_to_num", "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean",
    "nanmedian", "nanmin", "nanpercentile", "nanprod", "nanquantile", "nanstd", "nansum", "nanvar",
    "ndarray", "ndim", "negative", "newaxis", "nextafter", "nonzero", "not_equal", "number",
    "object_", "ogrid", "ones", "ones_like", "outer", "packbits", "pad", "partition", "percentile",
    "permute_dims", "pi", "piecewise", "place", "poly", "polyadd", "polyder", "polydiv", "polyfit",
    "polyint", "polymul", "polysub", "polyval", "positive", "pow", "power", "printoptions",
    "prng_key", "prod", "promote_types", "ptp", "put", "put_along_axis", "quantile", "r_",
    "rad2deg", "radians", "ravel", "ravel_multi_index", "real", "reciprocal", "remainder",
    "repeat", "reshape", "resize", "result_type", "right_shift", "rint", "roll", "rollaxis",
    "roots", "rot90", "round", "s_", "save", "savez", "scalar_type_of", "searchsorted", "select",
    "set_printoptions", "setdiff1d", "setxor1d", "shape", "sign", "signbit", "signedinteger",
    "sin", "sinc", "single", "sinh", "size", "sort", "sort_complex", "spacing", "split", "sqrt",
    "square", "squeeze", "stack", "std", "subtract", "sum", "swapaxes", "take", "take_along_axis",
    "tan", "tanh", "tensordot", "tile", "trace", "transpose", "trapezoid", "tri", "tril",
    "tril_indices", "tril_indices_from", "trim_zeros", "triu", "triu_indices", "triu_indices_from",
    "true_divide", "trunc", "ufunc", "uint", "uint1", "uint16", "uint2", "uint32", "uint4",
    "uint64", "uint8", "union1d", "unique", "unique_all", "unique_counts", "unique_inverse",
    "unique_values", "unpackbits", "unravel_index", "unsignedinteger", "unstack", "unwrap",
    "vander", "var", "vdot", "vecdot", "vecmat", "vectorize", "vsplit", "vstack", "where", "zeros",
    "zeros_like",
]
