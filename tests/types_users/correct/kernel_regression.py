"""A Gaussian process: kernels, a Cholesky factor, and minimization by BFGS."""

import weft
import weft.numpy as wnp
from weft import random
from weft.scipy import linalg, optimize, special, stats


def kernel(a: weft.Array, b: weft.Array, length: weft.Array) -> weft.Array:
    return wnp.exp(-0.5 * ((a[:, None] - b[None, :]) / length) ** 2)


def negative_likelihood(log_length: weft.Array, x: weft.Array, y: weft.Array) -> weft.Array:
    cov = kernel(x, x, wnp.exp(log_length[0])) + 0.1 * wnp.eye(x.size)
    factor = wnp.linalg.cholesky(cov)
    alpha = linalg.cho_solve((factor, True), y)
    return 0.5 * y @ alpha + wnp.sum(wnp.log(wnp.diag(factor)))


x = wnp.linspace(0.0, 1.0, 8)
y = wnp.sin(6 * x) + 0.01 * random.normal(random.key(0), x.shape)
result = optimize.minimize(negative_likelihood, wnp.zeros(1), args=(x, y), method="BFGS")
print(result.x.shape, bool(result.fun < negative_likelihood(wnp.zeros(1), x, y) + 1e-3))
print(stats.norm.logpdf(x, 0.0, 1.0).shape, special.logsumexp(x) > 0, special.erf(0.5))
