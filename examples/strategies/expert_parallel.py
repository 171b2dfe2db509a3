"""Expert parallel: a mixture of experts with some experts on every device; tokens are sent to their experts.

A router assigns an expert to each token. Every expert has a limited capacity per device; tokens beyond it skip the layer. `all_to_all`
sends the tokens to their experts and the results back: two per step forward, two backward.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P
from strategy import DEVICES, Case, mesh_of, normal, run

TOKENS, WIDTH, HIDDEN, EXPERTS = 256, 32, 64, 2 * DEVICES
CAPACITY = 2 * TOKENS // DEVICES // EXPERTS  # tokens of one device that one expert accepts


def dispatch(router, tokens):
    """A (token, expert, slot) array that is 1 where a token takes a slot, and the weight of each token's result."""
    chances = jax.nn.softmax(tokens @ router)
    expert = jax.nn.one_hot(jnp.argmax(chances, -1), EXPERTS)
    place = (jnp.cumsum(expert, 0) * expert).sum(-1) - 1
    places = jax.nn.one_hot(place.astype(int), CAPACITY)  # a row of zeros where the expert is full
    return expert[:, :, None] * places[:, None, :], (chances * expert).sum(-1)


def work(up, down, tokens):
    """The experts, on tokens of shape (expert, token, width)."""
    hidden = jax.nn.relu(jnp.einsum("etd,edh->eth", tokens, up))
    return jnp.einsum("eth,ehd->etd", hidden, down)


def mixture_on_device(router, up, down, tokens):
    """The layer on one device, with its experts and its tokens."""
    where, chance = dispatch(router, tokens)
    sent = jnp.einsum("tec,td->ecd", where, tokens)
    arrived = lax.all_to_all(sent, "expert", split_axis=0, concat_axis=1, tiled=True)
    back = lax.all_to_all(
        work(up, down, arrived), "expert", split_axis=1, concat_axis=0, tiled=True
    )
    return tokens + chance[:, None] * jnp.einsum("tec,ecd->td", where, back)


def mixture(router, up, down, tokens):
    """The same on a single device, with the tokens grouped as they would be on eight."""

    def group(tokens):
        where, chance = dispatch(router, tokens)
        back = work(up, down, jnp.einsum("tec,td->ecd", where, tokens))
        return tokens + chance[:, None] * jnp.einsum("tec,ecd->td", where, back)

    return jax.vmap(group)(tokens.reshape(DEVICES, -1, WIDTH)).reshape(tokens.shape)


def value_and_grads(layer):
    """A loss of the layer and its gradients with respect to router, experts and tokens."""
    return jax.value_and_grad(
        lambda r, u, d, x, target: jnp.mean((layer(r, u, d, x) - target) ** 2), argnums=(0, 1, 2, 3)
    )


def cases():
    mesh = mesh_of(expert=DEVICES)
    spec = P("expert")
    mapped = jax.shard_map(
        mixture_on_device, mesh=mesh, in_specs=(P(), spec, spec, spec), out_specs=spec
    )
    router = jax.device_put(normal(0, WIDTH, EXPERTS), NamedSharding(mesh, P()))
    rest = (normal(1, EXPERTS, WIDTH, HIDDEN, scale=WIDTH**-0.5), normal(2, EXPERTS, HIDDEN, WIDTH, scale=HIDDEN**-0.5),
            normal(3, TOKENS, WIDTH), normal(4, TOKENS, WIDTH))  # fmt: skip
    rest = jax.device_put(rest, NamedSharding(mesh, spec))
    return [
        Case(
            "expert_parallel",
            jax.jit(value_and_grads(mapped)),
            (router, *rest),
            value_and_grads(mixture),
        )
    ]


if __name__ == "__main__":
    run(cases)
