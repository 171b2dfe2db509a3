"""Samples by rejection: gamma, Poisson, binomial, and the distributions built on them.

In:   a key, parameters that broadcast to the shape, the shape. Out: samples that equal JAX's to
      rounding.
Gamma: Marsaglia and Tsang, "A simple method for generating gamma variables" (2000), each element with a key of its own.
Poisson: Knuth's product of uniforms below a rate of 10, Hörmann's transformed rejection (PTRS, 1993) above.
Binomial: sums of geometric waiting times where n p <= 10, Hörmann's BTRS (1993) elsewhere.
Gamma samples are differentiable in their parameter; counts are not.
"""

from __future__ import annotations

import math

import numpy as np

from weft import numpy as wnp
from weft._engine.api.vmap import vmap
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.control.scan import scan
from weft._engine.control.while_loop import while_loop
from weft._engine.core.annotations import cast as vary
from weft._engine.core.trace import typeof
from weft._engine.numpy.promote import broadcast_shapes, broadcast_to_shape, cast, concrete
from weft._engine.ops import elementwise as ew, layout, reduce
from weft._engine.ops.placement import takes_out_sharding
from weft._engine.random.draws import (
    _check_single_key,
    _float,
    _normal,
    _parameters,
    _sample_dtype,
    _shape,
    _split_one,
    _uniform,
    _with_separate_draws,
    clone,
    exponential,
    rademacher,
    split,
)
from weft._engine.util import dtypes

_F32 = np.dtype(np.float32)


def _typed_like_key(raw, *values):
    """Return the values typed as varying over the key's manual axes.

    Samples of each round vary over these axes.
    """
    return [vary(v, typeof(raw).vma) for v in values]


# ---- gamma


def _cube_root_normal(key, c):
    """Return a normal `x` and `v = 1 + c x`, drawn again until `v` is positive."""

    def draw_again(state):
        k, _, _ = state
        next_key, sub = _split_one(k, 2)
        x = _normal(sub, (), c.dtype)
        return next_key, x, ew.add(1, ew.mul(x, c))

    zero = ew.mul(c, 0)
    return while_loop(lambda state: ew.le(state[2], 0), draw_again, (key, zero, ew.sub(zero, 1)))[
        1:
    ]


def _gamma_above_one(key, a):
    """Return one sample with parameter at least 1, as two factors."""
    d = ew.sub(a, 1 / 3)
    c = ew.div(1 / 3, ew.sqrt(d))

    def refused(state):
        _, square, v, u = state
        beyond = ew.add(ew.mul(square, 0.5), ew.mul(d, ew.add(ew.sub(1, v), ew.log(v))))
        return ew.bitwise_and(
            ew.ge(u, ew.sub(1, ew.mul(0.0331, ew.square(square)))), ew.ge(ew.log(u), beyond)
        )

    def draw_again(state):
        next_key, of_x, of_u = _split_one(state[0], 3)
        x, v = _cube_root_normal(of_x, c)
        return (
            next_key,
            ew.square(x),
            ew.mul(ew.square(v), v),
            _uniform(of_u, (), c.dtype, 0.0, 1.0),
        )

    zero = ew.mul(c, 0)
    v = while_loop(refused, draw_again, (key, zero, ew.add(zero, 1), ew.add(zero, 2)))[2]
    return d, v


def _gamma_one(key, a, log_space: bool):
    """Return one gamma sample.

    For a parameter below 1 it is a sample for a + 1 times a power of a uniform.
    """
    large = ew.ge(a, 1)
    next_key, sub = _split_one(key, 2)
    d, v = _gamma_above_one(next_key, ew.select_n(large, ew.add(a, 1), a))
    log_u = ew.neg(exponential(sub, (), a.dtype))
    boost = ew.select_n(ew.bitwise_or(large, ew.eq(log_u, 0)), ew.div(log_u, a), ew.mul(a, 0))
    if log_space:
        return ew.add(ew.add(ew.log(d), ew.log(v)), boost)
    return ew.mul(ew.mul(d, v), ew.exp(boost))


