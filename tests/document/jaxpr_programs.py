"""Small programs, and their jaxprs as text: `python jaxpr_programs.py OUT` writes the peer's, as JSON.

Each line is `function | arguments`, in names that both sides have (`scope_of`). This file imports nothing of the system under test.
"""

from __future__ import annotations

import json
import pathlib
import sys

PROGRAMS = """
lambda x, y: jnp.sum(jnp.sin(x * y)) | v, v
lambda x: jnp.where(x > 0, x, 0.5 * x) | v
lambda x: 2 * x + 1 | 3.0
lambda x: x * 2 | v
lambda x: x ** 2 | v
lambda x: x ** 3 | v
lambda x: x ** 0.5 | v
lambda x: x ** -1 | v
lambda x, y: x ** y | v, v
lambda x: lax.integer_pow(x, 4) | v
lambda x: -x + abs(x) | v
lambda x: x / 2 - 1 | v
lambda x, y: x // y | i, i
lambda x, y: x % y | i, i
lambda x, y: (x & y) | ~x | i, i
lambda x: x << 2 | i
lambda x, y: (x < y, x <= y, x == y, x != y) | v, v
lambda x: (jnp.exp(x), jnp.log(x), jnp.sqrt(x), jnp.tanh(x)) | v
lambda x: (jnp.cos(x), jnp.tan(x), jnp.sinh(x), jnp.cosh(x), jnp.arctan(x)) | v
lambda x: (lax.rsqrt(x), lax.cbrt(x), lax.logistic(x), lax.erf(x), lax.log1p(x), lax.expm1(x)) | v
lambda x: (jnp.floor(x), jnp.ceil(x), jnp.sign(x), jnp.isfinite(x)) | v
lambda x: jnp.round(x) | v
lambda x, y: (jnp.maximum(x, y), jnp.minimum(x, y), jnp.arctan2(x, y)) | v, v
lambda x: jnp.square(x) | v
lambda x: jnp.reciprocal(x) | v
lambda x: jnp.logaddexp(x, 1.0) | v
lambda x: x.astype(jnp.int32) | v
lambda x: x.astype(jnp.bfloat16) | v
lambda x: lax.bitcast_convert_type(x, jnp.int32) | v
lambda x: jnp.clip(x, 0, 1) | v
lambda x: lax.clamp(0.0, x, 1.0) | v
lambda x: jnp.isnan(x) | v
lambda x, y: x + y | m, k
lambda x: x + 1 | i
lambda x: jnp.real(x) + jnp.imag(x) | c
lambda x: jnp.conj(x) | c
lambda x, y: lax.complex(x, y) | v, v
lambda x: x.sum() | m
lambda x: x.sum(0) | m
lambda x: x.sum(1, keepdims=True) | m
lambda x: x.mean() | m
lambda x: x.mean(1) | m
lambda x: jnp.var(x) | m
lambda x: jnp.std(x, axis=0) | m
lambda x: (x.max(), x.min(0)) | m
lambda x: jnp.prod(x) | m
lambda x: ((x > 0).all(), (x > 0).any(1)) | m
lambda x: jnp.argmax(x, 1) | m
lambda x: jnp.argmin(x) | m
lambda x: jnp.cumsum(x) | v
lambda x: lax.cumsum(x, 0) | m
lambda x: lax.cummax(x, 1, reverse=True) | m
lambda x: jnp.linalg.norm(x) | v
lambda x: nn.logsumexp(x, axis=1) | m
lambda x, y: x @ y | m, w
lambda x, y: jnp.dot(x, y) | v, v
lambda x, y: jnp.einsum('ij,kj->ik', x, y) | m, m
lambda x, y: jnp.einsum('bqd,bkd->bqk', x, y) | t, t
lambda x, y: jnp.tensordot(x, y, 1) | m, w
lambda x, y: jnp.outer(x, y) | v, v
lambda x, y: lax.dot_general(x, y, (((1,), (1,)), ((0,), (0,)))) | t, t
lambda x, y: lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,))), preferred_element_type=jnp.float32) | t, u
lambda x, y: lax.dot(x, y, precision='highest') | m, w
lambda x: x.T | m
lambda x: jnp.transpose(x, (2, 0, 1)) | t
lambda x: x.reshape(-1) | m
lambda x: x.reshape(2, 2, 2) | v8
lambda x: jnp.swapaxes(x, 0, 1) | m
lambda x: x[None, :] | v
lambda x: x[:, None] + x | v
lambda x: jnp.expand_dims(x, 1) | v
lambda x: jnp.squeeze(x, 0) | one
lambda x: lax.squeeze(x, (0,)) | one
lambda x: jnp.broadcast_to(x, (4, 3)) | v
lambda x: lax.broadcast_in_dim(x, (3, 5), (0,)) | v
lambda x: lax.rev(x, (0,)) | v
lambda x: x[::-1] | v
lambda x: jnp.flip(x, 1) | m
lambda x: jnp.concatenate([x, x]) | v
lambda x: jnp.stack([x, x]) | v
lambda x: jnp.pad(x, 1) | v
lambda x: lax.pad(x, 0.0, ((1, 1, 0),)) | v
lambda x: jnp.tile(x, 2) | v
lambda x: jnp.ravel(x) | m
lambda x: x[0] | v
lambda x: x[1:] | v
lambda x: x[0:4:2] | v8
lambda x: x[:, 1] | m
lambda x: x[-1] | v
lambda x: x[..., 0, None] | m
lambda x, i: x[i] | v, 1
lambda x, i: x[i] | m, i
lambda x, i: x[i] | v, jnp.int32(1)
lambda x, i: x[:, i] | m, jnp.int32(1)
lambda x, i: jnp.take(x, i, axis=0) | m, i
lambda x, i: jnp.take_along_axis(x, i, axis=1) | m, im
lambda x: lax.slice(x, (0, 1), (2, 3)) | m
lambda x, i: lax.dynamic_slice(x, (i,), (2,)) | v, 1
lambda x, y: lax.dynamic_update_slice(x, y, (1,)) | v8, v
lambda x, i: lax.dynamic_index_in_dim(x, i, 0, keepdims=False) | m, 1
lambda x: x.at[0].set(1.0) | v
lambda x: x.at[1:].set(0.0) | v
lambda x: x.at[0].add(1.0) | v
lambda x: x.at[0, 1:3].set(1.0) | m
lambda x: x.at[:, -1].set(2.0) | m
lambda x, y: x.at[1].set(y) | v, 1.0
lambda x, i: x.at[i].set(2.0) | v, i
lambda x, i: x.at[i].add(2.0) | m, i
lambda x, i: x.at[i].max(2.0) | v, i
lambda x: x.at[0, 1].mul(3.0) | m
lambda x, i: x.at[i].get(mode='fill', fill_value=0) | v, i
lambda: jnp.arange(5) |
lambda: jnp.zeros((2, 3)) |
lambda: jnp.ones(3) + 1 |
lambda: jnp.full((2,), 7) |
lambda: jnp.eye(3) |
lambda: lax.iota(jnp.int32, 4) |
lambda x: jnp.zeros_like(x) | v
lambda x: jnp.tril(x) | m
lambda x: nn.one_hot(x, 4) | i
lambda x: jnp.linspace(0., 1., 5) * x | 1.0
lambda x: jnp.sort(x) | v
lambda x: jnp.argsort(x) | v
lambda x: lax.sort(x, dimension=0) | m
lambda x: lax.top_k(x, 2) | v
lambda x, y: lax.sort((x, y), num_keys=1) | v, v
lambda x: jnp.median(x) | v
lambda x: nn.relu(x) | v
lambda x: nn.softmax(x) | m
lambda x: nn.log_softmax(x) | m
lambda x: nn.gelu(x) | v
lambda x: nn.silu(x) | v
lambda x: nn.sigmoid(x) | v
lambda x: nn.softplus(x) | v
lambda x: nn.leaky_relu(x) | v
lambda x: nn.elu(x) | v
lambda x: nn.relu6(x) | v
lambda x: jax.jit(lambda y: y * 2)(x) | v
lambda x: jax.jit(f)(x) + f(x) | v
lambda x: jax.jit(lambda y: jax.jit(f)(y) * 2)(x) | v
lambda x: jax.jit(f, inline=True)(x) | v
lambda x: jf(x) + jf(x) | v
jax.grad(lambda x: x ** 2) | 3.0
jax.grad(lambda x: jnp.sin(x) * x) | 3.0
jax.grad(lambda x: jnp.sum(jnp.tanh(x))) | v
jax.grad(lambda w, x: jnp.sum((x @ w) ** 2)) | w, m
jax.value_and_grad(lambda x: jnp.mean(x ** 2)) | v
jax.grad(jax.grad(lambda x: x ** 3)) | 2.0
jax.grad(lambda x: jnp.max(x)) | v
jax.grad(lambda x: jnp.where(x > 0, x, 0.).sum()) | v
jax.grad(lambda x: nn.relu(x).sum()) | v
jax.grad(lambda x: x[0]) | v
jax.grad(lambda x: jnp.exp(x).sum()) | v
lambda x: jax.jvp(jnp.sin, (x,), (x,)) | v
lambda x: jax.vjp(jnp.sin, x)[1](x) | v
lambda x: jax.vjp(lambda y: y * 3, x)[0] | v
jax.vmap(lambda x: x * 2) | m
jax.vmap(lambda x, y: jnp.dot(x, y)) | m, m
jax.vmap(lambda x: x.sum()) | m
jax.vmap(lambda x, y: x + y, in_axes=(0, None)) | m, 1.0
jax.vmap(lambda x: jnp.where(x > 0, x, 0.)) | m
jax.jacfwd(lambda x: x ** 2) | v
jax.jacrev(lambda x: x ** 2) | v
jax.hessian(lambda x: jnp.sum(x ** 3)) | v
lambda x: lax.cond(x > 0, jnp.sin, jnp.cos, x) | 1.0
lambda x: lax.cond(x > 0, lambda: 1.0, lambda: 2.0) | 1.0
lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], x) | 1, 1.0
lambda x: lax.while_loop(lambda c: c < 10, lambda c: c + 1, x) | 0
lambda x: lax.while_loop(lambda c: c[0] < 10, lambda c: (c[0] + 1, c[1] * 2), (0, x)) | v
lambda x: lax.fori_loop(0, 5, lambda i, a: a + i, x) | 1.0
lambda n, x: lax.fori_loop(0, n, lambda i, a: a * 2, x) | 5, 1.0
lambda x: lax.scan(lambda c, a: (c + a, c * a), 0.0, x) | v
lambda x: lax.scan(lambda c, _: (c * 2, None), x, None, length=4) | 1.0
lambda x, y: lax.scan(lambda c, a: (c + a * y, None), jnp.zeros(4), x)[0] | t4, k4
jax.grad(lambda x: lax.scan(lambda c, a: (c * a, c), 1.0, x)[0]) | v
lambda x: lax.map(jnp.sin, x) | v
lambda x: lax.associative_scan(jnp.add, x) | v8
lambda x: jax.checkpoint(f)(x) | v
jax.grad(lambda x: jax.checkpoint(f)(x).sum()) | v
lambda x: cj(x) | v
jax.grad(lambda x: cj(x)) | 1.0
lambda x: cv(x) | v
jax.grad(lambda x: cv(x)) | 1.0
jax.vmap(lambda x: cv(x)) | v
lambda x: lax.stop_gradient(x) * 2 | v
lambda x: lax.optimization_barrier(x) | v
lambda: random.key(0) |
lambda k: random.split(k) | key
lambda k: random.uniform(k, (3,)) | key
lambda k: random.bits(k, (3,)) | key
lambda k: random.normal(k, (2, 2)) | key
lambda k: random.fold_in(k, 1) | key
lambda k: random.bernoulli(k, 0.5, (3,)) | key
lambda k: random.key_data(k) | key
lambda k: random.uniform(k, (3,)) | raw
lambda k: random.split(k, 3) | raw
lambda k: random.randint(k, (3,), 0, 10) | key
lambda k: random.categorical(k, jnp.zeros(4)) | key
lambda k: random.permutation(k, 8) | key
lambda x: jnp.linalg.inv(x) | s
lambda x: jnp.linalg.cholesky(x) | s
lambda x: jnp.linalg.svd(x) | s
lambda x: jnp.linalg.eigh(x) | s
lambda x: jnp.linalg.qr(x) | s
lambda x: jnp.linalg.det(x) | s
lambda x, y: jnp.linalg.solve(x, y) | s, v
lambda x: jnp.fft.fft(x) | c
lambda x: jnp.fft.rfft(x) | v8
lambda x, y: lax.conv(x, y, (1, 1), 'SAME') | im4, ker
lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2,), (2,), 'VALID') | v8
lambda x: lax.reduce_window(x, 0., lax.add, (2,), (1,), 'SAME') | v8
lambda x: lax.reduce(x, 0., lax.add, (0,)) | v
lambda x: lax.reduce_precision(x, 5, 10) | v
lambda x: jax.debug.print('x = {}', x) or x | v
lambda x: jax.pure_callback(callback, jax.ShapeDtypeStruct((3,), jnp.float32), x) | v
jax.shard_map(lambda x: lax.psum(x, 'a'), mesh=mesh, in_specs=P('a'), out_specs=P()) | v8
jax.shard_map(lambda x: x * 2, mesh=mesh, in_specs=P('a'), out_specs=P('a')) | v8
jax.shard_map(lambda x: lax.all_gather(x, 'a', tiled=True), mesh=mesh, in_specs=P('a'), out_specs=P('a')) | v8
jax.shard_map(lambda x: lax.ppermute(x, 'a', [(0, 1), (1, 0)]), mesh=mesh, in_specs=P('a'), out_specs=P('a')) | v8
jax.shard_map(lambda x: x + lax.axis_index('a'), mesh=mesh, in_specs=P('a'), out_specs=P('a')) | v8
jax.shard_map(lambda x: lax.psum_scatter(x, 'a', tiled=True), mesh=mesh, in_specs=P(None, 'a'), out_specs=P('a')) | w88
jax.shard_map(lambda x: lax.pmean(x, 'a'), mesh=mesh, in_specs=P('a'), out_specs=P()) | v8
jax.shard_map(lambda x: lax.pmax(x, 'a'), mesh=mesh, in_specs=P('a'), out_specs=P()) | v8
jax.shard_map(lambda x: lax.all_to_all(x, 'a', 1, 0, tiled=True), mesh=mesh, in_specs=P('a', None), out_specs=P('a')) | w88
lambda x: lax.with_sharding_constraint(x, jax.sharding.NamedSharding(mesh, P('a'))) | v8
lambda x: jax.lax.with_sharding_constraint(x * 2, jax.sharding.NamedSharding(mesh, P(None))) + 1 | v8
jax.vmap(lambda x: lax.psum(x, 'i'), axis_name='i') | v
lambda x: x + np.arange(3, dtype=np.float32) | v
lambda x: jnp.array([1., 2., 3.]) * x | v
lambda x: constant + x | v
lambda x: (constant + x, constant * x) | v
lambda x: (x * 2, jnp.sin(x))[1] | v
lambda x: x + 1j | v
lambda x: x | v
lambda x: (1.0, x) | v
lambda x: x + jnp.float32(3.14159274) | v
lambda x: x * 1e-6 | v
lambda x: x + True | i
lambda x: jnp.nan_to_num(x) | v
lambda x: jnp.diag(x) | v
lambda x: jnp.trace(x) | s
lambda x: jnp.diff(x) | v
lambda x: jnp.roll(x, 1) | v
lambda x: jnp.repeat(x, 2) | v
lambda x: jnp.split(x, 2) | v8
lambda x: jnp.meshgrid(x, x) | v
lambda x: jnp.allclose(x, x) | v
lambda x: jnp.array_equal(x, x) | v
lambda x: jnp.searchsorted(x, 0.5) | v
lambda x: jnp.interp(x, x, x) | v
lambda x: jnp.polyval(x, 2.0) | v
lambda x: jnp.average(x) | v
lambda x: jnp.select([x > 0], [x], 0.0) | v
lambda x: jnp.logical_and(x > 0, x < 1) | v
lambda x: jnp.power(x, 3) | v
lambda x: jnp.float_power(x, 2) | v
lambda x: jnp.mod(x, 2.0) | v
lambda x: jnp.floor_divide(x, 2.0) | v
lambda x: jnp.hypot(x, x) | v
lambda x: jnp.sinc(x) | v
lambda x: jnp.unwrap(x) | v
lambda x: jnp.cross(x, x) | v
lambda x: jnp.vdot(x, x) | v
lambda x: jnp.kron(x, x) | v
lambda x: jnp.histogram(x, 3)[0] | v
lambda x: jnp.nonzero(x, size=2) | v
lambda x: jnp.cumprod(x) | v
lambda x: jnp.quantile(x, 0.5) | v
loss | w, k4, m
jax.grad(loss, argnums=(0, 1)) | w, k4, m
attention | t, t, t
layernorm | m
jax.jit(f) | v
mlp | w, k4, m
"""

