"""Distributions and statistics with SciPy's names; each distribution is a module, loaded on first use.

>>> from weft.scipy import stats
>>> round(float(stats.norm.cdf(1.96)), 3)
0.975
"""

import importlib

from weft.scipy.stats.summary import mode, rankdata, sem

_SUBMODULES = """
    bernoulli beta betabinom binom cauchy chi2 dirichlet expon gamma gennorm geom gumbel_l gumbel_r laplace
    logistic multinomial multivariate_normal nbinom norm pareto poisson t truncnorm uniform vonmises
    wrapcauchy
""".split()

__all__ = ["gaussian_kde", "mode", "rankdata", "sem"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str):
    """Load a distribution on first use."""
    if name == "gaussian_kde":
        return importlib.import_module("weft.scipy.stats.kde").gaussian_kde
    if name in _SUBMODULES:
        return importlib.import_module(f"weft.scipy.stats.{name}")
    raise AttributeError(f"module 'weft.scipy.stats' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBMODULES])
