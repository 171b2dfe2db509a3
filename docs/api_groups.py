"""The contents of the API reference: the public modules by subject, and the functions of large modules by group.

In:  nothing.
Out: `MODULES`, heading -> modules; `GROUPS`, module -> title -> names. A module without groups has one page.
Law: every function and class of a module in `GROUPS` is in exactly one group. Dtypes, exceptions, values and primitives form groups
     of their own unless they are listed.
"""

#: heading -> public modules
MODULES = {
    "Programs": [
        "weft",
        "weft.stages",
        "weft.sharding",
        "weft.debug",
        "weft.profiler",
        "weft.auto",
        "weft.tools.explain",
    ],
    "Arrays": [
        "weft.numpy",
        "weft.numpy.fft",
        "weft.numpy.linalg",
        "weft.lax",
        "weft.lax.linalg",
        "weft.random",
        "weft.segment_ops",
        "weft.ops",
        "weft.image",
    ],
    "Custom rules": ["weft.custom_derivatives", "weft.custom_batching"],
    "Mutable arrays": ["weft.ref", "weft.ad"],
    "Models": [
        "weft.nn",
        "weft.nn.initializers",
        "weft.example_libraries.optimizers",
        "weft.example_libraries.stax",
    ],
    "SciPy": [
        "weft.scipy.cluster.vq",
        "weft.scipy.fft",
        "weft.scipy.integrate",
        "weft.scipy.interpolate",
        "weft.scipy.linalg",
        "weft.scipy.ndimage",
        "weft.scipy.optimize",
        "weft.scipy.signal",
        "weft.scipy.sparse.linalg",
        "weft.scipy.spatial.transform",
        "weft.scipy.special",
        "weft.scipy.stats",
    ],
    "Several processes": ["weft.distributed"],
    "Checkpoints and data": ["weft.checkpoint", "weft.data"],
    "Trees and types": [
        "weft.tree",
        "weft.tree_util",
        "weft.flatten_util",
        "weft.dtypes",
        "weft.typing",
        "weft.errors",
    ],
    "Tools and experiments": [
        "weft.compat",
        "weft.export",
        "weft.ffi",
        "weft.monitoring",
        "weft.experimental",
        "weft.experimental.checkify",
        "weft.experimental.colocated_python",
        "weft.experimental.hijax",
        "weft.experimental.key_reuse",
        "weft.experimental.mesh_utils",
        "weft.experimental.multihost_utils",
        "weft.experimental.ode",
        "weft.experimental.pallas",
        "weft.experimental.roofline",
        "weft.experimental.shard_alike",
        "weft.experimental.pallas.tpu",
        "weft.experimental.pallas.triton",
        "weft.test_util",
    ],
    "For libraries": [
        "weft.core",
        "weft.extend.core",
        "weft.interpreters.ad",
        "weft.interpreters.batching",
        "weft.interpreters.mlir",
        "weft.interpreters.partial_eval",
        "weft.extend.linear_util",
        "weft.api_util",
        "weft.extend.backend",
        "weft.extend.random",
        "weft.extend.source_info_util",
        "weft.experimental.custom_partitioning",
    ],
}

#: modules whose submodules are on the page of the module
TOGETHER = {"weft.scipy.stats"}

#: documented before other modules that have the same objects
FIRST = ("weft.sharding", "weft.stages", "weft.extend.core")

