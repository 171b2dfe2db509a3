"""Initializers: functions of (key, shape, dtype) that give the first values of parameters.

Laws: `variance_scaling` gives variance `scale / n`, where n is the fan in, the fan out, or their mean, whatever the
distribution; the named ones (Glorot, LeCun, He) are its cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import weft.numpy as wnp
from weft import random
from weft._engine.ir.symbolic.sizes import as_size
from weft._engine.numpy.promote import canonical_axes
from weft._engine.ops.placement import takes_out_sharding
from weft._engine.util.source import api_boundary, guard_all, named


@runtime_checkable
class Initializer(Protocol):
    """A function that makes the first value of a parameter."""

    def __call__(
        self, key: Any, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None
    ) -> Any: ...


@takes_out_sharding
def zeros(key: Any, shape: Sequence[int], dtype: Any = None) -> Any:
    """All zeros; the key is not used."""
    return wnp.zeros(shape, _float_dtype(dtype))


@takes_out_sharding
def ones(key: Any, shape: Sequence[int], dtype: Any = None) -> Any:
    """All ones; the key is not used."""
    return wnp.ones(shape, _float_dtype(dtype))


def constant(value: Any, dtype: Any = None) -> Initializer:
    """An initializer that fills with `value`."""

    @api_boundary
    @takes_out_sharding
    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Any:
        return wnp.full(shape, value, _float_dtype(dtype))

    return init


def _scale(draw: Callable[..., Any], scale: Any, dtype: Any) -> Initializer:
    """An initializer with `draw(key, shape, dtype)` times `scale`."""

    @api_boundary
    @takes_out_sharding
    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Any:
        dtype = _float_dtype(dtype)
        return draw(key, shape, dtype) * wnp.array(scale, dtype)

    return init


def uniform(scale: Any = 1e-2, dtype: Any = None) -> Initializer:
    """An initializer with values spread evenly over [0, scale)."""
    return _scale(random.uniform, scale, dtype)


def normal(stddev: Any = 1e-2, dtype: Any = None) -> Initializer:
    """An initializer with normal values of deviation `stddev`.

    >>> normal(2.0)(random.PRNGKey(0), (3, 4)).shape
    (3, 4)
    """
    return _scale(random.normal, stddev, dtype)


def truncated_normal(
    stddev: Any = 1e-2, dtype: Any = None, lower: Any = -2.0, upper: Any = 2.0
) -> Initializer:
    """An initializer with values of a normal distribution cut at `lower` and `upper`, then scaled by `stddev`."""
    return _scale(
        lambda key, shape, dtype: random.truncated_normal(key, lower, upper, shape, dtype),
        stddev,
        dtype,
    )


def variance_scaling(
    scale: Any,
    mode: str,
    distribution: str,
    in_axis: int | Sequence[int] = -2,
    out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (),
    dtype: Any = None,
) -> Initializer:
    """An initializer whose values have variance `scale / n`.

    `mode` says what n is: "fan_in", "fan_out", "fan_avg", or "fan_geo_avg"; `distribution` is "normal", "uniform" or
    "truncated_normal". The fans are the sizes of `in_axis` and `out_axis` times the sizes of the remaining (window) dims.
    """
    if mode not in ("fan_in", "fan_out", "fan_avg", "fan_geo_avg"):
        raise ValueError(
            f"initializers.variance_scaling: mode is fan_in, fan_out, fan_avg or fan_geo_avg, got {mode!r}."
        )
    if distribution not in ("normal", "uniform", "truncated_normal"):
        raise ValueError(
            f"initializers.variance_scaling: distribution is normal, uniform or truncated_normal, got {distribution!r}."
        )

    @api_boundary
    @takes_out_sharding
    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Any:
        dtype, shape = _float_dtype(dtype), tuple(map(as_size, shape))
        fan_in, fan_out = _fans(shape, in_axis, out_axis, batch_axis)
        n = {
            "fan_in": fan_in,
            "fan_out": fan_out,
            "fan_avg": (fan_in + fan_out) / 2,
            "fan_geo_avg": math.sqrt(fan_in * fan_out),
        }[mode]
        is_complex = wnp.issubdtype(dtype, wnp.complexfloating)
        variance = wnp.array(scale / max(1, n), wnp.finfo(dtype).dtype)
        if distribution == "normal":
            return random.normal(key, shape, dtype) * wnp.sqrt(variance)
        if is_complex:  # in a disk
            return _in_disk(key, shape, dtype, distribution == "uniform") * wnp.sqrt(variance)
        if distribution == "uniform":
            return random.uniform(key, shape, dtype, -1) * wnp.sqrt(3 * variance)
        # The deviation of a standard normal cut at -2 and 2.
        deviation = wnp.sqrt(variance) / wnp.array(0.87962566103423978, dtype)
        return random.truncated_normal(key, -2, 2, shape, dtype) * deviation

    return init


def _in_disk(key: Any, shape: Sequence[int], dtype: Any, is_uniform: bool) -> Any:
    """Complex values of variance 1 in a disk about 0: uniform, or normal ones cut at a modulus of 2 (both parts together)."""
    real = wnp.finfo(dtype).dtype
    for_radius, for_angle = random.split(key)
    area = random.uniform(for_radius, shape, real)
    if is_uniform:
        radius = wnp.sqrt(2 * area)
    else:
        radius = wnp.sqrt(-wnp.log(1 - (1 - math.exp(-4.0)) * area)) / 0.95311164380491208
    return (radius * wnp.exp(2j * math.pi * random.uniform(for_angle, shape, real))).astype(dtype)


def _case(
    scale: float, mode: str, distribution: str, name: str, law: str
) -> Callable[..., Initializer]:
    def make(
        in_axis: int | Sequence[int] = -2,
        out_axis: int | Sequence[int] = -1,
        batch_axis: int | Sequence[int] = (),
        dtype: Any = None,
    ) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    return named(
        make,
        name,
        f"An initializer with {distribution.replace('_', ' ')} values of variance {law}.",
    )


glorot_uniform = xavier_uniform = _case(
    1.0, "fan_avg", "uniform", "glorot_uniform", "2 / (fan in + fan out)"
)
glorot_normal = xavier_normal = _case(
    1.0, "fan_avg", "truncated_normal", "glorot_normal", "2 / (fan in + fan out)"
)
lecun_uniform = _case(1.0, "fan_in", "uniform", "lecun_uniform", "1 / fan in")
lecun_normal = _case(1.0, "fan_in", "truncated_normal", "lecun_normal", "1 / fan in")
he_uniform = kaiming_uniform = _case(2.0, "fan_in", "uniform", "he_uniform", "2 / fan in")
he_normal = kaiming_normal = _case(2.0, "fan_in", "truncated_normal", "he_normal", "2 / fan in")


def orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """An initializer whose matrices (all dims but `column_axis` count as rows) have orthonormal rows or columns, times `scale`."""

    @api_boundary
    @takes_out_sharding
    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Any:
        dtype, shape = _float_dtype(dtype), tuple(map(as_size, shape))
        if len(shape) < 2:
            raise ValueError(
                f"initializers.orthogonal: shape {shape} is not a matrix; it needs at least two dims."
            )
        rows = shape[column_axis]
        other_dims = list(shape)
        del other_dims[column_axis]
        columns = math.prod(other_dims)
        q, r = wnp.linalg.qr(random.normal(key, (max(rows, columns), min(rows, columns)), dtype))
        q = q * wnp.sign(wnp.diagonal(r))[None, :]
        matrix = (q.T if rows < columns else q).reshape(rows, *other_dims)
        return wnp.moveaxis(matrix, 0, column_axis) * wnp.array(scale, dtype)

    return init


def delta_orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """An initializer of convolution kernels: an orthogonal matrix at the center, zeros around it."""

    @api_boundary
    @takes_out_sharding
    def init(key: Any, shape: Sequence[int], dtype: Any = dtype) -> Any:
        dtype, shape = _float_dtype(dtype), tuple(map(as_size, shape))
        if len(shape) not in (3, 4, 5) or shape[-1] < shape[-2]:
            raise ValueError(
                f"initializers.delta_orthogonal: shape {shape} is not a kernel [spatial..., in, out] with 1 to 3 "
                "spatial dims and out >= in."
            )
        matrix = orthogonal(scale, column_axis, dtype)(key, shape[-2:])
        center = tuple(
            (k - 1) // 2 if k % 2 else slice((k - 1) // 2, k // 2 + 1) for k in shape[:-2]
        )
        return wnp.zeros(shape, dtype).at[center].set(matrix)

    return init


def _fans(shape: tuple[int, ...], in_axis: Any, out_axis: Any, batch_axis: Any) -> tuple[int, int]:
    """Fan in and fan out of a weight of `shape`."""
    if len(shape) < 2 and (in_axis == -2 or out_axis == -2):
        raise ValueError(
            f"initializers.variance_scaling: shape {shape} has no fan in and fan out; it needs at least two dims, or in_axis "
            "and out_axis that it has."
        )
    ins, outs, batches = (_size(shape, axis) for axis in (in_axis, out_axis, batch_axis))
    window = math.prod(shape) / max(1, ins * outs * batches)
    return int(ins * window), int(outs * window)


def _size(shape: tuple[int, ...], axis: int | Sequence[int]) -> int:
    return math.prod(
        [
            shape[d]
            for d in canonical_axes(axis, len(shape), "initializers: in_axis, out_axis, batch_axis")
        ]
    )


def _float_dtype(dtype: Any) -> Any:
    return wnp.result_type(float) if dtype is None else dtype


guard_all(globals())
