"""Jacobians, Hessians, products with them, auxiliary outputs and several arguments."""

import weft
import weft.numpy as wnp


def energy(x: weft.Array, stiffness: float = 2.0) -> weft.Array:
    return 0.5 * stiffness * wnp.sum(x**2) + wnp.prod(wnp.cos(x))


def with_aux(x: weft.Array, scale: float) -> tuple[weft.Array, dict[str, weft.Array]]:
    y = x * scale
    return wnp.sum(y**2), {"scaled": y}


x = wnp.array([0.1, 0.2, 0.3])
gradient = weft.grad(energy)(x, stiffness=3.0)
second = weft.hessian(energy)(x)
jacobian = weft.jacrev(weft.grad(energy))(x)
value, tangent = weft.jvp(energy, (x,), (wnp.ones(3),))
out, pullback = weft.vjp(energy, x)
(ct,) = pullback(wnp.ones(()))
(loss, aux), grads = weft.value_and_grad(with_aux, has_aux=True)(x, 2.0)
only_grads, same_aux = weft.grad(with_aux, has_aux=True)(x, 2.0)
both = weft.grad(lambda a, b: wnp.sum(a * b), argnums=(0, 1))(x, x)
nested = weft.grad(weft.grad(lambda t: t**3))(2.0)
linear_out, linear = weft.linearize(wnp.sin, x)
print(gradient.shape, second.shape, jacobian.shape, float(value - out), float(tangent))
print(ct.sum(), float(loss), aux["scaled"].shape, grads.shape, same_aux["scaled"].dtype)
print(only_grads.ndim, len(both), float(nested), linear(x).shape, linear_out.shape)
