"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001, E501
# fmt: off

import builtins as _builtins
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex, TypeVar, overload
from weft._engine.control.cond import cond_p
from weft._engine.control.implicit_solves import linear_solve_p
from weft._engine.control.scan import scan_p
from weft._engine.control.while_loop import while_p
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.ir.symbolic.sizes import SymbolicDim
from weft._engine.lax.convolutions import ConvGeneralDilatedDimensionNumbers
from weft._engine.lax.ragged import RaggedDotDimensionNumbers
from weft._engine.lax.tokens import Token
from weft._engine.ops.accuracy import AccuracyMode, Tolerance
from weft._engine.ops.arithmetic import (
    abs_p, add_p, div_p, integer_pow_p, max_p, min_p, mul_p, neg_p, rem_p, sign_p, square_p,
    stop_gradient_p, sub_p,
)
from weft._engine.ops.bit_generator import RandomAlgorithm
from weft._engine.ops.bitwise import (
    and_p, clz_p, not_p, or_p, population_count_p, shift_left_p, shift_right_arithmetic_p,
    shift_right_logical_p, xor_p,
)
from weft._engine.ops.casting import (
    bitcast_convert_type_p, complex_p, conj_p, convert_element_type_p, imag_p, real_p,
)
from weft._engine.ops.collective_rules import (
    all_gather_invariant_p, all_gather_p, all_to_all_p, axis_index_p, pbroadcast_p, pmax_p, pmin_p,
    ppermute_p, psum_p, pvary_p,
)
from weft._engine.ops.collectives import AxisName
from weft._engine.ops.comparison import clamp_p, eq_p, ge_p, gt_p, le_p, lt_p, ne_p, select_n_p
from weft._engine.ops.contraction import (
    DotAlgorithm, DotAlgorithmPreset, DotDimensionNumbers, Precision, PrecisionLike, dot_general_p,
)
from weft._engine.ops.convolution import ConvDimensionNumbers, conv_general_dilated_p
from weft._engine.ops.dynamic_slicing import dynamic_slice_p, dynamic_update_slice_p
from weft._engine.ops.fft import FftType, fft_p
from weft._engine.ops.functions import (
    RoundingMethod, acos_p, acosh_p, asin_p, asinh_p, atan2_p, atan_p, atanh_p, bessel_i0e_p,
    bessel_i1e_p, cbrt_p, ceil_p, cos_p, cosh_p, digamma_p, erf_inv_p, erf_p, erfc_p, exp2_p,
    exp_p, expm1_p, floor_p, igamma_grad_a_p, igamma_p, igammac_p, is_finite_p, lgamma_p, log1p_p,
    log_p, logistic_p, nextafter_p, polygamma_p, pow_p, random_gamma_grad_p,
    regularized_incomplete_beta_p, round_p, rsqrt_p, sin_p, sinh_p, sqrt_p, tan_p, tanh_p, zeta_p,
)
from weft._engine.ops.indexing import (
    GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers, gather_p, scatter_add_p,
    scatter_max_p, scatter_min_p, scatter_mul_p, scatter_p,
)
from weft._engine.ops.layout import (
    broadcast_in_dim_p, copy_p, iota_p, reshape_p, rev_p, squeeze_p, transpose_p,
)
from weft._engine.ops.placement import optimization_barrier_p, sharding_constraint_p
from weft._engine.ops.precision import reduce_precision_p
from weft._engine.ops.prefix_scans import cumlogsumexp_p
from weft._engine.ops.ragged_all_to_all import ragged_all_to_all_p
from weft._engine.ops.reduce import (
    argmax_p, argmin_p, cummax_p, cummin_p, cumprod_p, cumsum_p, reduce_and_p, reduce_max_p,
    reduce_min_p, reduce_or_p, reduce_prod_p, reduce_sum_p, reduce_xor_p,
)
from weft._engine.ops.slicing import concatenate_p, pad_p, slice_p
from weft._engine.ops.sorting import sort_p, top_k_p
from weft._engine.runtime.array import Array
from weft.lax import linalg
from weft.typing import ArrayLike, DTypeLike

