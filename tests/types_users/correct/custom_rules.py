"""Functions with custom derivatives, forward and reverse."""

import functools

import weft
import weft.numpy as wnp


@weft.custom_vjp
def clip_gradient(x: weft.Array, bound: float) -> weft.Array:
    return x


def clip_forward(x: weft.Array, limit: float) -> tuple[weft.Array, float]:
    return x, limit


def clip_backward(limit: float, ct: weft.Array) -> tuple[weft.Array, None]:
    return wnp.clip(ct, -limit, limit), None


clip_gradient.defvjp(clip_forward, clip_backward)


@functools.partial(weft.custom_jvp, nondiff_argnums=(1,))
def integer_power(x: weft.Array, n: int) -> weft.Array:
    return x**n


@integer_power.defjvp
def integer_power_jvp(
    n: int, primals: tuple[weft.Array], tangents: tuple[weft.Array]
) -> tuple[weft.Array, weft.Array]:
    (x,), (t,) = primals, tangents
    return integer_power(x, n), n * integer_power(x, n - 1) * t


@weft.custom_jvp
def softplus(x: weft.Array) -> weft.Array:
    return wnp.log1p(wnp.exp(x))


softplus.defjvps(lambda t, out, x: t / (1 + wnp.exp(-x)))


def objective(x: weft.Array) -> weft.Array:
    return wnp.sum(10.0 * clip_gradient(x, 1.0) + integer_power(x, 3) + softplus(x))


print(weft.grad(objective)(wnp.array([1.0, 2.0])).tolist())
