"""Matrix products of many types, sizes and shapes; linear algebra and FFTs."""

import jax
import jax.numpy as jnp
from jax import lax
from suite import integers, normal, program


def product(name, function, a, b, m, n, k, *more, **facts):
    program(f"matmul {name}", "matmul", function, a, b, *more, flops=2.0 * m * n * k, **facts)


for _n in (32, 64, 96, 128, 256, 512, 1024, 2048, 4096):
    for _dtype in ("float32", "bfloat16"):
        product(
            f"{_dtype} {_n}",
            jnp.matmul,
            normal(_n, _n, dtype=_dtype),
            normal(_n, _n, dtype=_dtype),
            _n,
            _n,
            _n,
            rate=_dtype,
            quick=_n in (128, 512, 1024) or (_n, _dtype) == (32, "float32"),
        )
for _n in (32, 128, 512, 1024, 2048):
    product(
        f"float16 {_n}",
        jnp.matmul,
        normal(_n, _n, dtype="float16"),
        normal(_n, _n, dtype="float16"),
        _n,
        _n,
        _n,
        quick=_n == 512,
    )
    product(
        f"float64 {_n}",
        jnp.matmul,
        normal(_n, _n, dtype="float64"),
        normal(_n, _n, dtype="float64"),
        _n,
        _n,
        _n,
        x64=True,
        rate="float64",
        quick=_n == 512,
    )
for _n in (32, 128, 256, 512, 1024, 2048, 4096):
    product(
        f"int8 to int32 {_n}",
        lambda a, b: jnp.matmul(a, b, preferred_element_type=jnp.int32),
        integers(100, _n, _n, dtype="int8"),
        integers(100, _n, _n, dtype="int8"),
        _n,
        _n,
        _n,
        rate="int8",
        quick=_n == 512,
    )
for _dtype, _sizes in (("bfloat16", (256, 512, 1024, 2048, 4096)), ("float16", (512, 1024))):
    for _n in _sizes:
        product(
            f"{_dtype} to float32 {_n}",
            lambda a, b: jnp.matmul(a, b, preferred_element_type=jnp.float32),
            normal(_n, _n, dtype=_dtype),
            normal(_n, _n, dtype=_dtype),
            _n,
            _n,
            _n,
            rate="bfloat16" if _dtype == "bfloat16" else "float32",
        )
product("int32 512", jnp.matmul, integers(9, 512, 512), integers(9, 512, 512), 512, 512, 512)

for _m, _k, _n in (
    (4096, 256, 256),
    (256, 4096, 256),
    (256, 256, 4096),
    (16, 1024, 1024),
    (128, 784, 10),
    (10000, 512, 8),
    (1000, 1000, 1000),
    (511, 513, 517),
    (8, 4096, 4096),
    (64, 64, 4096),
    (2048, 64, 2048),
):
    product(
        f"{_m} x {_k} x {_n}",
        jnp.matmul,
        normal(_m, _k),
        normal(_k, _n),
        _m,
        _n,
        _k,
        quick=(_m, _n) == (16, 1024),
    )
for _dtype in ("bfloat16", "float16"):
    for _m in (1, 2, 4, 8, 16) if _dtype == "bfloat16" else (8,):
        program(
            f"matmul {_m} x 4096 x 4096 {_dtype}",
            "matmul",
            jnp.matmul,
            normal(_m, 4096, dtype=_dtype),
            normal(4096, 4096, dtype=_dtype),
            memory=True,
        )
for _m in (1, 2, 4, 8, 16):
    program(
        f"matmul {_m} x 4096 x 4096 int8 to int32",
        "matmul",
        lambda a, b: jnp.matmul(a, b, preferred_element_type=jnp.int32),
        integers(100, _m, 4096, dtype="int8"),
        integers(100, 4096, 4096, dtype="int8"),
        memory=True,
    )
product(
    "A.T B 1024",
    lambda a, b: a.T @ b,
    normal(1024, 1024),
    normal(1024, 1024),
    1024,
    1024,
    1024,
    quick=True,
)
product(
    "A B.T 1024", lambda a, b: a @ b.T, normal(1024, 1024), normal(1024, 1024), 1024, 1024, 1024
)
product(
    "A.T B.T 1024", lambda a, b: a.T @ b.T, normal(1024, 1024), normal(1024, 1024), 1024, 1024, 1024
)
product(
    "A B.T bfloat16 1024",
    lambda a, b: a @ b.T,
    normal(1024, 1024, dtype="bfloat16"),
    normal(1024, 1024, dtype="bfloat16"),
    1024,
    1024,
    1024,
    rate="bfloat16",
)
product("A A.T 1024", lambda a, b: a @ a.T, normal(1024, 1024), normal(1), 1024, 1024, 1024)

for _n in (512, 4096):
    program(
        f"matrix-vector {_n}",
        "matmul",
        jnp.matmul,
        normal(_n, _n),
        normal(_n),
        memory=_n == 4096,
        quick=_n == 4096,
    )
    program(
        f"vector-matrix {_n}", "matmul", jnp.matmul, normal(_n), normal(_n, _n), memory=_n == 4096
    )
