"""Random programs with random layouts, for comparing what partitioners send.

In:   a seed; the module `jax` of either system. Equal seeds give equal programs on both.
Out:  a jitted function and the types of its arguments with their shardings over eight devices.
How:  a family of programs (contractions, normalizations, attention, convolutions, slices, reshapes, loops, training steps with
      and without rematerialization, mixtures), sizes, a mesh (8, 4 x 2, 2 x 2 x 2), the axes of each argument and, for a third
      of the programs, of the result, all drawn from the seed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

MESHES = ({"x": 8}, {"a": 4, "b": 2}, {"a": 2, "b": 2, "c": 2})
SIZES = (8, 16, 32, 64)
Drawn = tuple[Callable, list[tuple[int, ...]]]


class Draw:
    """Random choices, and the modules that programs are written with."""

    def __init__(self, seed: int, jax: Any):
        self.rng = np.random.default_rng(seed)
        self.jax, self.jnp, self.lax = jax, jax.numpy, jax.lax

    def pick(self, options: Sequence) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def size(self) -> int:
        return self.pick(SIZES)

    def shape(self, least: int, most: int) -> tuple[int, ...]:
        return tuple(self.size() for _ in range(int(self.rng.integers(least, most + 1))))

    def spec(self, shape: Sequence[int], mesh: dict[str, int]) -> tuple[tuple[str, ...], ...]:
        """Axes per dim, each axis with a chance on a dim that they then divide."""
        dims: list[tuple[str, ...]] = [()] * len(shape)
        for axis in self.rng.permutation(sorted(mesh)):
            d = int(self.rng.integers(len(shape))) if shape else 0
            if (
                shape
                and self.chance(0.7)
                and shape[d] % math.prod(mesh[a] for a in (*dims[d], str(axis))) == 0
            ):
                dims[d] = (*dims[d], str(axis))
        return tuple(dims)


# --- families: each gives a function and the shapes of its arguments


def contraction(d: Draw) -> Drawn:
    """An einsum of two or three operands."""
    sizes = {label: d.size() for label in "ijklm"}
    operands = [
        "".join(d.rng.permutation(list("ijklm"))[: d.rng.integers(1, 4)])
        for _ in range(d.pick((2, 2, 3)))
    ]
    present = sorted(set("".join(operands)))
    out = "".join(d.rng.permutation(present)[: d.rng.integers(0, min(3, len(present)) + 1)])
    text = ",".join(operands) + "->" + out
    return (lambda *xs: d.jnp.einsum(text, *xs)), [tuple(sizes[i] for i in o) for o in operands]


def normalization(d: Draw) -> Drawn:
    shape = d.shape(2, 3)
    axis, kind = int(d.rng.integers(len(shape))), d.pick(("layer", "rms", "softmax", "batch"))
    jnp, features = d.jnp, d.size()

    def normalized(x: Any) -> Any:
        if kind == "layer":
            return (x - x.mean(axis, keepdims=True)) / jnp.sqrt(x.var(axis, keepdims=True) + 1e-5)
        if kind == "rms":
            return x / jnp.sqrt((x * x).mean(axis, keepdims=True) + 1e-5)
        if kind == "batch":
            rest = tuple(i for i in range(x.ndim) if i != axis)
            return (x - x.mean(rest, keepdims=True)) / jnp.sqrt(x.var(rest, keepdims=True) + 1e-5)
        return d.jax.nn.softmax(x, axis)

    if d.chance(0.5):
        return (lambda x: normalized(x)), [shape]
    return (lambda x, w: jnp.maximum(normalized(x) @ w, 0)), [shape, (shape[-1], features)]


def attention(d: Draw) -> Drawn:
    jnp, (b, t, h, k) = d.jnp, (d.pick((4, 8)), d.pick((16, 32)), d.pick((4, 8)), d.pick((8, 16)))
    causal, projected, graded = d.chance(0.5), d.chance(0.5), d.chance(0.4)

    def attend(q: Any, k_: Any, v: Any) -> Any:
        scores = jnp.einsum("bthk,bshk->bhts", q, k_) / np.float32(np.sqrt(k))
        if causal:
            scores = jnp.where(jnp.arange(t)[:, None] >= jnp.arange(t)[None, :], scores, -1e9)
        return jnp.einsum("bhts,bshk->bthk", d.jax.nn.softmax(scores, -1), v)

    if not projected:
        shapes = [(b, t, h, k)] * 3
        return (
            d.jax.grad(lambda *qkv: (attend(*qkv) ** 2).sum(), argnums=(0, 1, 2))
            if graded
            else attend
        ), shapes

    def layer(x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
        q, k_, v = (jnp.einsum("btd,dhk->bthk", x, w) for w in (wq, wk, wv))
        return x + jnp.einsum("bthk,hkd->btd", attend(q, k_, v), wo)

    shapes = [(b, t, h * k), *[(h * k, h, k)] * 3, (h, k, h * k)]
    return (
        d.jax.grad(lambda *a: (layer(*a) ** 2).mean(), argnums=(1, 2, 3, 4)) if graded else layer
    ), shapes


def convolution(d: Draw) -> Drawn:
    n, c, o, size, width = (
        d.pick((2, 4, 8)),
        d.pick((4, 8)),
        d.pick((4, 8)),
        d.pick((16, 32, 64)),
        d.pick((1, 2, 3, 5)),
    )
    strides, padding, graded = (
        d.pick(((1, 1), (2, 2), (1, 2))),
        d.pick(("SAME", "VALID")),
        d.chance(0.4),
    )
    conv = lambda x, k: d.lax.conv_general_dilated(x, k, strides, padding)
    shapes = [(n, c, size, 16), (o, c, width, width)]
    return (
        d.jax.grad(lambda *a: (conv(*a) ** 2).sum(), argnums=(0, 1)) if graded else conv
    ), shapes


def slices(d: Draw) -> Drawn:
    """A few operations that take, move or put parts of a value."""
    shape = d.shape(2, 3)
    steps = [_part(d) for _ in range(int(d.rng.integers(1, 4)))]

    def run(x: Any) -> Any:
        for step in steps:
            x = step(x)
        return x

    if d.chance(0.3):
        return d.jax.grad(lambda x: (run(x) ** 2).sum()), [shape]
    return run, [shape]


def _part(d: Draw) -> Callable:
    jnp, dim, kind, n = (
        d.jnp,
        int(d.rng.integers(3)),
        int(d.rng.integers(9)),
        int(d.rng.integers(1, 4)),
    )

    def along(x: Any, index: Any) -> tuple:
        return (*[slice(None)] * (dim % x.ndim), index)

    return [
        lambda x: x[along(x, slice(n, None))],
        lambda x: x[along(x, slice(None, x.shape[dim % x.ndim] // 2))],
        lambda x: x[along(x, slice(None, None, 2))],
        lambda x: jnp.roll(x, n, dim % x.ndim),
        lambda x: jnp.flip(x, dim % x.ndim),
        lambda x: jnp.concatenate([x, x * 2], dim % x.ndim),
        lambda x: jnp.pad(x, [(n, n) if i == dim % x.ndim else (0, 0) for i in range(x.ndim)]),
        lambda x: x.at[along(x, slice(0, n))].set(1.0),
        lambda x: jnp.cumsum(x, dim % x.ndim),
    ][kind]


def reshapes(d: Draw) -> Drawn:
    shape, jnp = d.shape(2, 3), d.jnp
    size = math.prod(shape)
    new: list[int] = []
    while len(new) < 2:
        n = d.pick((2, 4, 8, 16))
        if size % (n * math.prod(new)) == 0:
            new.append(n)
    new = [int(n) for n in d.rng.permutation([*new, size // math.prod(new)])]
    order = tuple(int(i) for i in d.rng.permutation(3))
    back, kind = d.chance(0.3), int(d.rng.integers(3))

    def run(x: Any) -> Any:
        y = jnp.sin(x.T if kind == 0 else x).reshape(new)
        y = y.transpose(order) if kind < 2 else y
        return y.reshape(shape) if back else y + 1

    return run, [shape]


def transposed(d: Draw) -> Drawn:
    """Values and their transposes together."""
    n, m = d.size(), d.size()
    kind = int(d.rng.integers(3))
    table = [
        ((lambda x: x.T), [(n, m)]),
        ((lambda x, y: x.T + y), [(n, m), (m, n)]),
        ((lambda x, y: (x.T * 2) @ y), [(n, m), (n, m)]),
    ]
    return table[kind]


def loop(d: Draw) -> Drawn:
    jnp, (t, b, f) = d.jnp, (d.pick((4, 8)), d.size(), d.size())
    graded = d.chance(0.5)

    def run(h: Any, w: Any, u: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> tuple:
            h = jnp.tanh(h @ w + x @ u)
            return h, h.sum(-1)

        return d.lax.scan(step, h, xs)

    shapes = [(b, f), (f, f), (f, f), (t, b, f)]
    return (
        d.jax.grad(lambda *a: (run(*a)[0] ** 2).sum(), argnums=(1, 2)) if graded else run
    ), shapes


def training(d: Draw, remat: bool = False) -> Drawn:
    """Gradients, or a whole step, of a network of dense layers."""
    jnp, widths, batch = (
        d.jnp,
        [d.size() for _ in range(int(d.rng.integers(2, 5)))],
        d.pick((8, 32, 128)),
    )
    count, whole, act = (
        len(widths) - 1,
        d.chance(0.4),
        d.pick((jnp.tanh, lambda x: jnp.maximum(x, 0), d.jax.nn.gelu)),
    )

    def forward(x: Any, *weights: Any) -> Any:
        for w in weights:
            layer = lambda x, w: act(x @ w)
            x = (d.jax.checkpoint(layer) if remat else layer)(x, w)
        return x

    def loss(weights: Any, x: Any, y: Any) -> Any:
        out = (d.jax.checkpoint(forward) if remat and count % 2 else forward)(x, *weights)
        return ((out - y) ** 2).mean()

    def run(x: Any, y: Any, *weights: Any) -> list:
        grads = d.jax.grad(loss)(weights, x, y)
        return [w - 0.1 * g for w, g in zip(weights, grads)] if whole else list(grads)

    return run, [(batch, widths[0]), (batch, widths[-1]), *itertools.pairwise(widths)]


def rematerialized(d: Draw) -> Drawn:
    return training(d, remat=True)


def mixture(d: Draw) -> Drawn:
    """A chain of operations of different kinds on matrices."""
    n, m = d.size(), d.size()
    jnp, kinds = d.jnp, [int(d.rng.integers(9)) for _ in range(int(d.rng.integers(3, 7)))]
    graded = d.chance(0.4)

    def run(x: Any, y: Any, w: Any) -> Any:
        for kind in kinds:
            if kind == 0:
                x = jnp.tanh(x) @ w
            elif kind == 1:
                x = x + y
            elif kind == 2:
                x = x - x.mean(0)
            elif kind == 3:
                x = d.jax.nn.softmax(x, 1)
            elif kind == 4:
                x = (x @ x.T) @ y / n
            elif kind == 5:
                x = jnp.roll(x, 1, 0) + x
            elif kind == 6:
                x = x.reshape(n // 4, 4, m).sum(1).repeat(4, 0)
            elif kind == 7:
                x = x * x.max(1, keepdims=True)
            else:
                x = jnp.concatenate([x[1:], x[:1]], 0) * y
        return x

    return (d.jax.grad(lambda *a: (run(*a) ** 2).sum(), argnums=(0, 2)) if graded else run), [
        (n, m),
        (n, m),
        (m, m),
    ]


FAMILIES = (
    contraction,
    normalization,
    attention,
    convolution,
    slices,
    reshapes,
    transposed,
    loop,
    training,
    rematerialized,
    mixture,
)


def program(seed: int, jax: Any) -> tuple[str, Callable, tuple]:
    """Name, jitted function and argument types of the program of `seed`."""
    d = Draw(seed, jax)
    family, axes = FAMILIES[seed % len(FAMILIES)], d.pick(MESHES)
    fun, shapes = family(d)
    mesh = jax.make_mesh(
        tuple(axes.values()), tuple(axes), axis_types=(jax.sharding.AxisType.Auto,) * len(axes)
    )
    place = lambda spec: jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
    specs = [d.spec(s, axes) for s in shapes]
    types = tuple(
        jax.ShapeDtypeStruct(s, np.float32, sharding=place(spec)) for s, spec in zip(shapes, specs)
    )
    options = {}
    if d.chance(1 / 3):
        outs = jax.tree.map(lambda s: place(d.spec(s.shape, axes)), jax.eval_shape(fun, *types))
        options["out_shardings"] = outs
    show = lambda spec: "P(" + ", ".join("*".join(s) or "-" for s in spec) + ")"
    text = ", ".join(f"{'x'.join(map(str, s))} {show(spec)}" for s, spec in zip(shapes, specs))
    if options:
        text += " -> " + ", ".join(
            show(
                tuple(() if p is None else (p,) if isinstance(p, str) else tuple(p) for p in s.spec)
            )
            for s in jax.tree.leaves(options["out_shardings"])
        )
    return (
        f"{family.__name__} on {'x'.join(map(str, axes.values()))}: {text}",
        jax.jit(fun, **options),
        types,
    )
