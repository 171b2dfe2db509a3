"""Train an autoencoder with flax.nnx and optax: modules with mutable state, batch normalization, dropout, an ensemble by nnx.vmap.

    python examples/ecosystem/nnx_autoencoder.py

Needs flax, optax, and JAX or weft's stand-in for it (`weft shim install`). Prints the losses for every tenth step.
"""

import jax
import optax
from flax import nnx

MEMBERS, FEATURES, CODE = 3, 16, 4


class Autoencoder(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.encode = nnx.Linear(FEATURES, 32, rngs=rngs)
        self.norm = nnx.BatchNorm(32, rngs=rngs)
        self.drop = nnx.Dropout(0.05, rngs=rngs)
        self.code = nnx.Linear(32, CODE, rngs=rngs)
        self.decode = nnx.Linear(CODE, FEATURES, rngs=rngs)

    def __call__(self, x):
        return self.decode(self.code(self.drop(nnx.relu(self.norm(self.encode(x))))))


@nnx.vmap(in_axes=0, out_axes=0)
def ensemble(key):
    return Autoencoder(nnx.Rngs(key))


@nnx.jit
def train_step(model, optimizer, x):
    def loss(model):
        each = nnx.vmap(lambda member, x: ((member(x) - x) ** 2).mean(), in_axes=(0, None))(
            model, x
        )
        return each.sum(), each

    (_, each), grads = nnx.value_and_grad(loss, has_aux=True)(model)
    optimizer.update(model, grads)
    return each


def main():
    model = ensemble(jax.random.split(jax.random.key(2), MEMBERS))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    codes = jax.random.normal(jax.random.key(3), (128, CODE))
    x = codes @ jax.random.normal(jax.random.key(4), (CODE, FEATURES)) / 2
    for step in range(41):
        losses = train_step(model, optimizer, x)
        if step % 10 == 0:
            print(f"step {step:3} losses", " ".join(f"{float(value):.4f}" for value in losses))


if __name__ == "__main__":
    main()
