"""Elementwise kernels: every transcendental function, chains, casts, half precision."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy import special
from suite import integers, normal, program

N = 4096


def unary(name, function, positive=False, dtype="float32", quick=False):
    program(
        f"{name} {dtype}" if dtype != "float32" else name,
        "elementwise",
        function,
        normal(N, N, dtype=dtype, positive=positive),
        memory=True,
        quick=quick,
    )


for _name in (
    "exp",
    "exp2",
    "expm1",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "arcsin",
    "arctan",
    "arcsinh",
    "sqrt",
    "square",
    "abs",
    "floor",
    "rint",
    "sign",
    "cbrt",
    "negative",
    "reciprocal",
):
    unary(_name, getattr(jnp, _name), _name == "sqrt", quick=_name in ("exp", "sin", "tanh"))
for _name in ("log", "log2", "log10", "log1p"):
    unary(_name, getattr(jnp, _name), True, quick=_name == "log")
unary("rsqrt", lax.rsqrt, True)
unary("logistic", lax.logistic)
unary("erf", lax.erf)
unary("erf_inv", lambda x: lax.erf_inv(x * 0.2))
unary("lgamma", lax.lgamma, True)
unary("digamma", lax.digamma, True)
unary("arccosh", lambda x: jnp.arccosh(x + 1), True)
unary("arctanh", lambda x: jnp.arctanh(x * 0.2))
unary("i0e", special.i0e)
for _name, _function in (
    ("gammainc", special.gammainc),
    ("gammaincc", special.gammaincc),
    ("igamma_grad_a", lax.igamma_grad_a),
    ("random_gamma_grad", lax.random_gamma_grad),
):
    program(
        f"{_name}, 200 x 500",
        "elementwise",
        lambda a, x, f=_function: f(4 * a + 0.01, 6 * x + 0.01),
        normal(200, 500, positive=True),
        normal(200, 500, positive=True),
    )
unary("gelu", jax.nn.gelu, quick=True)
unary("silu", jax.nn.silu)
unary("softplus", jax.nn.softplus)
unary("relu", jax.nn.relu)
program(
    "pow", "elementwise", lambda x, y: x**y, normal(N, N, positive=True), normal(N, N), memory=True
)
unary("x ** 3", lambda x: x**3)
program("arctan2", "elementwise", jnp.arctan2, normal(N, N), normal(N, N), memory=True)
program("hypot", "elementwise", jnp.hypot, normal(N, N), normal(N, N), memory=True)
program("logaddexp", "elementwise", jnp.logaddexp, normal(N, N), normal(N, N), memory=True)
program("fmod", "elementwise", jnp.fmod, normal(N, N), normal(N, N), memory=True)
program("add", "elementwise", jnp.add, normal(N, N), normal(N, N), memory=True, quick=True)
program(
    "x * w + b",
    "elementwise",
    lambda x, w, b: x * w + b,
    normal(N, N),
    normal(N),
    normal(N),
    memory=True,
)
program(
    "tanh(x * w + b), three arrays",
    "elementwise",
    lambda x, w, b: jnp.tanh(x * w + b),
    normal(N, N),
    normal(N, N),
    normal(N, N),
    memory=True,
    quick=True,
)
program(
    "Adam update",
    "elementwise",
    lambda p, m, v, g: (
        p - 1e-3 * (0.9 * m + 0.1 * g) / (jnp.sqrt(0.99 * v + 0.01 * g * g) + 1e-8),
        0.9 * m + 0.1 * g,
        0.99 * v + 0.01 * g * g,
    ),
    normal(N, N),
    normal(N, N),
    normal(N, N, positive=True),
    normal(N, N),
    memory=True,
)
program(
    "twenty mixed ops",
    "elementwise",
    lambda x: jnp.where(
        x > 0,
        jnp.sqrt(jnp.abs(x) + 1) * jnp.cos(x) + x / (1 + x * x),
        jnp.exp(-x * x) - jnp.minimum(x, 2) * jnp.maximum(x, -1),
    ),
    normal(N, N),
    memory=True,
)
program(
    "gradient of sum tanh(sin(x))",
    "elementwise",
    jax.grad(lambda x: jnp.tanh(jnp.sin(x)).sum()),
    normal(N, N),
    memory=True,
)
program("clip", "elementwise", lambda x: jnp.clip(x, -1, 1), normal(N, N), memory=True)
program("x + 1, 256 KiB", "elementwise", lambda x: x + 1, normal(256, 256))
program("exp, 256 KiB", "elementwise", jnp.exp, normal(256, 256))
program("exp, 4 MiB", "elementwise", jnp.exp, normal(1024, 1024))
program(
    "x + 1, 8192 on 4x2",
    "elementwise",
    lambda x: x + 1,
    normal(8192, 8192, on=((4, 2), ("a", "b"))),
    devices=8,
    memory=True,
)

for _dtype in ("bfloat16", "float16"):
    unary("x * 2 + 1", lambda x: x * 2 + 1, dtype=_dtype)
    unary("exp", jnp.exp, dtype=_dtype, quick=_dtype == "bfloat16")
    unary("tanh", jnp.tanh, dtype=_dtype)
    unary("gelu", jax.nn.gelu, dtype=_dtype)
for _from, _to in (
    ("float32", "bfloat16"),
    ("bfloat16", "float32"),
    ("float32", "float16"),
    ("float16", "float32"),
    ("float32", "int32"),
    ("int32", "float32"),
    ("float32", "int8"),
    ("bfloat16", "float16"),
    ("int8", "float32"),
):
    _input = (
        integers(100, N, N, dtype=_from) if _from.startswith("int") else normal(N, N, dtype=_from)
    )
    program(
        f"cast {_from} to {_to}",
        "elementwise",
        lambda x, to=_to: x.astype(to),
        _input,
        memory=True,
        quick=(_from, _to) == ("float32", "bfloat16"),
    )
program(
    "exp float64", "elementwise", jnp.exp, normal(N, 2048, dtype="float64"), memory=True, x64=True
)
program(
    "sin float64", "elementwise", jnp.sin, normal(N, 2048, dtype="float64"), memory=True, x64=True
)
program(
    "integer division",
    "elementwise",
    lambda x, y: x // (y + 1),
    integers(1000, N, N),
    integers(50, N, N),
    memory=True,
)
program(
    "integer bitwise ops",
    "elementwise",
    lambda x: (x ^ (x >> 3)) & 255 | (x << 2),
    integers(1000, N, N),
    memory=True,
)
program(
    "pow float64",
    "elementwise",
    lambda x, y: x**y,
    normal(512, 2048, dtype="float64", positive=True),
    normal(512, 2048, dtype="float64"),
    x64=True,
)
program(
    "polygamma", "elementwise", lambda x: special.polygamma(1, x), normal(512, 512, positive=True)
)
program(
    "integer powers",
    "elementwise",
    lambda x, y: x**y,
    integers(1000, 1024, 512),
    integers(8, 1024, 512),
)
program("gcd", "elementwise", jnp.gcd, integers(1000, 512, 512), integers(1000, 512, 512))
