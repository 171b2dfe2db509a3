"""Distributions and statistics against SciPy, with derivatives at and beyond the edges of their support."""

from __future__ import annotations

import importlib
import inspect

import numpy as np
import pytest
import scipy.special
import scipy.stats

import weft
import weft.numpy as wnp
from weft.scipy import special, stats

RNG = np.random.default_rng(0)
ANY = np.linspace(-3, 4, 15).astype(np.float32)
UNIT = np.linspace(0.02, 0.98, 15).astype(np.float32)
COUNTS = np.arange(-1, 14).astype(np.float32)
CLOSE = {"rtol": 3e-4, "atol": 2e-6}

# family: values of its shape parameters
CONTINUOUS = {
    "norm": (),
    "uniform": (),
    "expon": (),
    "gamma": (2.5,),
    "chi2": (3.0,),
    "beta": (2.0, 0.7),
    "cauchy": (),
    "laplace": (),
    "logistic": (),
    "t": (4.0,),
    "gumbel_r": (),
    "gumbel_l": (),
    "pareto": (1.5,),
    "truncnorm": (-1.0, 2.0),
    "gennorm": (1.5,),
}
DISCRETE = {
    "bernoulli": (0.3,),
    "binom": (10.0, 0.4),
    "nbinom": (3.0, 0.4),
    "betabinom": (10.0, 2.0, 0.7),
    "geom": (0.3,),
    "poisson": (4.0,),
}


def functions(family):
    module = importlib.import_module(f"weft.scipy.stats.{family}")
    names = ("logpdf", "pdf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf", "logpmf", "pmf")
    return [name for name in names if hasattr(module, name)]


@pytest.mark.parametrize("family", [*CONTINUOUS, *DISCRETE])
def test_arguments_are_numbers_or_arrays_that_broadcast(family):
    shapes = (CONTINUOUS | DISCRETE)[family]
    for name in functions(family):
        fun, first = getattr(getattr(stats, family), name), 1.0 if family in DISCRETE else 0.4
        alone = fun(first, *shapes)
        by_ndtr = family == "truncnorm" or (
            family == "norm" and "pdf" not in name
        )  # of arrays, as in JAX
        assert alone.shape == () and alone.weak_type is not by_ndtr
        grid = [np.full((3, 1), first, np.float32), *[np.full(4, s, np.float32) for s in shapes]]
        if "loc" in inspect.signature(fun).parameters:
            grid.append(np.zeros((2, 1, 1), np.float32))
        assert fun(*grid).shape[-2:] == (3, 4 if shapes else 1)
        np.testing.assert_allclose(fun(*grid), alone, rtol=1e-5)


@pytest.mark.parametrize(
    "family, invalid",
    [
        ("gamma", (-1.5,)),
        ("chi2", (-1.0,)),
        ("gennorm", (-2.0,)),
        ("pareto", (-1.5,)),
        ("bernoulli", (2.0,)),
    ],
)
def test_no_density_has_parameters_out_of_their_range(family, invalid):
    for name in {"pdf", "logpdf", "pmf"} & {*functions(family)}:
        assert np.isnan(
            getattr(getattr(stats, family), name)(
                np.float32(1.5 if family != "bernoulli" else 1), *invalid
            )
        ), name


@pytest.mark.parametrize("family, name", [(f, n) for f in CONTINUOUS for n in functions(f)])
def test_continuous(family, name):
    fun, want = getattr(getattr(stats, family), name), getattr(getattr(scipy.stats, family), name)
    x = UNIT if name in ("ppf", "isf") else ANY
    with np.errstate(all="ignore"):
        for place in ((), (0.5, 1.5)):
            shapes = CONTINUOUS[family]
            np.testing.assert_allclose(
                fun(x, *shapes, *place), want(x.astype(float), *shapes, *place), **CLOSE
            )
    named = {"loc": 0.25, "scale": 2.0}
    np.testing.assert_allclose(
        fun(x, *CONTINUOUS[family], **named), fun(x, *CONTINUOUS[family], 0.25, 2.0)
    )
    slope = weft.grad(
        lambda x: wnp.sum(
            wnp.where(wnp.isfinite(fun(x, *CONTINUOUS[family])), fun(x, *CONTINUOUS[family]), 0)
        )
    )(x + 0.01)
    assert np.all(np.isfinite(slope))


@pytest.mark.parametrize("family, name", [(f, n) for f in DISCRETE for n in functions(f)])
def test_discrete(family, name):
    fun, want = getattr(getattr(stats, family), name), getattr(getattr(scipy.stats, family), name)
    k = UNIT if name == "ppf" else COUNTS
    np.testing.assert_allclose(
        fun(k, *DISCRETE[family]), want(k.astype(float), *DISCRETE[family]), **CLOSE
    )
    if "loc" in inspect.signature(fun).parameters:
        np.testing.assert_allclose(fun(k, *DISCRETE[family], loc=1), fun(k - 1, *DISCRETE[family]))