def _gammas(raw, a, log_space: bool):
    """Return one sample for each element of `a`, each from its own key."""
    flat = layout.reshape(*_typed_like_key(raw, a), (a.size,))
    return layout.reshape(
        vmap(lambda k, x: _gamma_one(k, x, log_space))(
            _with_separate_draws(split(raw, a.size)), flat
        ),
        a.shape,
    )


@custom_jvp
def _gamma(raw, a):
    return _gammas(raw, a, False)


@_gamma.defjvp
def _gamma_jvp(primals, tangents):
    out = _gamma(*primals)
    return out, ew.mul(ew.random_gamma_grad(primals[1], out), tangents[1])


@custom_jvp
def _log_gamma(raw, a):
    return _gammas(raw, a, True)


@_log_gamma.defjvp
def _log_gamma_jvp(primals, tangents):
    raw, a = primals
    out = _log_gamma(raw, a)
    sample = ew.exp(out)
    # then P(a, x) = x^a / gamma(a + 1), solved for log x and differentiated
    tiny = ew.eq(sample, 0)
    slope = ew.div(
        ew.random_gamma_grad(a, sample), ew.select_n(tiny, sample, ew.add(ew.mul(sample, 0), 1))
    )
    limit = ew.div(ew.sub(ew.digamma(ew.add(a, 1)), out), a)
    return out, ew.mul(ew.select_n(tiny, slope, limit), tangents[1])


@takes_out_sharding
def loggamma(key, a, shape=None, dtype=None):
    """Return logarithms of gamma samples, finite where samples underflow for small `a`."""
    dtype = _float(dtype, "loggamma")
    shape, (a,) = _parameters(dtype, shape, a)
    return _log_gamma(_check_single_key(key, "loggamma"), a) if math.prod(shape) else a


@takes_out_sharding
def gamma(key, a, shape=None, dtype=None):
    """Return samples of the gamma distribution with shape parameter `a` and rate 1.

    They are differentiable in `a`.

    >>> x = weft.random.gamma(weft.random.key(0), 3.0, (1000,))
    >>> abs(float(x.mean()) - 3) < 0.2
    True
    """
    dtype = _float(dtype, "gamma")
    shape, (a,) = _parameters(dtype, shape, a)
    return _gamma(_check_single_key(key, "gamma"), a) if math.prod(shape) else a


@takes_out_sharding
def beta(key, a, b, shape=None, dtype=None):
    """Return samples of the beta distribution."""
    dtype = _float(dtype, "beta")
    shape, (a, b) = _parameters(dtype, shape, a, b)
    first, second = _split_one(_check_single_key(key, "beta"), 2)
    x, y = loggamma(first, a, shape, dtype), loggamma(second, b, shape, dtype)
    top = ew.max(x, y)
    x, y = ew.exp(ew.sub(x, top)), ew.exp(ew.sub(y, top))
    return ew.div(x, ew.add(x, y))


@takes_out_sharding
def dirichlet(key, alpha, shape=None, dtype=None):
    """Return samples of the Dirichlet distribution; the last dim of `alpha` holds its parameters."""
    dtype = _float(dtype, "dirichlet")
    alpha = cast(concrete(wnp.asarray(alpha)), dtype)
    if alpha.ndim < 1:
        raise ValueError(
            "dirichlet: alpha must have at least one dim for the parameters, got a scalar."
        )
    shape = tuple(alpha.shape[:-1]) if shape is None else _shape(shape)
    x = loggamma(_check_single_key(key, "dirichlet"), alpha, (*shape, alpha.shape[-1]), dtype)
    x = wnp.exp(wnp.subtract(x, wnp.max(x, -1, keepdims=True)))
    return wnp.divide(x, wnp.sum(x, -1, keepdims=True))


