"""A sequence classifier with equinox: eqx.filter_jit, filter_value_and_grad, keys for dropout, eqx.nn.MultiheadAttention.

python examples/ecosystem/training/equinox_transformer.py [STEPS]
"""

import sys

import equinox as eqx
import jax
import optax


class Block(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    norms: tuple[eqx.nn.LayerNorm, eqx.nn.LayerNorm]
    up: eqx.nn.Linear
    down: eqx.nn.Linear
    dropout: eqx.nn.Dropout

    def __init__(self, width, heads, key):
        keys = jax.random.split(key, 3)
        self.attention = eqx.nn.MultiheadAttention(heads, width, key=keys[0])
        self.norms = eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width)
        self.up = eqx.nn.Linear(width, 4 * width, key=keys[1])
        self.down = eqx.nn.Linear(4 * width, width, key=keys[2])
        self.dropout = eqx.nn.Dropout(0.1)

    def __call__(self, x, key):
        keys = jax.random.split(key)
        y = jax.vmap(self.norms[0])(x)
        x = x + self.dropout(self.attention(y, y, y), key=keys[0])
        y = jax.nn.gelu(jax.vmap(self.up)(jax.vmap(self.norms[1])(x)))
        return x + self.dropout(jax.vmap(self.down)(y), key=keys[1])


class Classifier(eqx.Module):
    embed: eqx.nn.Embedding
    blocks: list[Block]
    head: eqx.nn.Linear

    def __init__(self, vocabulary, width, heads, depth, classes, key):
        keys = jax.random.split(key, depth + 2)
        self.embed = eqx.nn.Embedding(vocabulary, width, key=keys[0])
        self.blocks = [Block(width, heads, k) for k in keys[2:]]
        self.head = eqx.nn.Linear(width, classes, key=keys[1])

    def __call__(self, tokens, key):
        x = jax.vmap(self.embed)(tokens)
        for block, k in zip(self.blocks, jax.random.split(key, len(self.blocks))):
            x = block(x, k)
        return self.head(x.mean(0))


@eqx.filter_value_and_grad
def compute_loss(model, tokens, labels, key):
    logits = jax.vmap(model)(tokens, jax.random.split(key, len(tokens)))
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


@eqx.filter_jit
def make_step(model, optim, opt_state, tokens, labels, key):
    loss, grads = compute_loss(model, tokens, labels, key)
    updates, opt_state = optim.update(grads, opt_state, eqx.filter(model, eqx.is_inexact_array))
    return loss, eqx.apply_updates(model, updates), opt_state


def main(steps):
    model_key, data_key, key = jax.random.split(jax.random.key(0), 3)
    model = Classifier(1000, 256, 8, depth=2, classes=16, key=model_key)
    optim = optax.adamw(3e-4)
    opt_state = optim.init(eqx.filter(model, eqx.is_inexact_array))
    tokens = jax.random.randint(data_key, (32, 64), 0, 1000)
    labels = tokens[:, 0] % 16
    for step in range(steps):
        loss, model, opt_state = make_step(
            model, optim, opt_state, tokens, labels, jax.random.fold_in(key, step)
        )
        print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
