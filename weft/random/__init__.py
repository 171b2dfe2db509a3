"""Random numbers from explicit keys: counter-based threefry, indexed by global position.

The bits of element i depend on the key and i alone, so every layout over devices gives the same values without
communication. A key is either raw (`PRNGKey`: uint32[2]) or typed (`key`: an array of dtype `key<fry>`); both work everywhere.

Threefry-2x32-20 is from Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). Bits and samples
equal JAX's.
"""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft._engine.random.derived": """
        double_sided_maxwell lognormal maxwell multivariate_normal orthogonal pareto rayleigh triangular wald weibull_min
    """,
        "weft._engine.random.draws": """
        PRNGKey bernoulli bits cauchy clone exponential fold_in gumbel key key_data key_dtype key_impl key_impl_names laplace
        logistic normal rademacher randint split truncated_normal uniform wrap_key_data
    """,
        "weft._engine.random.permutation_and_choice": "categorical choice permutation",
        "weft._engine.random.rejection": """
        ball beta binomial chisquare dirichlet f gamma generalized_normal geometric loggamma multinomial poisson t
    """,
    },
    guards=True,
)
