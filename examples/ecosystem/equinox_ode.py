"""Fit a neural differential equation with equinox and optax: a network is the right-hand side, Runge-Kutta steps in a scan.

    python examples/ecosystem/equinox_ode.py

Needs equinox, optax, and JAX or weft's stand-in for it (`weft shim install`). Prints a loss for every tenth step.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

STEP, POINTS = 0.1, 20


class Flow(eqx.Module):
    """The state after each of `POINTS` steps of the classical Runge-Kutta method."""

    slope: eqx.nn.MLP

    def __init__(self, key):
        self.slope = eqx.nn.MLP(
            in_size=2, out_size=2, width_size=32, depth=2, activation=jax.nn.softplus, key=key
        )

    def __call__(self, start):
        def step(y, _):
            k1 = self.slope(y)
            k2 = self.slope(y + STEP / 2 * k1)
            k3 = self.slope(y + STEP / 2 * k2)
            k4 = self.slope(y + STEP * k3)
            y = y + STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            return y, y

        return jax.lax.scan(step, start, None, length=POINTS)[1]


def observed(start):
    """A damped oscillation, in closed form."""
    t = STEP * jnp.arange(1, POINTS + 1)
    turned = jnp.stack(
        [
            start[0] * jnp.cos(2 * t) - start[1] * jnp.sin(2 * t),
            start[0] * jnp.sin(2 * t) + start[1] * jnp.cos(2 * t),
        ],
        1,
    )
    return jnp.exp(-0.3 * t)[:, None] * turned


@eqx.filter_value_and_grad
def loss(model, starts, paths):
    return jnp.mean((jax.vmap(model)(starts) - paths) ** 2)


@eqx.filter_jit
def train_step(model, state, starts, paths):
    value, grads = loss(model, starts, paths)
    updates, state = optimizer.update(grads, state, model)
    return eqx.apply_updates(model, updates), state, value


optimizer = optax.adabelief(3e-3)


def main():
    model_key, data_key = jax.random.split(jax.random.key(1))
    model = Flow(model_key)
    state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
    starts = jax.random.uniform(data_key, (64, 2), minval=-1.0)
    paths = jax.vmap(observed)(starts)
    for step in range(101):
        model, state, value = train_step(model, state, starts, paths)
        if step % 10 == 0:
            print(f"step {step:3} loss {float(value):.4f}")


if __name__ == "__main__":
    main()
