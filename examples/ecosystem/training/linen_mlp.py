"""Regression with a flax.linen MLP and optax.adamw: a TrainState and a jitted step.

python examples/ecosystem/training/linen_mlp.py [STEPS]
"""

import sys

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training.train_state import TrainState


class MLP(nn.Module):
    hidden: int
    depth: int
    out: int

    @nn.compact
    def __call__(self, x):
        for _ in range(self.depth):
            x = nn.relu(nn.Dense(self.hidden)(x))
        return nn.Dense(self.out)(x)


@jax.jit
def train_step(state, batch):
    def loss_fn(params):
        prediction = state.apply_fn({"params": params}, batch["x"])
        return jnp.mean((prediction - batch["y"]) ** 2)

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


def main(steps):
    key, data_key, teacher_key = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(data_key, (256, 512))
    batch = {"x": x, "y": jnp.tanh(x @ jax.random.normal(teacher_key, (512, 64)) / 16)}
    model = MLP(hidden=2048, depth=3, out=64)
    state = TrainState.create(
        apply_fn=model.apply,
        params=model.init(key, x[:1])["params"],
        tx=optax.adamw(1e-3, weight_decay=1e-4),
    )
    for step in range(steps):
        state, loss = train_step(state, batch)
        print(f"step {step} loss {loss:.4f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
