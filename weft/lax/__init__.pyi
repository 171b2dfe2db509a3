"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft._engine.control.cond import cond, cond_p, switch
from weft._engine.control.implicit_solves import custom_linear_solve, custom_root, linear_solve_p
from weft._engine.control.loops import fori_loop, map
from weft._engine.control.scan import scan, scan_p
from weft._engine.control.while_loop import while_loop, while_p
from weft._engine.lax.bit_generator import rng_bit_generator
from weft._engine.lax.block_scaled_products import scaled_dot
from weft._engine.lax.composed import (
    approx_max_k, approx_min_k, associative_scan, broadcast_like, broadcast_shapes,
    broadcast_to_rank, clamp, composite, cummax, cummin, dce_sink, dtype, empty, full_like,
    index_take, optimization_barrier, platform_dependent, shape_as_value, sort_key_val, stack,
    stage, stop_gradient, tile, unstack, with_sharding_constraint,
)
from weft._engine.lax.convolutions import (
    ConvGeneralDilatedDimensionNumbers, conv_general_dilated_local, conv_general_permutations,
    conv_general_shape_tuple, conv_shape_tuple, conv_transpose_shape_tuple,
)
from weft._engine.lax.ragged import (
    RaggedDotDimensionNumbers, ragged_dot, ragged_dot_general,
)
from weft._engine.lax.scatter_apply import scatter_apply
from weft._engine.lax.tokens import after_all, create_token
from weft._engine.lax.window_reductions import (
    reduce_by as reduce, reduce_window, reduce_window_shape_tuple,
)
from weft._engine.ops.accuracy import AccuracyMode, Tolerance
from weft._engine.ops.arithmetic import (
    abs, abs_p, add, add_p, div, div_p, integer_pow, integer_pow_p, max, max_p, min, min_p, mul,
    mul_p, neg, neg_p, reciprocal, rem, rem_p, sign, sign_p, square, square_p, stop_gradient_p,
    sub, sub_p,
)
from weft._engine.ops.bit_generator import RandomAlgorithm
from weft._engine.ops.bitwise import (
    and_p, bitwise_and, bitwise_not, bitwise_or, bitwise_xor, clz, clz_p, mulhi, not_p, or_p,
    population_count, population_count_p, shift_left, shift_left_p, shift_right_arithmetic,
    shift_right_arithmetic_p, shift_right_logical, shift_right_logical_p, xor_p,
)
from weft._engine.ops.casting import (
    bitcast_convert_type, bitcast_convert_type_p, complex, complex_p, conj, conj_p,
    convert_element_type, convert_element_type_p, imag, imag_p, real, real_p,
)
from weft._engine.ops.collective_rules import (
    all_gather_invariant_p, all_gather_p, all_to_all_p, axis_index_p, pbroadcast_p, pmax_p, pmin_p,
    ppermute_p, psum_p, pvary_p,
)
from weft._engine.ops.collectives import (
    all_gather, all_gather_invariant, all_to_all, axis_index, axis_size, pbroadcast, pcast, pmax,
    pmean, pmin, ppermute, pshuffle, psum, psum_scatter, pswapaxes, pvary,
)
from weft._engine.ops.comparison import (
    clamp_p, eq, eq_p, ge, ge_p, gt, gt_p, le, le_p, lt, lt_p, ne, ne_p, select, select_n,
    select_n_p,
)
from weft._engine.ops.contraction import (
    DotAlgorithm, DotAlgorithmPreset, DotDimensionNumbers, Precision, PrecisionLike, batch_matmul,
    dot, dot_general, dot_general_p,
)
from weft._engine.ops.convolution import (
    ConvDimensionNumbers, conv, conv_dimension_numbers, conv_general_dilated,
    conv_general_dilated_p, conv_general_dilated_patches, conv_transpose,
    conv_with_general_padding, padtype_to_pads,
)
from weft._engine.ops.dynamic_slicing import (
    dynamic_index_in_dim, dynamic_slice, dynamic_slice_in_dim, dynamic_slice_p,
    dynamic_update_index_in_dim, dynamic_update_slice, dynamic_update_slice_in_dim,
    dynamic_update_slice_p,
)
from weft._engine.ops.fft import FftType, fft, fft_p
from weft._engine.ops.functions import (
    RoundingMethod, acos, acos_p, acosh, acosh_p, asin, asin_p, asinh, asinh_p, atan, atan2,
    atan2_p, atan_p, atanh, atanh_p, bessel_i0e, bessel_i0e_p, bessel_i1e, bessel_i1e_p, betainc,
    cbrt, cbrt_p, ceil, ceil_p, cos, cos_p, cosh, cosh_p, digamma, digamma_p, erf, erf_inv,
    erf_inv_p, erf_p, erfc, erfc_p, exp, exp2, exp2_p, exp_p, expm1, expm1_p, floor, floor_p,
    igamma, igamma_grad_a, igamma_grad_a_p, igamma_p, igammac, igammac_p, is_finite, is_finite_p,
    lgamma, lgamma_p, log, log1p, log1p_p, log_p, logistic, logistic_p, nextafter, nextafter_p,
    polygamma, polygamma_p, pow, pow_p, random_gamma_grad, random_gamma_grad_p,
    regularized_incomplete_beta_p, round, round_p, rsqrt, rsqrt_p, sin, sin_p, sinh, sinh_p, sqrt,
    sqrt_p, tan, tan_p, tanh, tanh_p, zeta, zeta_p,
)
from weft._engine.ops.indexing import (
    GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers, gather, gather_p, scatter,
    scatter_add, scatter_add_p, scatter_max, scatter_max_p, scatter_min, scatter_min_p,
    scatter_mul, scatter_mul_p, scatter_p, scatter_sub,
)
from weft._engine.ops.layout import (
    broadcast, broadcast_in_dim, broadcast_in_dim_p, broadcasted_iota, collapse, copy_p,
    expand_dims, full, iota, iota_p, reshape, reshape_p, rev, rev_p, squeeze, squeeze_p, transpose,
    transpose_p,
)
from weft._engine.ops.placement import (
    optimization_barrier_p, sharding_constraint, sharding_constraint_p,
)
from weft._engine.ops.precision import reduce_precision, reduce_precision_p
from weft._engine.ops.prefix_scans import cumlogsumexp, cumlogsumexp_p
from weft._engine.ops.ragged_all_to_all import ragged_all_to_all, ragged_all_to_all_p
from weft._engine.ops.reduce import (
    argmax, argmax_p, argmin, argmin_p, cummax_p, cummin_p, cumprod, cumprod_p, cumsum, cumsum_p,
    reduce_and, reduce_and_p, reduce_max, reduce_max_p, reduce_min, reduce_min_p, reduce_or,
    reduce_or_p, reduce_prod, reduce_prod_p, reduce_sum, reduce_sum_p, reduce_xor, reduce_xor_p,
)
from weft._engine.ops.slicing import (
    concatenate, concatenate_p, index_in_dim, pad, pad_p, slice, slice_in_dim, slice_p, split,
)
from weft._engine.ops.sorting import sort, sort_p, top_k, top_k_p
from weft.lax import linalg

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
