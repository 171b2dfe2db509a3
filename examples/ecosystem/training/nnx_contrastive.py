"""Contrastive learning of two towers with flax.nnx: nnx.split and nnx.merge with jax.jit, a learned temperature.

python examples/ecosystem/training/nnx_contrastive.py [STEPS]
"""

import sys

import jax
import jax.numpy as jnp
import optax
from flax import nnx


class Tower(nnx.Module):
    def __init__(self, features, width, out, rngs):
        self.layers = nnx.Sequential(
            nnx.Linear(features, width, rngs=rngs),
            nnx.gelu,
            nnx.Linear(width, width, rngs=rngs),
            nnx.gelu,
            nnx.Linear(width, out, rngs=rngs),
        )

    def __call__(self, x):
        x = self.layers(x)
        return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


class TwoTowers(nnx.Module):
    def __init__(self, rngs):
        self.image = Tower(1024, 1024, 256, rngs)
        self.text = Tower(512, 1024, 256, rngs)
        self.scale = nnx.Param(jnp.log(10.0))

    def __call__(self, images, texts):
        return jnp.exp(self.scale[...]) * self.image(images) @ self.text(texts).T


def main(steps):
    graphdef, params = nnx.split(TwoTowers(nnx.Rngs(0)), nnx.Param)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.lion(1e-4))

    def loss_fn(params, images, texts):
        logits = nnx.merge(graphdef, params)(images, texts)
        labels = jnp.arange(len(images))
        losses = optax.softmax_cross_entropy_with_integer_labels
        return (losses(logits, labels).mean() + losses(logits.T, labels).mean()) / 2

    @jax.jit
    def step_fn(params, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, **batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    image_key, text_key = jax.random.split(jax.random.key(1))
    batch = {
        "images": jax.random.normal(image_key, (1024, 1024)),
        "texts": jax.random.normal(text_key, (1024, 512)),
    }
    opt_state = tx.init(params)
    for step in range(steps):
        params, opt_state, loss = step_fn(params, opt_state, batch)
        print(f"step {step} loss {loss:.4f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
