"""Programs with loops, branches, calls, custom derivatives, donation and callbacks."""

from __future__ import annotations

import numpy as np

import weft
import weft.lax as lax
import weft.numpy as wnp
from tests.hlo.program_list import BOOLS, X, f32, program
from weft.custom_derivatives import linear_call


@weft.jit
def _inner(x):
    return wnp.sin(x) * 2


@program(X)
def calls(x):
    return (
        _inner(x) + _inner(x + 1),
        weft.jit(lambda v: _inner(v.T), inline=False)(x),
        weft.jit(lambda v: v * 3)(x[0]),
    )


@program(X, np.int32(5), np.int32(-3))
def branches(x, i, j):
    pick = lambda k: lax.switch(k, [lambda v: v + 1, lambda v: v * 2, wnp.cos], x)
    return (
        lax.cond(x.sum() > 0, wnp.sin, lambda v: -v, x),
        pick(i),
        pick(j),
        weft.vmap(lambda p, v: lax.cond(p > 0, lambda: v, lambda: -v))(x[:, 0], x),
    )


@program(f32(5, 3), f32(3))
def scans(xs, c):
    step = lambda c, x: (c + x, (c * x, x.sum()))
    empty = lax.scan(step, c, xs[:0])
    return (
        lax.scan(step, c, xs),
        lax.scan(step, c, xs, reverse=True),
        lax.fori_loop(0, 4, lambda i, v: v * 0.5 + i, c),
        empty,
        lax.map(lambda x: x[::-1] * c, xs),
    )


@program(f32(3), np.int32(10))
def while_loops(x, n):
    collatz = lambda k: lax.while_loop(
        lambda s: s[0] != 1,
        lambda s: (wnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1),
        (k, 0),
    )
    return (
        lax.while_loop(lambda s: s[1] < n, lambda s: (s[0] * 0.9 + x, s[1] + 3), (x, np.int32(0))),
        collatz(np.int32(7)),
        weft.vmap(collatz)(wnp.arange(1, 6, dtype=np.int32)),
    )


@program(f32(4, 3), f32(3, 3))
def gradients_of_loops(xs, w):
    loss = lambda w: lax.scan(lambda c, x: (wnp.tanh(w @ c + x), c.sum()), xs[0], xs)[0].sum()
    return (
        weft.value_and_grad(loss)(w),
        weft.jvp(loss, (w,), (w,)),
        weft.grad(weft.checkpoint(lambda v: wnp.sin(wnp.sin(v)).sum()))(w),
    )


@weft.custom_jvp
def _cube(x):
    return x * x * x


@_cube.defjvp
def _cube_jvp(primals, tangents):
    return _cube(primals[0]), 3 * primals[0] ** 2 * tangents[0]


@weft.custom_vjp
def _clipped(x):
    return x * 2


_clipped.defvjp(lambda x: (_clipped(x), x), lambda x, ct: (wnp.clip(ct, -1, 1) * x,))


@program(X)
def custom_derivatives(x):
    return (
        _cube(x),
        _clipped(x),
        weft.grad(lambda v: (_cube(v) * 3 + _clipped(v)).sum())(x),
        weft.nn.relu(x),
        weft.checkpoint(wnp.sin)(x),
    )


@weft.custom_batching.custom_vmap
def _doubled(x):
    return x + x


@_doubled.def_vmap
def _doubled_batch(size, batched, x):
    return _doubled(x), batched[0]


_kept = weft.custom_vjp(lambda x: wnp.sin(x) * x)
_kept.defvjp(lambda x: (wnp.sin(x) * x, x), lambda x, ct: (ct * x,), optimize_remat=True)


@program(X)
def custom_calls(x):
    scaled = linear_call(lambda r, v: r * v, lambda r, ct: r * ct, 2.0, x)
    solved = lax.custom_linear_solve(lambda v: 4 * v, x, lambda _, b: b / 4, symmetric=True)
    return _doubled(x), scaled, solved, weft.grad(lambda v: _kept(v).sum())(x)


@program(f32(6))
def distributions(x):
    p = weft.nn.sigmoid(x)
    beta = weft.scipy.stats.beta
    logs = lambda p: (beta.logcdf(p, 2.0, 3.0) + beta.logsf(p, 2.0, 3.0)).sum()
    return beta.sf(p, 2.0, 3.0), weft.value_and_grad(logs)(p)


@program(f32(4))
def older_random_bits(x):
    with weft.threefry_partitionable(False):
        return x + weft.random.uniform(weft.random.key(0), (4,))


@program(f32(8, 4), f32(4, 16), f32(16, 4))
def network(x, w1, w2):
    loss = lambda ws: (weft.nn.softmax(weft.nn.gelu(x @ ws[0]) @ ws[1]) ** 2).mean()
    return weft.grad(loss)((w1, w2))


@program(f32(2, 6, 8), f32(8, 24, seed=3), tolerance=4e-6)
def attention(x, w):
    q, k, v = wnp.split(x @ w, 3, axis=-1)
    scores = wnp.where(wnp.tril(wnp.ones((6, 6), bool)), q @ k.swapaxes(1, 2) / 8**0.5, -np.inf)
    return (
        weft.nn.softmax(scores) @ v,
        weft.nn.logsumexp(scores, axis=-1),
        weft.nn.one_hot(wnp.argmax(v, -1), 8),
    )


@program(X, f32(3, 4), donate=(0,))
def donations(x, y):
    return x + y, x.sum()


@program(np.arange(100, dtype=np.float32))
def constants(x):
    return (
        x * np.linspace(0, 1, 100, dtype=np.float32),
        x[:3] + np.array([1, 2.5, np.inf], np.float32),
        np.ones((2, 2), np.int8),
        x.astype(np.complex64)[:2] * np.array([1j, 2], np.complex64),
        wnp.array(BOOLS),
        x[:2].astype(wnp.bfloat16) * np.array([0.1, 3], wnp.bfloat16),
    )


@program(X)
def callbacks(x):
    shape = weft.ShapeDtypeStruct(x.shape, x.dtype)
    weft.debug.print("{x}", x=x)
    weft.debug.callback(lambda v: None, x)
    weft.debug.inspect_array_sharding(x, callback=lambda s: None)
    return weft.pure_callback(
        np.sin, shape, x, vmap_method="sequential"
    ), weft.experimental.io_callback(np.cos, shape, x)
