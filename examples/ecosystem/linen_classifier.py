"""Classify spirals with flax.linen and optax: layers with normalization and dropout, Adam with a schedule, several steps in one scan.

    python examples/ecosystem/linen_classifier.py

Needs flax, optax, and JAX or weft's stand-in for it (`weft shim install`). Prints a loss for every fifth step.
"""

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training import train_state


class Classifier(nn.Module):
    hidden: int
    classes: int

    @nn.compact
    def __call__(self, x, train: bool):
        for _ in range(2):
            x = nn.LayerNorm()(nn.gelu(nn.Dense(self.hidden)(x)))
            x = nn.Dropout(0.1, deterministic=not train)(x)
        return nn.Dense(self.classes)(x)


class State(train_state.TrainState):
    key: jax.Array


def spirals(key, count: int, classes: int):
    """Points on `classes` arms of a spiral, with noise."""
    label_key, radius_key, noise_key = jax.random.split(key, 3)
    labels = jax.random.randint(label_key, (count,), 0, classes)
    radius = jax.random.uniform(radius_key, (count,), minval=0.1)
    angle = 4 * radius + labels * (2 * jnp.pi / classes)
    points = radius[:, None] * jnp.stack([jnp.cos(angle), jnp.sin(angle)], 1)
    return points + 0.02 * jax.random.normal(noise_key, points.shape), labels


def train_step(state: State, batch):
    x, labels = batch
    key = jax.random.fold_in(state.key, state.step)

    def loss(params):
        logits = state.apply_fn({"params": params}, x, train=True, rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    value, grads = jax.value_and_grad(loss)(state.params)
    return state.apply_gradients(grads=grads), value


@jax.jit
def train(state: State, batches):
    return jax.lax.scan(train_step, state, batches)


def main():
    data_key, init_key, dropout_key = jax.random.split(jax.random.key(0), 3)
    x, labels = spirals(data_key, 64 * 50, 3)
    model = Classifier(hidden=64, classes=3)
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(1e-2, 50))
    )
    params = model.init(init_key, x[:1], train=False)["params"]
    state = State.create(apply_fn=model.apply, params=params, tx=optimizer, key=dropout_key)
    state, losses = train(state, (x.reshape(50, 64, 2), labels.reshape(50, 64)))
    for step in range(0, 50, 5):
        print(f"step {step:3} loss {float(losses[step]):.4f}")
    accuracy = (model.apply({"params": state.params}, x, train=False).argmax(-1) == labels).mean()
    print(f"accuracy {float(accuracy):.3f}")


if __name__ == "__main__":
    main()
