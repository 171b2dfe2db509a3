"""Convolutions and attention, with gradients."""

import jax
import jax.numpy as jnp
from jax import lax
from programs import attention, causal_attention
from suite import normal, program


def conv2d(stride=1, groups=1):
    def run(x, w):
        return lax.conv_general_dilated(
            x,
            w,
            (stride, stride),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )

    return run


def conv1d(x, w):
    return lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))


def both(name, function, x, w, flops, quick=False):
    """A convolution and the gradients by both arguments."""
    program(
        f"conv {name}", "convolution", function, normal(*x), normal(*w), flops=flops, quick=quick
    )
    program(
        f"conv {name} gradient",
        "convolution",
        jax.grad(lambda x, w: (function(x, w) ** 2).sum(), argnums=(0, 1)),
        normal(*x),
        normal(*w),
        flops=3 * flops,
        quick=quick,
    )


both("1-D width 5", conv1d, (16, 1024, 64), (5, 64, 64), 2.0 * 16 * 1024 * 5 * 64 * 64)
both("3x3", conv2d(), (8, 32, 32, 64), (3, 3, 64, 64), 2.0 * 8 * 32 * 32 * 9 * 64 * 64, quick=True)
both("3x3, few channels", conv2d(), (16, 64, 64, 3), (3, 3, 3, 32), 2.0 * 16 * 64 * 64 * 9 * 3 * 32)
both("1x1", conv2d(), (8, 32, 32, 128), (1, 1, 128, 128), 2.0 * 8 * 32 * 32 * 128 * 128)
both("3x3 strided", conv2d(2), (8, 32, 32, 64), (3, 3, 64, 128), 2.0 * 8 * 16 * 16 * 9 * 64 * 128)
both("7x7 strided", conv2d(2), (4, 112, 112, 3), (7, 7, 3, 64), 2.0 * 4 * 56 * 56 * 49 * 3 * 64)
both("depthwise", conv2d(1, 128), (8, 32, 32, 128), (3, 3, 1, 128), 2.0 * 8 * 32 * 32 * 9 * 128)
both(
    "channels first 3x3",
    lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME"),
    (8, 64, 32, 32),
    (64, 64, 3, 3),
    2.0 * 8 * 32 * 32 * 9 * 64 * 64,
)
for _name, _x, _w, _dims in (
    ("3x3", (8, 32, 32, 64), (3, 3, 64, 64), ("NHWC", "HWIO", "NHWC")),
    ("channels first 3x3", (8, 64, 32, 32), (64, 64, 3, 3), ("NCHW", "OIHW", "NCHW")),
):
    program(
        f"conv {_name} bfloat16",
        "convolution",
        lambda x, w, dims=_dims: lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=dims
        ),
        normal(*_x, dtype="bfloat16"),
        normal(*_w, dtype="bfloat16", seed=1),
        flops=2.0 * 8 * 32 * 32 * 9 * 64 * 64,
        rate="bfloat16",
    )
program(
    "max pool 2x2",
    "convolution",
    lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
    normal(16, 128, 128, 32),
    memory=True,
)
program(
    "max pool 2x2 gradient",
    "convolution",
    jax.grad(
        lambda x: (
            lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") ** 2
        ).sum()
    ),
    normal(16, 128, 128, 32),
    memory=True,
)
program(
    "average pool 3x3",
    "convolution",
    lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME"),
    normal(16, 128, 128, 32),
    memory=True,
)
program(
    "max pool 3x3 stride 2 gradient",
    "convolution",
    jax.grad(
        lambda x: (
            lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") ** 2
        ).sum()
    ),
    normal(16, 128, 128, 32),
    memory=True,
)


def _pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (5,), (2,), "VALID")


program("max pool 1-D width 5 stride 2", "convolution", _pool, normal(10_000_000), memory=True)
program(
    "max pool 1-D width 5 stride 2 gradient",
    "convolution",
    jax.grad(lambda x: (_pool(x) ** 2).sum()),
    normal(10_000_000),
    memory=True,
)

for _dtype in ("float32", "bfloat16"):
    program(
        f"attention 512 {_dtype}",
        "attention",
        attention,
        *(normal(4, 8, 512, 64, dtype=_dtype, seed=seed) for seed in range(3)),
        flops=4.0 * 32 * 512 * 512 * 64,
        rate=_dtype,
    )
for _length in (128, 512, 1024):
    _q = normal(4, 8, _length, 64)
    _flops = 4.0 * 32 * _length * _length * 64
    program(
        f"causal attention {_length}",
        "attention",
        causal_attention,
        _q,
        _q,
        _q,
        flops=_flops,
        quick=_length == 512,
    )
program(
    "causal attention 512 gradient",
    "attention",
    jax.grad(lambda q, k, v: causal_attention(q, k, v).sum(), argnums=(0, 1, 2)),
    *(normal(4, 8, 512, 64),) * 3,
    flops=12.0 * 32 * 512 * 512 * 64,
    quick=True,
)
program(
    "causal attention 512 bfloat16",
    "attention",
    causal_attention,
    *(normal(4, 8, 512, 64, dtype="bfloat16"),) * 3,
    flops=4.0 * 32 * 512 * 512 * 64,
    rate="bfloat16",
)
program(
    "dot_product_attention causal 512",
    "attention",
    lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True),
    *(normal(4, 512, 8, 64),) * 3,
    flops=4.0 * 32 * 512 * 512 * 64,
)
program(
    "attention, one new token",
    "attention",
    lambda q, k, v: jnp.einsum(
        "bhk,bhkd->bhd", jax.nn.softmax(jnp.einsum("bhd,bhkd->bhk", q, k) / 8), v
    ),
    normal(4, 8, 64),
    normal(4, 8, 2048, 64),
    normal(4, 8, 2048, 64),
    memory=True,
)
