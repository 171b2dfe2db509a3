"""Contractions and convolutions of all pairs of dtypes: computed in a dtype that holds both operands, and rounded once.

The references are sums in float64 or complex128 by NumPy, exact for these operands, rounded as a conversion rounds.
"""

import functools

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.ops.contraction import product_dtype
from weft._engine.util.promotion import sum_dtype
from weft.sharding import NamedSharding, P

INTEGERS = ["int4", "uint4", "int8", "uint8", "int16", "uint16", "int32", "uint32"]
FLOATS = [
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3b11fnuz",
    "float8_e3m4",
    "bfloat16",
    "float16",
    "float32",
]
NAMES = ["bool", *INTEGERS, *FLOATS, "complex64"]
WIDE = ["int64", "uint64", "float64", "complex128"]
MIXED_WITH = ["int8", "int32", "bfloat16", "float32", "complex64"]


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name, name))


def is_integer(name):
    return name.startswith(("int", "uint"))


def operand(name, seed, shape):
    rng = np.random.RandomState(seed)
    dtype = dtype_of(name)
    if name == "bool":
        values = rng.randint(0, 2, shape)
    elif is_integer(name):
        low, high = max(ml_dtypes.iinfo(dtype).min, -20), min(ml_dtypes.iinfo(dtype).max, 20)
        values = rng.randint(low, high + 1, shape)
    else:
        values = rng.uniform(-3, 3, shape)
        values = values + 1j * rng.uniform(-3, 3, shape) if dtype.kind == "c" else values
    return np.asarray(values).astype(dtype)


def exact(x):
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def assert_rounded_once(got, sums, of_integers, name, what):
    """Assert that `got` equals the exact `sums` converted to the dtype called `name`."""
    assert got.dtype == dtype_of(name), what
    real = sums.real
    if name == "bool":
        np.testing.assert_array_equal(got, sums != 0, err_msg=what)
    elif is_integer(name):
        info = ml_dtypes.iinfo(got.dtype)
        low, high = int(info.min), int(info.max)
        if of_integers:
            expected = [(int(v) - low) % (1 << info.bits) + low for v in real.ravel()]
        else:
            expected = [min(max(int(v), low), high) for v in real.ravel()]
        np.testing.assert_array_equal([int(v) for v in got.ravel()], expected, err_msg=what)
    elif got.dtype.itemsize <= 2:
        expected, result = (
            real.astype(np.float32).astype(got.dtype).astype(np.float64),
            got.astype(np.float64),
        )
        finite = np.isfinite(expected)
        np.testing.assert_array_equal(result[~finite], expected[~finite], err_msg=what)
        # as near as the right rounding, up to the error of a sum in float32
        error, least = abs(result - real)[finite], abs(expected - real)[finite]
        assert (error <= least + 2e-6 * max(1, abs(real).max())).all(), what
    else:
        expected = sums if got.dtype.kind == "c" else real
        np.testing.assert_allclose(exact(got), expected, rtol=2e-6, atol=1e-5, err_msg=what)


def pairs_with(lhs, names):
    """Return the dtypes of rhs and of the result that are tested with `lhs`."""
    same = [(lhs, out) for out in names]
    return same + [(rhs, out) for rhs in names if rhs != lhs for out in MIXED_WITH]


DOTS = {
    "matrices": ("ij,jk->ik", (3, 4), (4, 5), (((1,), (0,)), ((), ()))),
    "outer": ("ij,kl->ijkl", (3, 1), (2, 1), (((), ()), ((), ()))),
    "inner": ("i,i->", (6,), (6,), (((0,), (0,)), ((), ()))),
    "batch": ("bij,bjk->bik", (2, 3, 4), (2, 4, 3), (((2,), (1,)), ((0,), (0,)))),
}


def check_dots(lhs, names):
    for kind, (subscripts, left, right, numbers) in DOTS.items():
        a, others = operand(lhs, 1, left), {rhs: operand(rhs, 2, right) for rhs in names}
        sums = {rhs: np.einsum(subscripts, exact(a), exact(b)) for rhs, b in others.items()}
        tried = pairs_with(lhs, names)

        @weft.jit
        def products(a, others, tried=tried, numbers=numbers):
            return [
                lax.dot_general(a, others[rhs], numbers, preferred_element_type=out)
                for rhs, out in tried
            ]

        for (rhs, out), got in zip(tried, products(a, others), strict=True):
            of_integers = all(is_integer(name) or name == "bool" for name in (lhs, rhs))
            assert_rounded_once(
                np.asarray(got), sums[rhs], of_integers, out, f"{kind}: {lhs} x {rhs} -> {out}"
            )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("lhs", NAMES)
