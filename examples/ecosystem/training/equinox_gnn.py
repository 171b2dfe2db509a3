"""Node classification with an equinox graph network: messages are gathered along edges and summed by receiver.

python examples/ecosystem/training/equinox_gnn.py [STEPS]
"""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import optax


class GraphLayer(eqx.Module):
    message: eqx.nn.MLP
    update: eqx.nn.Linear
    norm: eqx.nn.LayerNorm

    def __init__(self, width, key):
        keys = jax.random.split(key)
        self.message = eqx.nn.MLP(2 * width, width, 4 * width, 1, jax.nn.relu, key=keys[0])
        self.update = eqx.nn.Linear(2 * width, width, key=keys[1])
        self.norm = eqx.nn.LayerNorm(width)

    def __call__(self, nodes, senders, receivers):
        pairs = jnp.concatenate([nodes[senders], nodes[receivers]], axis=-1)
        messages = jax.vmap(self.message)(pairs)
        received = jax.ops.segment_sum(messages, receivers, num_segments=len(nodes))
        change = jax.vmap(self.update)(jnp.concatenate([nodes, received], axis=-1))
        return jax.vmap(self.norm)(nodes + jax.nn.relu(change))


class GraphNetwork(eqx.Module):
    layers: list[GraphLayer]
    head: eqx.nn.Linear

    def __init__(self, width, depth, classes, key):
        *keys, head_key = jax.random.split(key, depth + 1)
        self.layers = [GraphLayer(width, k) for k in keys]
        self.head = eqx.nn.Linear(width, classes, key=head_key)

    def __call__(self, nodes, senders, receivers):
        for layer in self.layers:
            nodes = layer(nodes, senders, receivers)
        return jax.vmap(self.head)(nodes)


def loss_fn(model, graph, labels, mask):
    logits = model(graph["nodes"], graph["senders"], graph["receivers"])
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return jnp.sum(losses * mask) / jnp.sum(mask)


@eqx.filter_jit(donate="all-except-first")
def train_step(data, model, opt_state):
    graph, labels, mask = data
    loss, grads = eqx.filter_value_and_grad(loss_fn)(model, graph, labels, mask)
    updates, opt_state = optim.update(grads, opt_state)
    return eqx.apply_updates(model, updates), opt_state, loss


optim = optax.adam(optax.linear_schedule(1e-3, 1e-4, 100))


def main(steps):
    keys = jax.random.split(jax.random.key(0), 5)
    graph = {
        "nodes": jax.random.normal(keys[0], (2048, 128)),
        "senders": jax.random.randint(keys[1], (8192,), 0, 2048),
        "receivers": jax.random.randint(keys[2], (8192,), 0, 2048),
    }
    labels = jax.random.randint(keys[3], (2048,), 0, 16)
    mask = jnp.arange(2048) < 1024
    model = GraphNetwork(128, 2, 16, keys[4])
    opt_state = optim.init(eqx.filter(model, eqx.is_array))
    for step in range(steps):
        model, opt_state, loss = train_step((graph, labels, mask), model, opt_state)
        print(f"step {step} loss {float(loss):.4f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
