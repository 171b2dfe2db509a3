"""Densities estimated from samples by Gaussian kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import numpy as wnp, random
from weft._engine.numpy.promote import all_inexact, concrete
from weft._engine.util import dtypes
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import guard_all
from weft._engine.util.tree import register_pytree_node_class
from weft.scipy.linalg import cho_factor, cho_solve, solve_triangular
from weft.scipy.special import logsumexp, ndtr


@register_pytree_node_class
class gaussian_kde:  # noqa: N801
    """A density estimated from samples: the mean of normal densities around them.

    `dataset` has samples [N] or [dims, N] with N > dims; `bw_method` is 'scott', 'silverman', a factor, or a function from the
    estimate to a factor, which scales the covariance of the samples; `weights` are the weights of the samples. Estimates
    are trees of arrays.
    Raises ValueError for invalid shapes, TypeError for complex samples.

    >>> kde = gaussian_kde(wnp.array([-1.0, 0.0, 1.0]))
    >>> float(kde.integrate_box_1d(-100.0, 100.0).round(4))
    1.0
    """

    __module__ = "weft.scipy.stats"

    def __init__(self, dataset: Any, bw_method: Any = None, weights: Any = None):
        name = "gaussian_kde"
        dataset = wnp.atleast_2d(concrete(all_inexact(name, dataset)[0]))
        if dtypes.issubdtype(dataset.dtype, np.complexfloating):
            raise TypeError(f"{name}: the samples must be real numbers, got {dataset.dtype}.")
        d, n = dataset.shape
        if dataset.size <= 1:
            raise ValueError(
                f"{name}: the dataset should have several samples, got shape {tuple(dataset.shape)}."
            )
        if n < d:
            raise ValueError(
                f"{name}: there are fewer samples ({n}) than dims ({d}); samples are columns."
            )
        if weights is None:
            weights = wnp.full(n, 1 / n, dataset.dtype)
        else:
            weights = concrete(all_inexact(name, weights)[0]).astype(dataset.dtype)
            if tuple(weights.shape) != (n,):
                raise ValueError(
                    f"{name}: expected {quantity(n, 'weight')}, got shape {tuple(weights.shape)}."
                )
            weights = weights / wnp.sum(weights)
        self.dataset, self.weights = dataset, weights
        self.neff = 1 / wnp.sum(weights * weights)
        factor = self._factor(bw_method)
        covariance = wnp.atleast_2d(wnp.cov(dataset, rowvar=True, bias=False, aweights=weights))
        self.covariance = covariance * factor**2
        self.inv_cov = wnp.linalg.inv(covariance) / factor**2

    def _factor(self, method: Any) -> Any:
        if method is None or method == "scott":
            return self.neff ** (-1 / (self.d + 4))
        if isinstance(method, str):
            if method == "silverman":
                return (self.neff * (self.d + 2) / 4) ** (-1 / (self.d + 4))
            raise ValueError(
                f"gaussian_kde: bw_method must be 'scott', 'silverman', a number or a function, got {method!r}."
            )
        return method(self) if isinstance(method, Callable) else method

    @property
    def d(self) -> int:
        """Return the number of dims of a sample."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """Return the number of samples."""
        return self.dataset.shape[1]

    def tree_flatten(self) -> tuple:
        """Return the arrays of the estimate; there is no static data."""
        return (self.neff, self.dataset, self.weights, self.covariance, self.inv_cov), None

    @classmethod
    def tree_unflatten(cls, aux_data: None, children: Sequence) -> gaussian_kde:
        """Return the estimate with these arrays."""
        kde = cls.__new__(cls)
        kde.neff, kde.dataset, kde.weights, kde.covariance, kde.inv_cov = children
        return kde

    def _points(self, points: Any) -> Any:
        points = wnp.atleast_2d(
            concrete(all_inexact("gaussian_kde", points)[0]).astype(self.dataset.dtype)
        )
        d, m = points.shape
        if d == self.d:
            return points
        if d == 1 and m == self.d:
            return points.reshape(self.d, 1)
        raise ValueError(
            f"gaussian_kde: points of {quantity(d, 'dim')}, but the samples have {self.d}."
        )

    def logpdf(self, x: Any):
        """Return the logarithm of the density at points [M] or [dims, M]."""
        points = self._points(x)
        lower = wnp.linalg.cholesky(self.covariance)
        a, b = (solve_triangular(lower, v, lower=True) for v in (points, self.dataset))
        distance = wnp.sum((a[:, :, None] - b[:, None, :]) ** 2, 0)
        size = wnp.sum(wnp.log(wnp.diagonal(lower))) + 0.5 * self.d * math.log(2 * math.pi)
        return logsumexp(-0.5 * distance, axis=1, b=self.weights) - size

    def pdf(self, x: Any):
        """Return the density at points [M] or [dims, M]."""
        return wnp.exp(self.logpdf(x))

    def evaluate(self, points: Any):
        """Return the density at points [M] or [dims, M]."""
        return self.pdf(points)

    def __call__(self, points: Any):
        return self.pdf(points)

    def integrate_gaussian(self, mean: Any, cov: Any):
        """Return the integral of the density times a normal density."""
        mean = wnp.atleast_1d(wnp.squeeze(wnp.asarray(mean, self.dataset.dtype)))
        cov = wnp.atleast_2d(wnp.asarray(cov, self.dataset.dtype))
        if tuple(mean.shape) != (self.d,) or tuple(cov.shape) != (self.d, self.d):
            raise ValueError(
                f"gaussian_kde.integrate_gaussian: expected a mean of {quantity(self.d, 'number')} and a covariance [{self.d}, {self.d}], "
                f"got {tuple(mean.shape)} and {tuple(cov.shape)}."
            )
        return wnp.sum(
            _normal_at(self.covariance + cov, self.dataset - mean[:, None]) * self.weights
        )

    def integrate_box_1d(self, low: Any, high: Any):
        """Return the integral of a one-dimensional density between two numbers."""
        if self.d != 1:
            raise ValueError(
                f"gaussian_kde.integrate_box_1d: the samples must have one dim, got {self.d}."
            )
        deviation = wnp.sqrt(self.covariance[0, 0])
        return wnp.sum(
            self.weights
            * (
                ndtr((high - self.dataset[0]) / deviation)
                - ndtr((low - self.dataset[0]) / deviation)
            )
        )

    def integrate_kde(self, other: gaussian_kde):
        """Return the integral of the product of two estimates."""
        if other.d != self.d:
            raise ValueError(
                f"gaussian_kde.integrate_kde: the estimates have {self.d} and {quantity(other.d, 'dim')}."
            )
        differences = self.dataset[:, :, None] - other.dataset[:, None, :]
        at = _normal_at(
            self.covariance + other.covariance, differences.reshape(self.d, -1)
        ).reshape(self.n, other.n)
        return wnp.sum(at * self.weights[:, None] * other.weights)

    def resample(self, key: Any, shape: Sequence[int] = ()):
        """Return samples of the density, [dims, *shape], drawn with a key of `weft.random`."""
        pick, noise = random.split(key)
        chosen = random.choice(pick, self.n, shape=tuple(shape), p=self.weights)
        moved = random.multivariate_normal(
            noise,
            wnp.zeros(self.d, self.dataset.dtype),
            self.covariance,
            shape=tuple(shape),
            dtype=self.dataset.dtype,
        )
        return self.dataset[:, chosen] + wnp.moveaxis(moved, -1, 0)

    def integrate_box(self, low_bounds: Any, high_bounds: Any, maxpts: Any = None):
        """Raise NotImplementedError: SciPy uses an adaptive multivariate rule."""
        raise NotImplementedError(
            "gaussian_kde.integrate_box is not supported; in one dim use integrate_box_1d."
        )

    def set_bandwidth(self, bw_method: Any = None):
        """Raise NotImplementedError: estimates are immutable."""
        raise NotImplementedError(
            "gaussian_kde.set_bandwidth is not supported, estimates never change; make another one with bw_method."
        )


def _normal_at(covariance: Any, x: Any):
    """Return the centered normal density with a covariance, at columns."""
    factor = cho_factor(covariance, lower=True)
    energy = wnp.sum(x * cho_solve(factor, x), 0)
    log_size = wnp.sum(wnp.log(wnp.diagonal(factor[0]))) + 0.5 * x.shape[0] * math.log(2 * math.pi)
    return wnp.exp(-0.5 * energy - log_size)


guard_all(globals())
