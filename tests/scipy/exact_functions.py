"""Special functions in the precision of mpmath; `ValueError` outside of their domains."""

from __future__ import annotations

from collections.abc import Callable

from mpmath import mp, mpf


def log_normal_cdf(x: mpf) -> mpf:
    tail = mp.erfc(abs(x) / mp.sqrt(2)) / 2
    return mp.log(tail) if x < 0 else mp.log1p(-tail)


def normal_cdf(x: mpf) -> mpf:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def normal_quantile(p: mpf) -> mpf:
    if not 0 < p < 1:
        raise ValueError
    if p > 0.5:
        return -normal_quantile(1 - p)
    log_p = mp.log(p)
    x = -mp.sqrt(max(-2 * log_p - mp.log(max(-4 * mp.pi * log_p, 1)), 0))
    for _ in range(90):
        log_density = -x * x / 2 - mp.log(2 * mp.pi) / 2
        log_cdf = log_normal_cdf(x)
        step = (log_cdf - log_p) * mp.exp(log_cdf - log_density)
        x -= step
        if abs(step) < abs(x) * mpf(10) ** (10 - mp.dps):
            break
    return x


def log_gamma(x: mpf) -> mpf:
    return mp.loggamma(x) if x > 0 else mp.log(abs(mp.gamma(x)))


def log_beta(a: mpf, b: mpf) -> mpf:
    """Return log(beta(a, b)), with more digits for large arguments, where gammas cancel."""
    with mp.workdps(mp.dps + max(0, int(mp.log10(max(a, b, 1)))) + 10):
        return mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b)


def _bessel(order: int, x: mpf) -> mpf:
    return mp.besseli(order, x)


def scaled_bessel(order: int, x: mpf) -> mpf:
    size = abs(x)
    if size < 1000:
        y = mp.besseli(order, size) * mp.exp(-size)
    else:
        term = total = mpf(1)
        for k in range(1, 60):
            term *= -(4 * order**2 - (2 * k - 1) ** 2) / (8 * k * size)
            total += term
        y = total / mp.sqrt(2 * mp.pi * size)
    return -y if order and x < 0 else y


def box(log_of: Callable) -> Callable:
    return lambda x, y: mp.expm1(y * log_of(x)) / y if y else log_of(x)


def x_log(x: mpf, log_y: mpf) -> mpf:
    return x * log_y if x else mpf(0)


def log1m(x: mpf) -> mpf:
    return mp.log1p(-x)


def _converged(fraction: Callable[[int], mpf]) -> mpf:
    """Return the value of a continued fraction, with as many terms as it needs."""
    last, terms = fraction(15), 30
    while abs((total := fraction(terms)) - last) > abs(total) * mpf(10) ** (10 - mp.dps):
        last, terms = total, 2 * terms
    return total


def gammainc(a: mpf, x: mpf, upper: bool) -> mpf:
    if a <= 0 or x < 0:
        raise ValueError
    if x == 0:
        return mpf(upper)
    log_tail = a * mp.log(x) - x - mp.loggamma(a)
    lost = int((x - a - a * mp.log(x / a)) / 2.3) if x > a else 0
    if lost > 40:  # far out Legendre's fraction converges soon

        def fraction(terms: int) -> mpf:
            total = mpf(0)
            for n in range(terms, 0, -1):
                total = n * (a - n) / (x + 2 * n + 1 - a + total)
            return 1 / (x + 1 - a + total)

        tail = mp.exp(log_tail) * _converged(fraction)
        return tail if upper else 1 - tail
    with mp.workdps(mp.dps + lost + 5):
        term = total = mpf(1)
        n = 0
        while term > total * mpf(10) ** -mp.dps:
            n += 1
            term *= x / (a + n)
            total += term
        lower = total * mp.exp(a * mp.log(x) - x - mp.loggamma(a + 1))
        return 1 - lower if upper else lower


def betainc(a: mpf, b: mpf, x: mpf, rest: mpf | None = None) -> mpf:
    """Return the regularized incomplete beta function by its continued fraction; `rest` is 1 - x."""
    rest = 1 - x if rest is None else rest
    if not (a > 0 and b > 0):
        raise ValueError
    if x <= 0:
        return mpf(0)
    if rest <= 0:
        return mpf(1)
    if x > (a + 1) / (a + b + 2):
        return 1 - betainc(b, a, rest, x)

    def fraction(terms: int) -> mpf:
        total = mpf(0)
        for m in range(terms, 0, -1):
            even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
            odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
            total = even / (1 + odd / (1 + total))
        return 1 / (1 - (a + b) * x / (a + 1) / (1 + total))

    return _converged(fraction) * mp.exp(a * mp.log(x) + b * mp.log(rest) - log_beta(a, b)) / a


def zeta(s: mpf, q: mpf) -> mpf:
    if s <= 1 or q <= 0:
        raise ValueError
    if s > 1000:
        require(q < s / 100)
        return q**-s * (1 + mp.exp(-s * mp.log1p(1 / q)))
    terms = 40 + int(min(s, 200))
    a = q + terms
    total = sum((q + k) ** -s for k in range(terms)) + a ** (1 - s) / (s - 1) + a**-s / 2
    factor = s / a
    for j in range(1, 40):
        total += mp.bernoulli(2 * j) / mp.factorial(2 * j) * factor * a**-s
        factor *= (s + 2 * j - 1) * (s + 2 * j) / a**2
    return total


def require(inside: bool) -> None:
    if not inside:
        raise ValueError


def bounded_exp(z: mpf) -> mpf:
    """Return exp(z) for z up to 30, so that another exponential can be taken."""
    return mp.exp(min(z, 30))


def exp(y: mpf) -> mpf:
    """Return exp(y), or zero far below all floats."""
    return mp.exp(y) if y > -(10**5) else mpf(0)


def log_of_rest(z: mpf) -> mpf:
    """Return log(1 - exp(-z))."""
    return mp.log(-mp.expm1(-z)) if z < 1 else mp.log1p(-mp.exp(-z))


def rel_entr(p: mpf, q: mpf) -> mpf:
    return p * mp.log(p / q)


def _whole(k: mpf, n: mpf | None = None) -> None:
    if k < 0 or (n is not None and k > n):
        raise ValueError


def _far_series(x: mpf, sign: int) -> mpf:
    """Return 1 - 1 / (2 x^2) + 3 / (2 x^2)^2 - ..., or the series with positive terms if `sign` is 1."""
    term = total = mpf(1)
    for k in range(1, 40):
        term *= sign * (2 * k - 1) / (2 * x * x)
        total += term
    return total


def scaled_erfc(x: mpf) -> mpf:
    require(x > -100)
    return mp.exp(x * x) * mp.erfc(x) if x < 10**3 else _far_series(x, -1) / (x * mp.sqrt(mp.pi))


def dawson(x: mpf) -> mpf:
    return (
        mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x)
        if abs(x) < 50
        else _far_series(x, 1) / (2 * x)
    )


def exponential_integral(x: mpf) -> mpf:
    require(x < 10**4)
    return mp.ei(x) if x > -(10**4) else mpf(0)