def test_products_are_rounded_once(lhs):
    check_dots(lhs, NAMES)


@pytest.mark.parametrize("lhs", WIDE)
def test_products_of_64_bits_are_rounded_once(lhs):
    with weft.enable_x64():
        check_dots(
            lhs, [*WIDE, "bool", "int8", "int32", "float8_e5m2", "bfloat16", "float32", "complex64"]
        )


CONVOLUTIONS = {
    "plain": {"window_strides": (1, 1), "padding": "SAME"},
    "strided": {"window_strides": (2, 1), "padding": "VALID"},
    "transposed": {"window_strides": (1, 1), "padding": [(1, 1), (1, 1)], "lhs_dilation": (2, 2)},
    "depthwise": {"window_strides": (1, 1), "padding": "SAME", "feature_group_count": 3},
}


def exact_convolution(a, b, params):
    def real(x, y):
        with weft.enable_x64():
            return np.asarray(
                lax.conv_general_dilated(np.ascontiguousarray(x), np.ascontiguousarray(y), **params)
            )

    if a.dtype.kind != "c" and b.dtype.kind != "c":
        return real(a, b)
    return (
        real(a.real, b.real)
        - real(a.imag, b.imag)
        + 1j * (real(a.real, b.imag) + real(a.imag, b.real))
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", CONVOLUTIONS)
@pytest.mark.parametrize(
    "lhs",
    [
        "bool",
        "int4",
        "uint8",
        "int32",
        "float8_e4m3fn",
        "float8_e5m2",
        "bfloat16",
        "float32",
        "complex64",
    ],
)
def test_convolutions_are_rounded_once(lhs, kind):
    params = CONVOLUTIONS[kind]
    names = ["bool", "uint4", "int8", "int32", "float8_e5m2", "float16", "float32", "complex64"]
    a = operand(lhs, 1, (2, 3, 5, 6))
    shape = (6, 1, 3, 2) if "feature_group_count" in params else (4, 3, 3, 2)
    others = {rhs: operand(rhs, 2, shape) for rhs in [*names, lhs]}
    sums = {rhs: exact_convolution(exact(a), exact(b), params) for rhs, b in others.items()}
    tried = [(lhs, out) for out in [*names, lhs]] + [
        (rhs, out) for rhs in names for out in ("int32", "float32", "bfloat16")
    ]
    run = weft.jit(
        lambda a, others: [
            lax.conv_general_dilated(a, others[r], preferred_element_type=out, **params)
            for r, out in tried
        ]
    )
    for (rhs, out), got in zip(tried, run(a, others), strict=True):
        of_integers = all(is_integer(name) or name == "bool" for name in (lhs, rhs))
        exact_sums = sums[rhs]
        if not of_integers and (is_integer(out) or out == "bool"):
            exact_sums = np.where(abs(exact_sums) < 1e-9, 0, exact_sums)
        assert_rounded_once(
            np.asarray(got), exact_sums, of_integers, out, f"{lhs} x {rhs} -> {out}"
        )


@pytest.mark.parametrize(
    ("lhs", "rhs", "out"),
    [
        ("int8", "uint8", "int8"),
        ("int8", "uint16", "uint16"),
        ("int32", "float16", "float16"),
        ("bfloat16", "float16", "bfloat16"),
        ("float8_e4m3fn", "float8_e5m2", "float8_e5m2"),
        ("float8_e3m4", "float8_e4m3fn", "float8_e4m3fn"),
        ("uint4", "float8_e4m3b11fnuz", "float8_e4m3b11fnuz"),
        ("float32", "complex64", "complex64"),
        ("bool", "int4", "int4"),
        ("float16", "float32", "float32"),
    ],
)
def test_the_result_has_the_dtype_of_larger_range(lhs, rhs, out):
    numbers = DOTS["matrices"][3]
    for a, b in ((lhs, rhs), (rhs, lhs)):
        x, y = operand(a, 1, (3, 4)), operand(b, 2, (4, 5))
        got = lax.dot_general(x, y, numbers)
        assert got.dtype == dtype_of(out) == product_dtype(x.dtype, y.dtype)
        of_integers = is_integer(out)
        assert_rounded_once(np.asarray(got), exact(x) @ exact(y), of_integers, out, f"{a} x {b}")


def test_int32_products_are_not_rounded_before_addition():
    a = np.full((2, 3), 2**24 + 1, np.int32)
    b = np.ones((3, 2), np.int32)
    b[1] = -1
    got = lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type="float32")
    np.testing.assert_array_equal(got, np.float32(2**24 + 1))
    assert sum_dtype(*map(np.dtype, ("int32", "float32", "float32"))) == np.float64


