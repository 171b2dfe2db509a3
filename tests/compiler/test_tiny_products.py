"""Tiny matrix products, in batches and row by row: results for all dtypes and operand orders, and
kernels instead of matmuls."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax

DTYPES = {
    "float32": np.float32, "float64": np.float64, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16,
    "complex64": np.complex64, "int32": np.int32, "int8": np.int8,
}  # fmt: skip
ROUNDOFF = {
    "float32": 2**-23,
    "float64": 2**-52,
    "bfloat16": 2**-8,
    "float16": 2**-11,
    "complex64": 2**-22,
}
#: rows, contracted elements and columns of one product
SIZES = [
    (2, 2, 2),
    (3, 3, 3),
    (4, 4, 4),
    (5, 7, 3),
    (8, 8, 8),
    (3, 3, 1),
    (1, 4, 2),
    (2, 9, 2),
    (4, 1, 4),
    (1, 3, 1),
]
ORDERS = ["mk,kn", "km,kn", "mk,nk", "km,nk"]


def normal(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "i":
        return rng.integers(-9, 9, shape).astype(dtype)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def run(f, *args):
    """Return the results of the compiled function, and its numbers of kernels and matmuls."""
    compiled = weft.jit(f).lower(*args).compile()
    scheduled = compiled.stages.scheduled
    return compiled(*args), (scheduled.kernel_count, scheduled.gemm_count)


def wide(x):
    return np.asarray(x).astype(np.complex128 if np.asarray(x).dtype.kind == "c" else np.float64)


def assert_product(got, spec, a, b):
    """Compare with the product in 64 bits, up to the rounding of the terms and of the result."""
    dtype = np.asarray(got).dtype
    want = np.einsum(spec, wide(a), wide(b))
    if dtype.kind == "i":
        np.testing.assert_array_equal(np.asarray(got), want.astype(np.int64).astype(dtype))
        return
    bound = np.einsum(spec, np.abs(wide(a)), np.abs(wide(b)))
    limit = (
        bound
        * max(
            ROUNDOFF["float32"] if dtype.itemsize == 2 else 0,
            0 if dtype.itemsize == 2 else ROUNDOFF[dtype.name],
        )
        * 8
    )
    if dtype.itemsize == 2:
        limit = limit + np.abs(want) * ROUNDOFF[dtype.name]
    assert np.all(np.abs(wide(got) - want) <= limit)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_batched_products_of_all_dtypes(dtype, order):
    left, right = order.split(",")
    spec = f"b{left},b{right}->bmn"
    with weft.enable_x64(dtype == "float64"):
        for m, k, n in SIZES:
            lengths = {"m": m, "k": k, "n": n}
            a = normal((37, *[lengths[x] for x in left]), DTYPES[dtype])
            b = normal((37, *[lengths[x] for x in right]), DTYPES[dtype], 1)
            got, counts = run(lambda a, b: wnp.einsum(spec, a, b), a, b)
            assert counts == (1, 0), (m, k, n)
            assert got.dtype == a.dtype
            assert_product(got, spec, a, b)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_many_rows_of_tiny_products(dtype, order):
    left, right = order.split(",")
    spec = f"{left},{right}->mn"
    with weft.enable_x64(dtype == "float64"):
        for m, k, n in [
            (1000, 3, 3),
            (3, 3, 1000),
            (500, 2, 4),
            (4, 6, 300),
            (500, 4, 9),
            (9, 2, 500),
        ]:
            lengths = {"m": m, "k": k, "n": n}
            a = normal([lengths[x] for x in left], DTYPES[dtype])
            b = normal([lengths[x] for x in right], DTYPES[dtype], 1)
            got, counts = run(lambda a, b: wnp.einsum(spec, a, b), a, b)
            assert counts == ((0, 1) if dtype == "complex64" else (1, 0)), (m, k, n)
            assert_product(got, spec, a, b)


@pytest.mark.parametrize("batch", [(), (5,)])
@pytest.mark.parametrize("m, k, n", [(16, 16, 16), (64, 8, 64), (1000, 16, 3), (11, 10, 10)])
def test_larger_products_are_matmuls(batch, m, k, n):
    a, b = normal((*batch, m, k), np.float32), normal((*batch, k, n), np.float32, 1)
    got, counts = run(wnp.matmul, a, b)
    assert counts == (0, 1)
    assert_product(got, "...mk,...kn->...mn", a, b)


A, B, C = (normal((50, 3, 3), np.float32, seed) for seed in range(3))
V = normal((50, 3), np.float32, 3)
PROGRAMS = [
    ("plus one", lambda a, b, c, v: a @ b + 1, lambda a, b, c, v: a @ b + 1, 1),
    ("times its transpose", lambda a, b, c, v: a @ a.mT, lambda a, b, c, v: a @ a.transpose(0, 2, 1), 1),
    ("quadratic form", lambda a, b, c, v: wnp.einsum("bi,bij,bj->b", v, a, v),
     lambda a, b, c, v: np.einsum("bi,bij,bj->b", v, a, v), 1),
    ("vmap of dot", lambda a, b, c, v: weft.vmap(wnp.dot)(a, b), lambda a, b, c, v: a @ b, 1),
    ("matrix times vector", lambda a, b, c, v: wnp.einsum("bij,bj->bi", a, v), lambda a, b, c, v: np.einsum("bij,bj->bi", a, v), 1),
    ("chain", lambda a, b, c, v: a @ b @ c, lambda a, b, c, v: a @ b @ c, 1),
    ("of an expensive operand", lambda a, b, c, v: wnp.tanh(a) @ b, lambda a, b, c, v: np.tanh(a) @ b, 2),
    ("of a cheap operand", lambda a, b, c, v: (2 * a) @ b, lambda a, b, c, v: 2 * a @ b, 1),
    ("outer", lambda a, b, c, v: v[:, :, None] * v[:, None], lambda a, b, c, v: v[:, :, None] * v[:, None], 1),
]  # fmt: skip


@pytest.mark.parametrize(
    "f, reference, kernels", [case[1:] for case in PROGRAMS], ids=[case[0] for case in PROGRAMS]
)
def test_products_in_larger_programs(f, reference, kernels):
    got, counts = run(f, A, B, C, V)
    assert counts == (kernels, 0)
    np.testing.assert_allclose(
        got, reference(wide(A), wide(B), wide(C), wide(V)), rtol=2e-5, atol=2e-6
    )


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8])
def test_gradients_of_tiny_products(n):
    a, b = normal((40, n, n), np.float32), normal((40, n, n), np.float32, 1)
    loss = lambda a, b: ((a @ b) ** 2).sum()
    (grad_a, grad_b), (_, matmuls) = run(weft.grad(loss, (0, 1)), a, b)
    product = wide(a) @ wide(b)
    np.testing.assert_allclose(
        grad_a, 2 * product @ wide(b).transpose(0, 2, 1), rtol=2e-5, atol=2e-4
    )
    np.testing.assert_allclose(
        grad_b, 2 * wide(a).transpose(0, 2, 1) @ product, rtol=2e-5, atol=2e-4
    )
    assert matmuls == 0


def test_second_gradients_and_scans():
    def total(a):
        return (lax.scan(lambda carry, x: (carry @ x, None), wnp.eye(3), a)[0] ** 2).sum()

    a = normal((4, 3, 3), np.float32) * 0.5
    direction = normal((4, 3, 3), np.float32, 1)
    got = weft.jit(weft.jvp, static_argnums=0)(weft.grad(total), (a,), (direction,))[1]
    with weft.enable_x64(True):
        step = 1e-5
        up, down = (
            np.asarray(weft.grad(total)(wide(a) + sign * step * wide(direction)))
            for sign in (1, -1)
        )
    np.testing.assert_allclose(got, (up - down) / (2 * step), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("n", [2, 3, 8])
def test_infinities_and_nans(n):
    a, b = normal((6, n, n), np.float32), normal((6, n, n), np.float32, 1)
    a[0, 0, 0], a[1, 1, 0], b[2, 0, 1], b[3] = np.inf, np.nan, -np.inf, 0.0
    with np.errstate(invalid="ignore"):
        want = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(weft.jit(wnp.matmul)(a, b), want, rtol=1e-5, atol=1e-6)


def test_empty_products_and_batches():
    for shape_a, shape_b in [
        ((0, 3, 3), (0, 3, 3)),
        ((5, 3, 0), (5, 0, 3)),
        ((5, 0, 3), (5, 3, 2)),
    ]:
        got = weft.jit(wnp.matmul)(np.ones(shape_a, np.float32), np.ones(shape_b, np.float32))
        np.testing.assert_array_equal(got, np.ones(shape_a) @ np.ones(shape_b))
