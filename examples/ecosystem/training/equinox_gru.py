"""Time series with an equinox GRU: a scan over time, one over minibatches, and eqx.partition for the static part of the model.

python examples/ecosystem/training/equinox_gru.py [STEPS]
"""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import optax


class RNN(eqx.Module):
    cell: eqx.nn.GRUCell
    head: eqx.nn.MLP
    hidden_size: int

    def __init__(self, in_size, hidden_size, out_size, *, key):
        cell_key, head_key = jax.random.split(key)
        self.hidden_size = hidden_size
        self.cell = eqx.nn.GRUCell(in_size, hidden_size, key=cell_key)
        self.head = eqx.nn.MLP(hidden_size, out_size, 4 * hidden_size, 1, jax.nn.silu, key=head_key)

    def __call__(self, series):
        def scan_fn(state, x):
            return self.cell(x, state), None

        last, _ = jax.lax.scan(scan_fn, jnp.zeros(self.hidden_size), series)
        return self.head(last)


def loss_fn(params, static, series, targets):
    model = eqx.combine(params, static)
    return jnp.mean((jax.vmap(model)(series) - targets) ** 2)


def main(steps):
    model_key, data_key = jax.random.split(jax.random.key(0))
    model = RNN(32, 512, 8, key=model_key)
    params, static = eqx.partition(model, eqx.is_inexact_array)
    optim = optax.chain(optax.clip(1.0), optax.rmsprop(optax.exponential_decay(1e-3, 10, 0.9)))

    @jax.jit
    def epoch(carry, batches):
        def step(carry, batch):
            params, opt_state = carry
            loss, grads = jax.value_and_grad(loss_fn)(params, static, *batch)
            updates, opt_state = optim.update(grads, opt_state, params)
            return (eqx.apply_updates(params, updates), opt_state), loss

        return jax.lax.scan(step, carry, batches)

    series = jax.random.normal(data_key, (4, 64, 32, 32)).cumsum(2)
    batches = series, series[:, :, -1, :8]
    carry = params, optim.init(params)
    for number in range(steps):
        carry, losses = epoch(carry, batches)
        print(f"epoch {number} loss {losses.mean():.4f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
