"""Elementwise ops: every law of the harness on each op, and corner cases that the tables do not
cover."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy
from tests.harness.laws import Case, assert_close, check_all, run, wide_types
from weft._engine.core.primitive import ElementwiseOp, declare_unsupported, has_rule
from weft._engine.core.stage import stage
from weft._engine.ir.types import ShapedArray
from weft._engine.ops import elementwise as e, functions
from weft._engine.util.config import Override
from weft._engine.util.errors import MissingRuleError, ShapeError

rng = np.random.default_rng(0)
ANY = rng.normal(size=(4, 6)) * 2
UNIT = rng.uniform(-0.9, 0.9, size=(4, 6))
POSITIVE = rng.uniform(0.2, 3.0, size=(4, 6))
ABOVE_ONE = POSITIVE + 1.1
OTHER = rng.normal(size=(4, 6)) * 2
SCALAR = np.float64(0.7)
COMPLEX = ANY + 1j * OTHER
INTS = rng.integers(-50, 50, size=(4, 6)).astype(np.int32)
MORE_INTS = np.where(INTS[::-1] == 0, 3, INTS[::-1])
BITS = rng.integers(0, 256, size=(4, 6)).astype(np.uint8)
FLAGS = rng.integers(0, 2, size=(4, 6)).astype(bool)


def special(name):
    import scipy.special

    return getattr(scipy.special, name)


def beside_rest(name):
    """Return a function of x and 1 - x."""
    return lambda a, b, x: getattr(functions, name)(a, b, x, e.sub(e.add(e.mul(x, 0), 1), x))


def order_slope(a, x):
    """Return the derivative of the incomplete gamma function by its order, from differences of four
    points."""
    p, h = special("gammainc"), 1e-3 * a
    return (p(a - 2 * h, x) - 8 * p(a - h, x) + 8 * p(a + h, x) - p(a + 2 * h, x)) / (12 * h)


UNARY = [
    ("neg", ANY, np.negative),
    ("sign", ANY, np.sign),
    ("abs", ANY, np.abs),
    ("square", ANY, np.square),
    ("floor", ANY, np.floor),
    ("ceil", ANY, np.ceil),
    ("sqrt", POSITIVE, np.sqrt),
    ("cbrt", ANY, np.cbrt),
    ("rsqrt", POSITIVE, lambda x: 1 / np.sqrt(x)),
    ("exp", ANY, np.exp),
    ("exp2", ANY, np.exp2),
    ("expm1", ANY, np.expm1),
    ("log", POSITIVE, np.log),
    ("log1p", POSITIVE, np.log1p),
    ("logistic", ANY, lambda x: 1 / (1 + np.exp(-x))),
    ("sin", ANY, np.sin),
    ("cos", ANY, np.cos),
    ("tan", UNIT, np.tan),
    ("asin", UNIT, np.arcsin),
    ("acos", UNIT, np.arccos),
    ("atan", ANY, np.arctan),
    ("sinh", ANY, np.sinh),
    ("cosh", ANY, np.cosh),
    ("tanh", ANY, np.tanh),
    ("asinh", ANY, np.arcsinh),
    ("acosh", ABOVE_ONE, np.arccosh),
    ("atanh", UNIT, np.arctanh),
    ("erf", ANY, special("erf")),
    ("erfc", ANY, special("erfc")),
    ("erf_inv", UNIT, special("erfinv")),
    ("lgamma", POSITIVE, special("gammaln")),
    ("digamma", POSITIVE, special("psi")),
    ("bessel_i0e", ANY, special("i0e")),
    ("bessel_i1e", ANY, special("i1e")),
    ("is_finite", ANY, np.isfinite),
    ("reciprocal", POSITIVE, lambda x: 1 / x),
]
COMPLEX_UNARY = [
    ("neg", np.negative),
    ("abs", np.abs),
    ("sign", lambda x: x / np.abs(x)),
    ("square", np.square),
    ("sqrt", np.sqrt),
    ("exp", np.exp),
    ("log", np.log),
    ("sin", np.sin),
    ("cos", np.cos),
    ("tanh", np.tanh),
    ("real", np.real),
    ("imag", np.imag),
    ("conj", np.conj),
    ("logistic", lambda x: 1 / (1 + np.exp(-x))),
]
BINARY = [
    ("add", ANY, OTHER, np.add),
    ("sub", ANY, OTHER, np.subtract),
    ("mul", ANY, OTHER, np.multiply),
    ("div", ANY, POSITIVE, np.divide),
    ("rem", ANY, POSITIVE, np.fmod),
    ("max", ANY, OTHER, np.maximum),
    ("min", ANY, OTHER, np.minimum),
    ("pow", POSITIVE, OTHER, np.power),
    ("atan2", ANY, OTHER, np.arctan2),
    ("logaddexp", ANY, OTHER, np.logaddexp),
    ("nextafter", ANY, OTHER, np.nextafter),
    ("eq", ANY, ANY, np.equal),
    ("ne", ANY, OTHER, np.not_equal),
    ("lt", ANY, OTHER, np.less),
    ("le", ANY, ANY, np.less_equal),
    ("gt", ANY, OTHER, np.greater),
    ("ge", ANY, ANY, np.greater_equal),
    ("add_any", ANY, OTHER, np.add),
]
LINEAR = {
    "neg": ((0,),),
    "add": ((0, 1),),
    "add_any": ((0, 1),),
    "sub": ((0, 1),),
    "mul": ((0,), (1,)),
    "div": ((0,),),
    "real": ((0,),),
    "imag": ((0,),),
    "conj": ((0,),),
}
FLAT = {"nextafter": ()}  # a step function: differences do not approximate the derivative
INTEGER = [
    ("bitwise_and", (BITS, BITS[::-1]), np.bitwise_and),
    ("bitwise_or", (INTS, MORE_INTS), np.bitwise_or),
    ("bitwise_xor", (FLAGS, FLAGS[::-1]), np.logical_xor),
    ("bitwise_not", (INTS,), np.invert),
    ("bitwise_not", (FLAGS,), np.logical_not),
    ("shift_left", (INTS, np.int32(3)), np.left_shift),
    ("shift_right_arithmetic", (INTS, np.int32(2)), np.right_shift),
    ("shift_right_logical", (BITS, np.uint8(3)), np.right_shift),
    ("add", (BITS, BITS[::-1]), np.add),
    ("div", (INTS, MORE_INTS), lambda x, y: np.trunc(x / y).astype(np.int32)),
    ("rem", (INTS, MORE_INTS), np.fmod),
    (
        "population_count",
        (BITS,),
        lambda x: np.array([bin(v).count("1") for v in x.ravel()], np.uint8).reshape(x.shape),
    ),
    (
        "clz",
        (BITS,),
        lambda x: np.array([8 - int(v).bit_length() for v in x.ravel()], np.uint8).reshape(x.shape),
    ),
    ("max", (INTS, MORE_INTS), np.maximum),
    ("sign", (INTS,), np.sign),
    ("abs", (INTS,), np.abs),
]

CASES = [
    *[Case(n, getattr(e, n), (x,), f, linear=LINEAR.get(n, ())) for n, x, f in UNARY],
    *[
        Case(f"{n} complex", getattr(e, n), (COMPLEX,), f, linear=LINEAR.get(n, ()))
        for n, f in COMPLEX_UNARY
    ],
    *[
        Case(n, getattr(e, n), (x, y), f, diff=FLAT.get(n), linear=LINEAR.get(n, ()))
        for n, x, y, f in BINARY
    ],
    *[
        Case(
            f"{n} rank 0", getattr(e, n), (x, SCALAR), f, diff=FLAT.get(n), linear=LINEAR.get(n, ())
        )
        for n, x, _, f in BINARY
    ],
    *[
        Case(
            f"{n} rank 0 first",
            getattr(e, n),
            (SCALAR, np.abs(y)),
            f,
            diff=FLAT.get(n),
            linear=LINEAR.get(n, ()),
        )
        for n, _, y, f in BINARY
    ],
    *[Case(f"{n} integers", getattr(e, n), args, f) for n, args, f in INTEGER],
    *[
        Case(
            f"integer_pow {y}",
            lambda x, y=y: e.integer_pow(x, y),
            (POSITIVE,),
            lambda x, y=y: np.power(x, float(y)),
        )
        for y in (-3, -1, 0, 1, 2, 5)
    ],
    Case("round away", e.round, (ANY,), lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5)),
    Case("round even", lambda x: e.round(x, e.RoundingMethod.TO_NEAREST_EVEN), (ANY,), np.round),
    Case(
        "select",
        e.select_n,
        (FLAGS, ANY, OTHER),
        lambda w, x, y: np.where(w, y, x),
        linear=((1, 2),),
    ),
    Case(
        "select of three",
        e.select_n,
        (np.arange(24, dtype=np.int32).reshape(4, 6) % 3, ANY, OTHER, POSITIVE),
        lambda w, *xs: np.choose(w, xs),
        linear=((1, 2, 3),),
    ),
    Case(
        "select by rank 0", e.select_n, (np.True_, ANY, OTHER), lambda w, x, y: y, linear=((1, 2),)
    ),
    Case(
        "select rank 0 case",
        e.select_n,
        (FLAGS, ANY, SCALAR),
        lambda w, x, y: np.where(w, y, x),
        linear=((1, 2),),
    ),
    Case(
        "clamp", e.clamp, (np.float64(-1), ANY, np.float64(1)), lambda lo, x, hi: np.clip(x, lo, hi)
    ),
    Case(
        "clamp by arrays", e.clamp, (-POSITIVE, ANY, POSITIVE), lambda lo, x, hi: np.clip(x, lo, hi)
    ),
    Case("complex", e.complex, (ANY, OTHER), lambda x, y: x + 1j * y, linear=((0, 1),)),
    Case("complex rank 0", e.complex, (ANY, SCALAR), lambda x, y: x + 1j * y, linear=((0, 1),)),
    Case(
        "convert",
        lambda x: e.convert_element_type(x, np.float32),
        (ANY,),
        lambda x: x.astype(np.float32),
        diff=(),
    ),
    Case(
        "convert complex",
        lambda x: e.convert_element_type(x, np.complex128),
        (ANY,),
        lambda x: x.astype(complex),
        linear=((0,),),
    ),
    Case(
        "convert to int",
        lambda x: e.convert_element_type(x, np.int8),
        (ANY,),
        lambda x: np.trunc(x).astype(np.int8),
    ),
    Case(
        "convert to bool", lambda x: e.convert_element_type(x, np.bool_), (INTS,), lambda x: x != 0
    ),
    Case(
        "bitcast",
        lambda x: e.bitcast_convert_type(x, np.uint64),
        (ANY,),
        lambda x: x.view(np.uint64),
    ),
    Case(
        "polygamma",
        lambda x: e.polygamma(1.0, x),
        (POSITIVE,),
        lambda x: special("polygamma")(1, x),
    ),
    Case("igamma", functions.igamma, (POSITIVE, ABOVE_ONE), special("gammainc")),
    Case("igammac", functions.igammac, (POSITIVE, ABOVE_ONE), special("gammaincc")),
    Case("igamma_grad_a", functions.igamma_grad_a, (POSITIVE, ABOVE_ONE), order_slope, diff=()),
    Case(
        "igamma_grad_x",
        functions.igamma_grad_x,
        (POSITIVE, ABOVE_ONE),
        lambda a, x: x ** (a - 1) * np.exp(-x) / special("gamma")(a),
    ),
    Case(
        "random_gamma_grad",
        functions.random_gamma_grad,
        (POSITIVE, ABOVE_ONE),
        lambda a, x: -order_slope(a, x) / np.exp((a - 1) * np.log(x) - x - special("gammaln")(a)),
        diff=(),
    ),
    Case(
        "betaincc",
        functions.betaincc,
        (POSITIVE, ABOVE_ONE, (UNIT + 1) / 2),
        special("betaincc"),
        diff=(2,),
    ),
    Case(
        "log_betainc",
        beside_rest("log_betainc"),
        (POSITIVE, ABOVE_ONE, (UNIT + 1) / 2),
        lambda a, b, x: np.log(special("betainc")(a, b, x)),
        diff=(2,),
    ),
    Case(
        "betainc_hazard",
        beside_rest("betainc_hazard"),
        (POSITIVE, ABOVE_ONE, (UNIT + 1) / 2),
        lambda a, b, x: (
            x ** (a - 1) * (1 - x) ** (b - 1) / special("beta")(a, b) / special("betainc")(a, b, x)
        ),
        diff=(2,),
    ),
    Case(
        "betainc",
        functions.betainc,
        (POSITIVE, ABOVE_ONE, (UNIT + 1) / 2),
        special("betainc"),
        diff=(2,),
    ),
    Case("zeta", functions.zeta, (ABOVE_ONE, POSITIVE), special("zeta"), diff=(1,)),
    Case("copy", e.copy, (ANY,), lambda x: x, linear=((0,),)),
    Case(
        "pow of integer",
        e.pow,
        (POSITIVE, np.arange(24, dtype=np.int32).reshape(4, 6) - 9),
        lambda x, y: np.power(x, y.astype(float)),
    ),
]

#: functions that are in no table above, with their records
CASES += [
    Case(
        f.name,
        f.op,
        tuple(rng.uniform(*f.ranges[0], size=(4, 6)) for _ in range(f.arity)),
        f.reference,
    )
    for f in functions.every()
    if f.op is not None and f.name not in {case.name for case in CASES}
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_laws(case):
    check_all(case)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (17,)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16, np.float16])
def test_edge_shapes_and_float_dtypes(shape, dtype):
    x = np.asarray(rng.uniform(0.2, 0.8, size=shape), np.float32).astype(dtype)
    wide = x.astype(np.float64)
    with wide_types():
        for name, _, reference in UNARY:
            want = np.asarray(reference(wide + 1 if name == "acosh" else wide))
            arg = (x + dtype(1)).astype(dtype) if name == "acosh" else x
            if name == "acosh":
                want = np.arccosh(arg.astype(np.float64))
            (got,) = run(getattr(e, name), [arg])
            if name in ("floor", "ceil", "sign", "neg", "abs") or want.dtype == bool:
                assert_close(got, want.astype(got.dtype))
            else:
                assert_close(got, want.astype(dtype), name)


def one(fn, *args):
    (out,) = run(fn, args)
    return out


def test_nan_wins_in_max_and_min_and_passes_clamp():
    x, nan = np.float32([1, np.nan, 3]), np.float32(np.nan)
    assert np.isnan(one(e.max, x, np.float32(2))).tolist() == [False, True, False]
    assert np.isnan(one(e.min, x, nan)).all()
    assert np.isnan(one(e.clamp, np.float32(0), x, np.float32(1))).tolist() == [False, True, False]


def test_signs_of_zero():
    zeros = np.float32([0.0, -0.0])
    for fn in (e.sign, e.round, e.floor, e.ceil, e.sqrt, e.sin, e.cbrt):
        assert np.signbit(one(fn, zeros)).tolist() == [False, True], fn.__name__
    assert np.signbit(one(e.neg, zeros)).tolist() == [True, False]


def test_logistic_is_stable_at_both_ends():
    got = one(e.logistic, np.float32([-80, 0, 200, -np.inf, np.inf]))
    assert got[0] == pytest.approx(np.exp(-80.0), rel=1e-5)
    assert got[1:].tolist() == [0.5, 1.0, 0.0, 1.0]


def test_integer_division_never_traps():
    low = np.iinfo(np.int32).min
    x, y = np.int32([7, -7, low, 5]), np.int32([0, 2, -1, -1])
    assert one(e.div, x, y).tolist() == [-1, -3, low, -5]
    assert one(e.rem, x, y).tolist() == [7, -1, 0, 0]
    assert one(e.div, np.uint32([7]), np.uint32([0])).tolist() == [2**32 - 1]
    assert one(e.rem, np.uint32([7]), np.uint32([0])).tolist() == [7]


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
@pytest.mark.parametrize("by", [1, 2, 7, 10, 100, -1, -7, None])
def test_quotients_and_remainders_are_those_of_numpy(dtype, by):
    """Both operators round down, also where a 64-bit remainder by a constant looks like an index computation."""
    dtype, rng = np.dtype(dtype), np.random.default_rng(0)
    if by is not None and by < 0 and dtype.kind == "u":
        return
    low, high = max(np.iinfo(dtype).min + 1, -(1 << 62)), min(np.iinfo(dtype).max, 1 << 62)
    x = np.concatenate([rng.integers(low, high, 500), np.arange(max(low, -50), 50)]).astype(dtype)
    y = rng.permutation(np.where(x == 0, dtype.type(3), x)) if by is None else by
    for fn in (
        lambda x, y: x % y,
        lambda x, y: x // y,
        lambda x, y: x % y < 0,
        lambda x, y: x // y * 2 - x % y + 1,
    ):
        with Override(enable_x64=True):
            got = np.asarray(weft.jit(lambda x, f=fn: f(x, y))(weft.numpy.asarray(x)))
        np.testing.assert_array_equal(got, fn(x, y))


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_divisors_and_powers_of_integers(dtype):
    dtype, rng, np_ = np.dtype(dtype), np.random.default_rng(0), weft.numpy
    info = np.iinfo(dtype)
    x = np.concatenate(
        [
            rng.integers(info.min, info.max, 400, dtype, True),
            rng.integers(0, 30, 200).astype(dtype),
            np.array([info.min, info.max, 0, 0], dtype),
        ]
    )
    y, exponent = rng.permutation(x), np.arange(len(x)).astype(dtype) % 70
    with Override(enable_x64=True), np.errstate(all="ignore"):
        np.testing.assert_array_equal(weft.jit(np_.gcd)(x, y), np.gcd(x, y))
        np.testing.assert_array_equal(weft.jit(np_.lcm)(x, y), np.lcm(x, y))
        np.testing.assert_array_equal(weft.jit(np_.power)(x, exponent), np.power(x, exponent))
        if dtype.kind == "i":
            base, below = (
                np.array([1, -1, -1, 2, 0, -5], dtype),
                np.array([-3, -3, -2, -1, -1, -2], dtype),
            )
            np.testing.assert_array_equal(np_.power(base, below), [1, -1, 1, 0, 0, 0])


def test_shifts_out_of_range():
    x = np.int32([1, -5, -5])
    assert one(e.shift_left, x, np.int32([33, -1, 32])).tolist() == [0, 0, 0]
    assert one(e.shift_right_arithmetic, x, np.int32([33, 33, -1])).tolist() == [0, -1, -1]
    assert one(e.shift_right_logical, x, np.int32([33, 28, 1])).tolist() == [0, 15, 2**31 - 3]


CASTS = [
    (np.float32([3e9, -1, np.nan, 300.7, -3e9]), np.uint8, [255, 0, 0, 255, 0]),
    (np.float32([3e9, -1.9, np.nan, -3e9]), np.int32, [2**31 - 1, -1, 0, -(2**31)]),
    (np.float32([np.inf, -np.inf]), np.int64, [2**63 - 1, -(2**63)]),
    (np.int32([-1, 300]), np.uint8, [255, 44]),
    (np.float32([0.0, -0.0, np.nan, 2]), np.bool_, [False, False, True, True]),
    (np.bool_([True, False]), np.float32, [1.0, 0.0]),
    (np.complex64([1 + 2j]), np.float32, [1.0]),
    (np.complex64([2j, 0]), np.bool_, [True, False]),
    (np.float32([1.0, 3.1415926]), ml_dtypes.bfloat16, [1.0, 3.140625]),
    (np.float32([448.0, 0.3]), ml_dtypes.float8_e4m3fn, [448.0, 0.3125]),
    (np.array([1.5, -2.5], ml_dtypes.bfloat16), np.int8, [1, -2]),
]


@pytest.mark.parametrize(
    "x, dtype, want", CASTS, ids=lambda v: str(np.dtype(v)) if isinstance(v, type) else None
)
def test_casts(x, dtype, want):
    with wide_types():
        got = one(lambda v: e.convert_element_type(v, dtype), x)
    assert got.dtype == np.dtype(dtype)
    assert (
        got.astype(object if got.dtype.kind == "i" else np.float64).tolist() == want
        or got.tolist() == want
    )


def test_bitcast_between_widths():
    x = np.float64([1.0, -2.5])
    with wide_types():
        parts = one(lambda v: e.bitcast_convert_type(v, np.uint16), x)
        assert_close(parts, x.view(np.uint16).reshape(2, 4))
        assert_close(one(lambda v: e.bitcast_convert_type(v, np.float64), parts), x)


@pytest.mark.parametrize(
    "source, target",
    [
        ("f4", "c8"),
        ("i2", "c8"),
        ("u1", "c8"),
        ("c8", "f4"),
        ("c8", "i2"),
        ("c8", "u1"),
        ("c8", "f8"),
        ("f8", "c8"),
        ("c8", "c16"),
        ("c16", "c8"),
        ("c16", "f8"),
        ("f4", "c16"),
        ("c16", "i2"),
    ],
)
@pytest.mark.parametrize("wide", [False, True])
def test_views_of_complex_numbers(source, target, wide):
    if not wide and {source, target} & {"f8", "c16"}:
        return
    x = np.random.default_rng(0).standard_normal((3, 16), np.float32).view(source)
    with Override(enable_x64=wide):
        got = np.asarray(weft.numpy.asarray(x).view(target))
    assert (got.dtype, got.shape, got.tobytes()) == (
        np.dtype(target),
        x.view(target).shape,
        x.tobytes(),
    )


@pytest.mark.parametrize("narrow", ["int4", "uint4", "int2", "float4_e2m1fn"])
@pytest.mark.parametrize("wide", ["uint8", "int16", "float32", "complex64"])
def test_views_of_parts_of_bytes(narrow, wide):
    words = np.random.default_rng(0).integers(0, 2**32, (3, 4), np.uint32).view(wide)
    parts = weft.numpy.asarray(words).view(narrow)
    bits = weft._engine.util.dtypes.itemsize_bits(narrow)
    want = np.unpackbits(words.view(np.uint8).reshape(3, -1), axis=1, bitorder="little").reshape(
        3, -1, bits
    ) @ (1 << np.arange(bits))
    np.testing.assert_array_equal(np.asarray(parts).view(np.uint8) & ((1 << bits) - 1), want)
    assert np.asarray(parts.view(wide)).tobytes() == words.tobytes()
    assert (
        np.asarray(weft.jit(lambda x: x.view(narrow).view(wide))(words)).tobytes()
        == words.tobytes()
    )


@pytest.mark.parametrize(
    "target, bits",
    [("uint4", 4), ("bool", 8), ("int8", 8), ("float16", 16), ("uint32", 32), ("complex64", 64)],
)
@pytest.mark.parametrize("source", ["int4", "bool", "uint8", "bfloat16", "int32", "complex64"])
def test_scalar_views_keep_the_element_size(source, target, bits):
    scalar = weft.numpy.ones((), source)
    view = lambda x: x.view(target)
    calls = {
        "eager": (view, scalar),
        "jit": (weft.jit(view), scalar),
        "vmap": (weft.vmap(view), weft.numpy.ones(2, source)),
    }
    for name, (function, operand) in calls.items():
        if bits == weft._engine.util.dtypes.itemsize_bits(source):
            assert function(operand).shape == operand.shape, name
        else:
            with pytest.raises(
                ValueError, match=r"view: a 0-d array .* elements have another size"
            ):
                function(operand)


@pytest.mark.parametrize("dtype, close", [("f4", 1e-6), ("f8", 3e-15), ("f2", 1e-3)])
def test_zeta_and_polygamma(dtype, close):
    from scipy.special import polygamma, zeta

    rng = np.random.default_rng(0)
    s = np.concatenate([rng.uniform(1.01, 6, 400), rng.integers(2, 9, 400)]).astype(
        dtype
    )  # a whole one with q below zero
    below_zero = np.concatenate(
        [
            -rng.integers(0, 29, 150) - rng.integers(1, 4, 150) / 4,
            -(10.0 ** rng.uniform(-7, -1, 50)),
        ]
    )
    q = np.concatenate(
        [rng.uniform(0.3, 9, 500), 10.0 ** rng.uniform(-0.5, 2, 100), below_zero]
    ).astype(dtype)
    with Override(enable_x64=True):
        got = np.asarray(weft.jit(functions.zeta)(s, q))
        trigamma = [
            np.asarray(weft.jit(e.polygamma)(np.full_like(q, m), np.abs(q)))
            for m in (0, 1, 2, 5, 9)
        ]
    wide, start = q.astype("f8"), np.maximum(np.ceil(-q.astype("f8")), 0)
    terms = wide + np.arange(31)[:, None]
    signs = np.where(s % 2 == 1, np.sign(terms), 1)
    below = np.where(np.arange(31)[:, None] < start, np.abs(terms) ** -s.astype("f8") * signs, 0)
    parts = zeta(s.astype("f8"), wide + start), below
    size = np.abs(parts[0]) + np.abs(below).sum(0)  # terms of either sign cancel
    want = parts[0] + below.sum(0)
    ok = size < np.finfo(dtype).max
    np.testing.assert_array_less(
        np.abs(got.astype("f8") - want)[ok], close * size[ok] + np.finfo(dtype).tiny
    )
    for m, have in zip((0, 1, 2, 5, 9), trigamma):
        exact = polygamma(m, np.abs(wide))
        ok = np.abs(exact) < np.finfo(dtype).max
        np.testing.assert_allclose(have[ok].astype("f8"), exact[ok], rtol=3 * close, atol=close)


def test_zeta_where_it_has_no_value():
    s, q = (
        np.float32([1, 0.5, 2.5, 2, 3, 2, np.nan, 2]),
        np.float32([2, 2, -1.5, -3, 0, np.inf, 2, np.nan]),
    )
    want = np.float32([np.inf, np.nan, np.nan, np.inf, np.inf, 0, np.nan, np.nan])
    np.testing.assert_array_equal(weft.jit(functions.zeta)(s, q), want)
    np.testing.assert_array_equal(one(functions.zeta, s, q), want)


def type_of(fn, *avals):
    return stage(lambda *xs: [fn(*xs)], avals).out_avals[0]


def test_weak_types_give_way():
    f32, weak = ShapedArray((3,), np.float32), ShapedArray((), np.float32, True)
    f16 = ShapedArray((3,), np.float16)
    assert type_of(e.add, f32, weak) is f32
    assert type_of(lambda x: e.add(x, 2), weak) is weak
    assert type_of(e.add, f16, weak) is f16
    assert type_of(lambda x: e.mul(2.0, x), f16) is f16
    assert type_of(e.lt, weak, weak).weak_type and not type_of(e.lt, f32, weak).weak_type


def test_errors_name_the_facts():
    a, b = ShapedArray((3,), np.float32), ShapedArray((2,), np.float32)
    with pytest.raises(
        ShapeError, match=r"(?s)add: got operands of different.*float32\[3\].*test_elementwise.py"
    ):
        type_of(e.add, a, b)
    with pytest.raises(TypeError, match=r"sin: does not accept dtype int32"):
        type_of(e.sin, ShapedArray((3,), np.int32))
    with pytest.raises(
        TypeError, match="requires arguments to have the same dtypes, got float32, int32"
    ):
        type_of(e.add, a, ShapedArray((3,), np.int32))
    with pytest.raises(TypeError, match="same dtypes"):
        type_of(lambda x: e.add(x, 2.5), ShapedArray((3,), np.int32))
    with pytest.raises(TypeError, match="negative powers"):
        type_of(lambda x: e.integer_pow(x, -1), ShapedArray((3,), np.int32))
    with pytest.raises(TypeError, match="at most two cases"):
        type_of(e.select_n, ShapedArray((3,), np.bool_), a, a, a)
    with pytest.raises(TypeError, match="same dtypes"):
        e.add(np.ones(2, np.float32), np.ones(2, np.int32))  # outside of traces too


def test_rules_are_made_on_first_use():
    names = []

    def rules(primitive):
        names.append(primitive.name)
        return {"type": abs, "lower": min}

    late = ElementwiseOp("late", register=False, make_rules=rules).define(lower=max)
    assert names == []
    assert late.type is abs
    assert (late.lower, names) == (max, ["late"])
    assert not has_rule(late.jvp) and late.localize is None
    with pytest.raises(
        MissingRuleError, match="primitive 'late' has no jvp rule: no rule was given"
    ):
        late.jvp((), ())
    with pytest.raises(AttributeError, match="'late' has no attribute 'rule_of'"):
        late.rule_of  # noqa: B018
    with pytest.raises(TypeError, match="'rule_of' is not a rule"):
        late.define(rule_of=max)
    with pytest.raises(TypeError, match="'color' is not a declared attribute"):
        ElementwiseOp("late", register=False, color="red")


def test_unsupported_rules_name_the_op_and_the_reason():
    op = ElementwiseOp("odd", register=False).define(transpose=declare_unsupported("is not linear"))
    with pytest.raises(
        MissingRuleError, match="transpose: primitive 'odd' has no transpose rule: is not linear"
    ):
        op.transpose(1.0, 2.0)