@takes_out_sharding
def chisquare(key, df, shape=None, dtype=None):
    """Return samples of the chi-square distribution with `df` degrees of freedom."""
    dtype = _float(dtype, "chisquare")
    shape, (df,) = _parameters(dtype, shape, df)
    return ew.mul(
        ew.exp(loggamma(_check_single_key(key, "chisquare"), ew.mul(df, 0.5), shape, dtype)), 2
    )


@takes_out_sharding
def f(key, dfnum, dfden, shape=None, dtype=None):
    """Return samples of the F distribution."""
    dtype = _float(dtype, "f")
    shape, (dfnum, dfden) = _parameters(dtype, shape, dfnum, dfden)
    second, first = _split_one(_check_single_key(key, "f"), 2)
    return ew.div(
        ew.div(chisquare(first, dfnum, shape, dtype), dfnum),
        ew.div(chisquare(second, dfden, shape, dtype), dfden),
    )


@takes_out_sharding
def t(key, df, shape=None, dtype=None):
    """Return samples of Student's t distribution with `df` degrees of freedom."""
    dtype = _float(dtype, "t")
    shape, (df,) = _parameters(dtype, shape, df)
    first, second = _split_one(_check_single_key(key, "t"), 2)
    half = ew.div(df, 2)
    return ew.mul(
        _normal(first, shape, dtype), ew.sqrt(ew.div(half, gamma(second, half, shape, dtype)))
    )


@takes_out_sharding
def generalized_normal(key, p, shape=(), dtype=None):
    """Return samples with density proportional to exp(-|x|^p)."""
    dtype, shape = _float(dtype, "generalized_normal"), _shape(shape)
    first, second = _split_one(_check_single_key(key, "generalized_normal"), 2)
    size = wnp.power(gamma(first, 1 / p, shape, dtype), 1 / p)
    return wnp.multiply(size, rademacher(second, shape, dtype))


@takes_out_sharding
def ball(key, d: int, p: float = 2, shape=(), dtype=None):
    """Return points drawn uniformly from the unit ball of the norm of order `p` in `d` dimensions."""
    dtype, shape = _float(dtype, "ball"), _shape(shape)
    first, second = _split_one(_check_single_key(key, "ball"), 2)
    x = generalized_normal(first, p, (*shape, d), dtype)
    length = wnp.add(wnp.sum(wnp.power(wnp.abs(x), p), -1), exponential(second, shape, dtype))
    return wnp.divide(x, wnp.expand_dims(wnp.power(length, 1 / p), -1))


# ---- counts


def _transformed_try(key, like):
    """Return the key of the next try and the variables of a transformed rejection.

    They are u in [-1/2, 1/2), v in [0, 1), and the distance of u from the ends.
    """
    next_key, of_u, of_v = _split_one(key, 3)
    u = ew.sub(_uniform(of_u, like.shape, like.dtype, 0.0, 1.0), 0.5)
    return next_key, u, _uniform(of_v, like.shape, like.dtype, 0.0, 1.0), ew.sub(0.5, ew.abs(u))


def _counts_dtype(dtype, api: str):
    return _sample_dtype(dtype, api, dtypes.default_int_dtype, np.integer, "an int")


@takes_out_sharding
def geometric(key, p, shape=None, dtype=None):
    """Return the number of trials with probability `p` up to the first success."""
    dtype = _counts_dtype(dtype, "geometric")
    work = dtypes.default_float_dtype()
    shape, (p,) = _parameters(work, shape, p)
    u = _uniform(_check_single_key(key, "geometric"), shape, work, 0.0, 1.0)
    u = ew.select_n(ew.eq(u, 0), u, ew.add(ew.mul(u, 0), 1))
    return ew.convert_element_type(
        ew.add(ew.floor(ew.div(ew.log(u), ew.log1p(ew.neg(p)))), 1), dtype
    )


