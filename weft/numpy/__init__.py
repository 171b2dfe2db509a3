"""NumPy's API on global arrays: `import weft.numpy as wnp`.

Functions are loaded on first use, each from the module that `_NAMES_OF` gives; the stub next to this file lists the names for type checkers
(`python -m weft.tools.stubs` writes it). `eager` compiles calls on values. Dtypes, constants, and the methods of arrays are there from
the beginning.
"""

import sys as _sys
from typing import Any as _Any

import numpy as _np

from weft._engine.numpy import eager as _eager, methods as _methods
from weft._engine.ops import functions as _functions
from weft._engine.runtime.array import Array as ndarray
from weft._engine.util import dtypes as _dtypes
from weft._engine.util.dtypes import finfo, iinfo, isdtype, promote_types, result_type
from weft._engine.util.lazy import (
    LazyModule as _LazyModule,
    import_module as _import_module,
    missing_name as _missing_name,
    report_module as _report_module,
)
from weft._engine.util.source import guard as _guarded, guard_all as _guard_all
from weft.dtypes import (
    TypePromotionError,
    canonicalize_dtype,
    extended,
    float0,
    itemsize_bits,
    prng_key,
    scalar_type_of,
)

#: module of `weft._engine.numpy` -> the public functions that live there: `k: names`, where a call on values is one compiled program of
#: `k` arrays (0: the function itself is called)
_NAMES_OF = {
    "bits": {0: "apply_over_axes packbits piecewise sort_complex unpackbits unwrap"},
    "selection": {
        0: "clip delete diagflat flatnonzero insert nonzero put_along_axis select take",
        1: "diag diagonal trace",
        2: "take_along_axis",
    },
    "composed": {
        0: "apply_along_axis ediff1d geomspace gradient logspace trapezoid vectorize",
        1: "around diff round",
        2: "convolve correlate polyval",
        3: "interp",
    },
    "creation": {
        0: """
            arange array asarray empty empty_like eye from_dlpack frombuffer fromfile fromfunction fromiter fromstring full full_like
            identity indices linspace meshgrid ones ones_like tri zeros zeros_like
        """,
        1: "copy tril triu",
    },
    "eager_choice": {0: "astype pow power where"},
    "facts": {
        0: "array_repr array_str can_cast iscomplexobj isrealobj isscalar issubdtype load ndim save savez shape size"
    },
    "float_parts": {0: "frexp spacing", 1: "nan_to_num", 2: "ldexp"},
    "grids": {
        0: """
            c_ diag_indices diag_indices_from fill_diagonal index_exp iterable ix_ mask_indices mgrid ogrid place put r_ s_
            tril_indices tril_indices_from triu_indices triu_indices_from
        """,
    },
    "integers": {0: "gcd lcm"},
    "manipulation": {
        0: """
            append array_split atleast_1d atleast_2d atleast_3d block broadcast_arrays column_stack dsplit dstack hsplit
            rollaxis split unstack vsplit
        """,
        1: """
            broadcast_to concat concatenate expand_dims flip fliplr flipud hstack matrix_transpose moveaxis permute_dims ravel
            reshape roll rot90 squeeze stack swapaxes transpose vstack
        """,
    },
    "array_api_info": {0: "__array_namespace_info__"},
    "padding": {0: "pad"},
    "polynomials": {
        0: """
            bartlett blackman hamming hanning kaiser poly polyadd polyder polydiv polyfit polyint polymul polysub roots
            trim_zeros vander
        """,
    },
    "products": {
        0: "einsum einsum_path matvec vecmat",
        2: "cross dot inner kron matmul outer tensordot vdot vecdot",
    },
    "promote": {0: "broadcast_shapes"},
    "reductions": {
        0: "array_equiv average cumulative_prod cumulative_sum nanargmax nanargmin nancumprod nancumsum",
        1: """
            all amax amin any argmax argmin count_nonzero cumprod cumsum max mean min nanmax nanmean nanmin nanprod nanstd
            nansum nanvar prod ptp std sum var
        """,
        2: "allclose array_equal",
    },
    "repetition": {0: "repeat resize", 1: "tile"},
    "sets": {
        0: """
            intersect1d setdiff1d setxor1d union1d unique unique_all unique_counts unique_inverse unique_values
        """,
    },
    "sorting": {
        0: """
            argpartition argwhere bincount choose compress digitize extract lexsort partition ravel_multi_index unravel_index
        """,
        1: "argsort sort",
        2: "isin searchsorted",
    },
    "statistics": {
        0: """
            corrcoef cov histogram histogram2d histogram_bin_edges histogramdd nanmedian nanpercentile nanquantile percentile
            quantile
        """,
        1: "median",
    },
    "ufunc_type": {0: "frompyfunc ufunc"},
    "ufuncs": {
        0: "bitwise_count bitwise_invert fabs i0 iscomplex isreal modf reciprocal",
        1: """
            abs absolute acos acosh angle arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh bitwise_not cbrt
            ceil conj conjugate cos cosh deg2rad degrees exp exp2 expm1 fix floor imag invert isfinite isinf isnan isneginf
            isposinf log log10 log1p log2 logical_not negative positive rad2deg radians real rint sign signbit sin sinc sinh
            sqrt square tan tanh trunc
        """,
        2: """
            add arctan2 atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide divmod
            equal float_power floor_divide fmax fmin fmod greater greater_equal heaviside hypot isclose left_shift less
            less_equal logaddexp logaddexp2 logical_and logical_or logical_xor maximum minimum mod multiply nextafter not_equal
            remainder right_shift subtract true_divide
        """,
    },
}

