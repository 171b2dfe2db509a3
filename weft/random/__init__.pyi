"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft._engine.random.derived import (
    double_sided_maxwell, lognormal, maxwell, multivariate_normal, orthogonal, pareto, rayleigh,
    triangular, wald, weibull_min,
)
from weft._engine.random.draws import (
    PRNGKey, bernoulli, bits, cauchy, clone, exponential, fold_in, gumbel, key, key_data,
    key_dtype, key_impl, key_impl_names, laplace, logistic, normal, rademacher, randint, split,
    truncated_normal, uniform, wrap_key_data,
)
from weft._engine.random.permutation_and_choice import categorical, choice, permutation
from weft._engine.random.rejection import (
    ball, beta, binomial, chisquare, dirichlet, f, gamma, generalized_normal, geometric, loggamma,
    multinomial, poisson, t,
)

__all__ = [
    "PRNGKey", "ball", "bernoulli", "beta", "binomial", "bits", "categorical", "cauchy",
    "chisquare", "choice", "clone", "dirichlet", "double_sided_maxwell", "exponential", "f",
    "fold_in", "gamma", "generalized_normal", "geometric", "gumbel", "key", "key_data",
    "key_dtype", "key_impl", "key_impl_names", "laplace", "loggamma", "logistic", "lognormal",
    "maxwell", "multinomial", "multivariate_normal", "normal", "orthogonal", "pareto",
    "permutation", "poisson", "rademacher", "randint", "rayleigh", "split", "t", "triangular",
    "truncated_normal", "uniform", "wald", "weibull_min", "wrap_key_data",
]
