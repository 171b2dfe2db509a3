"""Taylor mode against nested forward mode, operation by operation, and against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.util.config import Override
from weft.experimental.jet import (
    ZeroSeries,
    ZeroTerm,
    def_comp,
    def_deriv,
    deflinear,
    defzero,
    fact,
    jet,
    jet2,
    jet_rules,
    zero_series,
    zero_term,
)
from weft.extend.core import Primitive
from weft.interpreters import mlir

ORDER = 4
UNARY = {
    "exp": (lax.exp, -1, 1),
    "log": (lax.log, 0.5, 2),
    "log1p": (lax.log1p, 0, 2),
    "expm1": (lax.expm1, -1, 1),
    "sin": (lax.sin, -2, 2),
    "cos": (lax.cos, -2, 2),
    "tan": (lax.tan, -1, 1),
    "sinh": (lax.sinh, -1, 1),
    "cosh": (lax.cosh, -1, 1),
    "tanh": (lax.tanh, -1, 1),
    "logistic": (lax.logistic, -2, 2),
    "sqrt": (lax.sqrt, 0.5, 2),
    "rsqrt": (lax.rsqrt, 0.5, 2),
    "asinh": (lax.asinh, -1, 1),
    "acosh": (lax.acosh, 1.5, 3),
    "atanh": (lax.atanh, -0.5, 0.5),
    "erf": (lax.erf, -1, 1),
    "erf_inv": (lax.erf_inv, -0.5, 0.5),
    "lgamma": (lax.lgamma, 1, 3),
    "abs": (lax.abs, -2, 2),
    "sign": (lax.sign, -2, 2),
    "floor": (lax.floor, -2, 2),
    "x**5": (lambda x: x**5, -1, 1),
    "x**-2": (lambda x: x**-2, 0.5, 2),
    "x**2.5": (lambda x: x**2.5, 0.5, 2),
    "cumsum": (lambda x: wnp.cumsum(x, 0), -1, 1),
    "cumprod": (lambda x: lax.cumprod(x, 1), 0.5, 1),
    "cummax": (lambda x: lax.cummax(x, 0), -1, 1),
    "sort": (lambda x: wnp.sort(x, 1), -1, 1),
    "max": (lambda x: x.max(1), -1, 1),
    "logsumexp": (wnp.linalg.norm, 0.5, 1),
    "fft": (lambda x: wnp.abs(wnp.fft.fft(x)) ** 2, -1, 1),
    "slices": (lambda x: wnp.stack([x[1:], x[:-1] * 2]), -1, 1),
    "jit": (weft.jit(lambda x: wnp.sin(x) * x), -1, 1),
    "grad": (weft.grad(lambda x: wnp.sum(wnp.sin(x) ** 3)), -1, 1),
    "vmap": (weft.vmap(lambda x: wnp.sum(x) * x), -1, 1),
    "stop_gradient": (lambda x: x * lax.stop_gradient(x), -1, 1),
    "cond": (lambda x: lax.cond(x[0, 0] > 0, wnp.sin, wnp.cos, x), -1, 1),
    "scan": (lambda x: lax.scan(lambda c, row: (wnp.sin(c) * row, c), x[0], x)[0], -1, 1),
    "while": (lambda x: lax.fori_loop(0, 3, lambda i, c: c * wnp.sin(c), x), -1, 1),
    "solve": (lambda x: wnp.linalg.solve(x[:, :2] @ x[:, :2].T + wnp.eye(2), x), -1, 1),
    "softplus": (weft.nn.softplus, -1, 1),
}
BINARY = {
    "mul": (lax.mul, -1, 1),
    "div": (lax.div, 0.5, 2),
    "pow": (lax.pow, 0.5, 2),
    "atan2": (lax.atan2, 0.5, 2),
    "max": (lax.max, -1, 1),
    "rem": (lax.rem, 0.5, 2),
    "dot": (lambda x, y: x @ y.T, -1, 1),
    "where": (lambda x, y: wnp.where(x > y, x * y, y), -1, 1),
    "complex": (lambda x, y: wnp.abs(wnp.exp(lax.complex(x, y))), -1, 1),
    "update": (lambda x, y: x.at[0].set(y[1] * y[0]), -1, 1),
    "ragged": (
        lambda x, y: lax.ragged_dot(x, wnp.stack([y.T, 2 * y.T]), wnp.array([1, x.shape[0] - 1])),
        -1,
        1,
    ),
    "conv": (lambda x, y: wnp.convolve(x[0], y[1]), -1, 1),
    "add": (lambda x, y: x.at[wnp.array([0, 0])].add(y), -1, 1),
}


def _nested(fun, primals, series):
    """Return the derivatives at 0 of `fun` along the curves, by forward mode in forward mode."""

    def along(t):
        return fun(
            *(
                x + sum(t ** (k + 1) * term / fact(k + 1) for k, term in enumerate(terms))
                for x, terms in zip(primals, series)
            )
        )

    derivatives = []
    for _ in range(ORDER + 1):
        derivatives.append(along(0.0))
        along = (lambda f: lambda t: weft.jvp(f, (t,), (1.0,))[1])(along)
    return derivatives[0], derivatives[1:]


@pytest.mark.parametrize(
    "name, count", [*((name, 1) for name in UNARY), *((name, 2) for name in BINARY)]
)
def test_operations(name, count):
    fun, low, high = (UNARY if count == 1 else BINARY)[name]
    rng = np.random.RandomState(len(name))
    with Override(enable_x64=True):
        primals = [wnp.asarray(rng.uniform(low, high, (2, 3))) for _ in range(count)]
        series = [[wnp.asarray(rng.randn(2, 3)) for _ in range(ORDER)] for _ in range(count)]
        value, terms = jet(fun, primals, series)
        want, expected = _nested(fun, primals, series)
        np.testing.assert_allclose(value, want, rtol=1e-12)
        assert len(terms) == ORDER
        for term, want in zip(terms, expected):
            np.testing.assert_allclose(term, want, rtol=1e-9, atol=1e-9)


def test_closed_forms_and_transformations():
    order = 10
    _, terms = jet(wnp.exp, (0.5,), ([1.0, *[0.0] * (order - 1)],))
    np.testing.assert_allclose(terms, [math.exp(0.5)] * order, rtol=1e-6)
    _, terms = weft.jit(lambda x, s: jet(lambda x: 1 / (1 - x), (x,), (s,)))(
        0.0, [1.0, *[0.0] * (order - 1)]
    )
    np.testing.assert_allclose(terms, [math.factorial(k) for k in range(1, order + 1)], rtol=1e-5)
    second = weft.vmap(lambda x: jet(wnp.sin, (x,), ([1.0, 0.0],))[1][1])(wnp.arange(3.0))
    np.testing.assert_allclose(second, -np.sin(np.arange(3.0)), atol=1e-6)
    third = weft.grad(lambda x: jet(lambda x: x**4, (x,), ([1.0, 0.0],))[1][1])(2.0)
    assert float(third) == 48.0
    mesh = weft.make_mesh((4,), ("i",))
    x = np.linspace(0, 1, 8).astype(np.float32)
    placed = weft.device_put(x, weft.NamedSharding(mesh, weft.P("i")))
    along = weft.jit(lambda x: jet(lambda x: wnp.tanh(x) * x.sum(), (x,), ([x, x],))[1][1])
    np.testing.assert_allclose(along(placed), along(x), rtol=1e-5)


def test_trees_and_what_does_not_move():
    value, terms = jet(
        lambda x, y: {"a": x * y, "b": (wnp.ones(2), x > 0)}, (2.0, 3.0), ([1.0, 0.0], zero_series)
    )
    assert [float(t) for t in terms["a"]] == [3.0, 0.0]
    assert [t.tolist() for t in terms["b"][0]] == [[0, 0], [0, 0]] and bool(value["b"][1])
    value, terms = jet(
        wnp.where,
        (np.array([True, False]), np.ones(2), np.zeros(2)),
        ([np.ones(2)], [np.ones(2)], [np.full(2, 5.0)]),
    )
    assert terms[0].tolist() == [1, 5]


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: jet(wnp.sin, (1.0,), ([1.0], [1.0])), "1 primal, but 2 series"),
        (lambda: jet(wnp.add, (1.0, 2.0), ([1.0], [1.0, 2.0])), "one length"),
        (lambda: jet(wnp.sin, (1.0,), ([],)), "one length"),
        (lambda: jet(wnp.sin, ((1.0, 2.0),), ([1.0],)), "position 0 is not an array"),
        (lambda: jet(wnp.sin, (1.0,), ([(1.0,)],)), "term 0 of the series of argument 0"),
        (lambda: jet(wnp.sin, (np.ones(2),), ([1.0],)), "shape"),
    ],
)
def test_errors(call, says):
    with pytest.raises(ValueError, match=says):
        call()


@pytest.mark.parametrize("lose", [np.exp, float, np.asarray], ids=["ufunc", "float", "asarray"])
def test_derivatives_are_not_lost_without_a_word(lose):
    with pytest.raises(TypeError, match="its derivatives would be lost"):
        jet(lambda x: lose(x) * x, (1.0,), ((1.0, 0.0),))


def _scaled(terms, inverse=False):
    return [
        t / math.factorial(k) if inverse else t * math.factorial(k) for k, t in enumerate(terms, 1)
    ]


@pytest.mark.parametrize("run", [lambda f: f, weft.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("name", ["exp", "x**5", "sort", "fft", "grad", "cond"])
def test_series_of_coefficients(name, run):
    fun, low, high = UNARY[name]
    x, *terms = [
        np.random.default_rng(i).uniform(low, high, (3, 4)).astype("float32")
        for i in range(ORDER + 1)
    ]
    value, derivatives = run(lambda x, terms: jet(fun, (x,), (_scaled(terms),)))(x, terms)
    same, coefficients = run(lambda x, terms: jet2(fun, (x,), (terms,)))(x, terms)
    np.testing.assert_allclose(same, value, rtol=1e-6)
    for a, b in zip(coefficients, _scaled(derivatives, inverse=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-4)


def test_series_with_zero_terms():
    value, terms = jet(lambda x: x**3, (2.0,), ([1.0, zero_term, zero_term],))
    assert (float(value), [float(t) for t in terms]) == (8.0, [12.0, 12.0, 6.0])
    assert isinstance(zero_term, ZeroTerm) and isinstance(zero_series, ZeroSeries)


@pytest.fixture
def cubed():
    """Yield a library's primitive without a derivative; its rules are removed after the test."""
    p = Primitive("cubed")
    p.def_abstract_eval(lambda x: x)
    mlir.register_lowering(p, mlir.lower_fun(lambda x: x * x * x, multiple_results=False))
    p.def_impl(lambda x: x * x * x)
    yield p
    jet_rules.user_rules.clear()


