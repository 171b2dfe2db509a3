"""Random programs on explicitly sharded arrays: eager and compiled types are one, values and gradients the whole's."""

from __future__ import annotations

import random

import numpy as np
import pytest

import weft
import weft.nn
from weft import lax, numpy as wnp
from weft.errors import ShardingTypeError
from weft.sharding import AxisType, NamedSharding, P, reshard

EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto
MESHES = [
    weft.make_mesh((2, 4), ("a", "b"), axis_types=types)
    for types in ((EXPLICIT, EXPLICIT), (EXPLICIT, AUTO))
]
SPECS = [P("a"), P(None, "a"), P()]

#: each takes a matrix, the second input, a layout (None on whole values) and gives a matrix
STEPS = {
    "tanh": lambda h, y, s: wnp.tanh(h),
    "times input": lambda h, y, s: h * (y if h.shape == y.shape else 0.5),
    "gram": lambda h, y, s: wnp.einsum("ij,kj->ik", h, h, out_sharding=s) * 0.1,
    "add sums": lambda h, y, s: h + h.sum(0) * 0.1,
    "softmax": lambda h, y, s: weft.nn.softmax(h, axis=1),
    "fold": lambda h, y, s: (
        wnp.reshape(h, (h.shape[0], 2, -1), out_sharding=s).sum(1) if h.shape[1] > 4 else h
    ),
    "reshard": lambda h, y, s: h if s is None else reshard(h, s),
    "join": lambda h, y, s: wnp.concatenate([h, h * 2], 0)[: h.shape[0]],
    "scan": lambda h, y, s: lax.scan(lambda c, _: (wnp.sin(c) + c, None), h, None, length=2)[0],
    "vmap": lambda h, y, s: weft.vmap(lambda r: wnp.cos(r) * r.sum())(h) * 0.1,
    "cond": lambda h, y, s: lax.cond(h.sum() > 0, lambda q: q * 2, lambda q: q - 1, h),
    "less max": lambda h, y, s: h - h.max(-1, keepdims=True),
    "cumsum": lambda h, y, s: wnp.cumsum(h, 0) * 0.1,
    "jit": lambda h, y, s: weft.jit(lambda q: q * 1.5 + 1)(h),
    "checkpoint": lambda h, y, s: weft.checkpoint(lambda q: wnp.tanh(q) * q)(h),
}


def layout(r: random.Random) -> P:
    dims: list = [(), ()]
    for axis in ("a", "b"):
        if r.random() < 0.7:
            dims[r.randrange(2)] += (axis,)
    return P(*[d or None for d in dims])


def program(names, specs, mesh):
    def run(x, y):
        h = x
        for name, spec in zip(names, specs):
            h = STEPS[name](h, y, None if mesh is None else NamedSharding(mesh, spec))
        return h

    return run


@pytest.mark.parametrize("seed", range(14))
def test_random_programs(seed):
    r, rng = random.Random(seed), np.random.default_rng(seed)
    shape, mesh = r.choice([(8, 16), (16, 16), (16, 8)]), MESHES[seed % 3 == 0]
    names = [r.choice(list(STEPS)) for _ in range(r.randint(2, 6))]
    specs = [r.choice(SPECS) for _ in names]
    whole = [rng.standard_normal(shape).astype(np.float32) for _ in range(2)]
    split = [weft.device_put(x, NamedSharding(mesh, layout(r))) for x in whole]
    fun, plain = program(names, specs, mesh), program(names, specs, None)
    try:
        eager = fun(*split)
    except ShardingTypeError:
        with pytest.raises(ShardingTypeError):
            weft.jit(fun)(*split)
        return
    compiled = weft.jit(fun)(*split)
    assert weft.typeof(eager) is weft.typeof(compiled)
    for got in (eager, compiled):
        np.testing.assert_allclose(
            np.asarray(got), np.asarray(plain(*map(wnp.asarray, whole))), rtol=1e-3, atol=1e-3
        )
    loss = lambda f: weft.jit(weft.grad(lambda x, y: (f(x, y) ** 2).mean(), (0, 1)))
    for got, want, x in zip(loss(fun)(*split), loss(plain)(*whole), split):
        scale = max(1.0, float(abs(want).max()))
        np.testing.assert_allclose(
            np.asarray(got) / scale, np.asarray(want) / scale, rtol=1e-3, atol=1e-3
        )
        assert weft.typeof(got) is weft.typeof(x)
