"""LAPACK calls as steps of programs: natively and step by step on NumPy, in place, in loops, with
any library."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.compiler.machine import check
from weft._engine.codegen.library import lapack as codegen
from weft._engine.core.stage import stage
from weft._engine.core.trace import typeof
from weft._engine.ir import program as P
from weft._engine.ir.program import iterate_steps
from weft._engine.ops import linalg
from weft._engine.ops.elementwise import add
from weft._engine.util import lapack
from weft._engine.util.config import enable_x64

KINDS = ("float32", "float64", "complex64", "complex128")
RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def double_precision():
    with enable_x64(True):
        yield


def matrices(*shape: int, kind: str = "float32") -> np.ndarray:
    x = RNG.normal(size=shape)
    return (x + 1j * RNG.normal(size=shape) if kind.startswith("complex") else x).astype(kind)


def definite(*shape: int, kind: str = "float32") -> np.ndarray:
    x = matrices(*shape, kind=kind)
    return x @ np.conj(np.swapaxes(x, -1, -2)) + np.asarray(shape[-1] * np.eye(shape[-1]), kind)


PROGRAMS = {
    "cholesky": (linalg.cholesky, lambda kind: definite(5, 5, kind=kind)),
    "cholesky of a batch": (linalg.cholesky, lambda kind: definite(70, 3, 3, kind=kind)),
    "solve": (
        lambda a: linalg.triangular_solve(a, add(a, a), left_side=True),
        lambda kind: definite(2, 4, 4, kind=kind),
    ),
    "lu": (lambda a: linalg.lu(a), lambda kind: matrices(3, 5, 4, kind=kind)),
    "qr": (lambda a: linalg.qr(a, full_matrices=False), lambda kind: matrices(3, 5, 4, kind=kind)),
    "eigenvalues": (lambda a: linalg.eigh(a)[1], lambda kind: definite(2, 6, 6, kind=kind)),
    "singular values": (
        lambda a: linalg.svd(a, compute_uv=False),
        lambda kind: matrices(2, 3, 6, kind=kind),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_routines_run_inside_the_one_native_call(name, kind):
    fn, make = PROGRAMS[name]
    x = make(kind)
    jaxpr = stage(lambda a: out if isinstance(out := fn(a), tuple) else (out,), [typeof(x)])
    for native in (True, False):
        scheduled = check(jaxpr, x, native=native, rtol=1e-4)
        kinds = [type(step) for step in iterate_steps(scheduled.program.steps)]
        assert P.LibraryCall in kinds and P.HostCallStep not in kinds


def test_tiny_problems_stay_with_one_thread():
    def tasks(fn, *shape):
        x = definite(*shape)
        return [
            codegen.tasks(s)
            for s in iterate_steps(check(stage(fn, [typeof(x)]), x, rtol=1e-3).program.steps)
            if isinstance(s, P.LibraryCall)
        ]

    if lapack.thread_control() is None:
        pytest.skip("the library under NumPy has no threads to rule")
    solve = lambda a: (linalg.triangular_solve(a, add(a, a), lower=True),)
    for n, solved, factored, exchanged in ((16, 1, 1, 1), (24, 1, 1, 64), (32, 64, 64, 64)):
        shape = (128, n, n)
        assert tasks(solve, *shape) == [solved]
        assert tasks(lambda a: (linalg.cholesky(a),), *shape) == [factored]
        assert tasks(lambda a: (linalg.lu(a)[0],), *shape) == [exchanged]
    assert tasks(lambda a: (linalg.eigh(a)[1],), 128, 2, 2) == [64]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_library_with_short_integers(name, monkeypatch):
    fn, make = PROGRAMS[name]
    x = make("float64")
    monkeypatch.setattr(lapack, "_source", lambda: (lapack._from_scipy, 4))
    check(
        stage(lambda a: out if isinstance(out := fn(a), tuple) else (out,), [typeof(x)]),
        x,
        rtol=1e-9,
    )


def test_a_dead_operand_is_overwritten_and_others_are_not():
    x = definite(64, 64)
    copies = lambda fn: sum(
        isinstance(s, P.Copy)
        for s in iterate_steps(check(stage(fn, [typeof(x)]), x, rtol=1e-3).program.steps)
    )
    assert copies(lambda a: (linalg.cholesky(add(a, a), symmetrize_input=False),)) == 0
    assert copies(lambda a: (linalg.cholesky(a, symmetrize_input=False),)) == 1
    assert copies(lambda a: (b := add(a, a), linalg.cholesky(b, symmetrize_input=False))) == 1


def test_in_a_loop():
    def step(carry, x):
        root = linalg.cholesky(x)
        return add(carry, root), linalg.eigh(x)[1]

    x = definite(4, 3, 3)
    total, values = weft.jit(lambda x: weft.lax.scan(step, np.zeros((3, 3), np.float32), x))(x)
    np.testing.assert_allclose(total, np.linalg.cholesky(x).sum(0), rtol=1e-4)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(x), rtol=1e-4)


def test_the_library_has_its_threads_back():
    import ctypes

    control = lapack.thread_control()
    if control is None:
        pytest.skip("the library under NumPy has no threads to rule")
    threads = ctypes.CFUNCTYPE(ctypes.c_int32)(control[0])
    before = threads()
    weft.jit(linalg.cholesky)(definite(32, 32)).block_until_ready()
    assert threads() == before


def test_not_a_number_in_is_not_a_number_out():
    x = np.stack([np.eye(3, dtype=np.float32), np.full((3, 3), np.nan, np.float32)])
    for fn in (linalg.cholesky, linalg.eigh, linalg.svd):
        for out in weft.tree.leaves(weft.jit(fn)(x)):
            assert np.isfinite(out[0]).all() and np.isnan(np.asarray(out[1])).any()
