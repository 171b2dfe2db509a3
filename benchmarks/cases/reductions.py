"""Reductions over each dim, argmax, softmax and norms with gradients, prefix scans, sorts."""

import jax
import jax.numpy as jnp
from jax import lax
from suite import integers, normal, program

N = 4096


def reduction(name, function, *shape, quick=False, dtype="float32", **facts):
    program(
        name,
        "reductions",
        function,
        normal(*(shape or (N, N)), dtype=dtype),
        memory=True,
        quick=quick,
        **facts,
    )


for _dim in (None, 0, 1):
    _where = "all" if _dim is None else f"dim {_dim}"
    reduction(f"sum {_where} of 2-D", lambda x, d=_dim: x.sum(d), quick=True)
    reduction(f"max {_where} of 2-D", lambda x, d=_dim: x.max(d))
for _dim in (0, 1, 2, (0, 1), (0, 2), (1, 2)):
    reduction(f"sum dim {_dim} of 3-D", lambda x, d=_dim: x.sum(d), 256, 256, 256)
reduction("sum dim 1 of 262144 x 64", lambda x: x.sum(1), 1 << 18, 64)
reduction("sum dim 0 of 64 x 262144", lambda x: x.sum(0), 64, 1 << 18)
reduction("sum dim 1 of 4 million x 3", lambda x: x.sum(1), 1 << 22, 3)
reduction("sum all bfloat16", lambda x: x.sum(), dtype="bfloat16")
reduction("sum dim 0 bfloat16", lambda x: x.sum(0), dtype="bfloat16")
reduction("sum dim 1 float16", lambda x: x.sum(1), dtype="float16")
reduction("mean and var dim 1", lambda x: (x.mean(1), x.var(1)))
reduction("sum of squares all", lambda x: (x * x).sum())
reduction("sum of every other element", lambda x: x[::2].sum(), N * N)
reduction("prod dim 1", lambda x: x.prod(1))
reduction("all and any", lambda x: ((x > -9).all(0), (x > 9).any(1)))
reduction("logsumexp dim 1", lambda x: jax.nn.logsumexp(x, 1))
reduction("logsumexp dim 0", lambda x: jax.nn.logsumexp(x, 0))
reduction("argmax dim 1", lambda x: jnp.argmax(x, 1), quick=True)
reduction("argmax dim 0", lambda x: jnp.argmax(x, 0))
reduction("norm all", lambda x: jnp.linalg.norm(x))
program("sum integers", "reductions", lambda x: x.sum(), integers(100, N, N), memory=True)
program(
    "sum dim 0, 8192 on 4x2",
    "reductions",
    lambda x: x.sum(0),
    normal(8192, 8192, on=((4, 2), ("a", "b"))),
    memory=True,
    devices=8,
)


def layer_norm(x, scale, bias):
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * scale + bias


def rms_norm(x, scale):
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale


def gradient(function):
    """The VJP of a function, with the cotangent as last argument."""

    def run(*args):
        *args, ct = args
        return jax.vjp(function, *args)[1](ct)

    return run


_x, _row = normal(N, N), normal(N)
for _name, _function, _args in (
    ("softmax", jax.nn.softmax, (_x,)),
    ("log_softmax", jax.nn.log_softmax, (_x,)),
    ("layer norm", layer_norm, (_x, _row, _row)),
    ("RMS norm", rms_norm, (_x, _row)),
):
    program(_name, "norms", _function, *_args, memory=True, quick=True)
    program(
        f"{_name} gradient",
        "norms",
        gradient(_function),
        *_args,
        _x,
        memory=True,
        quick=_name == "layer norm",
    )
    program(
        f"{_name} rows of 512",
        "norms",
        _function,
        normal(32768, 512),
        *(normal(512) for _ in _args[1:]),
        memory=True,
    )
program("softmax dim 0", "norms", lambda x: jax.nn.softmax(x, 0), _x, memory=True)
program("softmax bfloat16", "norms", jax.nn.softmax, normal(N, N, dtype="bfloat16"), memory=True)
program(
    "batch norm",
    "norms",
    lambda x: (x - x.mean(0)) * lax.rsqrt(x.var(0) + 1e-5),
    normal(65536, 256),
    memory=True,
)
program(
    "cross entropy gradient",
    "norms",
    jax.grad(lambda x, y: -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()),
    _x,
    integers(N, N),
    memory=True,
)

for _dim in (0, 1):
    program(
        f"cumsum dim {_dim}",
        "scans and sorts",
        lambda x, d=_dim: jnp.cumsum(x, d),
        _x,
        memory=True,
        quick=True,
    )
program("cumsum 1-D", "scans and sorts", jnp.cumsum, normal(1 << 24), memory=True)
program("cumprod dim 1", "scans and sorts", lambda x: jnp.cumprod(x, 1), _x, memory=True)
program("cummax dim 1", "scans and sorts", lambda x: lax.cummax(x, 1), _x, memory=True)
program("cumlogsumexp dim 1", "scans and sorts", lambda x: lax.cumlogsumexp(x, 1), normal(1024, N))
program(
    "associative_scan",
    "scans and sorts",
    lambda a, b: lax.associative_scan(lambda x, y: (x[0] * y[0], y[0] * x[1] + y[1]), (a, b)),
    normal(4096, 256),
    normal(4096, 256),
)
program("sort a million", "scans and sorts", jnp.sort, normal(1 << 20), quick=True)
program(
    "sort rows of 1024", "scans and sorts", lambda x: jnp.sort(x, 1), normal(1024, 1024), quick=True
)
program("sort dim 0", "scans and sorts", lambda x: jnp.sort(x, 0), normal(1024, 1024))
program("sort integers", "scans and sorts", jnp.sort, integers(1 << 30, 1 << 20))
program("argsort rows of 1024", "scans and sorts", lambda x: jnp.argsort(x, 1), normal(1024, 1024))
program(
    "sort key and value",
    "scans and sorts",
    lambda k, v: lax.sort((k, v), num_keys=1),
    normal(1 << 18),
    normal(1 << 18),
)
program(
    "top_k(x, 8), rows of 4096",
    "scans and sorts",
    lambda x: lax.top_k(x, 8),
    normal(1024, N),
    quick=True,
)
program(
    "top_k(x, 100), rows of 65536",
    "scans and sorts",
    lambda x: lax.top_k(x, 100),
    normal(64, 65536),
)
program(
    "searchsorted",
    "scans and sorts",
    lambda a, v: jnp.searchsorted(jnp.sort(a), v),
    normal(65536),
    normal(65536),
)
program("median", "scans and sorts", lambda x: jnp.median(x, 1), normal(1024, 1024))
program(
    "unique with size",
    "scans and sorts",
    lambda x: jnp.unique(x, size=1000),
    integers(1000, 1 << 16),
)
program("histogram", "scans and sorts", lambda x: jnp.histogram(x, 64)[0], normal(1 << 20))
