"""Draws whose values are known: each case is a function of the random module, the array module and a raw key.

`golden.npz` holds what JAX 0.10 gives for `PRNGKey(7)`: under `<layout>|<name>`, with layout `new` (threefry_partitionable) or `old`.
"""

CASES = {
    "key": lambda r, m, k: r.PRNGKey(-1),
    "split": lambda r, m, k: r.split(k),
    "split 5": lambda r, m, k: r.split(k, 5),
    "split (2, 3)": lambda r, m, k: r.split(k, (2, 3)),
    "fold_in": lambda r, m, k: r.fold_in(k, 3),
    "bits": lambda r, m, k: r.bits(k, (3, 5)),
    "bits of a scalar": lambda r, m, k: r.bits(k),
    "bits uint8": lambda r, m, k: r.bits(k, (7,), "uint8"),
    "bits uint16": lambda r, m, k: r.bits(k, (3, 5), "uint16"),
    "uniform": lambda r, m, k: r.uniform(k, (3, 4)),
    "uniform in an interval": lambda r, m, k: r.uniform(k, (5,), minval=-2.0, maxval=3.0),
    "uniform bfloat16": lambda r, m, k: r.uniform(k, (5,), "bfloat16"),
    "uniform float16": lambda r, m, k: r.uniform(k, (5,), "float16"),
    "normal": lambda r, m, k: r.normal(k, (3, 4)),
    "normal bfloat16": lambda r, m, k: r.normal(k, (5,), "bfloat16"),
    "normal complex64": lambda r, m, k: r.normal(k, (5,), "complex64"),
    "randint": lambda r, m, k: r.randint(k, (7,), -5, 1000000),
    "randint uint8": lambda r, m, k: r.randint(k, (7,), 0, 256, "uint8"),
    "randint int16": lambda r, m, k: r.randint(k, (7,), -100, 100, "int16"),
    "randint of arrays": lambda r, m, k: r.randint(
        k, (3,), m.array([0, 10, 20]), m.array([5, 15, 100])
    ),
    "randint of an empty interval": lambda r, m, k: r.randint(k, (3,), 5, 3),
    "bernoulli": lambda r, m, k: r.bernoulli(k, 0.3, (7,)),
    "bernoulli of arrays": lambda r, m, k: r.bernoulli(k, m.array([0.1, 0.9, 0.5]), (2, 3)),
    "bernoulli, high": lambda r, m, k: r.bernoulli(k, m.array([1e-9, 0.9, 0.5]), (2, 3), "high"),
    "bernoulli bfloat16, high": lambda r, m, k: r.bernoulli(
        k, m.array([1e-3, 0.9, 0.5], "bfloat16"), (2, 3), mode="high"
    ),
    "permutation": lambda r, m, k: r.permutation(k, 10),
    "permutation of rows": lambda r, m, k: r.permutation(k, m.arange(12).reshape(4, 3)),
    "permutation, independent": lambda r, m, k: r.permutation(
        k, m.arange(12).reshape(4, 3), independent=True
    ),
    "permutation of many": lambda r, m, k: r.permutation(k, 3000)[:20],
    "choice": lambda r, m, k: r.choice(k, 10, (3,)),
    "choice without replacement": lambda r, m, k: r.choice(k, 10, (3,), replace=False),
    "choice by probability": lambda r, m, k: r.choice(k, 4, (6,), p=m.array([0.1, 0.2, 0.3, 0.4])),
    "choice by probability, without replacement": lambda r, m, k: r.choice(
        k, 4, (3,), replace=False, p=m.array([0.1, 0.2, 0.3, 0.4])
    ),
    "categorical": lambda r, m, k: r.categorical(
        k, m.array([[0.1, 1.0, -1.0], [2.0, 0.0, 0.0]]), shape=(4, 2)
    ),
    "truncated_normal": lambda r, m, k: r.truncated_normal(k, -2.0, 2.0, (5,)),
    "choice by probability, without replacement, high": lambda r, m, k: r.choice(
        k, 4, (3,), replace=False, p=m.array([0.1, 0.2, 0.3, 0.4]), mode="high"
    ),
    "categorical, highest": lambda r, m, k: r.categorical(
        k, m.array([[0.1, 1.0, -1.0], [2.0, 0.0, 0.0]]), shape=(4, 2), mode="highest"
    ),
    "gumbel": lambda r, m, k: r.gumbel(k, (5,)),
    "gumbel, high": lambda r, m, k: r.gumbel(k, (20,), mode="high"),
    "gumbel float16, high": lambda r, m, k: r.gumbel(k, (20,), "float16", mode="high"),
    "gumbel, highest": lambda r, m, k: r.gumbel(k, (20,), mode="highest"),
    "gumbel bfloat16, highest": lambda r, m, k: r.gumbel(k, (20,), "bfloat16", mode="highest"),
    "exponential": lambda r, m, k: r.exponential(k, (5,)),
    "laplace": lambda r, m, k: r.laplace(k, (5,)),
    "logistic": lambda r, m, k: r.logistic(k, (5,)),
    "cauchy": lambda r, m, k: r.cauchy(k, (5,)),
    "rademacher": lambda r, m, k: r.rademacher(k, (7,)),
    "maxwell": lambda r, m, k: r.maxwell(k, (5,)),
    "double_sided_maxwell": lambda r, m, k: r.double_sided_maxwell(k, 1.0, 2.0, (5,)),
    "weibull_min": lambda r, m, k: r.weibull_min(k, 1.5, 2.0, (5,)),
    "pareto": lambda r, m, k: r.pareto(k, 3.0, (5,)),
    "rayleigh": lambda r, m, k: r.rayleigh(k, 2.0, (5,)),
    "lognormal": lambda r, m, k: r.lognormal(k, 0.5, (5,)),
    "triangular": lambda r, m, k: r.triangular(k, 0.0, 0.5, 2.0, (5,)),
    "wald": lambda r, m, k: r.wald(k, 1.5, (5,)),
    "multivariate_normal": lambda r, m, k: r.multivariate_normal(
        k, m.zeros(2), m.array([[2.0, 0.5], [0.5, 1.0]]), (3,)
    ),
    "orthogonal": lambda r, m, k: r.orthogonal(k, 3),
    "gamma": lambda r, m, k: r.gamma(k, m.array([0.01, 0.5, 1.0, 3.0, 100.0])),
    "gamma of one parameter": lambda r, m, k: r.gamma(k, 0.5, (2, 2)),
    "loggamma": lambda r, m, k: r.loggamma(k, m.array([0.001, 0.5, 3.0])),
    "beta": lambda r, m, k: r.beta(k, m.array([0.5, 1.0, 30.0]), 2.0),
    "dirichlet": lambda r, m, k: r.dirichlet(k, m.array([0.5, 1.0, 3.0]), (2,)),
    "chisquare": lambda r, m, k: r.chisquare(k, m.array([0.5, 3.0])),
    "t": lambda r, m, k: r.t(k, 3.0, (4,)),
    "f": lambda r, m, k: r.f(k, m.array([0.5, 3.0]), 3.0),
    "generalized_normal": lambda r, m, k: r.generalized_normal(k, 3.0, (4,)),
    "ball": lambda r, m, k: r.ball(k, 3, 1.5, (2,)),
    "geometric": lambda r, m, k: r.geometric(k, 0.1, (5,)),
    "poisson": lambda r, m, k: r.poisson(k, m.array([0.0, 0.5, 5.0, 20.0, 1000.0, 1e5, -1.0])),
    "binomial": lambda r, m, k: r.binomial(
        k, m.array([3.0, 100.0, 100.0, 1e4, 50.0]), m.array([0.3, 0.7, 0.05, 0.5, 0.0])
    ),
    "binomial at the edges": lambda r, m, k: r.binomial(
        k, m.array([3.0, m.inf, -1.0, 1e4, 50.0]), m.array([1.3, 0.7, 0.05, m.nan, 1.0])
    ),
    "multinomial": lambda r, m, k: r.multinomial(k, 100.0, m.array([0.5, 0.3, 0.2]), shape=(2, 3)),
}
WIDE = {
    "bits uint64": lambda r, m, k: r.bits(k, (7,), "uint64"),
    "uniform float64": lambda r, m, k: r.uniform(k, (5,)),
    "normal float64": lambda r, m, k: r.normal(k, (5,)),
    "randint int64": lambda r, m, k: r.randint(k, (7,), 0, 10**12),
    "gumbel float64, highest": lambda r, m, k: r.gumbel(k, (5,), mode="highest"),
    "key of a wide seed": lambda r, m, k: r.PRNGKey(2**40 + 5),
}
