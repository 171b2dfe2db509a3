"""GPT with FSDP, tensor parallelism and resume.

Train a small transformer with parameters sharded over both axes of a mesh, save a
checkpoint, and resume on a mesh of another shape.

python examples/gallery/gpt.py
"""

# %%
# The task is to continue a text, character by character.
import tempfile

import weft
import weft.numpy as wnp
from weft import checkpoint
from weft.sharding import NamedSharding, PartitionSpec as P

weft.config.update("num_cpu_devices", 8)
TEXT = "the shuttle carries the weft over and under the warp, over and under, until "
LETTERS = sorted(set(TEXT))
LENGTH, WIDTH, HEADS, LAYERS = 32, 64, 4, 2
codes = wnp.array([LETTERS.index(letter) for letter in TEXT * 3])


# %%
# The shape of each parameter and its spec. `data` splits parameters as in FSDP: a device
# stores its part and gathers the rest when it is used. `model` splits heads and hidden
# columns as in tensor parallelism.
SHAPES = {
    "letters": ((len(LETTERS), WIDTH), P(None, "data")),
    "positions": ((LENGTH, WIDTH), P(None, "data")),
    "query": ((LAYERS, WIDTH, HEADS, WIDTH // HEADS), P(None, "data", "model")),
    "key": ((LAYERS, WIDTH, HEADS, WIDTH // HEADS), P(None, "data", "model")),
    "value": ((LAYERS, WIDTH, HEADS, WIDTH // HEADS), P(None, "data", "model")),
    "out": ((LAYERS, HEADS, WIDTH // HEADS, WIDTH), P(None, "model", None, "data")),
    "up": ((LAYERS, WIDTH, 4 * WIDTH), P(None, "data", "model")),
    "down": ((LAYERS, 4 * WIDTH, WIDTH), P(None, "model", "data")),
}


def init(key):
    keys = dict(zip(SHAPES, weft.random.split(key, len(SHAPES))))
    return {
        k: 0.1 * weft.random.normal(keys[k], shape) for k, (shape, _) in SHAPES.items()
    }


# %%
# The model: one `scan` over layers.
def norm(x):
    return x * weft.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6)


def layer(x, weights):
    y = norm(x)
    query, key, value = (
        wnp.einsum("btd,dhk->bthk", y, weights[name])
        for name in ("query", "key", "value")
    )
    mixed = weft.nn.dot_product_attention(query, key, value, is_causal=True)
    x = x + wnp.einsum("bthk,hkd->btd", mixed, weights["out"])
    return x + weft.nn.gelu(norm(x) @ weights["up"]) @ weights["down"], None


def loss(params, inputs, targets):
    stacked = {name: p for name, p in params.items() if p.ndim > 2}
    x = params["letters"][inputs] + params["positions"]
    x, _ = weft.lax.scan(layer, x, stacked)
    scores = weft.nn.log_softmax(norm(x) @ params["letters"].T)
    return -wnp.take_along_axis(scores, targets[..., None], -1).mean()


# %%
# A training step with Adam; the moments are sharded like the parameters.
@weft.jit
def train_step(state, inputs, targets):
    value, grads = weft.value_and_grad(loss)(state["params"], inputs, targets)
    count = state["count"] + 1
    first = weft.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["first"], grads)
    second = weft.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, state["second"], grads)

    def update(p, m, v):
        return p - 0.003 * m / (1 - 0.9**count) / (
            wnp.sqrt(v / (1 - 0.99**count)) + 1e-8
        )

    params = weft.tree.map(update, state["params"], first, second)
    return {"params": params, "first": first, "second": second, "count": count}, value


# %%
# Each step takes 16 pieces of the text from random positions.
def train(state, mesh, steps, losses):
    for number in steps:
        starts = weft.random.randint(
            weft.random.key(number), (16,), 0, len(codes) - LENGTH - 1
        )
        pieces = codes[starts[:, None] + wnp.arange(LENGTH + 1)]
        pieces = weft.device_put(pieces, NamedSharding(mesh, P("data")))
        state, value = train_step(state, pieces[:, :-1], pieces[:, 1:])
        losses.append(float(value))
    return state


def start(mesh):
    params = {
        name: weft.device_put(p, NamedSharding(mesh, SHAPES[name][1]))
        for name, p in init(weft.random.key(0)).items()
    }
    zeros = weft.tree.map(wnp.zeros_like, params)
    count = weft.device_put(wnp.float32(0), NamedSharding(mesh, P()))
    return {"params": params, "first": zeros, "second": zeros, "count": count}


# %%
# Train on a 4 x 2 mesh, with a checkpoint after step 40.
folder, losses, resumed = tempfile.mkdtemp(), [], []
mesh = weft.make_mesh((4, 2), ("data", "model"))
state = train(start(mesh), mesh, range(40), losses)
checkpoint.save(folder, state, 40)
checkpoint.wait()
state = train(state, mesh, range(40, 80), losses)
up = state["params"]["up"]
print(
    "up",
    up.shape,
    up.sharding.spec,
    "on a device:",
    up.addressable_shards[0].data.shape,
)
print("loss", *(f"{value:.1f}" for value in losses[::20]), f"{losses[-1]:.1f}")

# %%
# Resume from the checkpoint on a 2 x 4 mesh: the losses are the same up to rounding.
other = weft.make_mesh((2, 4), ("data", "model"))
state = checkpoint.restore(folder, start(other), step=40)
state = train(state, other, range(40, 80), resumed)
up = state["params"]["up"]
print("up on a device of the 2 x 4 mesh:", up.addressable_shards[0].data.shape)
print(
    "same losses:",
    bool(wnp.allclose(wnp.array(losses[40:]), wnp.array(resumed), atol=0.02)),
)