def _any(flags):
    return reduce.reduce_or(flags, tuple(range(flags.ndim)))


def _poisson_product(raw, rate):
    """Return the number of uniforms until their product is below exp(-rate), minus one."""

    def draw_again(state):
        k, count, log_product = state
        next_key, sub = _split_one(k, 2)
        count = ew.select_n(ew.gt(log_product, ew.neg(rate)), count, ew.add(count, 1))
        return (
            next_key,
            count,
            ew.add(log_product, ew.log(_uniform(sub, rate.shape, _F32, 0.0, 1.0))),
        )

    zero = ew.mul(rate, 0)
    start = (raw, ew.convert_element_type(zero, np.dtype(np.int32)), zero)
    return ew.sub(
        while_loop(lambda state: _any(ew.gt(state[2], ew.neg(rate))), draw_again, start)[1], 1
    )


def _poisson_rejection(raw, rate):
    """Return Poisson samples by PTRS.

    A transformed uniform is accepted by a squeeze or by the ratio of the densities.
    """
    b = ew.add(ew.mul(ew.sqrt(rate), 2.53), 0.931)
    a = ew.add(ew.mul(b, 0.02483), -0.059)
    inverse_alpha = ew.add(ew.div(1.1328, ew.sub(b, 3.4)), 1.1239)
    top = ew.sub(0.9277, ew.div(3.6224, ew.sub(b, 2)))
    log_rate = ew.log(rate)

    def draw_again(state):
        k, accepted, done = state
        next_key, u, v, edge = _transformed_try(k, rate)
        n = ew.floor(ew.add(ew.add(ew.mul(ew.add(ew.div(ew.mul(a, 2), edge), b), u), rate), 0.43))
        fit = ew.log(ew.div(ew.mul(v, inverse_alpha), ew.add(ew.div(a, ew.square(edge)), b)))
        density = ew.sub(ew.sub(ew.mul(n, log_rate), rate), ew.lgamma(ew.add(n, 1)))
        outside = ew.bitwise_or(ew.lt(n, 0), ew.bitwise_and(ew.lt(edge, 0.013), ew.gt(v, edge)))
        inside = ew.bitwise_and(ew.ge(edge, 0.07), ew.le(v, top))
        is_accepted = ew.bitwise_or(
            inside, ew.bitwise_and(ew.bitwise_not(outside), ew.le(fit, density))
        )
        return next_key, ew.select_n(is_accepted, accepted, n), ew.bitwise_or(done, is_accepted)

    start = (raw, ew.sub(ew.mul(rate, 0), 1), ew.lt(rate, 0))
    return while_loop(lambda state: _any(ew.bitwise_not(state[2])), draw_again, start)[1]


@takes_out_sharding
def poisson(key, lam, shape=None, dtype=None):
    """Return samples of the Poisson distribution with rate `lam`, as integers.

    >>> int(weft.random.poisson(weft.random.key(0), 0.0))
    0
    """
    dtype = _counts_dtype(dtype, "poisson")
    shape, (rate,) = _parameters(_F32, shape, lam)
    raw = _check_single_key(key, "poisson")
    (rate,) = _typed_like_key(raw, rate)
    small = ew.bitwise_or(ew.ne(rate, rate), ew.lt(rate, 10))
    zero = ew.mul(wnp.zeros(shape, _F32), 0)
    low = _poisson_product(raw, ew.select_n(small, zero, rate))
    high = _poisson_rejection(clone(raw), ew.select_n(small, rate, ew.add(zero, 1e5)))
    samples = ew.select_n(
        small, ew.convert_element_type(high, dtype), ew.convert_element_type(low, dtype)
    )
    return ew.select_n(ew.eq(rate, 0), samples, wnp.zeros(shape, dtype))


_TAIL = [
    math.lgamma(k + 1) - (k + 0.5) * math.log(k + 1) + (k + 1) - 0.5 * math.log(2 * math.pi)
    for k in range(10)
]


