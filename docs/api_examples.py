"""Examples of functions whose docstrings have none: calls that are run when the API reference is written.

In:  nothing.
Out: `CALLS`, module -> expression with `{f}` for the function -> names of functions.
Law: every call runs; its value is shown as Python displays it. `SETUP` has the names that examples assume.
"""

#: the names that examples assume, as in docstrings
SETUP = "import numpy as np, weft, weft.numpy as wnp; from weft import lax"

UNARY, BINARY = "{f}(wnp.array([0.25, 0.5]))", "{f}(wnp.array([1.0, 2.0]), 3.0)"
ABOVE_ONE = "{f}(wnp.array([1.5, 2.0]))"
MATRIX = "{f}(wnp.arange(6).reshape(2, 3))"
SQUARE = "{f}(wnp.array([[2.0, 1.0], [1.0, 3.0]]))"
SIGNED = "{f}(wnp.array([-1.5, 0.0, 2.5]))"
BITS, TWO_BITS = "{f}(wnp.array([1, 6]))", "{f}(wnp.array([1, 6]), 3)"
BOOLS = "{f}(wnp.array([True, False]), True)"
NANS = "{f}(wnp.array([1.0, wnp.nan, 3.0]))"
KEY = "{f}(weft.random.key(0), shape=(2,))"

