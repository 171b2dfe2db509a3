"""Mixture of experts.

Train a layer of 16 experts on eight devices: a router chooses an expert for each token, and
`all_to_all` sends the tokens there and back.

python examples/gallery/moe.py
"""

# %%
# Two experts on each of eight virtual devices.
import weft
import weft.numpy as wnp
from weft import lax
from weft.sharding import NamedSharding, PartitionSpec as P

weft.config.update("num_cpu_devices", 8)
DEVICES, EXPERTS, TOKENS, WIDTH, HIDDEN = 8, 16, 512, 16, 32
CAPACITY = 3 * TOKENS // DEVICES // EXPERTS  # tokens of a device that an expert accepts
mesh = weft.make_mesh((DEVICES,), ("expert",))


# %%
# The router: a (token, expert, slot) array with a 1 where a token has a slot. Tokens beyond
# the capacity of their expert skip the layer.
def dispatch(router, tokens):
    chances = weft.nn.softmax(tokens @ router)
    expert = weft.nn.one_hot(chances.argmax(-1), EXPERTS)
    slot = (wnp.cumsum(expert, 0) * expert).sum(-1) - 1
    slots = weft.nn.one_hot(slot.astype(int), CAPACITY)
    return expert[:, :, None] * slots[:, None, :], (chances * expert).sum(-1), chances


# %%
# The program of one device, with its tokens and its two experts. The second result is the
# usual penalty for uneven use of the experts.
def layer(router, up, down, tokens):
    where, chance, chances = dispatch(router, tokens)
    sent = wnp.einsum("tec,td->ecd", where, tokens)
    arrived = lax.all_to_all(sent, "expert", 0, 1, tiled=True)
    hidden = weft.nn.relu(wnp.einsum("etd,edh->eth", arrived, up))
    results = wnp.einsum("eth,ehd->etd", hidden, down)
    back = lax.all_to_all(results, "expert", 1, 0, tiled=True)
    share = lax.pmean(where.sum((0, 2)) / len(tokens), "expert")
    penalty = EXPERTS * (share * lax.pmean(chances.mean(0), "expert")).sum()
    return chance[:, None] * wnp.einsum("tec,ecd->td", where, back), penalty, share


split = P("expert")
experts = weft.shard_map(
    layer, mesh=mesh, in_specs=(P(), split, split, split), out_specs=(split, P(), P())
)

# %%
# The task: tokens of 16 kinds, each with its own linear map.
keys = weft.random.split(weft.random.key(0), 6)
kind = weft.random.randint(keys[0], (TOKENS,), 0, EXPERTS)
centers = 2 * weft.random.normal(keys[1], (EXPERTS, WIDTH))
maps = weft.random.normal(keys[2], (EXPERTS, WIDTH, WIDTH)) * WIDTH**-0.5
tokens = centers[kind] + 0.5 * weft.random.normal(keys[3], (TOKENS, WIDTH))
targets = wnp.einsum("td,tde->te", tokens, maps[kind])

params = {
    "router": 0.1 * centers.T,
    "up": weft.random.normal(keys[4], (EXPERTS, WIDTH, HIDDEN)) * WIDTH**-0.5,
    "down": weft.random.normal(keys[5], (EXPERTS, HIDDEN, WIDTH)) * HIDDEN**-0.5,
}
places = {"router": P(), "up": split, "down": split}
params = {
    name: weft.device_put(p, NamedSharding(mesh, places[name]))
    for name, p in params.items()
}
tokens, targets = weft.device_put((tokens, targets), NamedSharding(mesh, split))


# %%
# Gradient descent with momentum.
def loss(params, tokens, targets):
    out, penalty, share = experts(
        params["router"], params["up"], params["down"], tokens
    )
    return wnp.mean((out - targets) ** 2) + 0.01 * penalty, share


@weft.jit
def train_step(params, momentum, tokens, targets):
    (value, share), grads = weft.value_and_grad(loss, has_aux=True)(
        params, tokens, targets
    )
    momentum = weft.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
    params = weft.tree.map(lambda p, m: p - 0.2 * m, params, momentum)
    return params, momentum, value, share


momentum = weft.tree.map(wnp.zeros_like, params)
losses = []
for _ in range(150):
    params, momentum, value, share = train_step(params, momentum, tokens, targets)
    losses.append(float(value))
print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}")
print("share of tokens per expert", [round(float(s), 2) for s in share])
print("up", params["up"].shape, params["up"].sharding.spec)
explained = weft.explain(train_step, params, momentum, tokens, targets)
print("collectives", explained.counts)
