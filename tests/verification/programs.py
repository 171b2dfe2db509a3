"""Correct programs of every kind that the checks must pass: name -> (function without arguments that runs one)."""

import functools

import numpy as np

import weft
import weft.numpy as wnp
from weft import lax
from weft.sharding import NamedSharding, PartitionSpec as P


def normal(*shape, seed=0, dtype=np.float32):
    return wnp.asarray(np.random.default_rng(seed).normal(size=shape).astype(dtype))


def elementwise():
    return weft.jit(lambda x: wnp.sin(x) * wnp.exp(x) + x / 3)(normal(5, 7))


def gradient():
    return weft.jit(weft.grad(lambda w, x: (wnp.tanh(x @ w) ** 2).mean()))(
        normal(7, 3), normal(5, 7)
    )


def mapped():
    return weft.jit(weft.vmap(lambda x, y: wnp.dot(x, y) + x.sum()))(
        normal(5, 7), normal(5, 7, seed=1)
    )


def scanned():
    step = lambda c, x: (0.9 * c + x, wnp.cos(c))
    return weft.jit(lambda x: lax.scan(step, wnp.zeros(4), x))(normal(20, 4))


def scan_gradient():
    step = lambda c, x: (0.9 * c + x, c * x)
    return weft.jit(weft.grad(lambda x: lax.scan(step, wnp.zeros(4), x)[1].sum()))(normal(20, 4))


def branches():
    f = weft.jit(
        lambda i, x: lax.switch(
            i, [wnp.sin, wnp.cos, lambda x: x * lax.cond(i > 1, lambda: 2.0, lambda: 3.0)], x
        )
    )
    return [f(i, normal(6)) for i in range(3)]


def loop():
    return weft.jit(
        lambda x: lax.while_loop(
            lambda c: c[0] < 10, lambda c: (c[0] + 1, wnp.sin(c[1]) + 1), (0, x)
        )
    )(normal(6))


def sharded():
    mesh = weft.make_mesh((4, 2), ("a", "b"))
    x = weft.device_put(normal(8, 6), NamedSharding(mesh, P("a", "b")))
    w = weft.device_put(normal(6, 4, seed=1), NamedSharding(mesh, P("b", None)))
    return weft.jit(lambda x, w: wnp.maximum(x @ w, 0).sum(0))(x, w)


def shard_mapped():
    mesh = weft.make_mesh((8,), ("a",))
    body = lambda x: lax.psum(x * 2, "a") + lax.axis_index("a")
    return weft.jit(weft.shard_map(body, mesh=mesh, in_specs=P("a"), out_specs=P("a")))(
        normal(16, 3)
    )


def donated():
    f = weft.jit(lambda x, y: (x * 2 + y, y.sum()), donate_argnums=0)
    return f(normal(64, 64), normal(64, 64, seed=1))


def random_numbers():
    key = weft.random.key(3)
    f = weft.jit(
        lambda k: (
            weft.random.normal(k, (50,)),
            weft.random.permutation(k, 20),
            weft.random.split(k),
        )
    )
    return f(key)[:2]


def old_random_key():
    return weft.jit(lambda k: weft.random.uniform(k, (50,)))(weft.random.PRNGKey(0))


def half_precision():
    return weft.jit(lambda x: wnp.tanh(x @ x.T).sum(0))(normal(16, 16).astype(wnp.bfloat16))


def integers():
    return weft.jit(lambda x: (x // 3, x % 5, wnp.sort(x), wnp.argmax(x), wnp.cumsum(x)))(
        wnp.arange(20) * 7 % 13
    )


def complex_numbers():
    return weft.jit(lambda x: wnp.abs(wnp.fft.fft(x)) + wnp.real(x * 1j))(normal(24))


def linear_algebra():
    a = normal(5, 5)
    return weft.jit(
        lambda a: (wnp.linalg.cholesky(a @ a.T + wnp.eye(5)), wnp.linalg.solve(a, a.sum(0)))
    )(a)


def convolution():
    return weft.jit(lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME"))(
        normal(2, 3, 8, 8), normal(4, 3, 3, 3, seed=1)
    )


def gather_and_scatter():
    return weft.jit(lambda x, i: (x[i], x.at[i].add(1.0), x.at[i, 0].set(2.0)))(
        normal(9, 4), wnp.asarray([3, 1, 3])
    )


def softmax():
    return weft.jit(lambda x: weft.nn.log_softmax(x, -1))(normal(9, 40) * 30)


def closed_over():
    table = normal(30, 4)
    return weft.jit(lambda i: table[i] + wnp.asarray(np.arange(4.0, dtype=np.float32)))(
        wnp.asarray([1, 5])
    )


def nothing():
    return weft.jit(lambda x: (x, 3.0, wnp.zeros((0, 3)) + x.sum()))(normal(3))


def eager():
    return wnp.linalg.norm(normal(6, 6) @ normal(6, 6, seed=1)) + wnp.median(normal(11))


def references():
    ref = weft.new_ref(normal(4))

    @weft.jit
    def f(x):
        ref[...] += x
        return ref[0]

    return f(normal(4, seed=1)), ref[...]


def checkpointed():
    f = weft.checkpoint(lambda x: wnp.sin(wnp.sin(x)))
    return weft.jit(weft.grad(lambda x: f(x).sum()))(normal(9))


def custom_rule():
    @weft.custom_vjp
    def f(x):
        return wnp.sin(x)

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * wnp.cos(x),))
    return weft.jit(weft.value_and_grad(lambda x: f(x).sum()))(normal(9))


def static_loop():
    return weft.jit(functools.partial(lax.fori_loop, 0, 5, lambda i, x: x * 1.1 + i))(normal(6))


PROGRAMS = [
    elementwise, gradient, mapped, scanned, scan_gradient, branches, loop, sharded, shard_mapped, donated, random_numbers, old_random_key,
    half_precision, integers, complex_numbers, linear_algebra, convolution, gather_and_scatter, softmax, closed_over, nothing, eager,
    references, checkpointed, custom_rule, static_loop,
]  # fmt: skip