def _stirling_tail(k):
    """Return log(k!) minus Stirling's approximation.

    It is exact up to 9; beyond, it has three terms of the series.
    """
    next_ = ew.add(k, 1)
    square = ew.square(next_)
    far = ew.div(ew.sub(1 / 12, ew.div(ew.sub(1 / 360, ew.div(1 / 1260, square)), square)), next_)
    table = wnp.asarray(np.asarray(_TAIL, k.dtype))
    near = wnp.take(
        table, ew.convert_element_type(ew.clamp(0.0, k, 9.0), np.dtype(np.int32)), mode="clip"
    )
    return ew.select_n(ew.le(k, 9), far, near)


def _binomial_waiting(raw, n, p):
    """Return the number of geometric waiting times that fit into `n` trials."""
    log_miss = ew.log1p(ew.neg(p))

    def draw_again(state):
        k, count, trials = state
        sub, next_key = _split_one(k, 2)
        count = ew.select_n(ew.le(trials, n), count, ew.add(count, 1))
        wait = ew.ceil(ew.div(ew.log(_uniform(sub, n.shape, n.dtype, 0.0, 1.0)), log_miss))
        return next_key, count, ew.add(trials, wait)

    zero = ew.mul(p, 0)
    return ew.sub(
        while_loop(lambda state: _any(ew.le(state[2], n)), draw_again, (raw, zero, zero))[1], 1
    )


def _binomial_rejection(raw, n, p):
    """Return binomial samples by BTRS.

    A transformed uniform is accepted by a squeeze or by the ratio of probabilities.
    """
    deviation = ew.sqrt(ew.mul(ew.mul(n, p), ew.sub(1, p)))
    b = ew.add(ew.mul(deviation, 2.53), 1.15)
    a = ew.add(ew.add(ew.mul(b, 0.0248), -0.0873), ew.mul(p, 0.01))
    center = ew.add(ew.mul(n, p), 0.5)
    top = ew.sub(0.92, ew.div(4.2, b))
    odds = ew.div(p, ew.sub(1, p))
    alpha = ew.mul(ew.add(ew.div(5.1, b), 2.83), deviation)
    mode = ew.floor(ew.mul(ew.add(n, 1), p))

    def bound(k):
        m1, k1 = ew.add(ew.sub(n, mode), 1), ew.add(ew.sub(n, k), 1)
        terms = [
            ew.mul(ew.add(mode, 0.5), ew.log(ew.div(ew.add(mode, 1), ew.mul(odds, m1)))),
            ew.mul(ew.add(n, 1), ew.log(ew.div(m1, k1))),
            ew.mul(ew.add(k, 0.5), ew.log(ew.div(ew.mul(odds, k1), ew.add(k, 1)))),
            _stirling_tail(mode),
            _stirling_tail(ew.sub(n, mode)),
            ew.neg(_stirling_tail(k)),
            ew.neg(_stirling_tail(ew.sub(n, k))),
        ]
        total = terms[0]
        for term in terms[1:]:
            total = ew.add(total, term)
        return total

    def draw_again(state):
        key, accepted, done = state
        next_key, u, v, edge = _transformed_try(key, n)
        k = ew.floor(ew.add(ew.mul(ew.add(ew.div(ew.mul(a, 2), edge), b), u), center))
        inside = ew.bitwise_and(ew.ge(edge, 0.07), ew.le(v, top))
        outside = ew.bitwise_or(ew.lt(k, 0), ew.gt(k, n))
        fit = ew.log(ew.div(ew.mul(v, alpha), ew.add(ew.div(a, ew.square(edge)), b)))
        is_accepted = ew.bitwise_or(
            inside, ew.bitwise_and(ew.bitwise_not(outside), ew.le(fit, bound(k)))
        )
        return next_key, ew.select_n(is_accepted, accepted, k), ew.bitwise_or(done, is_accepted)

    start = (raw, ew.sub(ew.mul(p, 0), 1), ew.lt(p, -1))
    return while_loop(lambda state: _any(ew.bitwise_not(state[2])), draw_again, start)[1]


