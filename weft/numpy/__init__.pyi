"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from typing import Any
from weft._engine.numpy.array_api_info import __array_namespace_info__
from weft._engine.numpy.bits import (
    apply_over_axes, packbits, piecewise, sort_complex, unpackbits, unwrap,
)
from weft._engine.numpy.composed import (
    apply_along_axis, around, convolve, correlate, diff, ediff1d, geomspace, gradient, interp,
    logspace, polyval, round, trapezoid, vectorize,
)
from weft._engine.numpy.creation import (
    arange, array, asarray, copy, empty, empty_like, eye, from_dlpack, frombuffer, fromfile,
    fromfunction, fromiter, fromstring, full, full_like, identity, indices, linspace, meshgrid,
    ones, ones_like, tri, tril, triu, zeros, zeros_like,
)
from weft._engine.numpy.eager_choice import astype, pow, power, where
from weft._engine.numpy.facts import (
    array_repr, array_str, can_cast, iscomplexobj, isrealobj, isscalar, issubdtype, load, ndim,
    save, savez, shape, size,
)
from weft._engine.numpy.float_parts import frexp, ldexp, nan_to_num, spacing
from weft._engine.numpy.grids import (
    c_, diag_indices, diag_indices_from, fill_diagonal, index_exp, iterable, ix_, mask_indices,
    mgrid, ogrid, place, put, r_, s_, tril_indices, tril_indices_from, triu_indices,
    triu_indices_from,
)
from weft._engine.numpy.integers import gcd, lcm
from weft._engine.numpy.manipulation import (
    append, array_split, atleast_1d, atleast_2d, atleast_3d, block, broadcast_arrays, broadcast_to,
    column_stack, concat, concatenate, dsplit, dstack, expand_dims, flip, fliplr, flipud, hsplit,
    hstack, matrix_transpose, moveaxis, permute_dims, ravel, reshape, roll, rollaxis, rot90, split,
    squeeze, stack, swapaxes, transpose, unstack, vsplit, vstack,
)
from weft._engine.numpy.padding import pad
from weft._engine.numpy.polynomials import (
    bartlett, blackman, hamming, hanning, kaiser, poly, polyadd, polyder, polydiv, polyfit,
    polyint, polymul, polysub, roots, trim_zeros, vander,
)
from weft._engine.numpy.products import (
    cross, dot, einsum, einsum_path, inner, kron, matmul, matvec, outer, tensordot, vdot, vecdot,
    vecmat,
)
from weft._engine.numpy.promote import broadcast_shapes
from weft._engine.numpy.reductions import (
    all, allclose, amax, amin, any, argmax, argmin, array_equal, array_equiv, average,
    count_nonzero, cumprod, cumsum, cumulative_prod, cumulative_sum, max, mean, min, nanargmax,
    nanargmin, nancumprod, nancumsum, nanmax, nanmean, nanmin, nanprod, nanstd, nansum, nanvar,
    prod, ptp, std, sum, var,
)
from weft._engine.numpy.repetition import repeat, resize, tile
from weft._engine.numpy.selection import (
    clip, delete, diag, diagflat, diagonal, flatnonzero, insert, nonzero, put_along_axis, select,
    take, take_along_axis, trace,
)
from weft._engine.numpy.sets import (
    intersect1d, setdiff1d, setxor1d, union1d, unique, unique_all, unique_counts, unique_inverse,
    unique_values,
)
from weft._engine.numpy.sorting import (
    argpartition, argsort, argwhere, bincount, choose, compress, digitize, extract, isin, lexsort,
    partition, ravel_multi_index, searchsorted, sort, unravel_index,
)
from weft._engine.numpy.statistics import (
    corrcoef, cov, histogram, histogram2d, histogram_bin_edges, histogramdd, median, nanmedian,
    nanpercentile, nanquantile, percentile, quantile,
)
from weft._engine.numpy.ufunc_type import frompyfunc, ufunc
from weft._engine.numpy.ufuncs import (
    abs, absolute, acos, acosh, add, angle, arccos, arccosh, arcsin, arcsinh, arctan, arctan2,
    arctanh, asin, asinh, atan, atan2, atanh, bitwise_and, bitwise_count, bitwise_invert,
    bitwise_left_shift, bitwise_not, bitwise_or, bitwise_right_shift, bitwise_xor, cbrt, ceil,
    conj, conjugate, copysign, cos, cosh, deg2rad, degrees, divide, divmod, equal, exp, exp2,
    expm1, fabs, fix, float_power, floor, floor_divide, fmax, fmin, fmod, greater, greater_equal,
    heaviside, hypot, i0, imag, invert, isclose, iscomplex, isfinite, isinf, isnan, isneginf,
    isposinf, isreal, left_shift, less, less_equal, log, log10, log1p, log2, logaddexp, logaddexp2,
    logical_and, logical_not, logical_or, logical_xor, maximum, minimum, mod, modf, multiply,
    negative, nextafter, not_equal, positive, rad2deg, radians, real, reciprocal, remainder,
    right_shift, rint, sign, signbit, sin, sinc, sinh, sqrt, square, subtract, tan, tanh,
    true_divide, trunc,
)
from weft._engine.runtime.array import Array as ndarray
from weft._engine.util.dtypes import finfo, float0, iinfo, isdtype
from weft._engine.util.promotion import promote_types, result_type
from weft.dtypes import (
    canonicalize_dtype, extended, itemsize_bits, prng_key, scalar_type_of,
)
from weft.errors import TypePromotionError
from weft.numpy import fft, linalg

ComplexWarning: Any
bfloat16: Any
bool: Any
bool_: Any
cdouble: Any
character: Any
complex128: Any
complex64: Any
complex_: Any
complexfloating: Any
csingle: Any
double: Any
dtype: Any
e: float
euler_gamma: float
flexible: Any
float16: Any
float32: Any
float4_e2m1fn: Any
float64: Any
float6_e2m3fn: Any
float6_e3m2fn: Any
float8_e3m4: Any
float8_e4m3: Any
float8_e4m3b11fnuz: Any
float8_e4m3fn: Any
float8_e4m3fnuz: Any
float8_e5m2: Any
float8_e5m2fnuz: Any
float8_e8m0fnu: Any
float_: Any
floating: Any
generic: Any
get_printoptions: Any
inexact: Any
inf: float
int1: Any
int16: Any
int2: Any
int32: Any
int4: Any
int64: Any
int8: Any
int_: Any
integer: Any
nan: float
newaxis: None
number: Any
object_: Any
pi: float
printoptions: Any
set_printoptions: Any
signedinteger: Any
single: Any
uint: Any
uint1: Any
uint16: Any
uint2: Any
uint32: Any
uint4: Any
uint64: Any
uint8: Any
unsignedinteger: Any

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
