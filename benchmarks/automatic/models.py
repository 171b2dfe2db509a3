"""Losses and steps of the models that automatic sharding is measured on. Parameters are dicts of arrays."""

import weft
import weft.numpy as wnp
from weft import lax


def adam(params, grads, first, second):
    """Return parameters and moments after one step of Adam."""
    map_leaves = weft.tree.map
    first = map_leaves(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = map_leaves(lambda v, g: 0.99 * v + 0.01 * g * g, second, grads)
    params = map_leaves(lambda p, m, v: p - 1e-3 * m / (wnp.sqrt(v) + 1e-8), params, first, second)
    return params, first, second


def training_step(loss):
    """Return a step that maps (parameters, moments, moments) and arguments of `loss` to the next state."""

    def step(state, *data):
        return adam(state[0], weft.grad(loss)(state[0], *data), *state[1:])

    return step


def relu(x):
    return wnp.maximum(x, 0)


def norm(x):
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def squared_error(x, y):
    return ((x - y) ** 2).mean()


def cross_entropy(logits, labels):
    """Return the mean loss of `logits` (..., classes) for integer `labels`."""
    logits = logits - lax.stop_gradient(logits.max(-1, keepdims=True))
    hit = wnp.where(labels[..., None] == wnp.arange(logits.shape[-1]), logits, 0).sum(-1)
    return (wnp.log(wnp.exp(logits).sum(-1)) - hit).mean()


# ---- transformers


def heads(x, w):
    return wnp.einsum("bsd,dhk->bshk", x, w)


def attend(q, k, v, mask):
    """Return the attention of q, k, v (batch, length, head, depth); `mask` is (queries, keys) or None."""
    scores = wnp.einsum("bshk,bthk->bhst", q, k) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = wnp.where(mask, scores, -1e9)
    scores = wnp.exp(scores - lax.stop_gradient(scores.max(-1, keepdims=True)))
    return wnp.einsum("bhst,bthk->bshk", scores / scores.sum(-1, keepdims=True), v)


def attention(x, layer, causal=True):
    n = x.shape[1]
    mask = wnp.arange(n)[:, None] >= wnp.arange(n)[None, :] if causal else None
    q, k, v = (heads(x, layer[w]) for w in ("query", "key", "value"))
    return wnp.einsum("bshk,hkd->bsd", attend(q, k, v, mask), layer["out"])


def block(x, layer, causal=True):
    x = x + attention(norm(x), layer, causal)
    return x + relu(norm(x) @ layer["up"]) @ layer["down"]


def transformer_loss(params, tokens, labels):
    x = params["embed"][tokens]
    for layer in params["layers"]:
        x = block(x, layer)
    return cross_entropy(norm(x) @ params["head"], labels)


def scanned_transformer_loss(params, tokens, labels):
    x, _ = lax.scan(
        lambda x, layer: (block(x, layer), None), params["embed"][tokens], params["layers"]
    )
    return cross_entropy(norm(x) @ params["head"], labels)


def tied_gpt_loss(params, tokens, labels):
    x = params["embed"][tokens] + params["position"]
    for layer in params["layers"]:
        x = block(x, layer)
    return cross_entropy(norm(x) @ params["embed"].T, labels)


def attention_layer(layer, x):
    return x + attention(norm(x), layer)


def vit_loss(params, patches, labels):
    x = patches @ params["patch"] + params["position"]
    for layer in params["layers"]:
        x = block(x, layer, causal=False)
    return cross_entropy(norm(x).mean(1) @ params["classes"], labels)


def lora_loss(adapters, params, tokens, labels):
    """The loss of a frozen transformer with low-rank additions to its queries and values."""
    x = params["embed"][tokens]
    for layer, added in zip(params["layers"], adapters):
        low = {w: layer[w] + wnp.einsum("dr,rhk->dhk", *added[w]) for w in ("query", "value")}
        x = block(x, {**layer, **low})
    return cross_entropy(norm(x) @ params["head"], labels)


def decoder_step(caches, params, tokens, position):
    """Return the caches after one more token of each sequence, and the logits of the next."""
    x = params["embed"][tokens][:, None]
    new = []
    for layer, cache in zip(params["layers"], caches):
        y = norm(x)
        k, v = (
            lax.dynamic_update_slice_in_dim(cache[w], heads(y, layer[w]), position, 1)
            for w in ("key", "value")
        )
        seen = wnp.arange(k.shape[1]) <= position
        attended = attend(heads(y, layer["query"]), k, v, seen)
        x = x + wnp.einsum("bshk,hkd->bsd", attended, layer["out"])
        x = x + relu(norm(x) @ layer["up"]) @ layer["down"]
        new.append({"key": k, "value": v})
    return new, (norm(x) @ params["head"])[:, 0]


def ring_attention(mesh):
    """Return attention over (batch, length, head, depth) with the length over the last axis of `mesh`."""
    *rest, ring = mesh.axis_names
    count = mesh.shape[ring]
    spec = weft.sharding.PartitionSpec(tuple(rest) or None, ring)

    def local(q, k, v):
        total = wnp.zeros(q.shape[:3], q.dtype)
        result = wnp.zeros_like(q)
        to_next = [(i, (i + 1) % count) for i in range(count)]
        for _ in range(count):
            weights = wnp.exp(wnp.einsum("bshk,bthk->bsht", q, k) * q.shape[-1] ** -0.5)
            total = total + weights.sum(-1)
            result = result + wnp.einsum("bsht,bthk->bshk", weights, v)
            k, v = (lax.ppermute(x, ring, to_next) for x in (k, v))
        return result / total[..., None]

    return weft.shard_map(local, mesh=mesh, in_specs=(spec,) * 3, out_specs=spec)


def ring_layer_loss(mesh):
    attend_in_ring = ring_attention(mesh)

    def loss(layer, x, y):
        z = norm(x)
        q, k, v = (heads(z, layer[w]) for w in ("query", "key", "value"))
        x = x + wnp.einsum("bshk,hkd->bsd", attend_in_ring(q, k, v), layer["out"])
        return squared_error(x + relu(norm(x) @ layer["up"]) @ layer["down"], y)

    return loss


# ---- other networks


def mlp_loss(params, x, y):
    for layer in params:
        x = relu(x @ layer["up"]) @ layer["down"]
    return squared_error(x, y)


def moe_loss(params, x, y):
    """A layer of experts with a capacity, which one-hot matrices route to (Switch Transformer)."""
    experts = params["up"].shape[0]
    capacity = 2 * x.shape[1] // experts
    gates = wnp.exp(x @ params["router"])
    gates = gates / gates.sum(-1, keepdims=True)
    top = (gates >= gates.max(-1, keepdims=True)).astype(x.dtype)
    slot = wnp.cumsum(top, 1) * top - 1
    dispatch = (slot[..., None] == wnp.arange(capacity)).astype(x.dtype) * top[..., None]
    inputs = wnp.einsum("bnec,bnd->ebcd", dispatch, x)
    hidden = relu(wnp.einsum("ebcd,edf->ebcf", inputs, params["up"]))
    outputs = wnp.einsum("ebcf,efd->ebcd", hidden, params["down"])
    return squared_error(wnp.einsum("bnec,ebcd->bnd", dispatch * gates[..., None], outputs), y)


def conv2d(x, w, stride=1):
    return lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def conv_loss(params, x, y):
    for w in params["convs"]:
        x = relu(conv2d(x, w))
    return squared_error(x.mean((1, 2)) @ params["head"], y)


def upsample(x):
    return wnp.repeat(wnp.repeat(x, 2, 1), 2, 2)


def unet(params, x):
    """Return the output of a U-Net with two levels on images (batch, height, width, channels)."""
    top = relu(conv2d(x, params["enter"]))
    middle = relu(conv2d(top, params["down"], 2))
    bottom = relu(conv2d(relu(conv2d(middle, params["deep"], 2)), params["deepest"]))
    middle = relu(conv2d(wnp.concatenate([upsample(bottom), middle], -1), params["up"]))
    return conv2d(wnp.concatenate([upsample(middle), top], -1), params["leave"])


def unet_loss(params, x, labels):
    return cross_entropy(unet(params, x), labels)


def diffusion_loss(params, x, noise, time):
    """The loss of predicting the noise of images at times between 0 and 1."""
    angle = time[:, None, None, None] * (wnp.pi / 2)
    mixed = wnp.cos(angle) * x + wnp.sin(angle) * noise
    features = wnp.concatenate([wnp.sin(angle), wnp.cos(angle)], -1)
    shift = relu(features @ params["time"])
    return squared_error(unet(params["net"], mixed + shift), noise)


def embedding_loss(params, tokens, labels):
    return cross_entropy(norm(params["embed"][tokens]) @ params["head"], labels)


def gnn_loss(params, nodes, senders, receivers, y):
    """Layers that send products of node features along edges and add them up."""
    x = nodes
    for layer in params:
        messages = relu(x @ layer["message"])[senders]
        received = wnp.zeros((x.shape[0], messages.shape[-1]), x.dtype).at[receivers].add(messages)
        x = x + relu(received @ layer["update"])
    return squared_error(x, y)


# ---- array programs


def kmeans(steps):
    def run(x, centers):
        for _ in range(steps):
            distance = (
                (x * x).sum(1)[:, None] - 2 * x @ centers.T + (centers * centers).sum(1)[None]
            )
            nearest = (distance <= distance.min(1, keepdims=True)).astype(x.dtype)
            centers = (nearest.T @ x) / (nearest.sum(0)[:, None] + 1e-6)
        return centers

    return run


def conjugate_gradients(steps):
    """Solve (Laplacian + diagonal) u = b on a grid, with the diagonal as preconditioner."""

    def run(b, diagonal):
        def apply(u):
            p = wnp.pad(u, 1)
            around = p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2]
            return (4.0 + diagonal) * u - around

        def body(carry, _):
            x, r, p, rz = carry
            q = apply(p)
            step = rz / (p * q).sum()
            x, r = x + step * p, r - step * q
            z = r / (4.0 + diagonal)
            new = (r * z).sum()
            return (x, r, z + (new / rz) * p, new), None

        z = b / (4.0 + diagonal)
        start = (wnp.zeros_like(b), b, z, (b * z).sum())
        (x, r, *_), _ = lax.scan(body, start, None, length=steps)
        return x, (r * r).sum()

    return run


def chain_of_products(x, weights):
    for w in weights:
        x = wnp.tanh(x @ w)
    return x
