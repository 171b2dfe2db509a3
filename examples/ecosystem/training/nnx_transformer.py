"""A language model with flax.nnx: a module with state, dropout, nnx.Optimizer, clipping and a warmup schedule.

python examples/ecosystem/training/nnx_transformer.py [STEPS]
"""

import sys

import jax
import jax.numpy as jnp
import optax
from flax import nnx

VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS = 1024, 128, 256, 8, 2


class Block(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.norm_1 = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs)
        self.norm_2 = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.up = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x):
        mask = nnx.make_causal_mask(jnp.ones(x.shape[:2]))
        x = x + self.dropout(self.attention(self.norm_1(x), mask=mask))
        return x + self.dropout(self.down(nnx.gelu(self.up(self.norm_2(x)))))


class LanguageModel(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.embed = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.position = nnx.Param(jax.random.normal(rngs.params(), (LENGTH, WIDTH)) * 0.02)
        self.blocks = nnx.List([Block(rngs) for _ in range(LAYERS)])
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)

    def __call__(self, tokens):
        x = self.embed(tokens) + self.position[...]
        for block in self.blocks:
            x = block(x)
        return self.embed.attend(self.norm(x))


@nnx.jit
def train_step(model, optimizer, metrics, tokens):
    def loss_fn(model):
        logits = model(tokens)[:, :-1]
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    loss, grads = nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    metrics.update(loss=loss)


def main(steps):
    model = LanguageModel(nnx.Rngs(0))
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 10, 100)
    transform = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))
    optimizer = nnx.Optimizer(model, transform, wrt=nnx.Param)
    metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"))
    tokens = jax.random.randint(jax.random.key(1), (16, LENGTH), 0, VOCABULARY)
    for step in range(steps):
        train_step(model, optimizer, metrics, tokens)
        print(f"step {step} loss {metrics.compute()['loss']:.4f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