_LAZY_NAMES = {
    name: (module, arrays)
    for module, groups in _NAMES_OF.items()
    for arrays, names in groups.items()
    for name in names.split()
}
_SUBMODULES = ("fft", "linalg")

__array_api_version__ = "2024.12"
pi, e, euler_gamma, inf, nan, newaxis = _np.pi, _np.e, _np.euler_gamma, _np.inf, _np.nan, None
# bool, int8, ..., float32, complex64: dtypes that make arrays when called
globals().update(_dtypes.scalar_types)
_scalar = _dtypes.scalar_types
bool_, int_, uint, float_, complex_ = (
    _scalar["bool"],
    _scalar["int64"],
    _scalar["uint64"],
    _scalar["float64"],
    _scalar["complex128"],
)
single, double, csingle, cdouble = (
    _scalar["float32"],
    _scalar["float64"],
    _scalar["complex64"],
    _scalar["complex128"],
)
(
    generic,
    number,
    integer,
    signedinteger,
    unsignedinteger,
    inexact,
    floating,
    complexfloating,
    character,
    object_,
) = (
    _np.generic,
    _np.number,
    _np.integer,
    _np.signedinteger,
    _np.unsignedinteger,
    _np.inexact,
    _np.floating,
    _np.complexfloating,
    _np.character,
    _np.object_,
)
flexible, ComplexWarning = _np.flexible, _np.exceptions.ComplexWarning
set_printoptions, get_printoptions, printoptions = (
    _np.set_printoptions,
    _np.get_printoptions,
    _np.printoptions,
)

_PUBLIC = {
    "dtype",
    *_LAZY_NAMES,
    *_SUBMODULES,
    *[name for name in globals() if name[0] != "_" and f"weft.numpy.{name}" not in _sys.modules],
}


def __getattr__(name: str) -> _Any:
    """Load a public function or submodule on first use."""
    if name in _LAZY_NAMES:
        module, arrays = _LAZY_NAMES[name]
        value = getattr(_import_module(f"weft._engine.numpy.{module}"), name)
        if module != "eager_choice":  # whose functions call wrapped ones
            value = _eager.eager(value, arrays, name) if arrays else _guarded(value, __name__, name)
    elif name == "dtype":
        _dtypes.load_small()  # after this NumPy knows "bfloat16" by name
        value = _np.dtype
    elif name in _SUBMODULES:
        value = _import_module(f"weft.numpy.{name}")
    elif _dtypes.dtypes_by_name[name] is not None:
        value = _scalar[name]  # bfloat16, int4, ...: ml_dtypes is loaded at first use
    elif name == "__all__":
        value = sorted(
            {
                *_PUBLIC,
                *[name for name in _dtypes.small_names if _dtypes.dtypes_by_name[name] is not None],
            }
        )
    elif (function := _functions.named_by_numpy(name)) is not None:
        value = _eager.eager(
            getattr(_import_module("weft._engine.numpy.ufuncs"), name), function.arity, name
        )
    else:
        raise _missing_name(__name__, name)
    _report_module(value, __name__)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __getattr__("__all__")


_guard_all(
    globals(),
    "canonicalize_dtype isdtype itemsize_bits promote_types result_type scalar_type_of".split(),
)
_methods.attach(_sys.modules[__name__])
_sys.modules[__name__].__class__ = _LazyModule
