"""Special functions against mpmath and SciPy: values and slopes in float32 and float64, edges, sharded against whole."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import scipy.special
from mpmath import mp

import weft
import weft.numpy as wnp
from weft._engine.util.config import Override
from weft.scipy import special

RNG = np.random.RandomState(3)
REAL = np.concatenate([RNG.randn(5) * 2, [-30.0, 7.5, 55.0, 1e-6]])
POSITIVE = np.concatenate([np.exp(RNG.randn(4)), [1e-6, 0.4, 30.0]])
UNIT, ORDERS = RNG.uniform(0.1, 0.9, (4, 3)), np.array([0, 1, 2, 3, 30, 9, 1.0])
COMPLEX = np.concatenate(
    [(RNG.randn(4) + 1j * RNG.randn(4)) * 3, [0.2 + 0.1j, 9 + 9j, -7.5 + 1e-3j, 1.1 - 0.05j, 3.0]]
)


def _faddeeva(z):
    return mp.exp(-z * z) * mp.erfc(-1j * z)


def _owens(h, a):
    return mp.quad(lambda x: mp.exp(-h * h * (1 + x * x) / 2) / (1 + x * x), [0, a]) / (2 * mp.pi)


def _ei_n(n, x):
    return mp.expint(int(n), x) if x else mp.inf


#: name -> kinds of arguments, exact function, arguments to differentiate by, largest error in eps times 1 + the condition
EXACT = {
    "dawsn": ([REAL], lambda x: mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x), [0], 32),
    "erfcx": ([np.maximum(REAL, -5)], lambda x: mp.exp(x * x) * mp.erfc(x), [0], 32),
    "exp1": ([POSITIVE], mp.e1, [0], 32),
    "expi": ([REAL], mp.ei, [0], 32),
    "expn": ([ORDERS, POSITIVE], _ei_n, [1], 32),
    "spence": ([POSITIVE], lambda x: mp.re(mp.polylog(2, 1 - x)), [0], 16),
    "owens_t": ([REAL[:4], REAL[3::-1]], _owens, [0, 1], 256),
    "zeta": ([1.2 + POSITIVE, POSITIVE[::-1] + 0.1], mp.zeta, [0, 1], 32),
    "entr": ([POSITIVE], lambda x: -x * mp.log(x), [0], 8),
    "hyp1f1": ([UNIT[0] * 20, UNIT[1] * 20, UNIT[2] * 20], mp.hyp1f1, [0, 1, 2], 64),
    "hyp2f1": ([*UNIT], mp.hyp2f1, [0, 1, 2, 3], 64),
    "comb": ([np.array([5, 30, 12.5, 40]), np.array([2, 15, 3.25, 4])], mp.binomial, [0, 1], 64),
    "wofz": ([COMPLEX], _faddeeva, [0], 128),
    "loggamma": ([COMPLEX], mp.loggamma, [0], 256),
    "gamma": ([COMPLEX], mp.gamma, [0], 128),
}


def _by(fun, i, args):
    """Return `fun` as a function of argument `i` alone."""
    return lambda x: fun(*args[:i], x, *args[i + 1 :])


def _condition(exact, args, value):
    """Return 1 + the condition number: the ratio of relative errors of the result and of the arguments."""
    total = mp.mpf(1)
    for i, x in enumerate(args):
        step = abs(x) * mp.mpf(10) ** -20
        moved = exact(*[y + step if j == i else y for j, y in enumerate(args)])
        total += abs((moved - value) / mp.mpf(10) ** -20 / value) if value and x else 0
    return total


WIDTHS = [
    pytest.param(
        name,
        wide,
        id=f"{name}-{'f64' if wide else 'f32'}",
        marks=[pytest.mark.exhaustive] if (k % 2 == 0) is wide else [],
    )
    for k, name in enumerate(EXACT)
    for wide in (False, True)
]


@pytest.mark.parametrize("name, wide", WIDTHS)
def test_values_and_slopes_are_exact_to_the_condition(name, wide):
    args, exact, by, bound = EXACT[name]
    fun = getattr(special, name)
    real = np.float64 if wide else np.float32
    args = [
        a.astype(
            np.result_type(a.dtype, real) if wide else np.complex64 if a.dtype.kind == "c" else real
        )
        for a in args
    ]
    with Override(enable_x64=wide), mp.workdps(28):
        result = np.asarray(fun(*args))
        slopes = {
            i: np.asarray(weft.jvp(_by(fun, i, args), (args[i],), (np.ones_like(args[i]),))[1])
            for i in by
        }
        assert result.dtype == args[-1].dtype
        eps = float(np.finfo(real).eps)
        for k, numbers in enumerate(zip(*args)):
            numbers = [
                mp.mpmathify(complex(x) if np.iscomplexobj(x) else float(x)) for x in numbers
            ]
            value = exact(*numbers)
            if not float(np.finfo(real).tiny) < abs(value) < float(np.finfo(real).max):
                continue
            error = abs(mp.mpmathify(result[k].item()) - value) / abs(value)
            assert error <= bound * eps * _condition(exact, numbers, value), (
                name,
                numbers,
                result[k],
                value,
            )
            for i in by:
                want = mpmath.diff(_by(exact, i, numbers), numbers[i])
                error = abs(mp.mpmathify(slopes[i][k].item()) - want)
                assert error <= 2e3 * eps * (abs(want) + abs(value) * 0.1), (name, i, numbers, want)


@pytest.mark.parametrize("name", ["sici", "fresnel"])
@pytest.mark.parametrize("wide", [False, True], ids=["f32", "f64"])
def test_pairs(name, wide):
    exact = {"sici": (mp.si, mp.ci), "fresnel": (mp.fresnels, mp.fresnelc)}[name]
    x = np.concatenate([POSITIVE, [3.9, 4.1, 90.0, 1234.5]]).astype(
        np.float64 if wide else np.float32
    )
    with Override(enable_x64=wide):
        for part, fun in enumerate(exact):
            eps = float(np.finfo(x.dtype).eps)
            want = np.array([float(fun(mp.mpf(float(v)))) for v in x])
            np.testing.assert_allclose(
                getattr(special, name)(x)[part], want, rtol=16 * eps, atol=16 * eps
            )
            slope = np.asarray(
                weft.vmap(weft.grad(lambda v, part=part: getattr(special, name)(v)[part]))(x)
            )
            want = np.array([float(mpmath.diff(fun, mp.mpf(float(v)))) for v in x])
            np.testing.assert_allclose(slope, want, rtol=100 * eps, atol=eps * float(x.max()))


def test_edges_are_those_of_scipy():
    ends = np.array([0.0, np.inf, -np.inf, np.nan])
    for name in ("dawsn", "erfcx", "exp1", "expi"):
        np.testing.assert_allclose(
            getattr(special, name)(ends),
            getattr(scipy.special, name)(ends),
            rtol=1e-6,
            err_msg=name,
        )
    for name in ("sici", "fresnel"):
        np.testing.assert_allclose(
            getattr(special, name)(ends), getattr(scipy.special, name)(ends), rtol=1e-6
        )
    assert special.spence(wnp.array([0.0, 1.0, -1.0])).round(5).tolist()[:2] == [
        1.6449300050735474,
        0.0,
    ]
    assert np.isnan(special.gamma(wnp.array([0j, -1 + 0j, -5 + 0j]))).all() and np.isnan(
        special.loggamma(-0.5)
    )
    np.testing.assert_allclose(
        special.erfcx(COMPLEX),
        scipy.special.erfcx(COMPLEX.astype(np.complex64).astype(complex)),
        rtol=1e-4,
    )
    a, b, c, x = np.array(
        [
            (0, 1, 1, 1),
            (1, 1, -1, 1),
            (5, 1, 3, 1),
            (0.45, 0.7, 0.45, 1.5),
            (2, 1, 5, 1),
            (-3, 2, 5, 4),
            (1.5, 2.5, 3.5, -4),
            (2.0, 3.0, 1.5, 0.9),
        ]
    ).T
    np.testing.assert_allclose(
        special.hyp2f1(a, b, c, x), scipy.special.hyp2f1(a, b, c, x), rtol=1e-5
    )
    assert weft.grad(special.entr)(0.0) == math.inf


def test_numbers():
    for n in (0, 1, 2, 3, 10, 50):
        np.testing.assert_allclose(
            special.bernoulli(n),
            scipy.special.bernoulli(max(n, 2))[: n + 1].astype(np.float32),
            rtol=1e-6,
        )
    top, part = np.meshgrid(np.arange(-1.0, 12), np.arange(-1.0, 12))
    np.testing.assert_array_equal(special.comb(top, part), scipy.special.comb(top, part))
    np.testing.assert_allclose(
        special.comb(top[1:, 1:], part[1:, 1:], repetition=True),
        scipy.special.comb(top[1:, 1:], part[1:, 1:], repetition=True),
        rtol=1e-6,
    )


def test_recurrences():
    z = np.array([0.0, 0.01, 1.1, -3.0, 11.4], np.float32)
    np.testing.assert_allclose(
        special.bessel_jn(z, v=5),
        [scipy.special.jv(k, z.astype(float)) for k in range(6)],
        rtol=2e-5,
        atol=1e-6,
    )
    slope = weft.grad(lambda z: special.bessel_jn(z, v=3)[3])(2.0)
    np.testing.assert_allclose(slope, scipy.special.jvp(3, 2.0), rtol=1e-5)
    z = np.array([-1, -0.4, 0.0, 0.7, 1], np.float32)
    values, slopes = special.lpmn(4, 4, z)
    want = np.transpose(
        scipy.special.assoc_legendre_p_all(4, 4, z.astype(float), diff_n=1)[:, :, :5], (0, 2, 1, 3)
    )
    np.testing.assert_allclose(values, want[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(slopes, want[1], rtol=1e-5, atol=1e-4)
    normalized = special.lpmn_values(4, 4, z, is_normalized=True)
    np.testing.assert_allclose(
        normalized[2, 3],
        scipy.special.sph_harm_y(3, 2, np.arccos(z.astype(float)), 0).real,
        atol=1e-6,
    )
    n, m = np.array([0, 1, 1, 4, 9, 9]), np.array([0, 1, -1, -3, 9, 2])
    theta, phi = np.linspace(-1, 3, 6).astype(np.float32), np.linspace(-3, 2, 6).astype(np.float32)
    want = scipy.special.sph_harm_y(n, m, theta.astype(float), phi.astype(float))
    np.testing.assert_allclose(special.sph_harm_y(n, m, theta, phi), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        weft.jit(lambda n, m: special.sph_harm_y(n, m, theta, phi, n_max=9))(n, m),
        want,
        rtol=1e-5,
        atol=1e-6,
    )


def test_complex_signs_of_sums():
    x = np.array([1 + 1j, 2 - 1j, -2 + 3j], np.complex64)
    size, sign = special.logsumexp(x, return_sign=True)
    assert size.dtype == np.float32
    np.testing.assert_allclose(sign * np.exp(size), np.exp(x).sum(), rtol=1e-5)


def test_sharded_against_whole():
    mesh = weft.make_mesh((4,), ("x",))
    x = np.linspace(0.1, 9, 16).astype(np.float32)
    placed = weft.device_put(x, weft.NamedSharding(mesh, weft.P("x")))
    for fun in (
        special.dawsn,
        special.expi,
        lambda x: special.hyp2f1(0.5, 0.5, 1.5, x / 10),
        lambda x: special.expn(3, x),
        lambda x: special.bessel_jn(x, v=2)[1],
        lambda x: special.wofz(x + 1j),
    ):
        np.testing.assert_allclose(weft.jit(fun)(placed), fun(x), rtol=1e-6)


@pytest.mark.parametrize(
    "call, error, says",
    [
        (lambda: special.sici(np.ones(2) * 1j), ValueError, "must be real-valued"),
        (lambda: special.expi(1j), ValueError, "complex"),
        (lambda: special.hyp2f1(1j, 1, 1, 0.5), ValueError, "complex"),
        (lambda: special.lpmn(1, 2, np.ones(2)), NotImplementedError, "m=1 and n=2"),
        (lambda: special.lpmn(1, 1, np.ones((2, 2))), ValueError, "1D"),
        (lambda: special.bessel_jn(1.0, v=60), ValueError, "n_iter"),
        (lambda: special.sph_harm_y(1, 1, 0.1, 0.2, diff_n=1), NotImplementedError, "diff_n"),
        (lambda: special.bernoulli(-1), ValueError, "negative"),
    ],
)
def test_errors(call, error, says):
    with pytest.raises(error, match=says):
        call()


@pytest.mark.parametrize(
    "f, weak",
    [
        (lambda: special.gamma(2.5), False),
        (lambda: special.beta(1, 2), False),
        (lambda: special.poch(1.5, 2), False),
        (lambda: special.ndtr(0.5), False),
        (lambda: special.log_ndtr(0.5), False),
        (lambda: special.ndtri(0.5), False),
        (lambda: special.gammasgn(1.5), False),
        (lambda: special.multigammaln(3, 2), False),
        (lambda: special.exp1(2), False),
        (lambda: special.sici(1)[0], False),
        (lambda: special.fresnel(1)[1], False),
        (lambda: special.owens_t(1, 2), False),
        (lambda: special.erf(0.5), True),
        (lambda: special.gammaln(2.5), True),
        (lambda: special.xlogy(1, 2), True),
    ],
)
def test_which_results_of_numbers_give_way(f, weak):
    """As in JAX, compositions of array operations have strong float32 results; single operations have weak results."""
    assert f().weak_type is weft.eval_shape(f).weak_type is weak


def test_the_exponential_integral_of_lists():
    np.testing.assert_allclose(
        special.expn([1, 2], [0.5, 0.7]), scipy.special.expn([1, 2], [0.5, 0.7]), rtol=1e-6
    )
