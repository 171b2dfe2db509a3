"""NumPy's API on global arrays: `import weft.numpy as wnp`."""

import numpy as _np

from weft.dtypes import *  # noqa: F403
from weft.numpy import (
    eager as _eager,
    fft as fft,
    indexing as _indexing,  # noqa: F401
    linalg as linalg,
    methods as _methods,  # noqa: F401
    ufuncs as _ufuncs,
)
from weft.numpy.bits import apply_over_axes, packbits, piecewise, sort_complex, unpackbits, unwrap
from weft.numpy.creation import (
    arange,
    array,
    asarray,
    astype,
    copy,
    empty,
    empty_like,
    eye,
    from_dlpack,
    frombuffer,
    fromfunction,
    fromiter,
    fromstring,
    full,
    full_like,
    geomspace,
    identity,
    indices,
    linspace,
    logspace,
    meshgrid,
    ones,
    ones_like,
    tri,
    tril,
    triu,
    zeros,
    zeros_like,
)
from weft.numpy.grids import (
    c_,
    diag_indices,
    diag_indices_from,
    fill_diagonal,
    index_exp,
    iterable,
    ix_,
    mask_indices,
    mgrid,
    ogrid,
    place,
    put,
    r_,
    s_,
    tril_indices,
    tril_indices_from,
    triu_indices,
    triu_indices_from,
)
from weft.numpy.manipulation import (
    append,
    array_split,
    atleast_1d,
    atleast_2d,
    atleast_3d,
    block,
    broadcast_arrays,
    broadcast_to,
    clip,
    column_stack,
    concat,
    concatenate,
    delete,
    diag,
    diagflat,
    diagonal,
    dsplit,
    dstack,
    expand_dims,
    flip,
    fliplr,
    flipud,
    hsplit,
    hstack,
    insert,
    matrix_transpose,
    moveaxis,
    pad,
    permute_dims,
    put_along_axis,
    ravel,
    repeat,
    reshape,
    resize,
    roll,
    rollaxis,
    rot90,
    select,
    split,
    squeeze,
    stack,
    swapaxes,
    take,
    take_along_axis,
    tile,
    trace,
    transpose,
    unstack,
    vsplit,
    vstack,
    where,
)
from weft.numpy.polynomials import (
    bartlett,
    blackman,
    hamming,
    hanning,
    kaiser,
    poly,
    polyadd,
    polyder,
    polydiv,
    polyfit,
    polyint,
    polymul,
    polysub,
    roots,
    trim_zeros,
    vander,
)
from weft.numpy.products import (
    apply_along_axis,
    around,
    convolve,
    correlate,
    cross,
    diff,
    dot,
    ediff1d,
    einsum,
    einsum_path,
    gradient,
    inner,
    interp,
    kron,
    matmul,
    matvec,
    outer,
    polyval,
    round,
    tensordot,
    trapezoid,
    vdot,
    vecdot,
    vecmat,
    vectorize,
)
from weft.numpy.promote import broadcast_shapes
from weft.numpy.reductions import (
    all,
    allclose,
    amax,
    amin,
    any,
    argmax,
    argmin,
    array_equal,
    array_equiv,
    average,
    count_nonzero,
    cumprod,
    cumsum,
    cumulative_prod,
    cumulative_sum,
    max,
    mean,
    min,
    nanargmax,
    nanargmin,
    nancumprod,
    nancumsum,
    nanmax,
    nanmean,
    nanmin,
    nanprod,
    nanstd,
    nansum,
    nanvar,
    prod,
    ptp,
    std,
    sum,
    var,
)
from weft.numpy.sets import (
    intersect1d,
    setdiff1d,
    setxor1d,
    union1d,
    unique,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from weft.numpy.sorting import (
    argpartition,
    argsort,
    argwhere,
    bincount,
    choose,
    compress,
    digitize,
    extract,
    flatnonzero,
    isin,
    lexsort,
    nonzero,
    partition,
    ravel_multi_index,
    searchsorted,
    sort,
    unravel_index,
)
from weft.numpy.statistics import (
    corrcoef,
    cov,
    histogram,
    histogram2d,
    histogram_bin_edges,
    histogramdd,
    median,
    nanmedian,
    nanpercentile,
    nanquantile,
    percentile,
    quantile,
)
from weft.numpy.ufuncs import *  # noqa: F403
from weft.runtime.array import Array as ndarray
from weft.util import dtypes as _dtypes
from weft.util.dtypes import finfo, iinfo, isdtype, issubdtype, promote_types, result_type

pi, e, euler_gamma, inf, nan, newaxis = _np.pi, _np.e, _np.euler_gamma, _np.inf, _np.nan, None
abs, divmod, pow = _ufuncs.abs, _ufuncs.divmod, _ufuncs.pow
acos, acosh, asin, asinh, atan, atanh = (_ufuncs.arccos, _ufuncs.arccosh, _ufuncs.arcsin, _ufuncs.arcsinh, _ufuncs.arctan,
                                         _ufuncs.arctanh)
dtype = _np.dtype
globals().update(_dtypes.scalar_types)      # bool, int8, ..., float32, bfloat16, complex64: dtypes that make arrays when called
_scalar = _dtypes.scalar_types
bool_, int_, uint, float_, complex_ = _scalar["bool"], _scalar["int64"], _scalar["uint64"], _scalar["float64"], _scalar["complex128"]
single, double, csingle, cdouble = _scalar["float32"], _scalar["float64"], _scalar["complex64"], _scalar["complex128"]
generic, number, integer, signedinteger, unsignedinteger, inexact, floating, complexfloating, character, object_ = (
    _np.generic, _np.number, _np.integer, _np.signedinteger, _np.unsignedinteger, _np.inexact, _np.floating, _np.complexfloating,
    _np.character, _np.object_)
flexible, ComplexWarning = _np.flexible, _np.exceptions.ComplexWarning
set_printoptions, get_printoptions, printoptions = _np.set_printoptions, _np.get_printoptions, _np.printoptions


def shape(a) -> tuple:
    """The shape of an array-like."""
    return tuple(a.shape) if hasattr(a, "shape") else _np.shape(a)


def ndim(a) -> int:
    """The number of dims of an array-like."""
    return len(shape(a))


def size(a, axis: int | None = None) -> int:
    """The number of elements (or the size of a dim) of an array-like."""
    dims = shape(a)
    return dims[axis] if axis is not None else int(_np.prod(dims, dtype=_np.int64))


def isscalar(element) -> bool:
    """Whether `element` is a number or an array of rank 0."""
    return _np.isscalar(element) or (hasattr(element, "ndim") and element.ndim == 0)


def iscomplexobj(x) -> bool:
    """Whether the dtype is complex."""
    return issubdtype(result_type(x), _np.complexfloating)


def isrealobj(x) -> bool:
    """Whether the dtype is not complex."""
    return not iscomplexobj(x)


def can_cast(from_, to, casting: str = "safe") -> bool:
    """Whether a dtype can be converted under a casting rule."""
    return _np.can_cast(from_, to, casting)


def array_repr(arr, *args, **kwargs) -> str:
    """The text of `repr`."""
    return repr(arr)


def array_str(arr, *args, **kwargs) -> str:
    """The text of `str`."""
    return str(arr)


def save(file, arr) -> None:
    """Write an array to a .npy file."""
    _np.save(file, _np.asarray(arr))


def savez(file, *args, **kwds) -> None:
    """Write arrays to a .npz file."""
    _np.savez(file, *map(_np.asarray, args), **{k: _np.asarray(v) for k, v in kwds.items()})


def load(file, *args, **kwargs):
    """Read an array from a .npy or .npz file."""
    out = _np.load(file, *args, **kwargs)
    return asarray(out) if isinstance(out, _np.ndarray) else out


_eager.wrap(globals())
