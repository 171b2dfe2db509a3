"""Solvers of SciPy's names: linear systems, minima, interpolation on grids."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.interpolate
import scipy.optimize
import scipy.sparse.linalg

import weft
import weft.numpy as wnp
from weft._engine.util.config import Override
from weft.scipy.interpolate import RegularGridInterpolator
from weft.scipy.optimize import minimize
from weft.scipy.sparse import linalg

RNG = np.random.RandomState(2)
LBFGS = "l-bfgs-experimental-do-not-rely-on-this"


def _system(n: int, kind, definite: bool):
    a = RNG.randn(n, n) + (1j * RNG.randn(n, n) if kind is complex else 0) + 2 * np.eye(n)
    return (a @ a.conj().T if definite else a), RNG.randn(n).astype(kind)


@pytest.mark.parametrize("kind", [float, complex])
@pytest.mark.parametrize("name, steps", [("cg", 3), ("bicgstab", 2), ("gmres", 1)])
def test_linear_systems(name, steps, kind):
    """The same steps as SciPy's, the solution, and its derivatives."""
    with Override(enable_x64=True):
        a, b = _system(6, kind, name == "cg")
        solve, peer = getattr(linalg, name), getattr(scipy.sparse.linalg, name)
        options = {"restart": 2} if name == "gmres" else {}
        for m in (None, np.linalg.inv(a) + 0.01 * np.eye(6)):
            solution, info = solve(a, b, M=m, maxiter=steps, atol=0.0, **options)
            np.testing.assert_allclose(
                solution,
                peer(a, b, M=m, maxiter=steps, rtol=1e-5, **options)[0],
                rtol=1e-9,
                atol=1e-9,
            )
            assert info is None
            np.testing.assert_allclose(
                solve(a, b, M=m, tol=1e-12)[0], np.linalg.solve(a, b), rtol=1e-8
            )
        tangent = RNG.randn(6, 6).astype(kind)
        moved = weft.jvp(lambda a: solve(lambda x: a @ x, b, tol=1e-12)[0], (a,), (tangent,))[1]
        np.testing.assert_allclose(
            moved, -np.linalg.solve(a, tangent @ np.linalg.solve(a, b)), rtol=1e-6
        )
        if kind is float:
            slope = weft.grad(lambda b: solve(a, b, tol=1e-12)[0][2])(b)
            np.testing.assert_allclose(slope, np.linalg.solve(a.T, np.eye(6)[2]), rtol=1e-6)


@pytest.mark.parametrize("name", linalg.__all__)
def test_operators_on_trees(name):
    solve = getattr(linalg, name)
    mix = lambda x: {"a": x["a"] + 0.5 * x["b"], "b": 0.5 * x["a"] + x["b"]}
    solution, _ = weft.jit(lambda b: solve(mix, b))({"a": 1.0, "b": -4.0})
    np.testing.assert_allclose([solution["a"], solution["b"]], [4.0, -6.0], rtol=1e-5)
    grid = np.arange(9.0, dtype=np.float32).reshape(3, 3)
    np.testing.assert_allclose(solve(lambda x: 2 * x, grid)[0], grid / 2, rtol=1e-6)
    assert float(wnp.sum(solve(np.eye(3, dtype=np.float32), np.zeros(3, np.float32))[0])) == 0
    assert name == "gmres" or solve(lambda x: x, 1.0)[0].weak_type
    mesh = weft.make_mesh((4,), ("i",))
    diagonal = np.linspace(1, 3, 16).astype(np.float32)
    placed = weft.device_put(diagonal, weft.NamedSharding(mesh, weft.P("i")))
    whole = weft.jit(lambda d: solve(lambda x: d * x, wnp.ones(16), tol=1e-6)[0])
    np.testing.assert_allclose(whole(placed), 1 / diagonal, rtol=1e-4)


@pytest.mark.parametrize(
    "call, error, says",
    [
        (
            lambda: linalg.cg(lambda x: x, {"x": np.ones(2)}, {"y": np.ones(2)}),
            ValueError,
            "matching tree structure",
        ),
        (lambda: linalg.cg(lambda x: x, np.ones(2), np.ones((2, 1))), ValueError, "matching shape"),
        (lambda: linalg.gmres(np.ones((3, 2)), np.ones(2)), ValueError, "must be a square matrix"),
        (lambda: linalg.cg([[1]], np.ones(1)), TypeError, "either a function or ndarray"),
        (lambda: linalg.gmres(np.eye(2), np.ones(2), solve_method="quick"), ValueError, "quick"),
        (
            lambda: minimize(lambda x: x.sum(), np.ones(2), args=3, method="BFGS"),
            TypeError,
            "args .* must be a tuple",
        ),
        (lambda: minimize(lambda x: x.sum(), np.ones(2), method="Powell"), ValueError, "Powell"),
        (lambda: minimize(lambda x: x.sum(), np.ones((2, 2)), method="BFGS"), ValueError, "vector"),
        (
            lambda: minimize(lambda x: x.sum(), np.ones(2), method="BFGS", options={"gtool": 1}),
            ValueError,
            "gtool",
        ),
        (
            lambda: RegularGridInterpolator((np.arange(3.0),), np.ones(3), "cubic"),
            ValueError,
            "cubic",
        ),
        (lambda: RegularGridInterpolator((np.zeros(3),), np.ones(3)), ValueError, "increase"),
        (lambda: RegularGridInterpolator((np.arange(3.0),), np.ones(4)), ValueError, "vector of 4"),
        (
            lambda: RegularGridInterpolator((np.arange(3.0),), np.ones(3), bounds_error=True),
            NotImplementedError,
            "bounds_error",
        ),
        (
            lambda: RegularGridInterpolator((np.arange(3.0),), np.ones(3))(np.ones((4, 2))),
            ValueError,
            "2 numbers",
        ),
    ],
)
def test_errors(call, error, says):
    with pytest.raises(error, match=says):
        call()


