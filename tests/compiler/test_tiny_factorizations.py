"""Batches of tiny matrices, factored and solved without LAPACK: accuracy, pivots, singular
matrices, and the sizes from which LAPACK is used."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
import scipy.linalg

import weft
import weft.numpy as wnp
from weft._engine.codegen.library import lapack, tiny_lapack
from weft._engine.ir.program import LibraryCall, iterate_steps
from weft._engine.ops import linalg
from weft._engine.util.config import enable_x64

KINDS = ("float32", "float64")
COUNTS = (1, 70, 1100)  # one task and several


@pytest.fixture(autouse=True)
def double_precision():
    with enable_x64(True):
        yield


def matrices(*shape, kind, seed=0):
    """Return normal matrices; every fourth has rows of very different sizes, every fifth elements
    of equal size."""
    x = np.random.default_rng(seed).normal(size=shape)
    x[::4] *= 10.0 ** np.random.default_rng(seed + 1).integers(-4, 5, (*x[::4].shape[:-1], 1))
    x[::5] = np.sign(x[::5]) + np.eye(*shape[-2:]) * 2
    return x.astype(kind)


def library_calls(f, *args):
    compiled = weft.jit(f).lower(*args).compile()
    return [
        step
        for step in iterate_steps(compiled.stages.scheduled.program.steps)
        if isinstance(step, LibraryCall)
    ]


def assert_small_residual(left, right, bound, kind, n):
    """Assert |left - right| <= bound elementwise, up to some roundings per term."""
    assert np.all(
        np.abs(left - right) <= bound * np.finfo(kind).eps * (4 * n + 4) + np.finfo(kind).tiny
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "m, n", [(1, 1), (2, 2), (3, 3), (4, 4), (5, 3), (2, 6), (6, 6), (7, 7), (8, 8)]
)
def test_lu_has_the_pivots_of_lapack(m, n, kind):
    for count in COUNTS:
        a = matrices(count, m, n, kind=kind)
        packed, pivots, order = (np.asarray(x) for x in weft.jit(linalg.lu)(a))
        k = min(m, n)
        wide = packed.astype(np.float64)
        lower = np.tril(wide[..., :k], -1) + np.eye(m, k)
        upper = np.triu(wide[..., :k, :])
        permuted = np.take_along_axis(a.astype(np.float64), order[..., None], 1)
        assert_small_residual(lower @ upper, permuted, np.abs(lower) @ np.abs(upper), kind, k)
        assert np.abs(lower).max() <= 1
        unequal = np.arange(count) % 5 != 0
        if m == n:
            want = np.array([scipy.linalg.lu_factor(x)[1] for x in a[unequal]]).reshape(-1, n)
            np.testing.assert_array_equal(pivots[unequal], want)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", range(1, 9))
def test_cholesky_of_tiny_matrices(n, kind):
    for count in COUNTS:
        x = matrices(count, n, n, kind=kind)
        a = x @ x.swapaxes(1, 2) + np.eye(n, dtype=kind)
        a[count // 2] -= 2 * a[count // 2].max() * np.eye(n, dtype=kind)
        got = np.asarray(weft.jit(lambda a: linalg.cholesky(a, symmetrize_input=False))(a)).astype(
            np.float64
        )
        definite = np.arange(count) != count // 2
        assert np.isnan(got[count // 2][np.tril_indices(n)]).all()
        assert not np.triu(got[definite], 1).any()
        factor = got[definite]
        bound = np.abs(factor) @ np.abs(factor).swapaxes(1, 2)
        assert_small_residual(
            factor @ factor.swapaxes(1, 2), a[definite].astype(np.float64), bound, kind, n
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "n, columns", [(1, 1), (2, 3), (3, 1), (4, 4), (6, 6), (8, 1), (8, 3), (3, 9)]
)
def test_triangular_solves_of_tiny_matrices(n, columns, kind):
    for left_side, lower, transpose_a, unit_diagonal in itertools.product((False, True), repeat=4):
        flags = {
            "left_side": left_side,
            "lower": lower,
            "transpose_a": transpose_a,
            "unit_diagonal": unit_diagonal,
        }
        a = matrices(300, n, n, kind=kind) + 3 * np.eye(n, dtype=kind)
        b = matrices(300, *((n, columns) if left_side else (columns, n)), kind=kind, seed=3)
        solve = functools.partial(linalg.triangular_solve, **flags)
        x = np.asarray(weft.jit(solve)(a, b)).astype(np.float64)
        triangle = (np.tril(a) if lower else np.triu(a)).astype(np.float64)
        if unit_diagonal:
            triangle[:, range(n), range(n)] = 1
        triangle = triangle.swapaxes(1, 2) if transpose_a else triangle
        product = np.matmul if left_side else lambda t, x: x @ t
        assert_small_residual(
            product(triangle, x), b, product(np.abs(triangle), np.abs(x)) + np.abs(b), kind, n
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", range(1, 9))
def test_solutions_inverses_and_determinants(n, kind):
    for count in COUNTS:
        a = matrices(count, n, n, kind=kind) + 4 * np.eye(n, dtype=kind)
        b = matrices(count, n, 2, kind=kind, seed=3)
        wide = a.astype(np.float64)
        growth = (
            np.linalg.norm(wide, 2, (1, 2))
            * np.linalg.norm(np.linalg.inv(wide), 2, (1, 2))
            * np.finfo(kind).eps
            * 20
        )
        for got, want in [
            (weft.jit(wnp.linalg.solve)(a, b), np.linalg.solve(wide, b.astype(np.float64))),
            (weft.jit(wnp.linalg.inv)(a), np.linalg.inv(wide)),
        ]:
            scale = np.abs(want).max((1, 2))
            assert np.all(np.abs(got - want).max((1, 2)) <= growth * scale)
        want = np.linalg.det(wide)
        assert np.all(np.abs(weft.jit(wnp.linalg.det)(a) - want) <= growth * np.abs(want))


def singular(n, kind):
    """Return matrices with exact elimination: zeros, equal rows, a column of zeros, a multiple of a
    row, and infinities."""
    zeros, ones = np.zeros((n, n)), np.ones((n, n))
    column = np.eye(n) * 2
    column[:, 0] = 0
    multiple = np.eye(n)
    multiple[-1] = 2 * multiple[0]
    infinite = np.eye(n)
    infinite[0, 0] = np.inf
    return np.stack([zeros, ones, column, multiple, infinite, np.eye(n)]).astype(kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 3, 4, 6])
def test_singular_matrices_as_with_the_library(n, kind, monkeypatch):
    a = singular(n, kind)
    b = np.arange(6 * n).reshape(6, n, 1).astype(kind)
    exact = [
        lambda a, b: linalg.lu(a),
        lambda a, b: wnp.linalg.det(a),
        lambda a, b: wnp.linalg.slogdet(a),
    ]
    solves = [lambda a, b: wnp.linalg.solve(a, b), lambda a, b: wnp.linalg.inv(a)]
    functions = exact + solves
    tiny = [weft.tree.leaves(weft.jit(f)(a, b)) for f in functions]
    monkeypatch.setattr(tiny_lapack, "is_tiny", lambda step: False)
    weft.clear_caches()
    for got, f in zip(tiny, functions):
        for x, y in zip(got, weft.tree.leaves(weft.jit(f)(a, b))):
            # LAPACK divides by zero in blocks: the result is infinite or NaN, depending on sizes
            # and processors
            finite = np.isfinite(np.asarray(y)) if f in solves else np.full(y.shape, True)
            np.testing.assert_array_equal(np.isfinite(np.asarray(x)), np.isfinite(np.asarray(y)))
            np.testing.assert_allclose(
                np.asarray(x)[finite], np.asarray(y)[finite], rtol=4 * np.finfo(kind).eps
            )
    weft.clear_caches()


def test_gradients_of_tiny_solves():
    a, b = matrices(30, 3, 3, kind="float64") + 5 * np.eye(3), matrices(30, 3, 1, kind="float64")
    got = weft.jit(weft.grad(lambda a: (wnp.linalg.solve(a, b) ** 2).sum()))(a)
    x = np.linalg.solve(a, b)
    want = -np.linalg.solve(a.swapaxes(1, 2), 2 * x) @ x.swapaxes(1, 2)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("f, largest", [
    (lambda a: linalg.cholesky(a), 8), (lambda a: linalg.lu(a)[0], 6),
    (lambda a: linalg.triangular_solve(a, a[..., :1], left_side=True), 8),
])  # fmt: skip
def test_which_sizes_are_computed_without_the_library(f, largest):
    for n, tiny in [(2, True), (largest, True), (largest + 1, False)]:
        (step,) = library_calls(f, np.zeros((1000, n, n), np.float32))
        assert tiny_lapack.is_tiny(step) is tiny
        text = lapack.task(step, "call")
        assert ("call void" in text) is not tiny
        if tiny:
            assert lapack.tasks(step) > 1 and not lapack.must_be_single_threaded(step)
    (step,) = library_calls(f, np.zeros((1000, 2, 2), np.complex64))
    assert not tiny_lapack.is_tiny(step)
