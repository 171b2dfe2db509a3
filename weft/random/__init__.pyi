"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001, E501
# fmt: off

import numpy as np
from collections.abc import Sequence
from typing import Any, SupportsIndex
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.ops.indexing import GatherScatterMode
from weft._engine.random.draws import PRNGKey, key_impl_names
from weft._engine.random.generators import PRNGImpl
from weft._engine.runtime.array import Array
from weft.typing import ArrayLike, DTypeLike

def ball(key: ArrayLike, d: int, p: float = 2, shape: int | Sequence[SupportsIndex] = ..., dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return points drawn uniformly from the unit ball of the norm of order `p` in `d` dimensions."""
def bernoulli(key: ArrayLike, p: ArrayLike = ..., shape: int | Sequence[SupportsIndex] | None = None, mode: str = 'low', *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return True with probability `p`."""
def beta(key: ArrayLike, a: ArrayLike, b: ArrayLike, shape: int | Sequence[SupportsIndex] | None = None, dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return samples of the beta distribution."""
def binomial(key: ArrayLike, n: ArrayLike, p: ArrayLike, shape: int | Sequence[SupportsIndex] | None = None, dtype: DTypeLike | None = None) -> Array:
    r"""Return the number of successes in `n` trials with probability `p`, as floats."""
def bits(key: ArrayLike, shape: int | Sequence[SupportsIndex] = ..., dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Uniformly random bits as unsigned integers of `shape` (by default uint32, with `enable_x64` uint64)."""
def categorical(key: ArrayLike, logits: ArrayLike, axis: int = -1, shape: int | Sequence[SupportsIndex] | None = None, replace: bool = True, mode: str | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return samples of categorical distributions with log-probabilities `logits` along `axis`."""
def cauchy(key: ArrayLike, shape: int | Sequence[SupportsIndex] = ..., dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return samples of the Cauchy distribution."""
def chisquare(key: ArrayLike, df: ArrayLike, shape: int | Sequence[SupportsIndex] | None = None, dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return samples of the chi-square distribution with `df` degrees of freedom."""
def choice(key: ArrayLike, a: int | ArrayLike | Sequence[Any], shape: int | Sequence[SupportsIndex] = ..., replace: bool = True, p: ArrayLike | None = None, axis: int = 0, mode: str | None = None) -> Array:
    r"""Return elements (or slices along `axis`) of `a`, drawn with probabilities `p`."""
def clone(key: ArrayLike) -> Array:
    r"""Return the same key; if `debug_key_reuse` tracks keys, as one that may be used again."""
def dirichlet(key: ArrayLike, alpha: ArrayLike, shape: int | Sequence[SupportsIndex] | None = None, dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return samples of the Dirichlet distribution; the last dim of `alpha` holds its parameters."""
def double_sided_maxwell(key: ArrayLike, loc: ArrayLike, scale: ArrayLike, shape: int | Sequence[SupportsIndex] = ..., dtype: DTypeLike | None = None) -> Array:
    r"""Return samples of the Maxwell distribution with random sign, scaled and shifted."""
def exponential(key: ArrayLike, shape: int | Sequence[SupportsIndex] = ..., dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return samples of the exponential distribution with rate 1."""
def f(key: ArrayLike, dfnum: ArrayLike, dfden: ArrayLike, shape: int | Sequence[SupportsIndex] | None = None, dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return samples of the F distribution."""
def fold_in(key: ArrayLike, data: ArrayLike) -> Array:
    r"""Return a new key computed from a key and an integer."""
def gamma(key: ArrayLike, a: ArrayLike, shape: int | Sequence[SupportsIndex] | None = None, dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return samples of the gamma distribution with shape parameter `a` and rate 1."""
def generalized_normal(key: ArrayLike, p: ArrayLike, shape: int | Sequence[SupportsIndex] = ..., dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return samples with density proportional to exp(-|x|^p)."""
def geometric(key: ArrayLike, p: ArrayLike, shape: int | Sequence[SupportsIndex] | None = None, dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return the number of trials with probability `p` up to the first success."""
def gumbel(key: ArrayLike, shape: int | Sequence[SupportsIndex] = ..., dtype: DTypeLike | None = None, mode: str | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return samples of the Gumbel distribution."""
def key(seed: ArrayLike, *, impl: Any = None, dtype: DTypeLike | None = None) -> Array:
    r"""Return a typed scalar key from an integer seed."""
def key_data(keys: Array | np.ndarray | Sequence[ArrayLike]) -> Array:
    r"""Return the raw data of keys, uint32[..., 2]."""
def key_dtype(impl_spec: Any = None) -> Any:
    r"""Return the dtype of the typed keys of a generator."""
def key_impl(keys: Array | np.ndarray | Sequence[ArrayLike]) -> str | PRNGImpl:
    r"""Return the name of the generator of keys."""
def laplace(key: ArrayLike, shape: int | Sequence[SupportsIndex] = ..., dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return samples of the Laplace distribution."""
def loggamma(key: ArrayLike, a: ArrayLike, shape: int | Sequence[SupportsIndex] | None = None, dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return logarithms of gamma samples, finite where samples underflow for small `a`."""
def logistic(key: ArrayLike, shape: int | Sequence[SupportsIndex] = ..., dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return samples of the logistic distribution."""
def lognormal(key: ArrayLike, sigma: ArrayLike = ..., shape: int | Sequence[SupportsIndex] | None = None, dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return exponentials of normal samples with standard deviation `sigma`."""
def maxwell(key: ArrayLike, shape: int | Sequence[SupportsIndex] = ..., dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return samples of the Maxwell distribution."""
def multinomial(key: ArrayLike, n: ArrayLike, p: ArrayLike, *, shape: int | Sequence[SupportsIndex] | None = None, dtype: DTypeLike | None = None, unroll: int | bool = 1) -> Array:
    r"""Return the count of each outcome in `n` trials."""
def multivariate_normal(key: ArrayLike, mean: ArrayLike, cov: ArrayLike, shape: int | Sequence[SupportsIndex] | None = None, dtype: DTypeLike | None = None, method: str = 'cholesky', *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return samples of a multivariate normal distribution."""
def normal(key: ArrayLike, shape: int | Sequence[SupportsIndex] = ..., dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return samples of the standard normal distribution, of `shape` and dtype float32 by default."""
def orthogonal(key: ArrayLike, n: int, shape: int | Sequence[SupportsIndex] = ..., dtype: DTypeLike | None = None, m: int | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return uniformly distributed orthogonal matrices, n by m (square by default)."""
def pareto(key: ArrayLike, b: ArrayLike, shape: int | Sequence[SupportsIndex] | None = None, dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return samples of the Pareto distribution."""
def permutation(key: ArrayLike, x: int | ArrayLike, axis: int = 0, independent: bool = False, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return `x` shuffled along `axis`."""
def poisson(key: ArrayLike, lam: ArrayLike, shape: int | Sequence[SupportsIndex] | None = None, dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return samples of the Poisson distribution with rate `lam`, as integers."""
def rademacher(key: ArrayLike, shape: int | Sequence[SupportsIndex] = ..., dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return -1 or 1 with equal probability."""
def randint(key: ArrayLike, shape: int | Sequence[SupportsIndex], minval: ArrayLike, maxval: ArrayLike, dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return uniform integers from [minval, maxval), of an integer dtype (int32 by default)."""
def rayleigh(key: ArrayLike, scale: ArrayLike, shape: int | Sequence[SupportsIndex] | None = None, dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return samples of the Rayleigh distribution."""
def split(key: ArrayLike, num: int | Sequence[int] = 2) -> Array:
    r"""Return `num` new independent keys (a number or a shape) of the kind of `key`."""
def t(key: ArrayLike, df: ArrayLike, shape: int | Sequence[SupportsIndex] | None = None, dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return samples of Student's t distribution with `df` degrees of freedom."""
def triangular(key: ArrayLike, left: ArrayLike, mode: str | GatherScatterMode | None, right: ArrayLike, shape: int | Sequence[SupportsIndex] | None = None, dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return samples of the triangular distribution on [left, right] with its peak at `mode`."""
def truncated_normal(key: ArrayLike, lower: ArrayLike, upper: ArrayLike, shape: int | Sequence[SupportsIndex] | None = None, dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return samples of the standard normal distribution between `lower` and `upper`."""
def uniform(key: ArrayLike, shape: int | Sequence[SupportsIndex] = ..., dtype: DTypeLike | None = None, minval: ArrayLike = ..., maxval: ArrayLike = ..., *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return uniform samples from [minval, maxval), of `shape` and a floating dtype."""
def wald(key: ArrayLike, mean: ArrayLike, shape: int | Sequence[SupportsIndex] | None = None, dtype: DTypeLike | None = None, *, out_sharding: NamedSharding | PartitionSpec | None = None) -> Array:
    r"""Return samples of the Wald (inverse Gaussian) distribution with scale 1."""
def weibull_min(key: ArrayLike, scale: ArrayLike, concentration: ArrayLike, shape: int | Sequence[SupportsIndex] = ..., dtype: DTypeLike | None = None) -> Array:
    r"""Return samples of the Weibull distribution."""
def wrap_key_data(key_bits_array: ArrayLike, *, impl: Any = None, dtype: DTypeLike | None = None) -> Array:
    r"""Return typed keys from their raw data, uint32[..., n]."""

__all__ = [
    "PRNGKey", "ball", "bernoulli", "beta", "binomial", "bits", "categorical", "cauchy",
    "chisquare", "choice", "clone", "dirichlet", "double_sided_maxwell", "exponential", "f",
    "fold_in", "gamma", "generalized_normal", "geometric", "gumbel", "key", "key_data",
    "key_dtype", "key_impl", "key_impl_names", "laplace", "loggamma", "logistic", "lognormal",
    "maxwell", "multinomial", "multivariate_normal", "normal", "orthogonal", "pareto",
    "permutation", "poisson", "rademacher", "randint", "rayleigh", "split", "t", "triangular",
    "truncated_normal", "uniform", "wald", "weibull_min", "wrap_key_data",
]