@pytest.mark.parametrize(
    ("lhs", "rhs"),
    [
        ("float8_e4m3fn", "float8_e5m2"),
        ("float8_e5m2", "float8_e4m3fn"),
        ("float8_e3m4", "bfloat16"),
        ("bfloat16", "float16"),
        ("float32", "complex64"),
        ("float16", "float32"),
        ("int8", "float32"),
    ],
)
@pytest.mark.parametrize("out", [None, "float32"])
def test_gradients_have_the_dtypes_of_their_operands(lhs, rhs, out):
    x, y = operand(lhs, 1, (3, 4)), operand(rhs, 2, (4, 5))
    if out == "float32" and "complex64" in (lhs, rhs):
        out = "complex64"

    def loss(x, y):
        product = lax.dot_general(x, y, DOTS["matrices"][3], preferred_element_type=out)
        return product.astype("complex64").real.sum()

    argnums = [i for i, name in enumerate((lhs, rhs)) if not is_integer(name)]
    for run in (weft.grad(loss, argnums), weft.jit(weft.grad(loss, argnums))):
        for i, got in zip(argnums, run(x, y), strict=True):
            operands = [exact(x), exact(y)]
            expected = (
                np.ones((3, 5)) @ operands[1].T if i == 0 else operands[0].T @ np.ones((3, 5))
            )
            name = (lhs, rhs)[i]
            assert got.dtype == dtype_of(name)
            expected = expected if got.dtype.kind == "c" else expected.real
            precision = 1e-5 if got.dtype.itemsize > 2 else float(ml_dtypes.finfo(got.dtype).eps)
            np.testing.assert_allclose(
                exact(np.asarray(got)),
                exact(np.asarray(expected).astype(got.dtype)),
                rtol=precision,
                atol=1e-5,
            )


def test_a_product_that_is_truncated_has_no_gradient():
    x = np.array([1.7, 0.6], np.float32)
    whole = lambda x: lax.dot_general(
        x, x, (((0,), (0,)), ((), ())), preferred_element_type="int32"
    ).astype("float32")
    assert float(whole(x)) == 3
    np.testing.assert_array_equal(weft.grad(whole)(x), [0, 0])
    out, slope = weft.jvp(whole, (x,), (np.ones(2, np.float32),))
    assert (float(out), float(slope)) == (3, 0)


@pytest.mark.parametrize("out", ["int32", "int8", "bool", "bfloat16", "complex64"])
def test_sums_split_over_a_mesh_are_rounded_once(out):
    mesh = weft.make_mesh((8,), ("x",))
    a = np.full((2, 16), 0.7, np.float32)
    product = functools.partial(
        lax.dot_general, dimension_numbers=(((1,), (1,)), ((), ())), preferred_element_type=out
    )
    split = weft.device_put(a, NamedSharding(mesh, P(None, "x")))
    got = weft.jit(product)(split, split)
    np.testing.assert_allclose(
        got.astype("complex64"), product(a, a).astype("complex64"), rtol=1e-6
    )
    assert_rounded_once(np.asarray(got), exact(a) @ exact(a).T, False, out, out)


def test_numpy_functions_promote_before_they_multiply():
    a, b = operand("int32", 1, (3, 4)), operand("float32", 2, (4, 5))
    assert wnp.matmul(a, b).dtype == np.float32
    half = operand("float16", 1, (4,))
    assert wnp.dot(half, half, preferred_element_type="float32").dtype == np.float32
    np.testing.assert_allclose(
        wnp.dot(half, half, preferred_element_type="float32"), exact(half) @ exact(half), rtol=1e-6
    )
    np.testing.assert_allclose(
        wnp.dot(half[0], half, preferred_element_type="float32"),
        exact(half[0]) * exact(half),
        rtol=1e-6,
    )
