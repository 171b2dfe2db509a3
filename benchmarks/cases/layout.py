"""Data movement: gathers and scatters, transposes, joins, pads, one-hot, where, embedding gradients, rotary embeddings."""

import jax
import jax.numpy as jnp
from jax import lax
from suite import integers, normal, program

N = 4096
_x = normal(N, N)


def rotated(x, cos, sin):
    """Rotary position embedding of neighbouring pairs."""
    a, b = x[..., ::2], x[..., 1::2]
    return jnp.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(x.shape)


def halves_rotated(x, cos, sin):
    """Rotary position embedding of pairs half a row apart."""
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def move(name, function, *inputs, quick=False, **facts):
    program(name, "data movement", function, *inputs, quick=quick, **{"memory": True, **facts})


move("transpose + 1", lambda x: x.T + 1.0, _x, quick=True)
move("transpose copy", lambda x: jnp.copy(x.T), _x)
move("transpose bfloat16", lambda x: x.T * 2, normal(N, N, dtype="bfloat16"))
move("transpose int8", lambda x: x.T + 1, integers(100, N, N, dtype="int8"))
move("transpose 5000 x 3000", lambda x: x.T + 1.0, normal(5000, 3000))
move("transpose heads (0, 2, 1, 3)", lambda x: x.transpose(0, 2, 1, 3) * 2, normal(32, 512, 16, 64))
move("transpose (2, 0, 1)", lambda x: x.transpose(2, 0, 1) * 2, normal(256, 256, 256))
move(
    "transpose (2, 1, 0), short dim", lambda x: jnp.copy(x.transpose(2, 1, 0)), normal(4000, 777, 5)
)
move(
    "concatenate dim 0",
    lambda x, y: jnp.concatenate([x, y], 0),
    normal(2048, N),
    normal(2048, N),
    quick=True,
)
move("concatenate dim 1", lambda x, y: jnp.concatenate([x, y], 1), normal(N, 2048), normal(N, 2048))
move("stack last dim", lambda x, y: jnp.stack([x, y], -1), normal(N, 2048), normal(N, 2048))
_rotary = normal(8, 1024, 16, 128), normal(1024, 1, 64), normal(1024, 1, 64)
move("rotary pairs", rotated, *_rotary)
move(
    "rotary pairs gradient",
    jax.grad(lambda x, cos, sin: (rotated(x, cos, sin) ** 2).sum()),
    *_rotary,
)
move(
    "rotary halves gradient",
    jax.grad(lambda x, cos, sin: (halves_rotated(x, cos, sin) ** 2).sum()),
    *_rotary,
)
move("split and add", lambda x: sum(jnp.split(x, 4, 1)), _x, memory=True)
move("pad", lambda x: jnp.pad(x, 8), _x, quick=True)
move("pad reflect", lambda x: jnp.pad(x, 8, mode="reflect"), _x)
move("reverse dim 0", lambda x: x[::-1], _x)
move("reverse dim 1", lambda x: x[:, ::-1], _x, quick=True)
move("roll", lambda x: jnp.roll(x, 100, 1), _x)
move("strided slice", lambda x: x[::2, ::2] + 1, _x, memory=False)
move(
    "dynamic_slice",
    lambda x, i: lax.dynamic_slice(x, (i[0], i[1]), (2048, 2048)),
    _x,
    integers(100, 2),
    memory=False,
)
move(
    "dynamic_update_slice",
    lambda x, u, i: lax.dynamic_update_slice(x, u, (i[0], i[1])),
    _x,
    normal(256, 256),
    integers(100, 2),
)
move("where", lambda x, y: jnp.where(x > 0, x, y), _x, _x, quick=True)
move("where, row mask", lambda x, m: jnp.where(m > 0, x, 0), _x, normal(N))
move("triu", jnp.triu, _x)
move("one-hot", lambda i: jax.nn.one_hot(i, N), integers(N, N), quick=True)
move("broadcast rows", lambda x: jnp.broadcast_to(x, (N, N)) + 0.5, normal(N))
move("repeat", lambda x: jnp.repeat(x, 4, 1), normal(N, 1024))
move("tile", lambda x: jnp.tile(x, (4, 4)), normal(1024, 1024))
move("iota", lambda: jnp.arange(1 << 24, dtype=jnp.float32))
move("outer sum", lambda x, y: x[:, None] + y[None, :], normal(N), normal(N))

move("gather rows", lambda x, i: x[i], normal(32768, 512), integers(32768, 32768), quick=True)
move("gather elements", lambda x, i: x[i], normal(1 << 20), integers(1 << 20, 1 << 22))
move("gather short rows", lambda x, i: x[i], normal(1 << 16, 8), integers(1 << 16, 1 << 20))
move("take columns", lambda x, i: x[:, i], _x, integers(N, N))
move(
    "take_along_axis",
    lambda x, i: jnp.take_along_axis(x, i, 1),
    _x,
    integers(N, N, 1024),
    memory=False,
)
move(
    "scatter-add rows",
    lambda x, i, u: x.at[i].add(u),
    normal(32768, 512),
    integers(32768, 32768),
    normal(32768, 512),
    quick=True,
)
move(
    "scatter-add elements",
    lambda x, i, u: x.at[i].add(u),
    normal(1 << 20),
    integers(1 << 20, 1 << 20),
    normal(1 << 20),
    memory=False,
)
move(
    "scatter set rows",
    lambda x, i, u: x.at[i].set(u),
    normal(32768, 512),
    integers(32768, 4096),
    normal(4096, 512),
    memory=False,
)
move(
    "segment_sum",
    lambda x, i: jax.ops.segment_sum(x, i, 1024),
    normal(1 << 16, 64),
    integers(1024, 1 << 16),
)
move(
    "segment_sum, sorted",
    lambda x: jax.ops.segment_sum(x, jnp.arange(10007) * 777 // 10007, 777),
    normal(10007, 33),
    memory=False,
)
move("bincount", lambda i: jnp.bincount(i, length=1024), integers(1024, 1 << 20), memory=False)
move("embedding", lambda e, i: e[i], normal(32000, 256), integers(32000, 64, 512), quick=True)
move(
    "embedding gradient",
    lambda e, i, g: jax.vjp(lambda e: e[i], e)[1](g),
    normal(32000, 256),
    integers(32000, 16, 512),
    normal(16, 512, 256),
    quick=True,
    memory=False,
)
move("x.at[0:100].set", lambda x: x.at[0:100].set(0.0), _x)
move("nonzero with size", lambda x: jnp.nonzero(x > 2, size=50000), normal(1 << 20), memory=False)