def binomial(key, n, p, shape=None, dtype=None):
    """Return the number of successes in `n` trials with probability `p`, as floats.

    >>> float(weft.random.binomial(weft.random.key(0), 10.0, 1.0))
    10.0
    """
    dtype = _float(dtype, "binomial")
    shape, (n, p) = _parameters(dtype, shape, n, p)
    raw = _check_single_key(key, "binomial")
    n, p = _typed_like_key(raw, n, p)
    low = ew.lt(p, 0.5)
    q = ew.select_n(low, ew.sub(1, p), p)  # count the less likely outcome
    bad_n, bad_q = (ew.bitwise_or(ew.ne(v, v), ew.lt(v, 0)) for v in (n, q))
    zero = wnp.zeros(shape, dtype)
    endless = ew.eq(ew.abs(n), np.inf)
    q = ew.select_n(bad_q, q, ew.add(zero, 0.01))
    is_small_mean = ew.bitwise_or(bad_n, ew.le(ew.mul(n, q), 10))
    trials = ew.floor(n)
    waited = _binomial_waiting(raw, ew.select_n(is_small_mean, zero, trials), q)
    drawn = _binomial_rejection(
        raw,
        ew.select_n(is_small_mean, trials, ew.add(zero, 1e4)),
        ew.select_n(is_small_mean, q, ew.add(zero, 0.5)),
    )
    count = ew.select_n(is_small_mean, drawn, waited)
    bad = ew.bitwise_or(bad_n, bad_q)
    count = ew.select_n(bad, count, ew.add(zero, np.nan))
    count = ew.select_n(ew.bitwise_and(endless, ew.bitwise_not(bad)), count, ew.add(zero, np.inf))
    as_is = ew.bitwise_or(ew.bitwise_or(low, bad), endless)
    return ew.select_n(as_is, ew.sub(trials, count), count)


def multinomial(key, n, p, *, shape=None, dtype=None, unroll: int | bool = 1):
    """Return the count of each outcome in `n` trials.

    The last dim of `p`, and of `shape`, is over outcomes.
    """
    dtype = _float(dtype, "multinomial")
    p, n = cast(concrete(wnp.asarray(p)), dtype), cast(concrete(wnp.asarray(n)), dtype)
    if not p.ndim:
        raise ValueError("multinomial: `p` needs a dim of outcomes, got a scalar.")
    if shape is None:
        shape = broadcast_shapes(n.shape, p.shape[:-1])
    else:
        *shape, outcomes = broadcast_shapes(_shape(shape), p.shape)
        if outcomes != p.shape[-1]:
            raise ValueError(
                f"multinomial: the last dim of shape must equal the last dim of p, {p.shape[-1]}, got {outcomes}."
            )
    n, p = broadcast_to_shape(n, tuple(shape)), broadcast_to_shape(p, (*shape, p.shape[-1]))
    tail_sums = wnp.flip(wnp.cumsum(wnp.flip(p, -1), -1), -1)
    share = wnp.moveaxis(wnp.divide(p, wnp.where(wnp.equal(tail_sums, 0), 1, tail_sums)), -1, 0)

    def draw_category(remaining, drawn):
        subkey, chance = drawn
        count = binomial(subkey, remaining, wnp.clip(chance, 0, 1), tuple(shape), dtype)
        return ew.sub(remaining, count), count

    raw = _check_single_key(key, "multinomial")
    _, counts = scan(
        draw_category,
        vary(n, typeof(raw).vma | typeof(share).vma),
        (split(raw, share.shape[0]), share),
        unroll=unroll,
    )
    return wnp.moveaxis(counts, 0, -1)
