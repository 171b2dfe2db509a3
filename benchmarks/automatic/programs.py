"""The programs that automatic sharding is measured on: functions, shapes, and layouts that users write by hand.

`PROGRAMS` maps a name to a function that returns the `Program`; `small=True` gives shapes whose values are fast to compute.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import weft
from benchmarks.automatic import models
from benchmarks.automatic.layouts import Layout, Leaf, Role, array_layouts, training_layouts

F32, I32 = np.dtype(np.float32), np.dtype(np.int32)


@dataclass(frozen=True)
class Program:
    """A program and its hand-written layouts.

    bind         returns the function for a mesh
    args         shapes and dtypes of the arguments
    state        number of leading flat arguments that are donated, whose layouts the first results have
    layouts      hand-written layouts by name, as a function of the sizes of the mesh axes
    most_index   integers in arguments are below it
    """

    name: str
    bind: Callable[[weft.sharding.Mesh], Callable[..., Any]]
    args: tuple[Any, ...]
    state: int
    layouts: Callable[[Mapping[str, int]], dict[str, Layout]]
    most_index: int

    def values(self) -> tuple[Any, ...]:
        """Return arguments with fixed random values."""
        random = np.random.default_rng(0)

        def draw(x):
            if np.dtype(x.dtype).kind == "i":
                return random.integers(0, self.most_index, x.shape).astype(x.dtype)
            return (0.5 * random.random(x.shape)).astype(x.dtype)

        return weft.tree.map(draw, self.args)


def array(*shape: int, dtype=F32):
    return weft.ShapeDtypeStruct(shape, dtype)


def _leaves(tree, role, tensor=None, batch=None):
    """Return the leaves of an argument; `tensor` is a tree of their tensor dims (-1: none)."""
    shapes = [tuple(x.shape) for x in weft.tree.leaves(tree)]
    dims = weft.tree.leaves(tensor) if tensor is not None else [-1] * len(shapes)
    leaves = []
    for shape, d in zip(shapes, dims, strict=True):
        has_batch = batch is not None and len(shape) > batch
        leaves.append(Leaf(shape, role, batch if has_batch else None, d if d >= 0 else None))
    return leaves


def train(name, loss, params, tensor, data, *, frozen=None, bind=None, most_index=2, experts=False):
    """Return one step of Adam. `frozen` is a pair of arguments that are no state and their tensor dims."""
    state = (params, params, params)
    leaves = _leaves(params, Role.PARAMETER, tensor) + 2 * _leaves(params, Role.MOMENT, tensor)
    args = (state,)
    if frozen is not None:
        args = (*args, frozen[0])
        leaves += _leaves(frozen[0], Role.PARAMETER, frozen[1])
    leaves += _leaves(data, Role.DATA, batch=0)
    if bind is None:
        step = models.training_step(loss)
        bind = lambda mesh: step
    layouts = lambda sizes: training_layouts(leaves, sizes, experts)
    return Program(name, bind, (*args, *data), len(weft.tree.leaves(state)), layouts, most_index)


def compute(name, function, *args, most_index=2):
    """Return an array program: no state, layouts by the dims of arguments."""
    leaves = _leaves(args, Role.DATA)
    return Program(
        name, lambda mesh: function, args, 0, lambda sizes: array_layouts(leaves, sizes), most_index
    )


# ---- shapes of transformers

LAYER_DIMS = {"query": 1, "key": 1, "value": 1, "out": 0, "up": 1, "down": 0}


def layer_shapes(width, heads, hidden, *lead):
    depth = width // heads
    projection = array(*lead, width, heads, depth)
    return {
        "query": projection,
        "key": projection,
        "value": projection,
        "out": array(*lead, heads, depth, width),
        "up": array(*lead, width, hidden),
        "down": array(*lead, hidden, width),
    }


@dataclass(frozen=True)
class TransformerShape:
    """Sizes of a transformer and of its batch."""

    layers: int = 2
    batch: int = 16
    length: int = 128
    width: int = 256
    heads: int = 8
    hidden: int = 1024
    vocabulary: int = 2048

    def layer(self, *lead):
        return layer_shapes(self.width, self.heads, self.hidden, *lead)

    def params(self):
        return {
            "embed": array(self.vocabulary, self.width),
            "layers": [self.layer() for _ in range(self.layers)],
            "head": array(self.width, self.vocabulary),
        }

    def dims(self):
        return {"embed": 0, "layers": [LAYER_DIMS] * self.layers, "head": 1}

    def tokens(self):
        return array(self.batch, self.length, dtype=I32)


SMALL = {"batch": 8, "length": 16, "width": 32, "heads": 8, "hidden": 64, "vocabulary": 64}


def transformer(name, small=False, **sizes):
    s = TransformerShape(**{**sizes, **(SMALL if small else {})})
    return train(
        name,
        models.transformer_loss,
        s.params(),
        s.dims(),
        (s.tokens(), s.tokens()),
        most_index=s.vocabulary,
    )


def scanned_transformer(name, small=False, **sizes):
    s = TransformerShape(**{**sizes, **(SMALL if small else {})})
    params = {**s.params(), "layers": s.layer(s.layers)}
    dims = {**s.dims(), "layers": {w: d + 1 for w, d in LAYER_DIMS.items()}}
    data = (s.tokens(), s.tokens())
    return train(name, models.scanned_transformer_loss, params, dims, data, most_index=s.vocabulary)


def drawn_transformer(name, small=False, *, seed):
    """Return a transformer with shapes drawn by `seed`."""
    random = np.random.default_rng(seed)
    pick = lambda *options: int(random.choice(options))
    width = pick(128, 256, 512, 1024)
    sizes = {
        "layers": pick(1, 2, 3),
        "batch": pick(8, 16, 32, 64),
        "length": pick(32, 64, 128, 256),
        "width": width,
        "heads": pick(8, 16),
        "hidden": width * pick(2, 4, 8),
        "vocabulary": pick(512, 2048, 8192),
    }
    return transformer(name, small, **sizes)


def tied_gpt(name, small=False):
    s = TransformerShape(vocabulary=8192, layers=2)
    if small:
        s = TransformerShape(layers=2, **SMALL)
    params, dims = s.params(), s.dims()
    del params["head"], dims["head"]
    params["position"], dims["position"] = array(s.length, s.width), -1
    data = (s.tokens(), s.tokens())
    return train(name, models.tied_gpt_loss, params, dims, data, most_index=s.vocabulary)


def vit(name, small=False):
    s = TransformerShape(layers=2, batch=64, length=64, width=384, heads=8, hidden=1536)
    patch, classes = 768, 1000
    if small:
        s, patch, classes = TransformerShape(layers=2, **SMALL), 48, 16
    params = {
        "patch": array(patch, s.width),
        "position": array(s.length, s.width),
        "layers": [s.layer() for _ in range(s.layers)],
        "classes": array(s.width, classes),
    }
    dims = {"patch": -1, "position": -1, "layers": [LAYER_DIMS] * s.layers, "classes": 1}
    data = (array(s.batch, s.length, patch), array(s.batch, dtype=I32))
    return train(name, models.vit_loss, params, dims, data, most_index=classes)


def lora(name, small=False):
    s = TransformerShape(layers=2, batch=16, length=128, width=512, heads=8, hidden=2048)
    if small:
        s = TransformerShape(layers=2, **SMALL)
    rank = 8
    pair = (array(s.width, rank), array(rank, s.heads, s.width // s.heads))
    adapters = [{"query": pair, "value": pair} for _ in range(s.layers)]
    dims = [{"query": (-1, 1), "value": (-1, 1)} for _ in range(s.layers)]
    data = (s.tokens(), s.tokens())
    frozen = (s.params(), s.dims())
    return train(
        name, models.lora_loss, adapters, dims, data, frozen=frozen, most_index=s.vocabulary
    )


def attention(name, small=False):
    batch, length, width = (8, 16, 32) if small else (16, 256, 512)
    layer = layer_shapes(width, 8, width)
    layer = {w: layer[w] for w in ("query", "key", "value", "out")}
    x = array(batch, length, width)
    dims = {w: LAYER_DIMS[w] for w in layer}
    leaves = _leaves(layer, Role.PARAMETER, dims) + _leaves(x, Role.DATA, batch=0)
    return Program(
        name,
        lambda mesh: models.attention_layer,
        (layer, x),
        0,
        lambda sizes: training_layouts(leaves, sizes) | array_layouts(leaves, sizes),
        2,
    )


def decoder(name, small=False):
    s = TransformerShape(layers=2, batch=16, length=512, width=512, heads=8, hidden=2048)
    if small:
        s = TransformerShape(layers=2, **SMALL)
    cache = array(s.batch, s.length, s.heads, s.width // s.heads)
    caches = [{"key": cache, "value": cache} for _ in range(s.layers)]
    tokens, position = array(s.batch, dtype=I32), array(dtype=I32)
    cache_dims = [{"key": 2, "value": 2}] * s.layers
    leaves = [
        *_leaves(caches, Role.DATA, cache_dims, batch=0),
        *_leaves(s.params(), Role.PARAMETER, s.dims()),
        *_leaves((tokens, position), Role.DATA, batch=0),
    ]
    return Program(
        name,
        lambda mesh: models.decoder_step,
        (caches, s.params(), tokens, position),
        len(weft.tree.leaves(caches)),
        lambda sizes: training_layouts(leaves, sizes),
        min(s.length, s.vocabulary),
    )


def ring(name, small=False):
    batch, length, width, hidden = (8, 16, 32, 64) if small else (8, 512, 256, 1024)
    layer = layer_shapes(width, 8, hidden)
    x = array(batch, length, width)

    def bind(mesh):
        return models.training_step(models.ring_layer_loss(mesh))

    return train(name, None, layer, LAYER_DIMS, (x, x), bind=bind)


# ---- other networks


def mlp(name, small=False, *, width, hidden, depth, batch):
    if small:
        width, hidden, batch = 16, 64, 32
    params = [{"up": array(width, hidden), "down": array(hidden, width)} for _ in range(depth)]
    data = (array(batch, width), array(batch, width))
    return train(name, models.mlp_loss, params, [{"up": 1, "down": 0}] * depth, data)


def moe(name, small=False):
    batch, length, width, hidden, experts = (8, 16, 16, 32, 8) if small else (16, 128, 512, 2048, 8)
    params = {
        "router": array(width, experts),
        "up": array(experts, width, hidden),
        "down": array(experts, hidden, width),
    }
    x = array(batch, length, width)
    dims = {"router": -1, "up": 0, "down": 0}
    return train(name, models.moe_loss, params, dims, (x, x), experts=True)


def conv(name, small=False):
    batch, size, channels, classes = (8, 8, 8, 16) if small else (64, 32, 64, 128)
    params = {"convs": [array(3, 3, channels, channels)] * 3, "head": array(channels, classes)}
    dims = {"convs": [3] * 3, "head": 1}
    data = (array(batch, size, size, channels), array(batch, classes))
    return train(name, models.conv_loss, params, dims, data)


def unet_shapes(channels, width, classes):
    return {
        "enter": array(3, 3, channels, width),
        "down": array(3, 3, width, 2 * width),
        "deep": array(3, 3, 2 * width, 4 * width),
        "deepest": array(3, 3, 4 * width, 4 * width),
        "up": array(3, 3, 6 * width, 2 * width),
        "leave": array(3, 3, 3 * width, classes),
    }


def unet(name, small=False):
    batch, size, width, classes = (8, 8, 8, 16) if small else (32, 32, 64, 16)
    params = unet_shapes(4, width, classes)
    data = (array(batch, size, size, 4), array(batch, size, size, dtype=I32))
    return train(name, models.unet_loss, params, dict.fromkeys(params, 3), data, most_index=classes)


def diffusion(name, small=False):
    batch, size, width, channels = (8, 8, 8, 8) if small else (32, 16, 128, 8)
    params = {"net": unet_shapes(channels, width, channels), "time": array(2, channels)}
    dims = {"net": dict.fromkeys(params["net"], 3), "time": -1}
    x = array(batch, size, size, channels)
    return train(name, models.diffusion_loss, params, dims, (x, x, array(batch)))


def embedding(name, small=False):
    batch, length, width, vocabulary = (8, 16, 16, 64) if small else (64, 64, 256, 32768)
    params = {"embed": array(vocabulary, width), "head": array(width, vocabulary)}
    tokens = array(batch, length, dtype=I32)
    return train(
        name,
        models.embedding_loss,
        params,
        {"embed": 0, "head": 1},
        (tokens, tokens),
        most_index=vocabulary,
    )


def gnn(name, small=False):
    nodes, edges, width, hidden = (64, 128, 16, 32) if small else (8192, 32768, 128, 512)
    layer = {"message": array(width, hidden), "update": array(hidden, width)}
    x, index = array(nodes, width), array(edges, dtype=I32)
    dims = [{"message": 1, "update": 0}] * 2
    return train(name, models.gnn_loss, [layer] * 2, dims, (x, index, index, x), most_index=nodes)


# ---- array programs


def kmeans(name, small=False):
    points, width, centers = (64, 8, 8) if small else (1 << 17, 64, 64)
    return compute(name, models.kmeans(5), array(points, width), array(centers, width))


def grid(name, small=False):
    n = 16 if small else 2048
    return compute(name, models.conjugate_gradients(20), array(n, n), array(n, n))


def chain(name, small=False):
    dims = (4096, 512, 4096, 256, 8192, 1024)
    if small:
        dims = tuple(n // 64 for n in dims)
    weights = [array(a, b) for a, b in itertools.pairwise(dims[1:])]
    return compute(name, models.chain_of_products, array(*dims[:2]), weights)


_BUILDERS: dict[str, Callable[..., Program]] = {
    "mlp": partial(mlp, width=1024, hidden=4096, depth=3, batch=512),
    "mlp-wide": partial(mlp, width=1024, hidden=8192, depth=2, batch=64),
    "mlp-large-batch": partial(mlp, width=1024, hidden=4096, depth=2, batch=16384),
    "attention": attention,
    "transformer-2": transformer,
    "transformer-4": partial(transformer, layers=4),
    "transformer-12": partial(transformer, layers=12),
    "transformer-4-scan": partial(scanned_transformer, layers=4),
    "transformer-12-scan": partial(scanned_transformer, layers=12),
    "transformer-wide": partial(transformer, batch=8, length=64, width=512, hidden=4096),
    "transformer-large-batch": partial(transformer, batch=64, length=256),
    "moe": moe,
    "conv": conv,
    "embedding": embedding,
    "kmeans": kmeans,
    "grid": grid,
    "chain": chain,
    "gpt-tied": tied_gpt,
    "vit": vit,
    "unet": unet,
    "lora": lora,
    "diffusion": diffusion,
    "gnn": gnn,
    "ring-attention": ring,
    "decoder": decoder,
}
PROGRAMS = {name: partial(build, name) for name, build in _BUILDERS.items()}
#: transformers with shapes drawn by a seed
DRAWN = {f"drawn-{i}": partial(drawn_transformer, f"drawn-{i}", seed=i) for i in range(10)}
