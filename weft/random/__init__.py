"""Random numbers from explicit keys: counter-based threefry, indexed by global position.

The bits of element i depend on the key and i alone, so every layout over devices gives the same values without
communication. A key is either raw (`PRNGKey`: uint32[2]) or typed (`key`: an array of dtype `key<fry>`); both work everywhere.

Threefry-2x32-20 is from Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). Bits, and the ways from bits to
samples, equal JAX's.
"""

import importlib
from typing import TYPE_CHECKING

from weft.random.draws import (
    PRNGKey,
    bernoulli,
    bits,
    categorical,
    cauchy,
    choice,
    clone,
    double_sided_maxwell,
    exponential,
    fold_in,
    gumbel,
    key,
    key_data,
    key_dtype,
    key_impl,
    key_impl_names,
    laplace,
    logistic,
    lognormal,
    maxwell,
    multivariate_normal,
    normal,
    orthogonal,
    pareto,
    permutation,
    rademacher,
    randint,
    rayleigh,
    split,
    triangular,
    truncated_normal,
    uniform,
    wald,
    weibull_min,
    wrap_key_data,
)  # fmt: skip

if TYPE_CHECKING:
    from weft.random.rejection import (
        ball,
        beta,
        binomial,
        chisquare,
        dirichlet,
        f,
        gamma,
        generalized_normal,
        geometric,
        loggamma,
        multinomial,
        poisson,
        t,
    )  # fmt: skip

__all__ = [
    "PRNGKey", "ball", "bernoulli", "beta", "binomial", "bits", "categorical", "cauchy", "chisquare", "choice",
    "clone", "dirichlet", "double_sided_maxwell", "exponential", "f", "fold_in", "gamma", "generalized_normal",
    "geometric", "gumbel", "key", "key_data", "key_dtype", "key_impl", "key_impl_names", "laplace", "loggamma",
    "logistic", "lognormal", "maxwell", "multinomial", "multivariate_normal", "normal", "orthogonal", "pareto",
    "permutation", "poisson", "rademacher", "randint", "rayleigh", "split", "t", "triangular", "truncated_normal",
    "uniform", "wald", "weibull_min", "wrap_key_data",
]  # fmt: skip


def __getattr__(name: str):
    """Load what is drawn by rejection, and with it loops and their derivatives, on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module("weft.random.rejection"), name)
    return value
