"""Bessel functions of integer orders, associated Legendre functions, spherical harmonics: all by recurrences.

In:   real arrays; orders and degrees that determine shapes are Python integers.
Out:  arrays of the common floating dtype, or complex ones of its precision.
Laws: Bessel functions use the downward recurrence, normalized by their sum (J. C. P. Miller's algorithm); Legendre functions
      use the upward recurrence in the degree, in normalized form, which neither overflows nor underflows.
Source: M. Abramowitz and I. A. Stegun, "Handbook of Mathematical Functions" (1964), chapters 8 and 9.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft._engine.api.jit import jit
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.numpy.promote import concrete, inexact, promote_to_inexact
from weft._engine.util import dtypes
from weft._engine.util.source import guard_all

__all__ = ["bessel_jn", "lpmn", "lpmn_values", "sph_harm_y"]


def bessel_jn(z: Any, *, v: int, n_iter: int = 50):
    """Return the Bessel functions of the first kind of orders 0 to `v` at real `z`, stacked along a new first dim.

    The recurrence starts at order `n_iter`, which must be larger than `v` and clearly larger than `z`: the error is the
    contribution of higher orders. Raises ValueError for complex numbers and unless 0 <= v < n_iter.

    >>> bessel_jn(wnp.array([0.0, 1.0]), v=1).round(4)
    Array([[1.    , 0.7652],
           [0.    , 0.4401]], dtype=float32)
    """
    z = concrete(inexact("bessel_jn", z))
    if dtypes.issubdtype(z.dtype, np.complexfloating):
        raise ValueError("bessel_jn does not support complex-valued inputs.")
    if not 0 <= v < n_iter:
        raise ValueError(
            f"bessel_jn: v must be from 0 to n_iter - 1, got v={v} and n_iter={n_iter}."
        )
    return _bessel(z, v, n_iter)


@functools.partial(custom_jvp, nondiff_argnums=(1, 2))
def _bessel(z, v: int, n_iter: int):
    return _recurred_bessel(z, v, n_iter)


@_bessel.defjvp
def _bessel_slopes(v: int, n_iter: int, primals, tangents):
    """J_k' = (J_{k-1} - J_{k+1}) / 2, and J_{-1} = -J_1."""
    rows = _bessel(*primals, v + 1, max(n_iter, v + 2))
    below = wnp.concatenate([-rows[1:2], rows[:v]])
    return rows[:-1], (below - rows[1:]) / 2 * tangents[0]


@jit(static_argnums=(1, 2))
def _recurred_bessel(z, v: int, n_iter: int):
    large = float(np.finfo(z.dtype).max) ** 0.25
    small = wnp.abs(z) < float(np.finfo(z.dtype).eps) ** 0.25
    inverse = 2 / wnp.where(small, 1, z)

    def down(carry, k):
        """Step from J_k and J_{k+1} to J_{k-1}; scale all down together before they overflow."""
        f, above, total, rows = carry
        below = k * inverse * f - above
        order = k - 1
        total = total + wnp.where(order == 0, below, wnp.where(order % 2 == 0, 2 * below, 0))
        rows = [wnp.where(order == i, below, row) for i, row in enumerate(rows)]
        scale = wnp.where(wnp.abs(below) > large, 1 / large, 1)
        return (below * scale, f * scale, total * scale, [row * scale for row in rows]), None

    start = wnp.full_like(z, 1 / large)
    nothing = wnp.zeros_like(z)
    even = n_iter % 2 == 0
    orders = wnp.arange(n_iter, 0, -1, dtype=z.dtype)
    *above, _ = lax.scan(
        down, (start, nothing, 2 * start if even else nothing, []), orders[: -v - 1]
    )[0]
    _, _, total, rows = lax.scan(down, (*above, [nothing] * (v + 1)), orders[-v - 1 :])[0]
    return wnp.stack(
        [wnp.where(small, first, row / total) for first, row in zip(_small_bessel(z, v), rows)]
    )


def _small_bessel(z, v: int) -> list:
    """Return the first two terms of the power series, (z/2)^k / k! (1 - (z/2)^2 / (k + 1))."""
    half, power, rows = z / 2, wnp.ones_like(z), []
    for k in range(v + 1):
        rows.append(power * (1 - half * half / (k + 1)))
        power = power * half / (k + 1)
    return rows


