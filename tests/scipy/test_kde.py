"""Densities from samples, and further functions of distributions, against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import weft
import weft.numpy as wnp
from weft.scipy import stats

RNG = np.random.RandomState(0)
CLOSE = {"rtol": 2e-4, "atol": 1e-5}


@pytest.mark.parametrize(
    "method", [None, "silverman", 0.7, lambda kde: kde.neff ** (-1.0 / (kde.d + 4))]
)
@pytest.mark.parametrize("shape", [(15,), (3, 20)])
def test_densities(shape, method):
    samples, points = (
        RNG.randn(*shape).astype(np.float32),
        RNG.randn(*shape[:-1], 7).astype(np.float32),
    )
    for weights in (None, RNG.rand(shape[-1]).astype(np.float32)):
        mine, peer = (
            stats.gaussian_kde(samples, method, weights),
            scipy.stats.gaussian_kde(samples, method, weights),
        )
        np.testing.assert_allclose(mine(points), peer(points), **CLOSE)
        np.testing.assert_allclose(mine.logpdf(points), peer.logpdf(points), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(mine.covariance, peer.covariance, **CLOSE)
        d = peer.d
        np.testing.assert_allclose(
            mine.integrate_gaussian(np.full(d, 0.3), np.eye(d)),
            peer.integrate_gaussian(np.full(d, 0.3), np.eye(d)),
            **CLOSE,
        )
        other = samples[..., :-3] + 0.1
        np.testing.assert_allclose(
            mine.integrate_kde(stats.gaussian_kde(other)),
            peer.integrate_kde(scipy.stats.gaussian_kde(other)),
            **CLOSE,
        )
        if d == 1:
            np.testing.assert_allclose(
                mine.integrate_box_1d(-0.5, 1.5), peer.integrate_box_1d(-0.5, 1.5), **CLOSE
            )
        np.testing.assert_allclose(
            weft.jit(lambda kde, x: kde.evaluate(x))(mine, points), peer(points), **CLOSE
        )


def test_samples_of_a_density():
    kde = stats.gaussian_kde(RNG.randn(15).astype(np.float32), weights=RNG.rand(15))
    drawn = kde.resample(weft.random.key(0), (2000,))
    assert drawn.shape == (1, 2000) and kde.resample(weft.random.key(1)).shape == (1,)
    assert (
        scipy.stats.kstest(
            np.asarray(drawn[0]), weft.vmap(lambda x: kde.integrate_box_1d(-np.inf, x))
        ).pvalue
        > 0.01
    )
    slope = weft.grad(lambda s: stats.gaussian_kde(s).logpdf(0.3)[0])(wnp.linspace(-1, 1, 5))
    assert slope.shape == (5,) and np.isfinite(slope).all()


@pytest.mark.parametrize(
    "call, error, says",
    [
        (lambda: stats.gaussian_kde(np.ones((3, 2))), ValueError, "fewer samples"),
        (lambda: stats.gaussian_kde(np.ones(1)), ValueError, "several"),
        (lambda: stats.gaussian_kde(np.ones(3) * 1j), TypeError, "real"),
        (lambda: stats.gaussian_kde(np.arange(3.0), "scot"), ValueError, "scot"),
        (lambda: stats.gaussian_kde(np.arange(3.0), weights=np.ones(2)), ValueError, "3 weights"),
        (lambda: stats.gaussian_kde(np.arange(3.0))(np.ones((2, 2))), ValueError, "2 dims"),
        (lambda: stats.gaussian_kde(RNG.randn(2, 5)).integrate_box_1d(0, 1), ValueError, "one dim"),
        (
            lambda: stats.gaussian_kde(np.arange(3.0)).set_bandwidth(1.0),
            NotImplementedError,
            "set_bandwidth",
        ),
        (
            lambda: stats.gaussian_kde(np.arange(3.0)).integrate_box(0, 1),
            NotImplementedError,
            "integrate_box",
        ),
    ],
)
def test_errors(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_entropy_of_counts():
    mu = np.array([-1.0, 0.0, 0.01, 0.5, 2, 9, 50, 99, 100, 200, 500], np.float32)
    want = scipy.stats.poisson.entropy(mu[2:])
    np.testing.assert_allclose(stats.poisson.entropy(mu)[2:], want, rtol=2e-5)
    assert np.isnan(stats.poisson.entropy(-1.0)) and stats.poisson.entropy(
        mu[:3], np.ones((4, 1))
    ).shape == (4, 3)
    slope = weft.grad(stats.poisson.entropy)(2.0)
    step = (scipy.stats.poisson.entropy(2.01) - scipy.stats.poisson.entropy(1.99)) / 0.02
    np.testing.assert_allclose(slope, step, rtol=1e-3)


def test_impossible_parameters_are_nan():
    assert np.isnan(stats.truncnorm.cdf(0.0, 1.0, -1.0)) and np.isnan(
        stats.beta.logpdf(0.5, -1.0, 2.0)
    )
    assert np.isnan(stats.beta.cdf(0.5, 1.0, -2.0)) and not np.isnan(
        stats.truncnorm.logsf(0.0, -1.0, 1.0)
    )


def test_samples_without_numbers():
    x = np.array([[1, np.nan, 3], [4, 5, 6.0]], np.float32)
    np.testing.assert_allclose(
        stats.sem(x, 1, nan_policy="omit"), scipy.stats.sem(x, 1, nan_policy="omit"), rtol=1e-5
    )
    for keepdims in (False, True):
        result = stats.mode(np.zeros((0, 2, 3)), axis=0, keepdims=keepdims)
        assert (
            result.mode.shape == ((1, 2, 3) if keepdims else (2, 3))
            and np.isnan(result.mode).all()
            and not result.count.any()
        )
    cov = np.stack([np.eye(2) * k for k in (1.0, 2.0, 3.0)]).astype(np.float32)
    at, mean = RNG.randn(3, 2).astype(np.float32), np.zeros(2, np.float32)
    want = [scipy.stats.multivariate_normal.logpdf(a, mean, c) for a, c in zip(at, cov)]
    np.testing.assert_allclose(stats.multivariate_normal.logpdf(at, mean, cov), want, rtol=1e-5)
    ones, freedom = np.ones((3, 1)), np.arange(1.0, 3)
    np.testing.assert_allclose(
        stats.chi2.logcdf(ones, freedom), scipy.stats.chi2.logcdf(ones, freedom), rtol=1e-5
    )