def test_gradients_of_parameters():
    """Gradients of log-likelihoods equal differences of SciPy's."""
    for family, shapes in (
        ("gamma", (2.5,)),
        ("beta", (2.0, 0.7)),
        ("t", (4.0,)),
        ("truncnorm", (-1.0, 2.0)),
        ("norm", ()),
    ):
        args, h = (0.4, *shapes, 0.1, 1.5), 1e-5
        slopes = weft.grad(getattr(stats, family).logpdf, argnums=tuple(range(len(args))))(*args)
        for i, slope in enumerate(slopes):
            up, down = ([*args[:i], args[i] + s, *args[i + 1 :]] for s in (h, -h))
            want = (
                getattr(scipy.stats, family).logpdf(*up)
                - getattr(scipy.stats, family).logpdf(*down)
            ) / (2 * h)
            np.testing.assert_allclose(slope, want, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize(
    "family, args, by",
    [
        ("binom", ([3, 0, 10], 10, 0.4), [2]),
        ("nbinom", ([4, 0, 90], [3.5, 0.2, 60], 0.4), [1, 2]),
        ("poisson", ([4, 0, 99], [3.5, 2, 99]), [1]),
        ("betabinom", ([4, 0, 10], 10, [2, 25, 0.3], [0.7, 30, 3]), [2, 3]),
    ],
)
def test_slopes_of_probabilities_of_counts(family, args, by):
    """Slopes by the parameters equal differences."""
    args, h = [np.broadcast_to(np.asarray(x, float), 3) for x in args], 1e-6
    ours, theirs = getattr(stats, family).pmf, getattr(scipy.stats, family).pmf
    with weft.enable_x64(True):
        slopes = weft.jit(weft.grad(lambda *args: wnp.sum(ours(*args)), argnums=tuple(by)))(*args)
    for slope, k in zip(slopes, by):
        up, down = ([*args[:k], args[k] + s, *args[k + 1 :]] for s in (h, -h))
        np.testing.assert_allclose(
            slope, (theirs(*up) - theirs(*down)) / (2 * h), rtol=1e-5, atol=1e-7
        )


@pytest.mark.parametrize(
    "family, args", [("gamma", (2.0, 2.5)), ("t", (0.4, 4.0)), ("vonmises", (0.5, 4.0))]
)
def test_second_derivatives(family, args):
    """Second derivatives equal differences of the first derivatives."""
    h, every, fun = 1e-6, tuple(range(len(args))), getattr(stats, family).logpdf
    with weft.enable_x64(True):
        slope, bend = weft.jit(weft.grad(fun, every)), weft.jit(weft.hessian(fun, every))(*args)
        for i in every:
            up, down = (slope(*args[:i], args[i] + s, *args[i + 1 :]) for s in (h, -h))
            for j in every:
                np.testing.assert_allclose(
                    bend[j][i], (up[j] - down[j]) / (2 * h), rtol=1e-5, atol=1e-6
                )


def test_circles():
    np.testing.assert_allclose(
        stats.vonmises.logpdf(ANY, 2.0), scipy.stats.vonmises.logpdf(ANY, 2.0), **CLOSE
    )
    x = np.linspace(-1, 7, 9).astype(np.float32)
    np.testing.assert_allclose(
        stats.wrapcauchy.pdf(x, 0.5), scipy.stats.wrapcauchy.pdf(x, 0.5), **CLOSE
    )


def test_vectors():
    mean, x = RNG.normal(size=3).astype(np.float32), RNG.normal(size=(4, 3)).astype(np.float32)
    root = RNG.normal(size=(3, 3))
    cov = (root @ root.T + np.eye(3)).astype(np.float32)
    result = stats.multivariate_normal.logpdf(x, mean, cov)
    np.testing.assert_allclose(
        result, scipy.stats.multivariate_normal.logpdf(x, mean, cov), rtol=1e-4
    )
    np.testing.assert_allclose(
        stats.multivariate_normal.pdf(x, mean, 2.0),
        scipy.stats.multivariate_normal.pdf(x, mean, 2.0),
        rtol=1e-4,
    )
    parts, alpha = np.array([0.2, 0.3, 0.5], np.float32), np.array([0.7, 2.0, 3.0], np.float32)
    want = scipy.stats.dirichlet.logpdf([0.2, 0.3, 0.5], alpha)
    np.testing.assert_allclose(stats.dirichlet.logpdf(parts, alpha), want, rtol=1e-5)
    np.testing.assert_allclose(stats.dirichlet.logpdf(parts[:2], alpha), want, rtol=1e-5)
    counts = np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 6.0], [1.0, 1.0, 1.0]], np.float32)
    np.testing.assert_allclose(
        stats.multinomial.pmf(counts, 6, parts),
        scipy.stats.multinomial.pmf(counts, 6, [0.2, 0.3, 0.5]),
        rtol=1e-5,
    )