#: module -> call -> names
CALLS = {
    "weft.numpy": {
        UNARY: """acos arccos arcsin arcsinh arctan arctanh asin asinh atan atanh cbrt cosh deg2rad degrees exp2
            expm1 i0 log log10 log1p log2 negative positive rad2deg radians reciprocal sinc sinh square tan""",
        ABOVE_ONE: "acosh arccosh frexp modf spacing",
        SIGNED: """around ceil fabs fix floor isfinite isinf isneginf isposinf rint round sign signbit trunc
            nan_to_num isreal iscomplex count_nonzero flatnonzero argwhere nonzero sort argsort argmax argmin
            ptp var std median""",
        NANS: """isnan nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin nanprod nanstd
            nansum nanvar""",
        BINARY: """arctan2 atan2 copysign divide float_power floor_divide fmax fmin fmod heaviside hypot logaddexp
            logaddexp2 maximum minimum mod multiply nextafter pow remainder subtract true_divide divmod greater
            greater_equal less less_equal equal not_equal isclose allclose array_equiv""",
        BITS: "bitwise_count bitwise_invert bitwise_not invert cumprod cumsum cumulative_prod cumulative_sum diff ediff1d",
        TWO_BITS: """bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor left_shift
            right_shift lcm ldexp isin append""",
        BOOLS: "logical_and logical_or logical_xor",
        "{f}(wnp.array([True, False]))": "logical_not copy",
        "{f}(wnp.array([1 + 2j, 3j]))": "angle imag sort_complex isrealobj",
        MATRIX: """flip fliplr flipud rot90 ndim shape matrix_transpose diagonal tril triu atleast_1d atleast_2d
            atleast_3d unstack empty_like""",
        "{f}([wnp.array([1, 2]), wnp.array([3, 4])])": "block column_stack dstack hstack vstack lexsort",
        "{f}(wnp.arange(4), 2)": "array_split hsplit split tile roll",
        "{f}(wnp.arange(8).reshape(4, 2), 2)": "vsplit",
        "{f}(wnp.arange(4).reshape(1, 2, 2), 2)": "dsplit",
        "{f}(5)": "bartlett blackman hamming hanning",
        "{f}(4, 8.6)": "kaiser",
        "{f}(2)": "identity diag_indices tri isscalar",
        "{f}(3)": "tril_indices triu_indices",
        "{f}(wnp.ones((2, 2)))": "diag_indices_from tril_indices_from triu_indices_from",
        "{f}((2, 3))": "indices",
        "{f}(wnp.array([1, 2]), wnp.array([3, 4]))": """inner outer kron vdot vecdot meshgrid union1d convolve
            correlate array_equal polyadd polymul polysub""",
        "{f}(wnp.array([1.0, 2.0, 1.0]), wnp.array([1.0, 1.0]))": "polydiv",
        "{f}(wnp.array([1.0, -3.0, 2.0]))": "roots polyder gradient trapezoid vander unwrap",
        "{f}(wnp.array([1.0, 2.0]), 3.0).tolist()": "polyval",
        "{f}(wnp.array([1.0, 2.0]))": "poly diagflat",
        "{f}(wnp.array([1.0, 2.0, 4.0]), 50)": "percentile nanpercentile",
        "{f}(wnp.array([1.0, 2.0, 4.0]), 0.5)": "quantile nanquantile",
        "{f}(wnp.array([3, 1, 2]), 1)": "argpartition partition",
        "{f}(wnp.array([3, 1, 3]))": "unique_all unique_counts unique_inverse unique_values bincount",
        "{f}(wnp.array([1.0, 2.0, 2.5]), bins=2)": "histogram histogram_bin_edges",
        "{f}(wnp.arange(3.0), wnp.arange(3.0), bins=2)": "histogram2d",
        "{f}(wnp.array([0.5, 1.5]), wnp.array([0, 1, 2]))": "digitize",
        "{f}(1.5, wnp.array([1.0, 2.0]), wnp.array([10.0, 20.0]))": "interp",
        "{f}(wnp.array([[1.0, 2.0], [3.0, 5.0]]))": "corrcoef cov",
        "{f}(wnp.array([1, 0, 0]), wnp.array([0, 1, 0]))": "cross",
        "{f}(wnp.eye(2), wnp.array([1.0, 2.0]))": "matvec",
        "{f}(wnp.array([1.0, 2.0]), wnp.eye(2))": "vecmat",
        "{f}(wnp.arange(3), 0)": "expand_dims take",
        "{f}(wnp.arange(4), 1)": "delete",
        "{f}(wnp.arange(3), 1, 9)": "insert",
        "{f}(wnp.zeros((2, 3, 4)), 0, 2).shape": "moveaxis rollaxis",
        "{f}(wnp.zeros((2, 3, 4)), (2, 0, 1)).shape": "permute_dims",
        "{f}(wnp.eye(2), wnp.array([1.0, 2.0]), 1)": "tensordot",
        "{f}(wnp.arange(3.0), wnp.array([1.0, 3.0, 5.0]), 1)": "polyfit",
        "{f}(wnp.array([2.0, 1.0]))": "polyint",
        "{f}(wnp.zeros(3), wnp.array([1]), 9.0, inplace=False)": "put",
        "{f}(wnp.zeros((2, 2)), wnp.array([[1], [0]]), 9.0, 1, inplace=False)": "put_along_axis",
        "{f}(wnp.zeros(3), wnp.array([True, False, True]), 5.0, inplace=False)": "place",
        "{f}(wnp.arange(4), [wnp.arange(4) < 2], [-1, 1])": "piecewise",
        "{f}(2, wnp.triu)": "mask_indices",
        "{f}(wnp.ones((3, 2)), bins=2)[0]": "histogramdd",
        "{f}(wnp.zeros(2), 7)": "full_like",
        "{f}(wnp.arange(3), (2, 2))": "resize",
        "{f}(wnp.array([True, False, True]), wnp.arange(3))": "extract compress",
        "{f}(1, 8, 4)": "geomspace",
        "{f}(0, 2, 3)": "logspace",
        "{f}(wnp.arange(2), wnp.ones((2, 2)))": "broadcast_arrays",
        "{f}('int8', 'float32')": "can_cast",
        "{f}(wnp.array([0, 1]), wnp.array([2, 3]))": "ix_",
        "{f}(wnp.array([1, 0], dtype=wnp.uint8))": "packbits unpackbits",
        "{f}(5, (2, 3))": "unravel_index",
        "{f}((1, 2), (2, 3))": "ravel_multi_index",
        "{f}(wnp.arange(2))": "array_repr array_str iterable",
        "{f}(lambda x: x.sum(), 1, wnp.ones((2, 3)))": "apply_along_axis",
        "{f}(wnp.sum, wnp.ones((2, 3)), 1)": "apply_over_axes",
        "{f}(range(3), dtype=wnp.int32)": "fromiter",
        "{f}('1 2 3', dtype=wnp.int32, sep=' ')": "fromstring",
        "{f}(b'ab', dtype=wnp.uint8)": "frombuffer",
        "{f}(np.arange(3))": "from_dlpack",
        "{f}(wnp.zeros((2, 2)), 1.0, inplace=False)": "fill_diagonal",
    },
    "weft.numpy.fft": {
        "{f}(wnp.array([1.0, 0.0, 0.0, 0.0]))": "fft ifft rfft ihfft fftshift ifftshift",
        "{f}(wnp.array([1.0, 0.0, 0.0]))": "hfft irfft",
        "{f}(wnp.eye(2))": "fft2 fftn ifft2 ifftn rfft2 rfftn irfft2 irfftn",
        "{f}(4)": "fftfreq rfftfreq",
    },
    "weft.numpy.linalg": {
        SQUARE: """cholesky cond diagonal eigh eigvalsh inv matrix_norm matrix_transpose pinv qr slogdet svdvals
            trace vector_norm svd eig eigvals""",
        "{f}(wnp.array([[2.0, 1.0], [1.0, 3.0]]), 3)": "matrix_power",
        "{f}(wnp.array([1.0, 2.0]), wnp.array([3.0, 4.0]))": "outer vecdot",
        "{f}(wnp.array([1, 0, 0]), wnp.array([0, 1, 0]))": "cross",
        "{f}([wnp.ones((2, 3)), wnp.ones((3, 4)), wnp.ones((4, 1))])": "multi_dot",
        "{f}(wnp.array([[1.0, 0.0], [1.0, 1.0]]), wnp.array([1.0, 3.0]))[0]": "lstsq",
        "{f}(wnp.eye(2), wnp.array([1.0, 2.0]), 1)": "tensordot",
        "{f}(wnp.eye(4).reshape(2, 2, 2, 2), 2).shape": "tensorinv",
        "{f}(wnp.eye(4).reshape(2, 2, 2, 2), wnp.ones((2, 2)))": "tensorsolve",
    },
    "weft.lax": {
        UNARY: """acos asin asinh atan atanh bessel_i0e bessel_i1e cbrt cosh digamma erf erf_inv erfc exp exp2
            expm1 lgamma log log1p reciprocal rsqrt sinh square tan tanh stop_gradient optimization_barrier""",
        ABOVE_ONE: "acosh",
        SIGNED: "abs ceil floor is_finite sign cumlogsumexp cummax cummin cumprod",
        "{f}(wnp.array([1.0, 2.0]), wnp.array([2.0, 2.0]))": "atan2 ge gt le lt min nextafter rem sub zeta igammac igamma_grad_a",
        BITS: "bitwise_not population_count",
        "{f}(wnp.array([1, 6]), wnp.array([3, 3]))": """bitwise_or bitwise_xor shift_left shift_right_arithmetic
            shift_right_logical""",
        "{f}(wnp.array([1 + 2j, 3j]))": "conj imag real",
        "{f}(wnp.arange(3), (2,))": "broadcast",
        "{f}(wnp.arange(3), 2)": "broadcast_to_rank",
        "{f}(wnp.int32, (2, 3), 1)": "broadcasted_iota",
        "{f}(wnp.arange(6).reshape(3, 2), 1)": "index_in_dim dynamic_index_in_dim",
        "{f}(wnp.arange(5), 1, 3)": "slice_in_dim",
        "{f}(wnp.arange(5), 1, 2)": "dynamic_slice_in_dim",
        "{f}(wnp.arange(3), wnp.array([9]), 1, 0)": "dynamic_update_slice_in_dim dynamic_update_index_in_dim",
        "{f}(wnp.array([2, 1, 3]), (0,))": "reduce_max reduce_min reduce_prod",
        "{f}(wnp.array([True, False]), (0,))": "reduce_and reduce_or reduce_xor",
        "{f}(wnp.array([3, 1, 2]), wnp.array([0, 1, 2]))": "sort_key_val",
        "{f}(wnp.array([True, False]), wnp.array([1, 2]), wnp.array([3, 4]))": "select",
        "{f}([wnp.arange(2), wnp.arange(2)])": "stack",
        "{f}(wnp.ones((2, 2)))": "unstack",
        "{f}(wnp.ones((2, 2, 3)), wnp.ones((2, 3, 2))).shape": "batch_matmul",
        "{f}(wnp.ones((1, 1, 4, 4)), wnp.ones((1, 1, 3, 3)), (1, 1), 'SAME').shape": "conv",
        "{f}(wnp.arange(4.0), 2)": "approx_min_k",
        "{f}(1.5)": "dtype",
        "weft.vmap(lambda x: {f}(x, 'i'), axis_name='i')(wnp.arange(3))": "pmax pmin",
        "weft.vmap(lambda x: {f}('i'), axis_name='i')(wnp.arange(3))": "axis_size",
        "weft.vmap(lambda x: {f}(x, 'i', [2, 0, 1]), axis_name='i')(wnp.arange(3))": "pshuffle",
        "weft.vmap(lambda x: {f}(x, 'i', 0), axis_name='i')(wnp.eye(2))": "pswapaxes",
        "weft.vmap(lambda x: {f}(x, 'i', 0, 0), axis_name='i')(wnp.eye(2))": "all_to_all",
        "{f}(wnp.array([1.0]), wnp.array([0.5]))": "polygamma random_gamma_grad",
        "{f}(wnp.ones(2), default=lambda x: x + 1)": "platform_dependent",
        "{f}(wnp.ones((1, 4, 1)), wnp.ones((3, 1, 1)), (2,), 'SAME').shape": "conv_transpose",
        "{f}(wnp.array([3, 1, 2]), 0, wnp.int32)": "argmin",
    },
    "weft.random": {
        KEY: """cauchy exponential laplace logistic lognormal maxwell rademacher""",
        "{f}(weft.random.key(0), 2.0, shape=(2,))": "chisquare loggamma pareto t wald",
        "{f}(weft.random.key(0), 2.0, 3.0, shape=(2,))": "beta double_sided_maxwell f",
        "{f}(weft.random.key(0), 0.5, shape=(2,))": "geometric rayleigh",
        "{f}(weft.random.key(0), -1.0, 1.0, shape=(2,))": "truncated_normal",
        "{f}(weft.random.key(0), 1.0, 2.0, shape=(2,))": "weibull_min",
        "{f}(weft.random.key(0), 0.0, 0.5, 1.0, shape=(2,))": "triangular",
        "{f}(weft.random.key(0), wnp.array([0.0, 1.0, 2.0]), shape=(4,))": "categorical",
        "{f}(weft.random.key(0), wnp.ones(3))": "dirichlet",
        "{f}(weft.random.key(0), wnp.zeros(2), wnp.eye(2))": "multivariate_normal",
        "{f}(weft.random.key(0), 2)": "orthogonal ball",
        "{f}(weft.random.key(0), 4)": "permutation",
        "{f}(weft.random.key(0), 7)": "fold_in",
        "{f}(weft.random.key(0))": "key_impl clone",
        "{f}(weft.random.key(0), 10, wnp.array([0.5, 0.5]))": "multinomial",
        "{f}(wnp.array([0, 1], dtype=wnp.uint32))": "wrap_key_data",
    },
    "weft.nn": {
        SIGNED: """celu elu gelu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu log_sigmoid
            log_softmax mish relu6 selu silu soft_sign softplus sparse_plus sparse_sigmoid squareplus standardize
            swish tanh logmeanexp""",
        "{f}(wnp.array([1.0, 2.0, 0.0, 1.0]))": "glu",
        "{f}(wnp.array([0.5, 2.0]))": "log1mexp",
        "{f}(wnp.ones((1, 4, 2, 8)), wnp.ones((1, 4, 2, 8)), wnp.ones((1, 4, 2, 8))).shape": "dot_product_attention",
    },
    "weft.nn.initializers": {
        "{f}()(weft.random.key(0), (2, 2))": """glorot_normal glorot_uniform he_normal he_uniform kaiming_normal
            kaiming_uniform lecun_normal lecun_uniform orthogonal truncated_normal uniform xavier_normal
            xavier_uniform""",
        "{f}(0.5)(weft.random.key(0), (2,))": "constant",
        "{f}(weft.random.key(0), (2,))": "ones zeros",
        "{f}(2.0, 'fan_in', 'normal')(weft.random.key(0), (2, 2))": "variance_scaling",
        "{f}()(weft.random.key(0), (3, 2, 2)).shape": "delta_orthogonal",
    },
    "weft.scipy.special": {
        UNARY: """dawsn digamma entr erf erfc erfinv exp1 expi expit factorial gammaln gammasgn i0 i0e i1 i1e
            log_ndtr logit ndtr ndtri spence log_softmax softmax""",
        "{f}(wnp.array([1.0, 2.0]), 3.0)": """beta betaln gammainc gammaincc kl_div poch rel_entr xlog1py xlogy
            boxcox boxcox1p""",
        "{f}(2.0, 3.0, wnp.array([0.25, 0.5]))": "betainc",
        "{f}(2, wnp.array([0.25, 0.5]))": "expn",
        "{f}(1, wnp.array([0.25, 0.5]))": "polygamma",
        "{f}(wnp.array([2.0, 3.0]), 1.0)": "zeta",
        "{f}(wnp.array([2.0, 3.0]), 2)": "multigammaln",
    },
    "weft.scipy.linalg": {
        SQUARE: "det eigh expm inv lu lu_factor qr cho_factor svd",
        "{f}(wnp.ones((1, 1)), 2 * wnp.ones((2, 1)))": "block_diag",
        "{f}(weft.scipy.linalg.cho_factor(2 * wnp.eye(2)), wnp.ones(2))": "cho_solve",
        "{f}(weft.scipy.linalg.lu_factor(2 * wnp.eye(2)), wnp.ones(2))": "lu_solve",
        "{f}(wnp.array([[2.0, 1.0], [1.0, 3.0]]), wnp.array([1.0, 2.0]))": "solve",
        "{f}(wnp.array([[2.0, 0.0], [1.0, 3.0]]), wnp.array([1.0, 2.0]), lower=True)": "solve_triangular",
    },
    "weft": {
        "{f}()": "host_count host_id host_ids process_count process_index process_indices",
    },
}

#: how a module is spelled in examples
SPELLING = {"weft.numpy": "wnp", "weft.lax": "lax"}


def calls(module: str) -> dict[str, str]:
    """Return the example of each function of a module that has one."""
    return {
        name: call.replace("{f}", f"{spelled(module)}.{name}")
        for call, names in CALLS.get(module, {}).items()
        for name in names.split()
    }


def spelled(module: str) -> str:
    """Return a module as examples spell it."""
    for name, short in SPELLING.items():
        if module == name or module.startswith(f"{name}."):
            return short + module.removeprefix(name)
    return module


def run_call(call: str, names: dict) -> list[str]:
    """Run an example; return its lines, with the value."""
    return [f">>> {call}", *repr(eval(call, names)).splitlines()]


def run_calls() -> dict[str, list[str]]:
    """Run all examples; return the lines of each by the full name of the function."""
    names: dict = {}
    exec(SETUP, names)
    for module in CALLS:
        exec(f"import {module}", names)
    return {
        f"{module}.{name}": run_call(call, names)
        for module in CALLS
        for name, call in calls(module).items()
    }