_R = TypeVar("_R")
_T = TypeVar("_T")
_Y = TypeVar("_Y")
def cond(
    pred: Any,
    true_fun: Callable[..., _R],
    false_fun: Callable[..., _R],
    *operands: Any,
    operand: Any = ...,
    linear: Any = None,
) -> _R: ...
def switch(
    index: Any, branches: Sequence[Callable[..., _R]], *operands: Any, operand: Any = ...
) -> _R: ...
def while_loop(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], _T], init_val: Any
) -> _T: ...
def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Any], _T],
    init_val: Any,
    *,
    unroll: int | _builtins.bool | None = None,
) -> _T: ...
def scan(
    f: Callable[[Any, Any], tuple[_T, _Y]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: _builtins.bool = False,
    unroll: int | _builtins.bool = 1,
    _split_transpose: _builtins.bool = False,
) -> tuple[_T, _Y]: ...
def map(f: Callable[[Any], _R], xs: Any, *, batch_size: int | None = None) -> _R: ...
def associative_scan(
    fn: Callable[[Any, Any], Any], elems: _T, reverse: _builtins.bool = False, axis: int = 0
) -> _T: ...
def psum(x: _T, axis_name: Any, *, axis_index_groups: Any = None) -> _T: ...
def pmean(x: _T, axis_name: Any, *, axis_index_groups: Any = None) -> _T: ...
def pmax(x: _T, axis_name: Any, *, axis_index_groups: Any = None) -> _T: ...
def pmin(x: _T, axis_name: Any, *, axis_index_groups: Any = None) -> _T: ...
def ppermute(x: _T, axis_name: Any, perm: Any) -> _T: ...
def pshuffle(x: _T, axis_name: Any, perm: Sequence[int]) -> _T: ...
def pvary(x: _T, axis_name: Any) -> _T: ...
def pcast(x: _T, axis_name: Any, *, to: str) -> _T: ...
def all_gather(
    x: _T,
    axis_name: Any,
    *,
    axis_index_groups: Any = None,
    axis: int = 0,
    tiled: _builtins.bool = False,
    to: str = "varying",
) -> _T: ...
def all_to_all(
    x: _T,
    axis_name: Any,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: Any = None,
    tiled: _builtins.bool = False,
) -> _T: ...
def psum_scatter(
    x: _T,
    axis_name: Any,
    *,
    scatter_dimension: int = 0,
    axis_index_groups: Any = None,
    tiled: _builtins.bool = False,
) -> _T: ...
def axis_index(axis_name: Any) -> Array: ...
def stop_gradient(x: _T) -> _T: ...
def with_sharding_constraint(x: _T, shardings: Any) -> _T: ...
def optimization_barrier(operand: _T) -> _T: ...
@overload
def sort(
    operand: ArrayLike, dimension: int = -1, is_stable: _builtins.bool = True, num_keys: int = 1
) -> Array: ...
@overload
def sort(
    operand: Sequence[ArrayLike],
    dimension: int = -1,
    is_stable: _builtins.bool = True,
    num_keys: int = 1,
) -> tuple[Array, ...]: ...
def sort_key_val(
    keys: ArrayLike, values: ArrayLike, dimension: int = -1, is_stable: _builtins.bool = True
) -> tuple[Array, Array]: ...
def top_k(operand: ArrayLike, k: int, *, axis: int = -1) -> list[Array]: ...
def full_like(
    x: Any,
    fill_value: ArrayLike,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
    *,
    sharding: Any = None,
) -> Array: ...
def clamp(min: ArrayLike, x: ArrayLike, max: ArrayLike) -> Array: ...
def cummax(operand: ArrayLike, axis: int = 0, reverse: _builtins.bool = False) -> Array: ...
def cummin(operand: ArrayLike, axis: int = 0, reverse: _builtins.bool = False) -> Array: ...
def abs(x: ArrayLike) -> Array:
    r"""Return the absolute value of `x`; it is real for complex `x`."""
def acos(x: ArrayLike) -> Array:
    r"""Return the angle between 0 and pi whose cosine is `x`."""
def acosh(x: ArrayLike) -> Array:
    r"""Return the non-negative number whose hyperbolic cosine is `x`."""
def add(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Return `x + y`, elementwise, for numbers of one dtype."""
def after_all(*operands: Any) -> Token:
    r"""Return a token for all tokens in `operands`; raise TypeError for other values."""
def all_gather_invariant(x: Any, axis_name: AxisName, *, axis: int = 0, tiled: bool = False) -> Any:
    r"""Return `all_gather`, typed as one value for all positions along the axes."""
def approx_max_k(operand: Any, k: int, reduction_dimension: int = -1, recall_target: float = ..., reduction_input_size_override: int = -1, aggregate_to_topk: bool = True) -> list[Any]:
    r"""Return the `k` largest values along a dim and their positions; the results are exact here."""
def approx_min_k(operand: Any, k: int, reduction_dimension: int = -1, recall_target: float = ..., reduction_input_size_override: int = -1, aggregate_to_topk: bool = True) -> list[Any]:
    r"""Return the `k` smallest values along a dim and their positions; the results are exact here."""
def argmax(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    r"""Return the index of the largest element along dim `axis`."""
def argmin(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    r"""Return the index of the smallest element along dim `axis`."""
def asin(x: ArrayLike) -> Array:
    r"""Return the angle between -pi/2 and pi/2 whose sine is `x`."""
def asinh(x: ArrayLike) -> Array:
    r"""Return the number whose hyperbolic sine is `x`."""
def atan(x: ArrayLike) -> Array:
    r"""Return the angle between -pi/2 and pi/2 whose tangent is `x`."""
def atan2(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Return the angle of the point (y, x): of `x / y`, in the right quadrant."""
def atanh(x: ArrayLike) -> Array:
    r"""Return the number whose hyperbolic tangent is `x`."""
def axis_size(axis_name: AxisName) -> int:
    r"""Return the number of positions along the named axis, or along several axes together."""
def batch_matmul(lhs: ArrayLike, rhs: ArrayLike, precision: PrecisionLike | None = None) -> Array:
    r"""Return products of the matrices in the last two dims."""
def bessel_i0e(x: ArrayLike) -> Array:
    r"""Return exp(-|x|) times the modified Bessel function of order 0."""
def bessel_i1e(x: ArrayLike) -> Array:
    r"""Return exp(-|x|) times the modified Bessel function of order 1."""
def betainc(a: Any, b: Any, x: Any) -> Array:
    r"""Return the regularized incomplete beta function."""
def bitcast_convert_type(operand: ArrayLike, new_dtype: DTypeLike) -> Array:
    r"""Return the bits of `operand` reinterpreted as `new_dtype`."""
def bitwise_and(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Return `x & y`, elementwise."""
def bitwise_not(x: ArrayLike) -> Array:
    r"""Return `~x`, elementwise; the negation for booleans."""
def bitwise_or(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Return `x | y`, elementwise."""
def bitwise_xor(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Return `x ^ y`, elementwise."""
def broadcast(operand: ArrayLike, sizes: Sequence[int], *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return `operand` repeated along new leading dims of `sizes`."""
def broadcast_in_dim(operand: ArrayLike, shape: Sequence[int], broadcast_dimensions: Sequence[int], *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return `operand` repeated to `shape`; its dim i becomes dim `broadcast_dimensions[i]`."""
def broadcast_like(arr: Any, like_arr: Any) -> Array:
    r"""Return `arr` broadcast to the shape of `like_arr` by NumPy's rule."""
def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    r"""Return the shape to which all of `shapes` broadcast by NumPy's rule."""
def broadcast_to_rank(x: Any, rank: int) -> Array:
    r"""Return `x` with leading dims of size one added up to `rank`."""
def broadcasted_iota(dtype: DTypeLike, shape: Sequence[int | SymbolicDim], dimension: int, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return an array of `shape` whose elements are their own index along `dimension`."""
def cbrt(x: ArrayLike, *, accuracy: Any = None) -> Array:
    r"""Return the cube root of `x`, with the sign of `x`."""
def ceil(x: ArrayLike) -> Array:
    r"""Return the smallest integer not below `x`, as a float."""
def clz(x: ArrayLike) -> Array:
    r"""Return the number of zeros before the highest one bit of `x`."""
def collapse(operand: ArrayLike, start_dimension: int, stop_dimension: int | None = None) -> Array:
    r"""Return `operand` with dims from `start_dimension` up to `stop_dimension` merged into one."""
def complex(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Return the complex number `x + iy`, elementwise."""
def composite(decomposition: Callable[..., Any], name: str, version: int = 0) -> Callable[..., Any]:
    r"""Return `decomposition` as one operation `name`."""
def concatenate(operands: Sequence[ArrayLike], dimension: int) -> Array:
    r"""Return `operands` joined along dim `dimension`."""
def conj(x: ArrayLike) -> Array:
    r"""Return the complex conjugate of `x`; a real `x` becomes complex."""
def conv(lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int], padding: str, precision: PrecisionLike | None = None, preferred_element_type: DTypeLike | None = None) -> Array:
    r"""Return the convolution of lhs with rhs."""
def conv_dimension_numbers(lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: Any) -> ConvDimensionNumbers:
    r"""Return `dimension_numbers` as positions of dims."""
def conv_general_dilated(lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int], padding: str | Sequence[tuple[int, int]], lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None, dimension_numbers: Any = None, feature_group_count: int = 1, batch_group_count: int = 1, precision: PrecisionLike | None = None, preferred_element_type: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Slide the kernels `rhs` over `lhs`: products summed over input features and over the kernel's window."""
def conv_general_dilated_local(lhs: Any, rhs: Any, window_strides: Sequence[int], padding: str | Sequence[tuple[int, int]], filter_shape: Sequence[int], lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None, dimension_numbers: ConvGeneralDilatedDimensionNumbers | None = None, precision: PrecisionLike | None = None) -> Any:
    r"""Return a convolution whose kernel differs between positions: a locally connected layer."""
def conv_general_dilated_patches(lhs: ArrayLike, filter_shape: Sequence[int], window_strides: Sequence[int], padding: str | Sequence[tuple[int, int]], lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None, dimension_numbers: Any = None, precision: PrecisionLike | None = None, preferred_element_type: DTypeLike | None = None) -> Array:
    r"""Return the windows of a kernel of `filter_shape`, flattened into the feature dim."""
def conv_general_permutations(dimension_numbers: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    r"""Return permutations for three strings of dims, such as ("NHWC", "HWIO", "NHWC")."""
def conv_general_shape_tuple(lhs_shape: Sequence[int], rhs_shape: Sequence[int], window_strides: Sequence[int], padding: str | Sequence[tuple[int, int]], dimension_numbers: Any) -> tuple[int, ...]:
    r"""Return the shape of a convolution of shapes in the layouts of `dimension_numbers`."""
def conv_shape_tuple(lhs_shape: Sequence[int], rhs_shape: Sequence[int], strides: Sequence[int], pads: str | Sequence[tuple[int, int]], batch_group_count: int = 1) -> tuple[int, ...]:
    r"""Return the shape of a convolution of two shapes."""
def conv_transpose(lhs: ArrayLike, rhs: ArrayLike, strides: Sequence[int], padding: str | Sequence[tuple[int, int]], rhs_dilation: Sequence[int] | None = None, dimension_numbers: Any = None, transpose_kernel: bool = False, precision: PrecisionLike | None = None, preferred_element_type: DTypeLike | None = None, use_consistent_padding: bool = False) -> Array:
    r"""Return the convolution that enlarges `lhs` by `strides`."""
def conv_transpose_shape_tuple(lhs_shape: Sequence[int], rhs_shape: Sequence[int], window_strides: Sequence[int], padding: str | Sequence[tuple[int, int]], dimension_numbers: Any) -> tuple[int, ...]:
    r"""Return the shape of a `conv_transpose` with strides `window_strides`."""
def conv_with_general_padding(lhs: ArrayLike, rhs: ArrayLike, window_strides: Sequence[int], padding: Sequence[tuple[int, int]], lhs_dilation: Sequence[int] | None, rhs_dilation: Sequence[int] | None, precision: PrecisionLike | None = None, preferred_element_type: DTypeLike | None = None) -> Array:
    r"""Return `conv` with explicit padding and dilations."""
def convert_element_type(operand: ArrayLike, new_dtype: DTypeLike, weak_type: bool = False, sharding: NamedSharding | None = None) -> Array:
    r"""Convert the elements of `operand` to `new_dtype`; the shape is unchanged."""
def cos(x: ArrayLike, *, accuracy: Any = None) -> Array:
    r"""Return the cosine of `x` in radians."""
def cosh(x: ArrayLike) -> Array:
    r"""Return the hyperbolic cosine of `x`."""
def create_token(_: Any = None) -> Token:
    r"""Return a token; the argument is ignored."""
def cumlogsumexp(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    r"""Return running log(sum(exp)) along dim `axis`, from the end if `reverse`."""
def cumprod(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    r"""Return running products along dim `axis`, from the end if `reverse`."""
def cumsum(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    r"""Return running sums along dim `axis`, from the end if `reverse`."""
def custom_linear_solve(matvec: Callable[..., Any], b: Any, solve: Callable[..., Any], transpose_solve: Callable[..., Any] | None = None, symmetric: bool = False, has_aux: bool = False) -> Any:
    r"""Return the solution x of `matvec(x) == b`, `solve(matvec, b)`."""
def custom_root(f: Callable[..., Any], initial_guess: Any, solve: Callable[..., Any], tangent_solve: Callable[..., Any], has_aux: bool = False) -> Any:
    r"""Return a root of `f`, `solve(f, initial_guess)`."""
def dce_sink(val: Any, *, prevent_mlir_dce: bool = False) -> None:
    r"""Keep the computation of `val` even if no result depends on it."""
def digamma(x: ArrayLike) -> Array:
    r"""Return the derivative of `lgamma` at `x`."""
def div(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Return `x / y`, elementwise; integers truncate toward zero."""
def dot(lhs: ArrayLike, rhs: ArrayLike, *, dimension_numbers: DotDimensionNumbers | None = None, precision: PrecisionLike | None = None, preferred_element_type: DTypeLike | None = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return the product of vectors, matrices, or one of each."""
def dot_general(lhs: ArrayLike, rhs: ArrayLike, dimension_numbers: DotDimensionNumbers, precision: PrecisionLike | None = None, preferred_element_type: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return the sum of products of `lhs` and `rhs` over contracting dims."""
def dtype(x: Any) -> Any:
    r"""Return the dtype of a value, or the dtype that a dtype or type denotes."""
def dynamic_index_in_dim(operand: ArrayLike, index: ArrayLike, axis: int = 0, keepdims: bool = True, *, allow_negative_indices: bool = True) -> Array:
    r"""Return the slice of `operand` at `index` (clamped) of dim `axis`."""
def dynamic_slice(operand: ArrayLike, start_indices: Sequence[ArrayLike], slice_sizes: Sequence[int], *, allow_negative_indices: bool | Sequence[bool] = True) -> Array:
    r"""Return the window of `slice_sizes` at `start_indices`, clamped to be inside `operand`."""
def dynamic_slice_in_dim(operand: ArrayLike, start_index: ArrayLike, slice_size: int, axis: int = 0, *, allow_negative_indices: bool = True) -> Array:
    r"""Return `slice_size` consecutive slices of `operand` along dim `axis`."""
def dynamic_update_index_in_dim(operand: ArrayLike, update: ArrayLike, index: ArrayLike, axis: int, *, allow_negative_indices: bool = True) -> Array:
    r"""Return `operand` with its slice at `index` (clamped) of dim `axis` replaced by `update`."""
def dynamic_update_slice(operand: ArrayLike, update: ArrayLike, start_indices: Sequence[ArrayLike], *, allow_negative_indices: bool | Sequence[bool] = True) -> Array:
    r"""Return `operand` with the window at `start_indices` replaced by `update`."""
def dynamic_update_slice_in_dim(operand: ArrayLike, update: ArrayLike, start_index: ArrayLike, axis: int, *, allow_negative_indices: bool = True) -> Array:
    r"""Return `operand` with `update` written along dim `axis` from `start_index` on (clamped)."""
def empty(shape: Sequence[int], dtype: DTypeLike | None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Any:
    r"""Return an array with unspecified values; they are zeros."""
def eq(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Return whether `x == y`, elementwise; random keys are equal if all of their data is equal."""
def erf(x: ArrayLike) -> Array:
    r"""Return the error function of `x`."""
def erf_inv(x: ArrayLike) -> Array:
    r"""Return the number whose error function is `x`."""
def erfc(x: ArrayLike) -> Array:
    r"""Return `1 - erf(x)`, accurate for large `x`."""
def exp(x: ArrayLike, *, accuracy: Any = None) -> Array:
    r"""Return e to the power `x`."""
def exp2(x: ArrayLike, *, accuracy: Any = None) -> Array:
    r"""Return 2 to the power `x`."""
def expand_dims(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    r"""Return `array` with dims of size 1 inserted at `dimensions` of the result."""
def expm1(x: ArrayLike, *, accuracy: Any = None) -> Array:
    r"""Return `exp(x) - 1`, accurate near 0."""
def fft(x: Any, fft_type: FftType | str, fft_lengths: Sequence[int]) -> Array:
    r"""Return the discrete Fourier transform of the last `len(fft_lengths)` dims."""
def floor(x: ArrayLike) -> Array:
    r"""Return the largest integer not above `x`, as a float."""
def full(shape: Sequence[int], fill_value: ArrayLike, dtype: DTypeLike | None = None, *, sharding: Any = None) -> Array:
    r"""Return an array of `shape` filled with the scalar `fill_value`, with the given `sharding`."""
def gather(operand: ArrayLike, start_indices: ArrayLike, dimension_numbers: GatherDimensionNumbers, slice_sizes: Sequence[int], *, unique_indices: bool = False, indices_are_sorted: bool = False, mode: str | GatherScatterMode | None = None, fill_value: Any = None) -> Array:
    r"""Return the windows of `slice_sizes` of `operand` at `start_indices`. `mode` None clips."""
def ge(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Return whether `x >= y`, elementwise."""
def gt(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Return whether `x > y`, elementwise."""
def igamma(a: ArrayLike, x: ArrayLike) -> Array:
    r"""Return the regularized lower incomplete gamma function."""
def igamma_grad_a(a: ArrayLike, x: ArrayLike) -> Array:
    r"""Return the derivative of `igamma(a, x)` by `a`."""
def igammac(a: ArrayLike, x: ArrayLike) -> Array:
    r"""Return `1 - igamma(a, x)`, accurate for large `x`."""
def imag(x: ArrayLike) -> Array:
    r"""Return the imaginary part of complex `x`."""
def index_in_dim(operand: ArrayLike, index: int, axis: int = 0, keepdims: bool = True) -> Array:
    r"""Return the slice of `operand` at `index` of dim `axis`."""
def index_take(src: Any, idxs: Sequence[Any], axes: Sequence[int]) -> Any:
    r"""Return the slices of `src` at index vectors `idxs`, one for each of `axes`."""
def integer_pow(x: ArrayLike, y: int) -> Array:
    r"""Return `x` to the power of the Python int `y`, by repeated multiplication."""
def iota(dtype: DTypeLike, size: int | SymbolicDim) -> Array:
    r"""Return the integers from 0 to `size` - 1 as a vector."""
def is_finite(x: ArrayLike) -> Array:
    r"""Return whether `x` is neither infinite nor NaN, elementwise."""
def le(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Return whether `x <= y`, elementwise."""
def lgamma(x: ArrayLike) -> Array:
    r"""Return the logarithm of the absolute value of the gamma function of `x`."""
def log(x: ArrayLike, *, accuracy: Any = None) -> Array:
    r"""Return the natural logarithm of `x`."""
def log1p(x: ArrayLike, *, accuracy: Any = None) -> Array:
    r"""Return `log(1 + x)`, accurate near 0."""
def logistic(x: ArrayLike, *, accuracy: Any = None) -> Array:
    r"""Return `1 / (1 + exp(-x))`, without overflow for large |x|."""
def lt(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Return whether `x < y`, elementwise."""
def max(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Return the larger of `x` and `y`, elementwise; NaN if either is."""
def min(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Return the smaller of `x` and `y`, elementwise; NaN if either is."""
def mul(x: ArrayLike, y: ArrayLike, *, out_dtype: DTypeLike | None = None) -> Array:
    r"""Return `x * y`, elementwise, for numbers of one dtype."""
def mulhi(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Return the upper half of the double-width products of integers."""
def ne(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Return whether `x != y`, elementwise; random keys differ if some of their data differs."""
def neg(x: ArrayLike) -> Array:
    r"""Return `-x`, elementwise."""
def nextafter(x1: ArrayLike, x2: ArrayLike) -> Array:
    r"""Return the next float after `x1` in the direction of `x2`."""
def pad(operand: ArrayLike, padding_value: ArrayLike, padding_config: Sequence[tuple[int, int, int]]) -> Array:
    r"""Return `operand` padded with `padding_value` by (low, high, interior) per dim."""
def padtype_to_pads(in_shape: Sequence[int], window_shape: Sequence[int], window_strides: Sequence[int], padding: str) -> list[tuple[int, int]]:
    r"""Return low and high padding per spatial dim for 'SAME', 'SAME_LOWER' or 'VALID'."""
def pbroadcast(x: Any, axis_name: AxisName, source: int) -> Any:
    r"""Return the value of position `source` along the named axes, at all positions."""
def platform_dependent(*args: Any, default: Callable[..., Any] | None = None, **per_platform: Callable[..., Any]) -> Any:
    r"""Return the result of the function for the default platform on `args`."""
def polygamma(m: ArrayLike, x: ArrayLike) -> Array:
    r"""Return the derivative of order `m` of `digamma` at `x`; `m` has the dtype of `x`."""
def population_count(x: ArrayLike) -> Array:
    r"""Return the number of one bits of `x`."""
def pow(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Return `x` to the power `y`, elementwise; `y` has the dtype of `x` or is an integer."""
def pswapaxes(x: Any, axis_name: AxisName, axis: int, *, axis_index_groups: Any = None) -> Any:
    r"""Exchange the named axis with dim `axis`, which must have its size."""
def ragged_all_to_all(operand: Any, output: Any, input_offsets: Any, send_sizes: Any, output_offsets: Any, recv_sizes: Any, *, axis_name: Any, axis_index_groups: Any = None) -> Any:
    r"""Return `output` with rows overwritten by the rows sent to this position."""
def ragged_dot(lhs: Any, rhs: Any, group_sizes: Any, precision: PrecisionLike | None = None, preferred_element_type: DTypeLike | None = None, group_offset: Any = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return the product of `lhs` (m, k) with `rhs` (groups, k, n)."""
def ragged_dot_general(lhs: Any, rhs: Any, group_sizes: Any, ragged_dot_dimension_numbers: RaggedDotDimensionNumbers, precision: PrecisionLike | None = None, preferred_element_type: DTypeLike | None = None, group_offset: Any = None, out_sharding: NamedSharding | PartitionSpec | None = None) -> Any:
    r"""Return `dot_general` with a ragged dim of `lhs`, whose groups are consecutive."""
def random_gamma_grad(a: ArrayLike, x: ArrayLike) -> Array:
    r"""Return the derivative of a gamma sample `x` by its shape parameter `a`."""
def real(x: ArrayLike) -> Array:
    r"""Return the real part of complex `x`."""
def reciprocal(x: ArrayLike) -> Array:
    r"""Return `1 / x`, elementwise."""
def reduce(operands: Any, init_values: Any, computation: Callable[..., Any], dimensions: Sequence[int], out_sharding: NamedSharding | PartitionSpec | None = None) -> Any:
    r"""Return `operands` reduced over `dimensions` by `computation`, from `init_values`."""
def reduce_and(operand: ArrayLike, axes: Sequence[int]) -> Array:
    r"""Return the bitwise (or logical) and over the dims `axes`."""
def reduce_max(operand: ArrayLike, axes: Sequence[int]) -> Array:
    r"""Return the largest element of `operand` over the dims `axes`; NaN if there is one; the lowest value if there are no elements."""
def reduce_min(operand: ArrayLike, axes: Sequence[int]) -> Array:
    r"""Return the smallest element of `operand` over the dims `axes`; NaN if there is one."""
def reduce_or(operand: ArrayLike, axes: Sequence[int]) -> Array:
    r"""Return the bitwise (or logical) or over the dims `axes`."""
def reduce_precision(operand: ArrayLike, exponent_bits: int, mantissa_bits: int) -> Array:
    r"""Round `operand` to floats with the given bits of exponent and mantissa, in its own dtype."""
def reduce_prod(operand: ArrayLike, axes: Sequence[int]) -> Array:
    r"""Return the product of `operand` over the dims `axes`."""
def reduce_sum(operand: ArrayLike, axes: Sequence[int], *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return the sum of `operand` over the dims `axes`."""
def reduce_window(operand: Any, init_value: Any, computation: Callable[..., Any], window_dimensions: Sequence[int], window_strides: Sequence[int] | None = None, padding: str | Sequence[tuple[int, int]] = 'VALID', base_dilation: Sequence[int] | None = None, window_dilation: Sequence[int] | None = None) -> Any:
    r"""Return the reduction of every window of `operand` (pooling)."""
def reduce_window_shape_tuple(operand_shape: Sequence[int], window_dimensions: Sequence[int], window_strides: Sequence[int], padding: Sequence[tuple[int, int]], base_dilation: Sequence[int] | None = None, window_dilation: Sequence[int] | None = None) -> tuple[int, ...]:
    r"""Return the shape of `reduce_window`'s result."""
def reduce_xor(operand: ArrayLike, axes: Sequence[int]) -> Array:
    r"""Return the bitwise (or logical) exclusive or over the dims `axes`."""
def rem(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Return the remainder of `x / y` with the sign of `x`, elementwise."""
def reshape(operand: ArrayLike, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return `operand` in shape `new_sizes`, in row-major order after permutation by `dimensions`."""
def rev(operand: ArrayLike, dimensions: Sequence[int]) -> Array:
    r"""Return `operand` with the order along `dimensions` reversed."""
def rng_bit_generator(key: Any, shape: int | Sequence[SupportsIndex], dtype: DTypeLike | None = ..., algorithm: Any = ..., *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Any:
    r"""Return the next state and random bits of `shape` and an unsigned dtype."""
def round(x: ArrayLike, rounding_method: RoundingMethod = ...) -> Array:
    r"""Return the integer nearest to `x`, as a float; halves are rounded away from zero, or to even."""
def rsqrt(x: ArrayLike, *, accuracy: Any = None) -> Array:
    r"""Return `1 / sqrt(x)`."""
def scaled_dot(lhs: Any, rhs: Any, *, lhs_scale: Any = None, rhs_scale: Any = None, dimension_numbers: DotDimensionNumbers | None = None, preferred_element_type: DTypeLike | None = None) -> Any:
    r"""Return `dot_general(lhs * lhs_scale, rhs * rhs_scale)`."""
def scatter(operand: ArrayLike, scatter_indices: ArrayLike, updates: ArrayLike, dimension_numbers: ScatterDimensionNumbers, *, indices_are_sorted: bool = False, unique_indices: bool = False, mode: str | GatherScatterMode | None = None) -> Array:
    r"""Return `operand` with the windows at `scatter_indices` replaced by `updates`; of several for one place, one wins."""
def scatter_add(operand: ArrayLike, scatter_indices: ArrayLike, updates: ArrayLike, dimension_numbers: ScatterDimensionNumbers, *, indices_are_sorted: bool = False, unique_indices: bool = False, mode: str | GatherScatterMode | None = None) -> Array:
    r"""Return `operand` with `updates` added to the windows at `scatter_indices`; several for one place all count."""
def scatter_apply(operand: Any, scatter_indices: Any, func: Callable[..., Any], dimension_numbers: Any, *, update_shape: Sequence[int] = ..., indices_are_sorted: bool = False, unique_indices: bool = False, mode: str | GatherScatterMode | None = None) -> Any:
    r"""Return `operand` with elementwise `func` applied to the windows at `scatter_indices`."""
def scatter_max(operand: ArrayLike, scatter_indices: ArrayLike, updates: ArrayLike, dimension_numbers: ScatterDimensionNumbers, *, indices_are_sorted: bool = False, unique_indices: bool = False, mode: str | GatherScatterMode | None = None) -> Array:
    r"""Return `operand` with the windows at `scatter_indices` raised to `updates` where these are greater."""
def scatter_min(operand: ArrayLike, scatter_indices: ArrayLike, updates: ArrayLike, dimension_numbers: ScatterDimensionNumbers, *, indices_are_sorted: bool = False, unique_indices: bool = False, mode: str | GatherScatterMode | None = None) -> Array:
    r"""Return `operand` with the windows at `scatter_indices` lowered to `updates` where these are smaller."""
def scatter_mul(operand: ArrayLike, scatter_indices: ArrayLike, updates: ArrayLike, dimension_numbers: ScatterDimensionNumbers, *, indices_are_sorted: bool = False, unique_indices: bool = False, mode: str | GatherScatterMode | None = None) -> Array:
    r"""Return `operand` with the windows at `scatter_indices` multiplied by `updates`."""
def scatter_sub(operand: ArrayLike, scatter_indices: ArrayLike, updates: ArrayLike, dimension_numbers: ScatterDimensionNumbers, **options: Any) -> Array:
    r"""Return `operand` with `updates` subtracted from the windows at `scatter_indices`."""
def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Array:
    r"""Return `on_true` where `pred` holds, else `on_false`."""
def select_n(which: ArrayLike, *cases: ArrayLike) -> Array:
    r"""Return `cases[which]`, elementwise: `which` is bool (False selects the first case) or int32."""
def shape_as_value(shape: Sequence[int]) -> Any:
    r"""Return the sizes of `shape` as a vector of integers."""
def sharding_constraint(x: ArrayLike, sharding: Any) -> Array:
    r"""Return `x`, constrained to `sharding` wherever the program computes it."""
def shift_left(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Return `x << y`, elementwise."""
def shift_right_arithmetic(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Return `x >> y`, filled with copies of the sign bit, elementwise."""
def shift_right_logical(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Return `x >> y`, filled with zeros, elementwise."""
def sign(x: ArrayLike) -> Array:
    r"""Return -1, 0 or 1 as `x` is negative, zero or positive; x / |x| for complex `x`. Zeros and NaN are unchanged."""
def sin(x: ArrayLike, *, accuracy: Any = None) -> Array:
    r"""Return the sine of `x` in radians."""
def sinh(x: ArrayLike) -> Array:
    r"""Return the hyperbolic sine of `x`."""
def slice(operand: ArrayLike, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None) -> Array:
    r"""Return the elements from `start_indices` up to, not including, `limit_indices`."""
def slice_in_dim(operand: ArrayLike, start_index: int | SymbolicDim | None, limit_index: int | SymbolicDim | None, stride: int = 1, axis: int = 0) -> Array:
    r"""Return `operand[..., start:limit:stride, ...]` along dim `axis`."""
def split(operand: ArrayLike, sizes: Sequence[int], axis: int = 0) -> list[Array]:
    r"""Return the consecutive parts of `operand` with lengths `sizes` along dim `axis`."""
def sqrt(x: ArrayLike, *, accuracy: Any = None) -> Array:
    r"""Return the square root of `x`."""
def square(x: ArrayLike) -> Array:
    r"""Return `x * x`, elementwise."""
def squeeze(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    r"""Return `array` without `dimensions`, which must have size 1."""
def stack(operands: Sequence[Any], axis: int = 0) -> Array:
    r"""Join arrays of equal shape along a new dim."""
def stage(x: Any, /) -> Any:
    r"""Return a number or NumPy array as a value of the program being traced."""
def sub(x: ArrayLike, y: ArrayLike) -> Array:
    r"""Return `x - y`, elementwise."""
def tan(x: ArrayLike, *, accuracy: Any = None) -> Array:
    r"""Return the tangent of `x` in radians."""
def tanh(x: ArrayLike, *, accuracy: Any = None) -> Array:
    r"""Return the hyperbolic tangent of `x`."""
def tile(operand: Any, reps: Sequence[int]) -> Array:
    r"""Return `operand` repeated `reps[d]` times along dim d."""
def transpose(operand: ArrayLike, permutation: Sequence[int]) -> Array:
    r"""Return `operand` with its dims in the order `permutation`."""
def unstack(x: Any, axis: int = 0) -> tuple[Array, ...]:
    r"""Return the slices of an array along one dim, without the dim."""
def zeta(x: ArrayLike, q: ArrayLike) -> Array:
    r"""Return the Hurwitz zeta function, the sum of 1 / (q + k)^x over k = 0, 1, ..."""

__all__ = [
    "AccuracyMode", "ConvDimensionNumbers", "ConvGeneralDilatedDimensionNumbers", "DotAlgorithm",
    "DotAlgorithmPreset", "DotDimensionNumbers", "FftType", "GatherDimensionNumbers",
    "GatherScatterMode", "Precision", "PrecisionLike", "RaggedDotDimensionNumbers",
    "RandomAlgorithm", "RoundingMethod", "ScatterDimensionNumbers", "Tolerance", "abs", "abs_p",
    "acos", "acos_p", "acosh", "acosh_p", "add", "add_p", "after_all", "all_gather",
    "all_gather_invariant", "all_gather_invariant_p", "all_gather_p", "all_to_all", "all_to_all_p",
    "and_p", "approx_max_k", "approx_min_k", "argmax", "argmax_p", "argmin", "argmin_p", "asin",
    "asin_p", "asinh", "asinh_p", "associative_scan", "atan", "atan2", "atan2_p", "atan_p",
    "atanh", "atanh_p", "axis_index", "axis_index_p", "axis_size", "batch_matmul", "bessel_i0e",
    "bessel_i0e_p", "bessel_i1e", "bessel_i1e_p", "betainc", "bitcast_convert_type",
    "bitcast_convert_type_p", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor",
    "broadcast", "broadcast_in_dim", "broadcast_in_dim_p", "broadcast_like", "broadcast_shapes",
    "broadcast_to_rank", "broadcasted_iota", "cbrt", "cbrt_p", "ceil", "ceil_p", "clamp",
    "clamp_p", "clz", "clz_p", "collapse", "complex", "complex_p", "composite", "concatenate",
    "concatenate_p", "cond", "cond_p", "conj", "conj_p", "conv", "conv_dimension_numbers",
    "conv_general_dilated", "conv_general_dilated_local", "conv_general_dilated_p",
    "conv_general_dilated_patches", "conv_general_permutations", "conv_general_shape_tuple",
    "conv_shape_tuple", "conv_transpose", "conv_transpose_shape_tuple",
    "conv_with_general_padding", "convert_element_type", "convert_element_type_p", "copy_p", "cos",
    "cos_p", "cosh", "cosh_p", "create_token", "cumlogsumexp", "cumlogsumexp_p", "cummax",
    "cummax_p", "cummin", "cummin_p", "cumprod", "cumprod_p", "cumsum", "cumsum_p",
    "custom_linear_solve", "custom_root", "dce_sink", "digamma", "digamma_p", "div", "div_p",
    "dot", "dot_general", "dot_general_p", "dtype", "dynamic_index_in_dim", "dynamic_slice",
    "dynamic_slice_in_dim", "dynamic_slice_p", "dynamic_update_index_in_dim",
    "dynamic_update_slice", "dynamic_update_slice_in_dim", "dynamic_update_slice_p", "empty", "eq",
    "eq_p", "erf", "erf_inv", "erf_inv_p", "erf_p", "erfc", "erfc_p", "exp", "exp2", "exp2_p",
    "exp_p", "expand_dims", "expm1", "expm1_p", "fft", "fft_p", "floor", "floor_p", "fori_loop",
    "full", "full_like", "gather", "gather_p", "ge", "ge_p", "gt", "gt_p", "igamma",
    "igamma_grad_a", "igamma_grad_a_p", "igamma_p", "igammac", "igammac_p", "imag", "imag_p",
    "index_in_dim", "index_take", "integer_pow", "integer_pow_p", "iota", "iota_p", "is_finite",
    "is_finite_p", "le", "le_p", "lgamma", "lgamma_p", "linalg", "linear_solve_p", "log", "log1p",
    "log1p_p", "log_p", "logistic", "logistic_p", "lt", "lt_p", "map", "max", "max_p", "min",
    "min_p", "mul", "mul_p", "mulhi", "ne", "ne_p", "neg", "neg_p", "nextafter", "nextafter_p",
    "not_p", "optimization_barrier", "optimization_barrier_p", "or_p", "pad", "pad_p",
    "padtype_to_pads", "pbroadcast", "pbroadcast_p", "pcast", "platform_dependent", "pmax",
    "pmax_p", "pmean", "pmin", "pmin_p", "polygamma", "polygamma_p", "population_count",
    "population_count_p", "pow", "pow_p", "ppermute", "ppermute_p", "pshuffle", "psum", "psum_p",
    "psum_scatter", "pswapaxes", "pvary", "pvary_p", "ragged_all_to_all", "ragged_all_to_all_p",
    "ragged_dot", "ragged_dot_general", "random_gamma_grad", "random_gamma_grad_p", "real",
    "real_p", "reciprocal", "reduce", "reduce_and", "reduce_and_p", "reduce_max", "reduce_max_p",
    "reduce_min", "reduce_min_p", "reduce_or", "reduce_or_p", "reduce_precision",
    "reduce_precision_p", "reduce_prod", "reduce_prod_p", "reduce_sum", "reduce_sum_p",
    "reduce_window", "reduce_window_shape_tuple", "reduce_xor", "reduce_xor_p",
    "regularized_incomplete_beta_p", "rem", "rem_p", "reshape", "reshape_p", "rev", "rev_p",
    "rng_bit_generator", "round", "round_p", "rsqrt", "rsqrt_p", "scaled_dot", "scan", "scan_p",
    "scatter", "scatter_add", "scatter_add_p", "scatter_apply", "scatter_max", "scatter_max_p",
    "scatter_min", "scatter_min_p", "scatter_mul", "scatter_mul_p", "scatter_p", "scatter_sub",
    "select", "select_n", "select_n_p", "shape_as_value", "sharding_constraint",
    "sharding_constraint_p", "shift_left", "shift_left_p", "shift_right_arithmetic",
    "shift_right_arithmetic_p", "shift_right_logical", "shift_right_logical_p", "sign", "sign_p",
    "sin", "sin_p", "sinh", "sinh_p", "slice", "slice_in_dim", "slice_p", "sort", "sort_key_val",
    "sort_p", "split", "sqrt", "sqrt_p", "square", "square_p", "squeeze", "squeeze_p", "stack",
    "stage", "stop_gradient", "stop_gradient_p", "sub", "sub_p", "switch", "tan", "tan_p", "tanh",
    "tanh_p", "tile", "top_k", "top_k_p", "transpose", "transpose_p", "unstack", "while_loop",
    "while_p", "with_sharding_constraint", "xor_p", "zeta", "zeta_p",
]