#: module -> title of a group -> names
GROUPS = {
    "weft": {
        "Compile, map and shard": """checkpoint_policies disable_jit ensure_compile_time_eval eval_jaxpr eval_shape
            jit make_jaxpr named_call named_scope pmap pure_callback remat ShapeDtypeStruct shard_map smap
            softmax_custom_jvp typeof vmap""",
        "Derivatives": """closure_convert custom_gradient custom_jvp custom_vjp fwd_and_bwd grad hessian jacfwd
            jacobian jacrev jvp linear_transpose linearize value_and_grad vjp""",
        "Devices and placement": """AUTO copy_to_host_async Device default_backend default_device device_count
            device_get device_put device_put_replicated device_put_sharded devices host_count host_id host_ids
            live_arrays local_device_count local_devices make_array_from_callback make_array_from_process_local_data
            make_array_from_single_device_arrays make_mesh Mesh NamedSharding P PartitionSpec PositionalSharding
            process_count process_index process_indices remove_size_one_mesh_axis_from_type reshard set_mesh Shard
            block_until_ready""",
        "Checks and settings": """allow_f16_reductions check_tracer_leaks checking_leaks clear_caches config
            debug_infs debug_key_reuse debug_nans default_matmul_precision default_prng_impl effects_barrier
            enable_checks enable_custom_prng enable_x64 explain explain_cache_misses legacy_prng_key log_compiles
            make_user_context no_execution no_tracing numpy_dtype_promotion numpy_rank_promotion
            print_environment_info threefry_partitionable transfer_guard transfer_guard_device_to_device
            transfer_guard_device_to_host transfer_guard_host_to_device""",
        "Mutable arrays": "empty_ref free_ref freeze new_ref Ref",
        "Array": "Array",
    },
    "weft.sharding": {
        "Meshes": """AbstractDevice AbstractMesh AxisType get_abstract_mesh get_mesh make_mesh ManualAxisType Mesh
            set_mesh use_abstract_mesh use_mesh""",
        "Specs": "auto_axes explicit_axes MemorySpace P PartitionSpec reshard UNCONSTRAINED UnreducedKind",
        "Shardings": """make_single_device_sharding NamedSharding PmapSharding PositionalSharding Sharding
            SingleDeviceSharding""",
    },
    "weft.auto": {
        "Sharding plans": "Comparison load measure plan shardings ShardingPlan",
        "Training plans": """Cluster find_machine find_model Machine MACHINES TrainingLayout TrainingPlan
            TrainingPrecision TransformerModel""",
    },
    "weft.numpy": {
        "Create arrays": """arange array asarray copy diag diagflat empty empty_like eye from_dlpack frombuffer
            fromfile fromfunction fromiter frompyfunc fromstring full full_like geomspace identity indices linspace
            load logspace meshgrid ones ones_like save savez tri tril triu vander zeros zeros_like astype""",
        "Arithmetic": """abs absolute add clip divide divmod fabs floor_divide fmax fmin fmod gcd heaviside hypot lcm
            maximum minimum mod multiply negative positive reciprocal remainder sign square subtract true_divide""",
        "Powers, logarithms and rounding": """around cbrt ceil copysign exp exp2 expm1 fix float_power floor frexp i0
            ldexp log log10 log1p log2 logaddexp logaddexp2 modf nan_to_num nextafter pow power rint round signbit
            sinc spacing sqrt trunc""",
        "Trigonometry and complex numbers": """acos acosh angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh
            asin asinh atan atan2 atanh conj conjugate cos cosh deg2rad degrees imag rad2deg radians real sin sinh
            tan tanh unwrap""",
        "Logic and bits": """all allclose any array_equal array_equiv bitwise_and bitwise_count bitwise_invert
            bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor equal greater greater_equal
            invert isclose iscomplex iscomplexobj isfinite isinf isnan isneginf isposinf isreal isrealobj isscalar
            left_shift less less_equal logical_and logical_not logical_or logical_xor not_equal packbits right_shift
            unpackbits""",
        "Reductions and cumulative sums": """amax amin average count_nonzero cumprod cumsum cumulative_prod
            cumulative_sum diff ediff1d gradient max mean min nancumprod nancumsum nanmax nanmean nanmin nanprod
            nanstd nansum nanvar prod ptp std sum trapezoid var""",
        "Statistics and signals": """bincount convolve corrcoef correlate cov digitize histogram histogram2d
            histogram_bin_edges histogramdd interp median nanmedian nanpercentile nanquantile percentile quantile""",
        "Shapes": """atleast_1d atleast_2d atleast_3d broadcast_arrays broadcast_shapes broadcast_to expand_dims flip
            fliplr flipud matrix_transpose moveaxis ndim permute_dims ravel reshape resize roll rollaxis rot90 shape
            size squeeze swapaxes transpose""",
        "Join, split and repeat": """append array_split block column_stack concat concatenate delete dsplit dstack
            hsplit hstack insert pad repeat split stack tile trim_zeros unstack vsplit vstack""",
        "Indexing and selection": """argwhere c_ choose compress diag_indices diag_indices_from diagonal extract
            fill_diagonal flatnonzero index_exp ix_ mask_indices mgrid newaxis nonzero ogrid piecewise place put
            put_along_axis r_ ravel_multi_index s_ select take take_along_axis tril_indices tril_indices_from
            triu_indices triu_indices_from unravel_index where""",
        "Sorting and sets": """argmax argmin argpartition argsort intersect1d isin lexsort nanargmax nanargmin
            partition searchsorted setdiff1d setxor1d sort sort_complex union1d unique unique_all unique_counts
            unique_inverse unique_values""",
        "Products and polynomials": """cross dot einsum einsum_path inner kron matmul matvec outer poly polyadd
            polyder polydiv polyfit polyint polymul polysub polyval roots tensordot trace vdot vecdot vecmat""",
        "Functions of functions and windows": """apply_along_axis apply_over_axes bartlett blackman hamming hanning
            kaiser ufunc vectorize iterable""",
        "Types and printing": """array_repr array_str can_cast canonicalize_dtype character complexfloating dtype
            extended finfo flexible floating generic get_printoptions iinfo inexact integer isdtype issubdtype
            itemsize_bits number object_ printoptions prng_key promote_types result_type scalar_type_of
            set_printoptions signedinteger unsignedinteger ndarray""",
    },
    "weft.lax": {
        "Arithmetic and functions": """abs acos acosh add asin asinh atan atan2 atanh cbrt ceil clamp complex conj
            cos cosh div exp exp2 expm1 floor imag integer_pow log log1p logistic max min mul mulhi neg nextafter
            pow real reciprocal reduce_precision rem round rsqrt sign sin sinh sqrt square sub tan tanh""",
        "Comparisons, bits and special functions": """bessel_i0e bessel_i1e betainc bitwise_and bitwise_not
            bitwise_or bitwise_xor clz digamma eq erf erf_inv erfc ge gt igamma igamma_grad_a igammac is_finite le
            lgamma lt ne polygamma population_count random_gamma_grad select select_n shift_left
            shift_right_arithmetic shift_right_logical zeta""",
        "Control flow": """associative_scan cond custom_linear_solve custom_root fori_loop map
            optimization_barrier platform_dependent scan stage stop_gradient switch while_loop composite dce_sink
            after_all create_token""",
        "Collectives and sharding": """all_gather all_gather_invariant all_to_all axis_index axis_size pbroadcast
            pcast pmax pmean pmin ppermute pshuffle psum psum_scatter pswapaxes pvary ragged_all_to_all
            sharding_constraint with_sharding_constraint""",
        "Shapes and dtypes": """bitcast_convert_type broadcast broadcast_in_dim broadcast_like broadcast_shapes
            broadcast_to_rank broadcasted_iota collapse concatenate convert_element_type dtype empty expand_dims
            full full_like iota pad reshape rev shape_as_value split squeeze stack tile transpose unstack""",
        "Slices, gather and scatter": """dynamic_index_in_dim dynamic_slice dynamic_slice_in_dim
            dynamic_update_index_in_dim dynamic_update_slice dynamic_update_slice_in_dim gather
            GatherDimensionNumbers GatherScatterMode index_in_dim index_take scatter scatter_add scatter_apply
            scatter_max scatter_min scatter_mul scatter_sub ScatterDimensionNumbers slice slice_in_dim""",
        "Reductions, scans and sorting": """approx_max_k approx_min_k argmax argmin cumlogsumexp cummax cummin
            cumprod cumsum reduce reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum reduce_window
            reduce_window_shape_tuple reduce_xor sort sort_key_val top_k""",
        "Convolutions": """conv conv_dimension_numbers conv_general_dilated conv_general_dilated_local
            conv_general_dilated_patches conv_general_permutations conv_general_shape_tuple conv_shape_tuple
            conv_transpose conv_transpose_shape_tuple conv_with_general_padding ConvDimensionNumbers
            ConvGeneralDilatedDimensionNumbers padtype_to_pads""",
        "Products and transforms": """AccuracyMode batch_matmul dot dot_general DotAlgorithm DotAlgorithmPreset
            DotDimensionNumbers fft FftType Precision PrecisionLike ragged_dot ragged_dot_general
            RaggedDotDimensionNumbers RandomAlgorithm rng_bit_generator RoundingMethod scaled_dot Tolerance""",
    },
    "weft.random": {
        "Keys": """clone fold_in key key_data key_dtype key_impl key_impl_names PRNGKey split wrap_key_data""",
        "Continuous distributions": """ball beta cauchy chisquare dirichlet double_sided_maxwell exponential f gamma
            generalized_normal gumbel laplace loggamma logistic lognormal maxwell multivariate_normal normal
            orthogonal pareto rayleigh t triangular truncated_normal uniform wald weibull_min""",
        "Discrete distributions and sampling": """bernoulli binomial bits categorical choice geometric multinomial
            permutation poisson rademacher randint""",
    },
    "weft.scipy.linalg": {
        "Decompositions and solvers": """cho_factor cho_solve cholesky det eigh eigh_tridiagonal hessenberg inv lu
            lu_factor lu_solve polar qr qr_multiply rsf2csf schur solve solve_sylvester solve_triangular svd""",
        "Matrix functions and special matrices": """block_diag circulant companion convolution_matrix dft expm
            expm_frechet fiedler fiedler_companion funm hadamard hankel helmert hilbert invhilbert invpascal leslie
            pascal sqrtm toeplitz""",
    },
    "weft.scipy.special": {
        "Gamma, beta and error functions": """beta betainc betaln comb dawsn digamma erf erfc erfcx erfinv factorial
            gamma gammainc gammaincc gammaln gammasgn log_ndtr loggamma multigammaln ndtr ndtri owens_t poch
            polygamma wofz zeta""",
        "Other functions": """bernoulli bessel_jn boxcox boxcox1p entr exp1 expi expit expn fresnel hyp1f1 hyp2f1 i0
            i0e i1 i1e kl_div log_softmax logit logsumexp lpmn lpmn_values rel_entr sici softmax spence sph_harm_y
            xlog1py xlogy""",
    },
    "weft.extend.core": {
        "Programs": """check_jaxpr ClosedJaxpr DebugInfo DropVar Effect Effects eval_context gensym Jaxpr JaxprEqn
            JaxprTypeError jaxpr_as_fun jaxprs_in_params Literal new_jaxpr_eqn no_effects ParamDict subjaxprs
            Atom Value Var""",
        "Types and primitives": """AbstractToken AbstractValue array_types call_impl CallPrimitive
            InconclusiveDimensionOperation mapped_aval max_dim min_dim Primitive primal_dtype_to_tangent_dtype
            ShapedArray Token unmapped_aval valid_jaxtype""",
        "Traces": """concrete_or_error find_top_trace get_opaque_trace_state is_concrete
            nonempty_axis_env_DO_NOT_USE set_current_trace take_current_trace Trace trace_state_clean Tracer TraceTag
            unsafe_am_i_under_a_jit_DO_NOT_USE unsafe_am_i_under_a_vmap_DO_NOT_USE
            unsafe_get_axis_names_DO_NOT_USE""",
    },
    "weft.experimental.pallas": {
        "Kernels and blocks": """ANY align_to Blocked BlockDim BlockSpec BoundedSlice Buffered CostEstimate
            DeviceIdType Element estimate_cost GridSpec HOST MemoryRef MemorySpace no_block_spec pallas_call
            pallas_call_p RevisitMode Squeezed squeezed enable_debug_checks enable_poison_buffers""",
        "Inside a kernel": """broadcast_to cdiv debug_check debug_print delay dot ds dslice empty empty_like
            empty_ref_like get_global load loop multiple_of next_power_of_2 num_programs program_id reciprocal
            run_scoped run_state select_ref semaphore_read semaphore_signal semaphore_wait Slice store
            strides_from_shape swap when with_scoped""",
    },
    "weft.experimental.hijax": {
        "Types": """AbstractRef AbstractValue aval_method aval_property AvalMutableQDD AvalQDD HiPspec HiType
            MappingSpec MutableHiType register_hitype ShapedArray TransformedRef""",
        "Primitives and derivatives": """control_flow_allowed_effects GradAccum HiPrimitive instantiate_zeros
            is_undefined_primal jvp_from_lin linearize_from_jvp NullAccum RefAccum ValAccum vjp_from_jvp
            vjp_from_lin VJPHiPrimitive Zero""",
    },
}