def test_summaries():
    x = RNG.integers(0, 4, size=(5, 6)).astype(np.int32)
    for axis in (0, 1, None):
        result, want = stats.mode(x, axis=axis), scipy.stats.mode(x, axis=axis)
        np.testing.assert_array_equal(result.mode, want.mode)
        np.testing.assert_array_equal(result.count, want.count)
        np.testing.assert_allclose(stats.sem(x, axis), scipy.stats.sem(x, axis), rtol=1e-5)
        for method in ("average", "min", "max", "dense", "ordinal"):
            np.testing.assert_allclose(
                stats.rankdata(x, method, axis=axis), scipy.stats.rankdata(x, method, axis=axis)
            )


@pytest.mark.parametrize(
    "name, args",
    [
        ("gammainc", (UNIT * 5, UNIT * 9)),
        ("gammaincc", (UNIT * 5, UNIT * 9)),
        ("betainc", (UNIT * 5, UNIT + 1, UNIT)),
        ("zeta", (UNIT * 3 + 1.5, UNIT)),
        ("boxcox", (UNIT * 3, np.append(UNIT[1:], 0).astype("f"))),
        ("boxcox1p", (UNIT, UNIT)),
    ],
)
def test_special(name, args):
    np.testing.assert_allclose(
        getattr(special, name)(*args), getattr(scipy.special, name)(*args), rtol=2e-5
    )


@pytest.mark.parametrize(
    "name, args, want, slope",
    [  # by mpmath, of the arguments as floats of 32 bits
        ("logcdf", (1e-25, 8144.0, 12.5), -468721.492, 8.14399984e28),
        ("logsf", (1e-30, 0.01, 0.01), -0.288528099, -3.34461838e27),
        ("sf", (3e-10, 0.00325, 17.0), 0.0585033709, -10199547.1),
        (
            "logsf",
            (0.9999951124191284, 0.0072155119851231575, 1739.1656494140625),
            -21280.26637435263,
            -355833632.211731,
        ),
    ],
)
def test_tails_of_the_beta_distribution(name, args, want, slope):
    fun, args = getattr(stats.beta, name), np.float32(args)
    np.testing.assert_allclose(weft.value_and_grad(fun)(*args), (want, slope), rtol=1e-5)


def test_ends_of_other_distributions():
    """Values and slopes by mpmath."""
    close = lambda got, want: np.testing.assert_allclose(got, want, rtol=1e-5)
    close(
        weft.grad(stats.gennorm.cdf, 0)(np.float32(-1e-18), 3.25),
        3.25 / 2 / scipy.special.gamma(1 / 3.25),
    )
    assert weft.grad(stats.gennorm.pdf, (0, 1))(np.float32(1e26), 4.7) == (0, 0)
    close(weft.grad(stats.nbinom.pmf, 1)(np.float32(1094), 1e-44, 1e-40), 1 / 1094)
    close(stats.truncnorm.cdf(np.float32(8.502244e36), 8.502237e36, 8.507624e36), 1.0)
    assert np.isfinite(
        weft.grad(stats.truncnorm.cdf, (0, 1, 2))(np.float32(8.502244e36), 8.502237e36, 8.507624e36)
    ).all()
    close(weft.grad(special.i0)(np.float32(-5e-33)), -2.5e-33)
    close(stats.chi2.logsf(np.float32(1.4e-45), 0.028307041), -0.2631974)


def test_there_is_no_density_of_a_negative_scale():
    x = np.array([0.0, 0.5, 1.0], np.float32)
    for density in (
        stats.beta.pdf(x, 1.0, 1.0, 0, -1),
        stats.norm.pdf(x, scale=-1),
        stats.uniform.pdf(x, 0, -1),
        stats.expon.pdf(x, scale=-1),
    ):
        assert np.isnan(density).all()


def test_counts_need_no_promotion():
    x, p = np.array([1, 2, 0]), np.array([0.2, 0.5, 0.3], np.float32)
    with weft.numpy_dtype_promotion("strict"):
        value = stats.multinomial.logpmf(x, 3, p)
    assert value.dtype == np.float32
    np.testing.assert_allclose(value, np.log(3 * 0.2 * 0.25), rtol=1e-5)


@pytest.mark.parametrize(
    "values",
    [
        [np.nan, 1, 1],
        [np.nan, np.nan, 1],
        [np.nan, 1, 2],
        [1, np.nan, np.nan, 1],
        [np.nan],
        [2, np.nan, np.nan],
    ],
)
def test_nan_is_a_value_that_may_be_the_commonest(values):
    values = np.array(values, np.float32)
    result, want = weft.scipy.stats.mode(values), scipy.stats.mode(values)
    np.testing.assert_array_equal([result.mode, result.count], [want.mode, want.count])
    np.testing.assert_array_equal(
        weft.scipy.stats.mode(values[None].repeat(2, 0), axis=1).mode, [want.mode] * 2
    )