RULES = {
    "deriv": lambda p: def_deriv(p, lambda x: 3 * x * x),
    "comp": lambda p: def_comp(p, lambda x, power: x**power, power=3),
    "rule": lambda p: jet_rules.update(
        {p: lambda primals, series: jet2(lambda x: x**3, primals, series)}
    ),
}


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("kind", RULES)
def test_rules_of_libraries(cubed, kind, order):
    RULES[kind](cubed)
    x, terms = wnp.float32(1.5), [wnp.float32(t) for t in (1.0, -2.0, 0.5, 3.0)[:order]]
    for run in (lambda f: f, weft.jit):
        for fun, same in (
            (cubed.bind, lambda x: x**3),
            (lambda x: wnp.sin(cubed.bind(x * x)), lambda x: wnp.sin(x**6)),
        ):
            value, series = run(lambda x, terms, fun=fun: jet(fun, (x,), (terms,)))(x, terms)
            expected, others = jet(same, (x,), (terms,))
            np.testing.assert_allclose(value, expected, rtol=1e-5)
            np.testing.assert_allclose(series, others, rtol=1e-4)


def test_rules_of_weft_and_how_they_are_replaced():
    primals, series = (wnp.float32(0.3),), ([wnp.float32(1.0), wnp.float32(0.5)],)
    value, terms = jet_rules[lax.sin_p](primals, series)
    np.testing.assert_allclose(
        [value, *terms], [np.sin(0.3), np.cos(0.3), 0.5 * np.cos(0.3) - np.sin(0.3) / 2], rtol=1e-6
    )
    assert lax.sin_p in jet_rules and lax.sin_p in list(jet_rules) and len(jet_rules) > 10
    try:
        defzero(lax.sin_p)
        assert [float(t) for t in jet(lax.sin, primals, series)[1]] == [0.0, 0.0]
        deflinear(lax.neg_p)
        assert [float(t) for t in jet(lax.neg, primals, series)[1]] == [-1.0, -0.5]
    finally:
        del jet_rules[lax.sin_p], jet_rules[lax.neg_p]
    assert float(jet(lax.sin, primals, series)[1][0]) == pytest.approx(np.cos(0.3))
    with pytest.raises(KeyError):
        jet_rules["sin"]
    with pytest.raises(TypeError, match="a rule is for a primitive"):
        jet_rules["sin"] = None
