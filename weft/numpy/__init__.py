"""NumPy's API on global arrays: `import weft.numpy as wnp`.

Functions are loaded on first use, each with the module that `_NAMES_OF` says (the stub beside this file tells type checkers the
same); what they are wrapped in says `eager`. Dtypes, constants, and the methods of arrays are there from the beginning.
"""

import importlib as _importlib
import sys as _sys

import numpy as _np

from weft.dtypes import (
    TypePromotionError,
    canonicalize_dtype,
    extended,
    float0,
    itemsize_bits,
    prng_key,
    scalar_type_of,
)
from weft.numpy import eager as _eager, methods as _methods
from weft.runtime.array import Array as ndarray
from weft.util import dtypes as _dtypes
from weft.util.dtypes import finfo, iinfo, isdtype, issubdtype, promote_types, result_type

# module of this package -> the public names that live there
_NAMES_OF = {
    "bits": "apply_over_axes packbits piecewise sort_complex unpackbits unwrap",
    "choosing": "clip delete diag diagflat diagonal flatnonzero insert nonzero put_along_axis select take take_along_axis trace",
    "composed": """
        apply_along_axis around convolve correlate diff ediff1d geomspace gradient interp logspace polyval round trapezoid vectorize
    """,
    "creation": """
        arange array asarray astype copy empty empty_like eye from_dlpack frombuffer fromfunction fromiter fromstring full
        full_like identity indices linspace meshgrid ones ones_like tri tril triu zeros zeros_like
    """,
    "eager_choice": "pow power where",
    "facts": "array_repr array_str can_cast iscomplexobj isrealobj isscalar load ndim save savez shape size",
    "floats": "frexp ldexp nan_to_num spacing",
    "grids": """
        c_ diag_indices diag_indices_from fill_diagonal index_exp iterable ix_ mask_indices mgrid ogrid place put r_ s_
        tril_indices tril_indices_from triu_indices triu_indices_from
    """,
    "integers": "gcd lcm",
    "manipulation": """
        append array_split atleast_1d atleast_2d atleast_3d block broadcast_arrays broadcast_to column_stack concat
        concatenate dsplit dstack expand_dims flip fliplr flipud hsplit hstack matrix_transpose moveaxis permute_dims ravel
        reshape roll rollaxis rot90 split squeeze stack swapaxes transpose unstack vsplit vstack
    """,
    "padding": "pad",
    "polynomials": """
        bartlett blackman hamming hanning kaiser poly polyadd polyder polydiv polyfit polyint polymul polysub roots
        trim_zeros vander
    """,
    "products": "cross dot einsum einsum_path inner kron matmul matvec outer tensordot vdot vecdot vecmat",
    "promote": "broadcast_shapes",
    "reductions": """
        all allclose amax amin any argmax argmin array_equal array_equiv average count_nonzero cumprod cumsum
        cumulative_prod cumulative_sum max mean min nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmin nanprod
        nanstd nansum nanvar prod ptp std sum var
    """,
    "repeating": "repeat resize tile",
    "sets": "intersect1d setdiff1d setxor1d union1d unique unique_all unique_counts unique_inverse unique_values",
    "sorting": """
        argpartition argsort argwhere bincount choose compress digitize extract isin lexsort partition
        ravel_multi_index searchsorted sort unravel_index
    """,
    "statistics": """
        corrcoef cov histogram histogram2d histogram_bin_edges histogramdd median nanmedian nanpercentile nanquantile
        percentile quantile
    """,
    "ufuncs": """
        abs absolute acos acosh add angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh
        bitwise_and bitwise_count bitwise_invert bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor
        cbrt ceil conj conjugate copysign cos cosh deg2rad degrees divide divmod equal exp exp2 expm1 fabs fix float_power
        floor floor_divide fmax fmin fmod greater greater_equal heaviside hypot i0 imag invert isclose iscomplex
        isfinite isinf isnan isneginf isposinf isreal left_shift less less_equal log log10 log1p log2 logaddexp
        logaddexp2 logical_and logical_not logical_or logical_xor maximum minimum mod modf multiply negative
        nextafter not_equal positive rad2deg radians real reciprocal remainder right_shift rint sign signbit sin sinc sinh
        sqrt square subtract tan tanh true_divide trunc
    """,
}

_HOMES = {name: module for module, names in _NAMES_OF.items() for name in names.split()}
_SUBMODULES = ("fft", "linalg")

pi, e, euler_gamma, inf, nan, newaxis = _np.pi, _np.e, _np.euler_gamma, _np.inf, _np.nan, None
dtype = _np.dtype
globals().update(_dtypes.scalar_types)      # bool, int8, ..., float32, complex64: dtypes that make arrays when called
_scalar = _dtypes.scalar_types
bool_, int_, uint, float_, complex_ = _scalar["bool"], _scalar["int64"], _scalar["uint64"], _scalar["float64"], _scalar["complex128"]
single, double, csingle, cdouble = _scalar["float32"], _scalar["float64"], _scalar["complex64"], _scalar["complex128"]
generic, number, integer, signedinteger, unsignedinteger, inexact, floating, complexfloating, character, object_ = (
    _np.generic, _np.number, _np.integer, _np.signedinteger, _np.unsignedinteger, _np.inexact, _np.floating, _np.complexfloating,
    _np.character, _np.object_)
flexible, ComplexWarning = _np.flexible, _np.exceptions.ComplexWarning
set_printoptions, get_printoptions, printoptions = _np.set_printoptions, _np.get_printoptions, _np.printoptions

_PUBLIC = {*_HOMES, *_SUBMODULES, *[name for name in globals() if name[0] != "_" and f"weft.numpy.{name}" not in _sys.modules]}


def __getattr__(name: str):
    """Load a public function or submodule on first use."""
    if name in _HOMES:
        value = _eager.wrapped(name, getattr(_importlib.import_module(f"weft.numpy.{_HOMES[name]}"), name))
    elif name in _SUBMODULES:
        value = _importlib.import_module(f"weft.numpy.{name}")
    elif _dtypes.dtypes_by_name[name] is not None:
        value = _scalar[name]                # bfloat16, int4, ...: ml_dtypes is loaded when the first is asked for
    elif name == "__all__":
        value = sorted({*_PUBLIC, *[name for name in _dtypes.small_names if _dtypes.dtypes_by_name[name] is not None]})
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __getattr__("__all__")


_methods.attach(_sys.modules[__name__])