SETUP = """
v, v8, m, w, k, k4 = jnp.ones(3), jnp.ones(8), jnp.ones((2, 3)), jnp.ones((3, 4)), jnp.ones(3), jnp.ones(4)
w88 = jnp.ones((8, 8))
t, u, t4, s, one = jnp.ones((2, 3, 4)), jnp.ones((2, 4, 5)), jnp.ones((5, 3))[:, :1] * jnp.ones(4), jnp.eye(3), jnp.ones((1, 3))
i, im, c = jnp.array([0, 1, 2]), jnp.zeros((2, 1), jnp.int32), jnp.ones(3, jnp.complex64)
im4, ker, key, raw = jnp.ones((1, 2, 8, 8)), jnp.ones((3, 2, 3, 3)), random.key(0), random.PRNGKey(0)
mesh = jax.make_mesh((8,), ('a',), axis_types=(jax.sharding.AxisType.Auto,))
constant = jnp.array([1., 2., 3.])
def f(x): return jnp.sin(x) * 2
jf = jax.jit(f)
def callback(x): return x
@jax.custom_jvp
def cj(x): return jnp.sin(x)
cj.defjvp(lambda primals, tangents: (cj(primals[0]), jnp.cos(primals[0]) * tangents[0]))
@jax.custom_vjp
def cv(x): return jnp.sin(x)
cv.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (jnp.cos(x) * ct,))
def loss(w, b, x): return jnp.mean((jnp.tanh(x @ w + b) - 1.0) ** 2)
def mlp(w, b, x):
    h = nn.relu(x @ w + b)
    return h @ w.T
def attention(q, k, v): return jnp.einsum('bqk,bkd->bqd', nn.softmax(jnp.einsum('bqd,bkd->bqk', q, k)), v)
def layernorm(x):
    mu = x.mean(-1, keepdims=True)
    return (x - mu) / jnp.sqrt(((x - mu) ** 2).mean(-1, keepdims=True) + 1e-5)
"""


def programs() -> list[str]:
    return [line for line in PROGRAMS.strip().splitlines() if line.strip()]


def scope_of(jax, jnp, lax, nn, random, P) -> dict:
    """Return the names that programs use."""
    import numpy as np

    scope = {"jax": jax, "jnp": jnp, "lax": lax, "nn": nn, "random": random, "P": P, "np": np}
    exec(SETUP, scope)
    return scope


def texts(scope: dict) -> dict[str, str]:
    """Return the text of each program, or its error."""
    results = {}
    for line in programs():
        function, _, args = line.rpartition("|")
        try:
            values = eval(f"({args.strip()},)" if args.strip() else "()", scope)
            results[line] = str(scope["jax"].make_jaxpr(eval(function.strip(), scope))(*values))
        except Exception as error:
            results[line] = f"{type(error).__name__}: {error}"
    return results


if __name__ == "__main__":
    import jax
    from jax import lax, nn, numpy as jnp, random

    programs = texts(scope_of(jax, jnp, lax, nn, random, jax.sharding.PartitionSpec))
    pathlib.Path(sys.argv[1]).write_text(json.dumps(programs))
