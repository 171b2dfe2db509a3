"""Expert parallel: a mixture of experts, some on every device, and tokens that travel to the expert they chose.

A router gives each token its expert. Every device has room for a number of tokens per expert; those beyond it pass by.
`all_to_all` brings the tokens to their experts and the results back: two in a step forward, two backward.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P
from strategy import DEVICES, Case, mesh_of, normal, run

TOKENS, WIDTH, HIDDEN, EXPERTS = 256, 32, 64, 2 * DEVICES
CAPACITY = 2 * TOKENS // DEVICES // EXPERTS  # tokens of one device that one expert takes


def dispatch(router, tokens):
    """Where tokens go: (token, expert, place) is one where a token takes that place; and how much each token's result counts."""
    chances = jax.nn.softmax(tokens @ router)
    expert = jax.nn.one_hot(jnp.argmax(chances, -1), EXPERTS)
    place = (jnp.cumsum(expert, 0) * expert).sum(-1) - 1
    places = jax.nn.one_hot(place.astype(int), CAPACITY)  # a row of zeros where there is no room
    return expert[:, :, None] * places[:, None, :], (chances * expert).sum(-1)


def work(up, down, tokens):
    """What experts do with (expert, token, width)."""
    hidden = jax.nn.relu(jnp.einsum("etd,edh->eth", tokens, up))
    return jnp.einsum("eth,ehd->etd", hidden, down)


def mixture_on_device(router, up, down, tokens):
    """The layer, for one device with its experts and its tokens."""
    where, chance = dispatch(router, tokens)
    sent = jnp.einsum("tec,td->ecd", where, tokens)
    arrived = lax.all_to_all(sent, "expert", split_axis=0, concat_axis=1, tiled=True)
    back = lax.all_to_all(work(up, down, arrived), "expert", split_axis=1, concat_axis=0, tiled=True)
    return tokens + chance[:, None] * jnp.einsum("tec,ecd->td", where, back)


def mixture(router, up, down, tokens):
    """The same on one device, which sees the tokens in the groups of the devices."""

    def group(tokens):
        where, chance = dispatch(router, tokens)
        back = work(up, down, jnp.einsum("tec,td->ecd", where, tokens))
        return tokens + chance[:, None] * jnp.einsum("tec,ecd->td", where, back)

    return jax.vmap(group)(tokens.reshape(DEVICES, -1, WIDTH)).reshape(tokens.shape)


def value_and_grads(layer):
    """A loss of the layer and its gradients with respect to router, experts and tokens."""
    return jax.value_and_grad(lambda r, u, d, x, target: jnp.mean((layer(r, u, d, x) - target) ** 2), argnums=(0, 1, 2, 3))


def cases():
    mesh = mesh_of(expert=DEVICES)
    spec = P("expert")
    mapped = jax.shard_map(mixture_on_device, mesh=mesh, in_specs=(P(), spec, spec, spec), out_specs=spec)
    router = jax.device_put(normal(0, WIDTH, EXPERTS), NamedSharding(mesh, P()))
    rest = (normal(1, EXPERTS, WIDTH, HIDDEN, scale=WIDTH**-0.5), normal(2, EXPERTS, HIDDEN, WIDTH, scale=HIDDEN**-0.5),
            normal(3, TOKENS, WIDTH), normal(4, TOKENS, WIDTH))  # fmt: skip
    rest = jax.device_put(rest, NamedSharding(mesh, spec))
    return [Case("expert_parallel", jax.jit(value_and_grads(mapped)), (router, *rest), value_and_grads(mixture))]


if __name__ == "__main__":
    run(cases)
