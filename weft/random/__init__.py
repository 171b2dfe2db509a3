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
    cauchy,
    clone,
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
    normal,
    rademacher,
    randint,
    split,
    truncated_normal,
    uniform,
    wrap_key_data,
)  # fmt: skip

if TYPE_CHECKING:
    from weft.random.derived import (
        double_sided_maxwell,
        lognormal,
        maxwell,
        multivariate_normal,
        orthogonal,
        pareto,
        rayleigh,
        triangular,
        wald,
        weibull_min,
    )
    from weft.random.picking import categorical, choice, permutation
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


#: what few programs draw; with what is drawn by rejection come loops and their derivatives
_HOMES = {name: home for home, names in {
    "derived": "double_sided_maxwell lognormal maxwell multivariate_normal orthogonal pareto rayleigh triangular wald weibull_min",
    "picking": "categorical choice permutation",
    "rejection": "ball beta binomial chisquare dirichlet f gamma generalized_normal geometric loggamma multinomial poisson t",
}.items() for name in names.split()}


def __getattr__(name: str):
    """Load the room of a name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"weft.random.{_HOMES[name]}"), name)
    return value
