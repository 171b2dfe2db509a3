"""The operations themselves, with their own semantics: equal dtypes, explicit dims, no promotion of ranks.

This module only exports names: operations are defined in their families under `weft._engine.ops`, and functions composed of
operations in `weft._engine.lax.composed`. Names are loaded on first use.

>>> lax.reduce_sum(lax.square(lax.iota("int32", 4)), (0,)).item()
14
"""

import weft
from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft._engine.control.cond": "cond cond_p switch",
        "weft._engine.control.loops": "fori_loop map",
        "weft._engine.control.scan": "scan scan_p",
        "weft._engine.control.implicit_solves": "custom_linear_solve custom_root linear_solve_p",
        "weft._engine.control.while_loop": "while_loop while_p",
        "weft._engine.lax.composed": """
        approx_max_k approx_min_k associative_scan broadcast_like broadcast_shapes broadcast_to_rank
        clamp composite cummax cummin dce_sink dtype empty full_like index_take
        optimization_barrier platform_dependent shape_as_value sort_key_val stack stage stop_gradient tile unstack with_sharding_constraint
    """,
        "weft._engine.lax.convolutions": """
        ConvGeneralDilatedDimensionNumbers conv_general_dilated_local conv_general_permutations conv_general_shape_tuple
        conv_shape_tuple conv_transpose_shape_tuple
    """,
        "weft._engine.lax.scatter_apply": "scatter_apply",
        "weft._engine.lax.ragged": "RaggedDotDimensionNumbers ragged_dot ragged_dot_general",
        "weft._engine.lax.block_scaled_products": "scaled_dot",
        "weft._engine.lax.tokens": "after_all create_token",
        "weft._engine.lax.window_reductions": "reduce=reduce_by reduce_window reduce_window_shape_tuple",
        "weft._engine.ops.accuracy": "AccuracyMode Tolerance",
        "weft._engine.ops.arithmetic": """
        abs abs_p add add_p div div_p integer_pow integer_pow_p max max_p min min_p mul mul_p neg neg_p reciprocal rem rem_p
        sign sign_p square square_p stop_gradient_p sub sub_p
    """,
        "weft._engine.ops.bitwise": """
        and_p bitwise_and bitwise_not bitwise_or bitwise_xor clz clz_p mulhi not_p or_p population_count population_count_p shift_left
        shift_left_p shift_right_arithmetic shift_right_arithmetic_p shift_right_logical shift_right_logical_p xor_p
    """,
        "weft._engine.ops.casting": """
        bitcast_convert_type bitcast_convert_type_p complex complex_p conj conj_p convert_element_type convert_element_type_p imag
        imag_p real real_p
    """,
        "weft._engine.lax.bit_generator": "rng_bit_generator",
        "weft._engine.ops.bit_generator": "RandomAlgorithm",
        "weft._engine.ops.collective_rules": """
        all_gather_invariant_p all_gather_p all_to_all_p axis_index_p pbroadcast_p pmax_p pmin_p ppermute_p psum_p pvary_p
    """,
        "weft._engine.ops.collectives": """
        all_gather all_gather_invariant all_to_all axis_index axis_size pbroadcast pcast pmax pmean pmin ppermute pshuffle psum
        psum_scatter pswapaxes pvary
    """,
        "weft._engine.ops.comparison": "clamp_p eq eq_p ge ge_p gt gt_p le le_p lt lt_p ne ne_p select select_n select_n_p",
        "weft._engine.ops.contraction": """
        DotAlgorithm DotAlgorithmPreset DotDimensionNumbers Precision PrecisionLike batch_matmul dot dot_general dot_general_p
    """,
        "weft._engine.ops.convolution": """
        ConvDimensionNumbers conv conv_dimension_numbers conv_general_dilated conv_general_dilated_p conv_general_dilated_patches
        conv_transpose conv_with_general_padding padtype_to_pads
    """,
        "weft._engine.ops.dynamic_slicing": """
        dynamic_index_in_dim dynamic_slice dynamic_slice_in_dim dynamic_slice_p dynamic_update_index_in_dim dynamic_update_slice
        dynamic_update_slice_in_dim dynamic_update_slice_p
    """,
        "weft._engine.ops.fft": "FftType fft fft_p",
        "weft._engine.ops.functions": """
        RoundingMethod acos acos_p acosh acosh_p asin asin_p asinh asinh_p atan atan2 atan2_p atan_p atanh atanh_p bessel_i0e
        bessel_i0e_p bessel_i1e bessel_i1e_p betainc cbrt cbrt_p ceil ceil_p cos cos_p cosh cosh_p digamma digamma_p erf erf_inv
        erf_inv_p erf_p erfc erfc_p exp exp2 exp2_p exp_p expm1 expm1_p floor floor_p igamma igamma_grad_a igamma_grad_a_p
        igamma_p igammac igammac_p is_finite is_finite_p lgamma lgamma_p log log1p log1p_p log_p logistic logistic_p nextafter
        nextafter_p polygamma polygamma_p pow pow_p random_gamma_grad random_gamma_grad_p regularized_incomplete_beta_p round
        round_p rsqrt rsqrt_p sin sin_p sinh sinh_p sqrt sqrt_p tan tan_p tanh tanh_p zeta zeta_p
    """,
        "weft._engine.ops.indexing": """
        GatherDimensionNumbers GatherScatterMode ScatterDimensionNumbers gather gather_p scatter scatter_add scatter_add_p
        scatter_max scatter_max_p scatter_min scatter_min_p scatter_mul scatter_mul_p scatter_p scatter_sub
    """,
        "weft._engine.ops.layout": """
        broadcast broadcast_in_dim broadcast_in_dim_p broadcasted_iota collapse copy_p expand_dims full iota iota_p
        reshape reshape_p rev rev_p squeeze squeeze_p transpose transpose_p
    """,
        "weft._engine.ops.placement": "optimization_barrier_p sharding_constraint sharding_constraint_p",
        "weft._engine.ops.precision": "reduce_precision reduce_precision_p",
        "weft._engine.ops.prefix_scans": "cumlogsumexp cumlogsumexp_p",
        "weft._engine.ops.ragged_all_to_all": "ragged_all_to_all ragged_all_to_all_p",
        "weft._engine.ops.reduce": """
        argmax argmax_p argmin argmin_p cummax_p cummin_p cumprod cumprod_p cumsum cumsum_p reduce_and reduce_and_p
        reduce_max reduce_max_p reduce_min reduce_min_p reduce_or reduce_or_p reduce_prod reduce_prod_p reduce_sum reduce_sum_p
        reduce_xor reduce_xor_p
    """,
        "weft._engine.ops.slicing": "concatenate concatenate_p index_in_dim pad pad_p slice slice_in_dim slice_p split",
        "weft._engine.ops.sorting": "sort sort_p top_k top_k_p",
        __name__: "linalg",
    },
    others="weft._engine.ops.functions",
    guards=True,
)

# The hook of `weft._engine.api`: functions that trace, as `cond` and `scan`, return arrays, whose methods are in `weft.numpy`.
weft.numpy  # noqa: B018  (loads it)