program(
    "matrix-vector bfloat16 4096",
    "matmul",
    jnp.matmul,
    normal(4096, 4096, dtype="bfloat16"),
    normal(4096, dtype="bfloat16"),
    memory=True,
)
program(
    "inner product 16 million", "matmul", jnp.dot, normal(1 << 24), normal(1 << 24), memory=True
)
program("outer product 4096", "matmul", jnp.outer, normal(4096), normal(4096), memory=True)

for _b, _n in ((1024, 8), (1024, 16), (256, 32), (256, 64), (64, 128)):
    program(
        f"batched matmul, {_b} of {_n} x {_n}",
        "matmul",
        jnp.matmul,
        normal(_b, _n, _n),
        normal(_b, _n, _n),
        flops=2.0 * _b * _n**3,
        quick=_n == 64,
    )
for _b, _n in ((10000, 2), (100000, 3), (10000, 4), (10000, 8)):
    program(
        f"tiny matmul, {_b} of {_n} x {_n}",
        "matmul",
        jnp.matmul,
        normal(_b, _n, _n),
        normal(_b, _n, _n),
        quick=_n == 3,
    )
program(
    "tiny matmul bfloat16, 100000 of 3 x 3",
    "matmul",
    jnp.matmul,
    normal(100000, 3, 3, dtype="bfloat16"),
    normal(100000, 3, 3, dtype="bfloat16"),
)
program(
    "tiny matmul complex64, 10000 of 4 x 4",
    "matmul",
    jnp.matmul,
    normal(10000, 4, 4, dtype="complex64"),
    normal(10000, 4, 4, dtype="complex64"),
)
program(
    "tiny matmul A B.T, 100000 of 3 x 3",
    "matmul",
    lambda a, b: a @ b.mT,
    normal(100000, 3, 3),
    normal(100000, 3, 3),
)
program("tiny matmul, 100000 rows by 3 x 3", "matmul", jnp.matmul, normal(100000, 3), normal(3, 3))
program(
    "tiny matmul gradient, 100000 of 3 x 3",
    "matmul",
    jax.grad(lambda a, b: ((a @ b) ** 2).sum(), argnums=(0, 1)),
    normal(100000, 3, 3),
    normal(100000, 3, 3),
)
program(
    "quadratic forms, einsum bi,bij,bj->b",
    "matmul",
    lambda v, a: jnp.einsum("bi,bij,bj->b", v, a, v),
    normal(100000, 3),
    normal(100000, 3, 3),
)
program(
    "batched matmul bfloat16, 256 of 64 x 64",
    "matmul",
    jnp.matmul,
    normal(256, 64, 64, dtype="bfloat16"),
    normal(256, 64, 64, dtype="bfloat16"),
    flops=2.0 * 256 * 64**3,
    rate="bfloat16",
)
program(
    "batched matrix-vector",
    "matmul",
    lambda a, x: jnp.einsum("bij,bj->bi", a, x),
    normal(1024, 128, 128),
    normal(1024, 128),
    memory=True,
)
program(
    "row dot products, einsum ij,ij->i",
    "matmul",
    lambda a, b: jnp.einsum("ij,ij->i", a, b),
    normal(4097, 1023),
    normal(4097, 1023),
    memory=True,
)
program(
    "einsum bhqd,bhkd",
    "matmul",
    lambda q, k: jnp.einsum("bhqd,bhkd->bhqk", q, k),
    normal(4, 8, 256, 64),
    normal(4, 8, 256, 64),
    flops=2.0 * 32 * 256 * 256 * 64,
)
program(
    "einsum bqhd,bkhd",
    "matmul",
    lambda q, k: jnp.einsum("bqhd,bkhd->bhqk", q, k),
    normal(4, 256, 8, 64),
    normal(4, 256, 8, 64),
    flops=2.0 * 32 * 256 * 256 * 64,
)
program("covariance 64 x 10000", "matmul", jnp.cov, normal(64, 10000), flops=2.0 * 64**2 * 10000)
program(
    "resize bilinear, 97 x 101 to 200 x 300",
    "matmul",
    lambda a: jax.image.resize(a, (4, 200, 300, 3), "bilinear"),
    normal(4, 97, 101, 3),
    flops=2.0 * 4 * 3 * (200 * 97 * 101 + 200 * 101 * 300),
)
program(
    "einsum of three matrices",
    "matmul",
    lambda a, b, c: jnp.einsum("ij,jk,kl->il", a, b, c),
    normal(512, 64),
    normal(64, 512),
    normal(512, 64),
)

for _name, _act in (("relu", jax.nn.relu), ("gelu", jax.nn.gelu), ("tanh", jnp.tanh)):
    program(
        f"matmul + bias + {_name} 1024",
        "matmul",
        lambda x, w, b, act=_act: act(x @ w + b),
        normal(1024, 1024),
        normal(1024, 1024),
        normal(1024),
        flops=2.0 * 1024**3,
        quick=_name == "relu",
    )
