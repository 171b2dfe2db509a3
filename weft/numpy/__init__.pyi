"""What type checkers read; `__init__.py` loads the same names lazily (tests/face/test_stub.py compares the two)."""

from typing import Any

from weft.dtypes import (
    TypePromotionError as TypePromotionError,
    canonicalize_dtype as canonicalize_dtype,
    extended as extended,
    finfo as finfo,
    float0 as float0,
    iinfo as iinfo,
    issubdtype as issubdtype,
    itemsize_bits as itemsize_bits,
    prng_key as prng_key,
    result_type as result_type,
    scalar_type_of as scalar_type_of,
)
from weft.numpy import fft as fft, linalg as linalg
from weft.numpy.bits import (
    apply_over_axes as apply_over_axes,
    packbits as packbits,
    piecewise as piecewise,
    sort_complex as sort_complex,
    unpackbits as unpackbits,
    unwrap as unwrap,
)
from weft.numpy.choosing import (
    clip as clip,
    delete as delete,
    diag as diag,
    diagflat as diagflat,
    diagonal as diagonal,
    flatnonzero as flatnonzero,
    insert as insert,
    nonzero as nonzero,
    put_along_axis as put_along_axis,
    select as select,
    take as take,
    take_along_axis as take_along_axis,
    trace as trace,
)
from weft.numpy.composed import (
    apply_along_axis as apply_along_axis,
    around as around,
    convolve as convolve,
    correlate as correlate,
    diff as diff,
    ediff1d as ediff1d,
    geomspace as geomspace,
    gradient as gradient,
    interp as interp,
    logspace as logspace,
    polyval as polyval,
    round as round,
    trapezoid as trapezoid,
    vectorize as vectorize,
)
from weft.numpy.creation import (
    arange as arange,
    array as array,
    asarray as asarray,
    astype as astype,
    copy as copy,
    empty as empty,
    empty_like as empty_like,
    eye as eye,
    from_dlpack as from_dlpack,
    frombuffer as frombuffer,
    fromfunction as fromfunction,
    fromiter as fromiter,
    fromstring as fromstring,
    full as full,
    full_like as full_like,
    identity as identity,
    indices as indices,
    linspace as linspace,
    meshgrid as meshgrid,
    ones as ones,
    ones_like as ones_like,
    tri as tri,
    tril as tril,
    triu as triu,
    zeros as zeros,
    zeros_like as zeros_like,
)
from weft.numpy.eager_choice import pow as pow, power as power, where as where
from weft.numpy.facts import (
    array_repr as array_repr,
    array_str as array_str,
    can_cast as can_cast,
    iscomplexobj as iscomplexobj,
    isrealobj as isrealobj,
    isscalar as isscalar,
    load as load,
    ndim as ndim,
    save as save,
    savez as savez,
    shape as shape,
    size as size,
)
from weft.numpy.floats import frexp as frexp, ldexp as ldexp, nan_to_num as nan_to_num, spacing as spacing
from weft.numpy.grids import (
    c_ as c_,
    diag_indices as diag_indices,
    diag_indices_from as diag_indices_from,
    fill_diagonal as fill_diagonal,
    index_exp as index_exp,
    iterable as iterable,
    ix_ as ix_,
    mask_indices as mask_indices,
    mgrid as mgrid,
    ogrid as ogrid,
    place as place,
    put as put,
    r_ as r_,
    s_ as s_,
    tril_indices as tril_indices,
    tril_indices_from as tril_indices_from,
    triu_indices as triu_indices,
    triu_indices_from as triu_indices_from,
)
from weft.numpy.integers import gcd as gcd, lcm as lcm
from weft.numpy.manipulation import (
    append as append,
    array_split as array_split,
    atleast_1d as atleast_1d,
    atleast_2d as atleast_2d,
    atleast_3d as atleast_3d,
    block as block,
    broadcast_arrays as broadcast_arrays,
    broadcast_to as broadcast_to,
    column_stack as column_stack,
    concat as concat,
    concatenate as concatenate,
    dsplit as dsplit,
    dstack as dstack,
    expand_dims as expand_dims,
    flip as flip,
    fliplr as fliplr,
    flipud as flipud,
    hsplit as hsplit,
    hstack as hstack,
    matrix_transpose as matrix_transpose,
    moveaxis as moveaxis,
    permute_dims as permute_dims,
    ravel as ravel,
    reshape as reshape,
    roll as roll,
    rollaxis as rollaxis,
    rot90 as rot90,
    split as split,
    squeeze as squeeze,
    stack as stack,
    swapaxes as swapaxes,
    transpose as transpose,
    unstack as unstack,
    vsplit as vsplit,
    vstack as vstack,
)
from weft.numpy.padding import pad as pad
from weft.numpy.polynomials import (
    bartlett as bartlett,
    blackman as blackman,
    hamming as hamming,
    hanning as hanning,
    kaiser as kaiser,
    poly as poly,
    polyadd as polyadd,
    polyder as polyder,
    polydiv as polydiv,
    polyfit as polyfit,
    polyint as polyint,
    polymul as polymul,
    polysub as polysub,
    roots as roots,
    trim_zeros as trim_zeros,
    vander as vander,
)
from weft.numpy.products import (
    cross as cross,
    dot as dot,
    einsum as einsum,
    einsum_path as einsum_path,
    inner as inner,
    kron as kron,
    matmul as matmul,
    matvec as matvec,
    outer as outer,
    tensordot as tensordot,
    vdot as vdot,
    vecdot as vecdot,
    vecmat as vecmat,
)
from weft.numpy.promote import broadcast_shapes as broadcast_shapes
from weft.numpy.reductions import (
    all as all,
    allclose as allclose,
    amax as amax,
    amin as amin,
    any as any,
    argmax as argmax,
    argmin as argmin,
    array_equal as array_equal,
    array_equiv as array_equiv,
    average as average,
    count_nonzero as count_nonzero,
    cumprod as cumprod,
    cumsum as cumsum,
    cumulative_prod as cumulative_prod,
    cumulative_sum as cumulative_sum,
    max as max,
    mean as mean,
    min as min,
    nanargmax as nanargmax,
    nanargmin as nanargmin,
    nancumprod as nancumprod,
    nancumsum as nancumsum,
    nanmax as nanmax,
    nanmean as nanmean,
    nanmin as nanmin,
    nanprod as nanprod,
    nanstd as nanstd,
    nansum as nansum,
    nanvar as nanvar,
    prod as prod,
    ptp as ptp,
    std as std,
    sum as sum,
    var as var,
)
from weft.numpy.repeating import repeat as repeat, resize as resize, tile as tile
from weft.numpy.sets import (
    intersect1d as intersect1d,
    setdiff1d as setdiff1d,
    setxor1d as setxor1d,
    union1d as union1d,
    unique as unique,
    unique_all as unique_all,
    unique_counts as unique_counts,
    unique_inverse as unique_inverse,
    unique_values as unique_values,
)
from weft.numpy.sorting import (
    argpartition as argpartition,
    argsort as argsort,
    argwhere as argwhere,
    bincount as bincount,
    choose as choose,
    compress as compress,
    digitize as digitize,
    extract as extract,
    isin as isin,
    lexsort as lexsort,
    partition as partition,
    ravel_multi_index as ravel_multi_index,
    searchsorted as searchsorted,
    sort as sort,
    unravel_index as unravel_index,
)
from weft.numpy.statistics import (
    corrcoef as corrcoef,
    cov as cov,
    histogram as histogram,
    histogram2d as histogram2d,
    histogram_bin_edges as histogram_bin_edges,
    histogramdd as histogramdd,
    median as median,
    nanmedian as nanmedian,
    nanpercentile as nanpercentile,
    nanquantile as nanquantile,
    percentile as percentile,
    quantile as quantile,
)
from weft.numpy.ufuncs import (
    abs as abs,
    absolute as absolute,
    acos as acos,
    acosh as acosh,
    add as add,
    angle as angle,
    arccos as arccos,
    arccosh as arccosh,
    arcsin as arcsin,
    arcsinh as arcsinh,
    arctan as arctan,
    arctan2 as arctan2,
    arctanh as arctanh,
    asin as asin,
    asinh as asinh,
    atan as atan,
    atan2 as atan2,
    atanh as atanh,
    bitwise_and as bitwise_and,
    bitwise_count as bitwise_count,
    bitwise_invert as bitwise_invert,
    bitwise_left_shift as bitwise_left_shift,
    bitwise_not as bitwise_not,
    bitwise_or as bitwise_or,
    bitwise_right_shift as bitwise_right_shift,
    bitwise_xor as bitwise_xor,
    cbrt as cbrt,
    ceil as ceil,
    conj as conj,
    conjugate as conjugate,
    copysign as copysign,
    cos as cos,
    cosh as cosh,
    deg2rad as deg2rad,
    degrees as degrees,
    divide as divide,
    divmod as divmod,
    equal as equal,
    exp as exp,
    exp2 as exp2,
    expm1 as expm1,
    fabs as fabs,
    fix as fix,
    float_power as float_power,
    floor as floor,
    floor_divide as floor_divide,
    fmax as fmax,
    fmin as fmin,
    fmod as fmod,
    greater as greater,
    greater_equal as greater_equal,
    heaviside as heaviside,
    hypot as hypot,
    i0 as i0,
    imag as imag,
    invert as invert,
    isclose as isclose,
    iscomplex as iscomplex,
    isfinite as isfinite,
    isinf as isinf,
    isnan as isnan,
    isneginf as isneginf,
    isposinf as isposinf,
    isreal as isreal,
    left_shift as left_shift,
    less as less,
    less_equal as less_equal,
    log as log,
    log1p as log1p,
    log2 as log2,
    log10 as log10,
    logaddexp as logaddexp,
    logaddexp2 as logaddexp2,
    logical_and as logical_and,
    logical_not as logical_not,
    logical_or as logical_or,
    logical_xor as logical_xor,
    maximum as maximum,
    minimum as minimum,
    mod as mod,
    modf as modf,
    multiply as multiply,
    negative as negative,
    nextafter as nextafter,
    not_equal as not_equal,
    positive as positive,
    rad2deg as rad2deg,
    radians as radians,
    real as real,
    reciprocal as reciprocal,
    remainder as remainder,
    right_shift as right_shift,
    rint as rint,
    sign as sign,
    signbit as signbit,
    sin as sin,
    sinc as sinc,
    sinh as sinh,
    sqrt as sqrt,
    square as square,
    subtract as subtract,
    tan as tan,
    tanh as tanh,
    true_divide as true_divide,
    trunc as trunc,
)
from weft.runtime.array import Array
from weft.util.dtypes import isdtype as isdtype, promote_types as promote_types

ndarray = Array
e: float
euler_gamma: float
inf: float
nan: float
pi: float
newaxis: None
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
int1: Any
int16: Any
int2: Any
int32: Any
int4: Any
int64: Any
int8: Any
int_: Any
integer: Any
number: Any
object_: Any
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
