"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft._engine.scipy.stats.summary import mode, rankdata, sem
from weft.scipy.stats import (
    bernoulli, beta, betabinom, binom, cauchy, chi2, dirichlet, expon, gamma, gennorm, geom,
    gumbel_l, gumbel_r, laplace, logistic, multinomial, multivariate_normal, nbinom, norm, pareto,
    poisson, t, truncnorm, uniform, vonmises, wrapcauchy,
)
from weft.scipy.stats.kde import gaussian_kde

__all__ = [
    "bernoulli", "beta", "betabinom", "binom", "cauchy", "chi2", "dirichlet", "expon", "gamma",
    "gaussian_kde", "gennorm", "geom", "gumbel_l", "gumbel_r", "laplace", "logistic", "mode",
    "multinomial", "multivariate_normal", "nbinom", "norm", "pareto", "poisson", "rankdata", "sem",
    "t", "truncnorm", "uniform", "vonmises", "wrapcauchy",
]