program(
    "matmul + bias + gelu bfloat16 1024",
    "matmul",
    lambda x, w, b: jax.nn.gelu(x @ w + b),
    normal(1024, 1024, dtype="bfloat16"),
    normal(1024, 1024, dtype="bfloat16"),
    normal(1024, dtype="bfloat16"),
    flops=2.0 * 1024**3,
    rate="bfloat16",
)
program(
    "matmul + residual 1024",
    "matmul",
    lambda x, w: x + x @ w,
    normal(1024, 1024),
    normal(1024, 1024),
    flops=2.0 * 1024**3,
)
program(
    "matmul gradient 1024",
    "matmul",
    jax.grad(lambda w, x: (jnp.tanh(x @ w)).sum(), argnums=(0, 1)),
    normal(1024, 1024),
    normal(1024, 1024),
    flops=6.0 * 1024**3,
)
program(
    "matmul of a cast operand 1024",
    "matmul",
    lambda x, w: x.astype(jnp.float32) @ w,
    normal(1024, 1024, dtype="bfloat16"),
    normal(1024, 1024),
    flops=2.0 * 1024**3,
)
program(
    "dot_general highest 512",
    "matmul",
    lambda a, b: lax.dot(a, b, precision="highest"),
    normal(512, 512),
    normal(512, 512),
    flops=2.0 * 512**3,
)
for _name, _left, _right in (
    ("rows by columns", ("a", None), (None, "b")),
    ("contracted over b", ("a", "b"), ("b", None)),
    ("both operands split over both axes", ("a", "b"), ("a", "b")),
):
    program(
        f"matmul 2048 on 4x2, {_name}",
        "matmul",
        jnp.matmul,
        normal(2048, 2048, on=((4, 2), _left)),
        normal(2048, 2048, on=((4, 2), _right)),
        devices=8,
        flops=2.0 * 2048**3,
        quick=_left == ("a", None),
    )
for _name, _function in (
    ("cholesky", jnp.linalg.cholesky),
    ("inverse", jnp.linalg.inv),
    ("eigh", jnp.linalg.eigh),
    ("svd", jnp.linalg.svd),
    ("qr", jnp.linalg.qr),
):
    program(
        f"{_name} 256",
        "linear algebra",
        lambda x, f=_function: f(x @ x.T / 256 + jnp.eye(256)),
        normal(256, 256),
    )
program(
    "solve 256",
    "linear algebra",
    lambda a, b: jnp.linalg.solve(a + 20 * jnp.eye(256), b),
    normal(256, 256),
    normal(256, 16),
)
program(
    "cholesky, 256 of 16 x 16",
    "linear algebra",
    lambda x: jnp.linalg.cholesky(x @ x.transpose(0, 2, 1) + 20 * jnp.eye(16)),
    normal(256, 16, 16),
)
for _name, _function in (("inverse", jnp.linalg.inv), ("determinant", jnp.linalg.det)):
    program(f"{_name}, 10000 of 4 x 4", "linear algebra", _function, normal(10000, 4, 4))
program(
    "solve, 10000 of 3 x 3",
    "linear algebra",
    jnp.linalg.solve,
    normal(10000, 3, 3),
    normal(10000, 3, 1),
)
program(
    "cholesky, 10000 of 3 x 3",
    "linear algebra",
    lambda x: jnp.linalg.cholesky(x @ x.mT + jnp.eye(3)),
    normal(10000, 3, 3),
)
program(
    "inverse, 1000 of 4 x 4",
    "linear algebra",
    lambda x: jnp.linalg.inv(x + 4 * jnp.eye(4)),
    normal(1000, 4, 4),
)
program("rfft, 100 rows of 1023", "linear algebra", jnp.fft.rfft, normal(100, 1023))
program(
    "rfft, 100 rows of 1023, float64",
    "linear algebra",
    jnp.fft.rfft,
    normal(100, 1023, dtype="float64"),
    x64=True,
)
program("irfft, 100 rows of 1000", "linear algebra", jnp.fft.irfft, normal(100, 501))
program("fft, 1000 rows of 16", "linear algebra", jnp.fft.fft, normal(1000, 16))
program("ifft, 100 rows of 251", "linear algebra", jnp.fft.ifft, normal(100, 251))
program("rfft, 100 rows of 8192", "linear algebra", jnp.fft.rfft, normal(100, 8192))
for _rows, _n in (("1 row", 4096), ("4 rows", 8192), ("1 row", 65536)):
    program(
        f"fft, {_rows} of {_n}, complex",
        "linear algebra",
        jnp.fft.fft,
        normal(int(_rows[0]), _n, dtype="complex64"),
    )
program("rfft, 100 rows of 509", "linear algebra", jnp.fft.rfft, normal(100, 509))
program("fft 1024 x 1024", "linear algebra", jnp.fft.fft, normal(1024, 1024))
program("fft2 1024", "linear algebra", jnp.fft.fft2, normal(1024, 1024))
