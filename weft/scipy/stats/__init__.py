"""Distributions and statistics with SciPy's names; each distribution is a module, loaded on first use.

>>> from weft.scipy import stats
>>> round(float(stats.norm.cdf(1.96)), 3)
0.975
"""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft.scipy.stats.kde": "gaussian_kde",
        "weft._engine.scipy.stats.summary": "mode rankdata sem",
        __name__: """
        bernoulli beta betabinom binom cauchy chi2 dirichlet expon gamma gennorm geom gumbel_l gumbel_r laplace
        logistic multinomial multivariate_normal nbinom norm pareto poisson t truncnorm uniform vonmises
        wrapcauchy
    """,
    },
)