# ---- Legendre functions


def _degrees(name: str, m: int, n: int, z: Any):
    z = concrete(inexact(name, z))
    if dtypes.issubdtype(z.dtype, np.complexfloating):
        raise TypeError(f"{name} does not support complex-valued inputs.")
    if z.ndim != 1:
        raise ValueError(f"{name}: z must be a 1D array, got shape {tuple(z.shape)}.")
    if m != n:
        raise NotImplementedError(
            f"{name}: the largest order must be the largest degree, got m={m} and n={n}."
        )
    return z


@custom_jvp
def _one_minus_square(z):
    return (1 - z) * (1 + z)


_one_minus_square.defjvps(lambda t, out, z: -2 * z * t)


@jit(static_argnums=(1, 2))
def _legendre(z, top: int, normalized: bool):
    """Return the functions of all orders and degrees up to `top` at a vector of z, [order, degree, z].

    Functions of odd orders are computed without a factor (1 - z^2)^(1/2) or, from order 3 on, (1 - z^2)^(3/2), so that
    derivatives at -1 and 1 have limits.
    """
    orders = np.arange(top + 1)
    one_minus_square = _one_minus_square(z)
    # P_m^m = -(2 m - 1) (1 - z^2)^(1/2) P_{m-1}^{m-1}
    steps = (
        -np.sqrt((2 * orders + 1) / np.maximum(2 * orders, 1)) if normalized else 1 - 2.0 * orders
    )
    rows = [wnp.full_like(z, 1 / math.sqrt(4 * math.pi) if normalized else 1.0)]
    for m in range(1, top + 1):
        factor = float(steps[m] if m == 1 else steps[m] * steps[m - 1])
        rows.append(factor * rows[max(m - 2, 0)] * (one_minus_square if m not in (1, 3) else 1))
    diagonal = wnp.stack(rows)
    columns, last, before = [], wnp.zeros_like(diagonal), wnp.zeros_like(diagonal)
    for degree in range(top + 1):
        with np.errstate(divide="ignore", invalid="ignore"):
            if normalized:
                a = np.sqrt((4.0 * degree**2 - 1) / (degree**2 - orders**2.0))
                b = np.sqrt(((degree - 1.0) ** 2 - orders**2.0) / (4 * (degree - 1.0) ** 2 - 1))
            else:
                a = (2 * degree - 1) / (degree - orders.astype(float))
                b = (degree + orders - 1) / (2 * degree - 1.0)
        inside = orders < degree
        a, b = (np.where(inside, v, 0.0)[:, None].astype(z.dtype) for v in (a, np.nan_to_num(b)))
        current = wnp.where(
            (orders == degree)[:, None], diagonal, a * (z[None, :] * last - b * before)
        )
        columns.append(current)
        last, before = current, last
    odd = [wnp.ones_like(z), wnp.sqrt(one_minus_square), one_minus_square**1.5]
    factors = wnp.stack([odd[min(m, 3) // 2 + 1 if m % 2 else 0] for m in range(top + 1)])[:, None]
    return wnp.where((orders >= orders[:, None])[..., None], wnp.stack(columns, 1) * factors, 0)


@jit
def _slopes(p, z):
    """2 (1 - z^2)^(1/2) dP_n^m/dz = (n + m) (n - m + 1) P_n^{m-1} - P_n^{m+1}, and the limits of the derivatives at -1 and 1."""
    top = p.shape[0]
    m, n = (
        np.arange(top)[:, None, None].astype(p.dtype),
        np.arange(top)[None, :, None].astype(p.dtype),
    )
    above = wnp.concatenate([p[1:], wnp.zeros_like(p[:1])])
    below = wnp.concatenate([-above[:1], (((n + m) * (n - m + 1))[1:] * p[:-1])])
    one_minus_square = _one_minus_square(z)
    inner = (below - above) / (2 * wnp.sqrt(wnp.where(one_minus_square == 0, 1, one_minus_square)))
    odd = wnp.where(z < 0, -1, 1).astype(p.dtype)
    parity = wnp.where(n % 2 == 0, odd, 1), wnp.where(n % 2 == 0, 1, odd)  # of n + 1, of n
    edge = wnp.where(
        m == 0,
        n * (n + 1) / 2 * parity[0],
        wnp.where(
            m == 1,
            wnp.where(n >= 1, math.inf * parity[1], 0),
            wnp.where(m == 2, -(n - 1) * n * (n + 1) * (n + 2) / 4 * parity[0], 0),
        ),
    )
    return wnp.where(one_minus_square == 0, edge, inner)


def lpmn(m: int, n: int, z: Any) -> tuple:
    """Return the associated Legendre functions of orders 0 to `m` and degrees 0 to `n` at a vector z, [order, degree, z], and derivatives.

    Raises ValueError unless `z` has one dim, NotImplementedError unless `m` is `n`.

    >>> lpmn(1, 1, wnp.array([0.5]))[0][:, :, 0].round(4)
    Array([[ 1.   ,  0.5  ],
           [ 0.   , -0.866]], dtype=float32)
    """
    z = _degrees("lpmn", m, n, z)
    values = _legendre(z, n, False)
    return values, _slopes(values, z)


def lpmn_values(m: int, n: int, z: Any, is_normalized: bool):
    """Return the associated Legendre functions of `lpmn`; the normalized ones are factors of spherical harmonics."""
    return _legendre(_degrees("lpmn_values", m, n, z), n, bool(is_normalized))


@jit(static_argnums=4)
def _harmonic(n, m, theta, phi, most: int):
    order = wnp.abs(m)
    real = theta.dtype
    z, root = wnp.cos(theta), wnp.abs(wnp.sin(theta))
    size = order.astype(real)

    def along(k, value):  # the first function of each order
        k = k.astype(real)
        return wnp.where(k < size, -wnp.sqrt((2 * k + 3) / (2 * k + 2)) * root * value, value)

    first = lax.fori_loop(0, most, along, wnp.full_like(theta, 1 / math.sqrt(4 * math.pi)))

    def up(k, state):
        last, before = state
        k = k.astype(real)
        inside = (k > size) & (k <= n.astype(real))
        degree = wnp.where(inside, k, size + 1)
        a = wnp.sqrt((4 * degree * degree - 1) / ((degree - size) * (degree + size)))
        b = wnp.sqrt(
            wnp.maximum((degree - 1 - size) * (degree - 1 + size), 0)
            / wnp.abs(4 * (degree - 1) ** 2 - 1)
        )
        return wnp.where(inside, a * (z * last - b * before), last), wnp.where(inside, last, before)

    value = lax.fori_loop(1, most + 1, up, (first, wnp.zeros_like(first)))[0]
    value = wnp.where((m < 0) & (order % 2 == 1), -value, value)
    value = wnp.where((order <= n) & (n >= 0), value, 0)
    angle = m.astype(real) * phi
    return lax.complex(value * wnp.cos(angle), value * wnp.sin(angle))


def sph_harm_y(
    n: Any, m: Any, theta: Any, phi: Any, diff_n: int | None = None, n_max: int | None = None
):
    """Return the spherical harmonics of degree `n` and order `m` at polar angle `theta` and azimuth `phi`, as complex numbers.

    The arrays are broadcast together. `n_max` is the largest degree, required while tracing.
    Raises NotImplementedError for derivatives (`diff_n`): differentiate the function.

    >>> complex(sph_harm_y(0, 0, 0.3, 0.2)).real.__round__(4)
    0.2821
    """
    if diff_n:
        raise NotImplementedError(
            f"sph_harm_y: diff_n={diff_n} is not supported; differentiate the function (weft.jacfwd)."
        )
    if n_max is None:
        n_max = int(np.max(np.asarray(n), initial=0))
    n, m = (wnp.asarray(x) for x in (n, m))
    for what, x in (("n", n), ("m", m)):
        if not dtypes.issubdtype(x.dtype, np.integer):
            raise TypeError(f"sph_harm_y: {what} must be of an integer dtype, got {x.dtype}.")
    n, m = n.astype(np.int32), m.astype(np.int32)
    theta, phi = map(concrete, promote_to_inexact("sph_harm_y", theta, phi))
    n, m, theta, phi = wnp.broadcast_arrays(n, m, theta, phi)
    return _harmonic(n, m, theta, phi, n_max)


guard_all(globals())