def _rosenbrock(np_):
    return lambda x: np_.sum(100 * np_.diff(x) ** 2 + (1 - x[:-1]) ** 2)


def _himmelblau(np_):
    return lambda x: (x[0] ** 2 + x[1] - 11) ** 2 + (x[0] + x[1] ** 2 - 7) ** 2


def _eggholder(np_):
    return lambda x: (
        -(x[1] + 47) * np_.sin(np_.sqrt(np_.abs(x[0] / 2 + x[1] + 47)))
        - x[0] * np_.sin(np_.sqrt(np_.abs(x[0] - x[1] - 47)))
    )


@pytest.mark.parametrize("method", ["BFGS", LBFGS])
@pytest.mark.parametrize(
    "make, start",
    [
        (_rosenbrock, [0.0, 0]),
        (_himmelblau, [92, 0.001]),
        (_himmelblau, [1, 1.0]),
        (_eggholder, [100.0, 100]),
    ],
)
def test_minima_are_those_of_scipy(method, make, start):
    with Override(enable_x64=True):
        result = weft.jit(lambda x: minimize(make(wnp), x, method=method, options={"gtol": 1e-7}))(
            np.array(start)
        )
        want = scipy.optimize.minimize(make(np), start, method="BFGS", options={"gtol": 1e-8}).x
        if not (method == LBFGS and start[0] == 92):  # another of its four minima
            np.testing.assert_allclose(result.x, want, atol=2e-4)
        assert result.fun == make(wnp)(result.x) and int(result.nfev) >= int(result.nit)
        assert bool(result.success) == (int(result.status) == 0)


def test_minima_of_trees_of_options():
    few = minimize(_rosenbrock(wnp), wnp.full(5, 3.0), method="BFGS", options={"maxiter": 2})
    assert not few.success and int(few.status) == 1 and int(few.nit) == 2
    shifted = weft.vmap(
        lambda a: (
            minimize(
                lambda x, a: wnp.sum((x - a) ** 4), wnp.zeros(2), (a,), method="bfgs", tol=1e-6
            ).x
        )
    )
    np.testing.assert_allclose(
        shifted(np.array([0.5, 2.0], np.float32)), [[0.5, 0.5], [2, 2]], atol=2e-2
    )
    center = np.array([1, 2 - 3j, -5j], np.complex64)
    sphere = lambda z: wnp.real(wnp.vdot(z - center, z - center))
    np.testing.assert_allclose(
        minimize(sphere, wnp.zeros(3, np.complex64), method=LBFGS).x, center, atol=1e-4
    )


@pytest.mark.parametrize("method", ["linear", "nearest"])
def test_grids(method):
    points = (np.array([0.0, 1, 2.5, 4]), np.array([-1.0, 0, 3]))
    values = RNG.randn(4, 3, 2)
    at = np.stack([RNG.uniform(-1, 5, 40), RNG.uniform(-2, 4, 40)], -1)
    inside = np.clip(at, [0, -1], [4, 3])
    for fill in (np.nan, 7.0, None):
        mine = RegularGridInterpolator(points, values, method, False, fill)
        peer = scipy.interpolate.RegularGridInterpolator(points, values, method, False, fill)
        np.testing.assert_allclose(mine(at), peer(at), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(
            mine(inside.reshape(8, 5, 2)), peer(inside.reshape(8, 5, 2)), rtol=1e-4, atol=1e-4
        )
    if method == "linear":
        slope = weft.grad(lambda x: RegularGridInterpolator(points, values)(x[None])[0, 0])(
            np.array([0.5, 1.0], np.float32)
        )
        f = lambda x, y: scipy.interpolate.RegularGridInterpolator(points, values)([[x, y]])[0, 0]
        np.testing.assert_allclose(
            slope,
            [f(0.75, 1) - f(-0.0 + 0.25, 1), f(0.5, 1.5) - f(0.5, 0.5)] / np.array([0.5, 1.0]),
            rtol=1e-3,
        )


@pytest.mark.parametrize("solver", [linalg.cg, linalg.bicgstab, linalg.gmres])
def test_solutions_are_as_weakly_typed_as_the_right_side(solver):
    assert solver(lambda x: 2 * x, 1.0)[0].weak_type
    assert not solver(lambda x: 2 * x, np.float32(1))[0].weak_type
    assert not solver(lambda x: 2 * x, wnp.ones(2))[0].weak_type


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4, 1e8])
def test_the_unit_of_a_function_does_not_matter(scale):
    """A unit matrix as first inverse Hessian would swamp the inverse Hessian of a steep function."""
    f = lambda x: (
        scale * wnp.sum(wnp.array([1.0, 2.0, 0.5]) * (x - wnp.array([0.0, 1.0, -1.0])) ** 2)
    )
    result = minimize(f, wnp.ones(3), method="BFGS", options={"gtol": 1e-4 * scale})
    assert bool(result.success) and int(result.nit) < 20
    np.testing.assert_allclose(result.x, [0.0, 1.0, -1.0], atol=2e-4)


@pytest.mark.parametrize("x64, dtype", [(False, np.int32), (True, np.int64)])
def test_counts_of_a_search_are_of_the_default_integers(x64, dtype):
    with weft.enable_x64(x64):
        result = minimize(lambda x: wnp.sum((x - 1) ** 2), wnp.zeros(2), method="BFGS")
    assert {x.dtype for x in (result.status, result.nfev, result.njev, result.nit)} == {
        np.dtype(dtype)
    }
