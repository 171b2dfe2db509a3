"""Fine-tune a flax.linen encoder by LoRA: optax.multi_transform trains the adapters and leaves the rest as it is.

python examples/ecosystem/training/linen_lora.py [STEPS]
"""

import sys

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn, traverse_util


class LoRADense(nn.Module):
    features: int
    rank: int = 8

    @nn.compact
    def __call__(self, x):
        a = self.param("lora_a", nn.initializers.normal(0.02), (x.shape[-1], self.rank))
        b = self.param("lora_b", nn.initializers.zeros, (self.rank, self.features))
        return nn.Dense(self.features, name="base")(x) + (x @ a) @ b


class Layer(nn.Module):
    heads: int = 8

    @nn.compact
    def __call__(self, x):
        width = x.shape[-1]
        y = nn.LayerNorm()(x)
        split = lambda z: z.reshape(*z.shape[:-1], self.heads, -1)  # noqa: E731
        q, k, v = (split(LoRADense(width, name=name)(y)) for name in ("query", "key", "value"))
        y = nn.dot_product_attention(q, k, v).reshape(x.shape)
        x = x + LoRADense(width, name="out")(y)
        y = nn.gelu(nn.Dense(4 * width, name="up")(nn.LayerNorm()(x)))
        return x + nn.Dense(width, name="down")(y)


class Encoder(nn.Module):
    vocabulary: int = 1000
    width: int = 256
    layers: int = 2

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(self.vocabulary, self.width)(tokens)
        for _ in range(self.layers):
            x = Layer()(x)
        return nn.Dense(2, name="classifier")(x[:, 0])


def labels_of(params):
    flat = traverse_util.flatten_dict(params)
    is_trained = lambda path: path[-1].startswith("lora") or "classifier" in path  # noqa: E731
    return traverse_util.unflatten_dict(
        {path: "train" if is_trained(path) else "freeze" for path in flat}
    )


model = Encoder()
optimizer = optax.multi_transform(
    {"train": optax.adamw(1e-3), "freeze": optax.set_to_zero()}, labels_of
)


@jax.jit
def train_step(params, opt_state, tokens, labels):
    def loss_fn(params):
        logits = model.apply({"params": params}, tokens)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def main(steps):
    init_key, data_key = jax.random.split(jax.random.key(0))
    tokens = jax.random.randint(data_key, (32, 128), 0, 1000)
    labels = (tokens[:, 0] > tokens[:, 1]).astype(jnp.int32)
    params = model.init(init_key, tokens[:1])["params"]
    opt_state = optimizer.init(params)
    for step in range(steps):
        params, opt_state, loss = train_step(params, opt_state, tokens, labels)
        print(f"step {step} loss {loss:.4f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
