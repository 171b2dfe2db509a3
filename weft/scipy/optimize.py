"""Minimization of functions with SciPy's names: quasi-Newton methods as one traced loop.

In:   a function of a vector with a scalar result.
Out:  `OptimizeResults`; under `jit` its fields are tracers, and a failed search raises no error: see `status`.
Source: J. Nocedal and S. J. Wright, "Numerical Optimization" (2006): algorithms 3.5 and 3.6 (a line search for the strong Wolfe
conditions), 6.1 (BFGS), 7.4 and 7.5 (L-BFGS).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from weft import lax, numpy as wnp
from weft._engine.api.autodiff import value_and_grad
from weft._engine.core.trace import typeof
from weft._engine.numpy.products import precise_matmul
from weft._engine.numpy.promote import concrete, inexact
from weft._engine.util import dtypes
from weft._engine.util.source import guard_all

__all__ = ["OptimizeResults", "minimize"]

_SUFFICIENT_DECREASE, _CURVATURE = 1e-4, 0.9  # parameters of the Wolfe conditions


class OptimizeResults(NamedTuple):
    """The result of `minimize`: the position, the convergence flag, the status (0 converged, 1 after `maxiter`, 3 and 5 the
    line search failed), the value, the gradient, the inverse Hessian (None for L-BFGS), and the numbers of evaluations of
    the function and of the gradient, and of iterations."""

    x: Any
    success: Any
    status: Any
    fun: Any
    jac: Any
    hess_inv: Any
    nfev: Any
    njev: Any
    nit: Any


class _LineSearchPoint(NamedTuple):
    """A point of the line search: the step, the value, the slope, and the gradient."""

    step: Any
    value: Any
    slope: Any
    grad: Any


def _choose(where, a, b):
    return type(a)(*(wnp.where(where, x, y) for x, y in zip(a, b)))


def _inner(a, b):
    return wnp.real(wnp.vdot(a, b, precision=lax.Precision.HIGHEST))


def _interpolate_step(
    low: _LineSearchPoint, high: _LineSearchPoint, third: _LineSearchPoint, use_cubic
):
    """Return a step between two points: the minimum of the cubic through a third point, with `use_cubic` and away from the
    ends; else the minimum of the parabola; if that is close to an end, the middle."""
    width = high.step - low.step
    rise = high.value - low.value - low.slope * width
    move = wnp.where(
        rise > 0, -low.slope * width * width / (2 * wnp.where(rise > 0, rise, 1)), width / 2
    )
    share = move / width
    move = wnp.where((share > 0.1) & (share < 0.9), move, width / 2)
    # low.value + low.slope t + b t^2 + a t^3 through the others
    other = third.step - low.step
    remainder = third.value - low.value - low.slope * other
    denominator = width**2 * other**2 * (width - other)
    exists = denominator != 0
    denominator = wnp.where(exists, denominator, 1)
    a = (other**2 * rise - width**2 * remainder) / denominator
    b = (width**3 * remainder - other**3 * rise) / denominator
    root = b * b - 3 * a * low.slope
    cubic = (wnp.sqrt(wnp.maximum(root, 0)) - b) / wnp.where(a == 0, 1, 3 * a)
    share = cubic / width
    inside = use_cubic & exists & (root >= 0) & (a != 0) & (share > 0.2) & (share < 0.8)
    return low.step + wnp.where(inside, cubic, move)


def _line_search(
    evaluate: Callable, start: _LineSearchPoint, first, most: int
) -> tuple[_LineSearchPoint, Any, Any]:
    """Return the resulting point, whether it meets the conditions, and the number of evaluations; on failure, the best point."""

    def meets(point):
        return (point.value <= start.value + _SUFFICIENT_DECREASE * point.step * start.slope) & (
            wnp.abs(point.slope) <= -_CURVATURE * start.slope
        )

    def high(point, other):
        return (
            (point.value > start.value + _SUFFICIENT_DECREASE * point.step * start.slope)
            | (point.value >= other.value)
            | wnp.isnan(point.value)
        )

    def going(state):
        count, done = state[0], state[1]
        return ~done & (count < most)

    def body(state):
        """Before an interval is bracketed, `low` is the previous point; then it is the better end of the interval, `far` the other."""
        count, _, best, low, far, inside, step = state
        point = evaluate(step)
        done = meets(point)
        # bracketing phase
        above = high(point, low) & (
            wnp.isnan(point.value)
            | (count > 0)
            | (point.value > start.value + _SUFFICIENT_DECREASE * step * start.slope)
        )
        turned = ~above & (point.slope >= 0)
        out_low = _choose(above, low, point)
        out_far = _choose(above, point, _choose(turned, low, far))
        # zoom phase
        worse = high(point, low)
        back = ~worse & (point.slope * (far.step - low.step) >= 0)
        in_low = _choose(worse, low, point)
        in_far = _choose(worse, point, _choose(back, low, far))
        dropped = _choose(inside, _choose(worse | back, far, low), start)
        low, far = _choose(inside, in_low, out_low), _choose(inside, in_far, out_far)
        was_inside, inside = inside, inside | above | turned
        narrow = inside & (
            wnp.abs(far.step - low.step) <= wnp.abs(low.step) * np.finfo(low.step.dtype).eps
        )
        step = wnp.where(inside, _interpolate_step(low, far, dropped, was_inside), 2 * step)
        return count + 1, done | narrow, _choose(done, point, best), low, far, inside, step

    zero = np.int32(0)
    state = (zero, wnp.array(False), start, start, start, wnp.array(False), first)
    count, done, best, low, *_ = lax.while_loop(going, body, state)
    good = done & (best.step != 0)
    return _choose(good, best, low), good, count


def _vector_function(fun: Callable, args: tuple) -> Callable:
    """Return the value and the gradient; for complex numbers, the direction of steepest ascent."""

    def both(x):
        value, grad = value_and_grad(lambda x: fun(x, *args))(x)
        return value, wnp.conj(grad)

    return both


class _BfgsState(NamedTuple):
    x: Any
    value: Any
    grad: Any
    iterations: Any
    evaluations: Any
    status: Any  # -1 while the search runs
    memory: Any  # the inverse Hessian, or the last steps and changes of the gradient
    old: Any  # the previous value


def _size(grad, norm):
    return wnp.linalg.norm(grad, ord=norm)


def _search(
    value_and_grad: Callable,
    x0,
    *,
    direction: Callable,
    remember: Callable,
    memory: Any,
    maxiter,
    gtol,
    norm,
    line_search_maxiter: int,
    ftol=None,
    maxfun=None,
    maxgrad=None,
) -> _BfgsState:
    """The loop of both methods: compute a direction, search along it, and update the method's memory."""
    real = typeof(wnp.real(x0)).dtype
    value, grad = value_and_grad(x0)
    done = _size(grad, norm) < gtol
    state = _BfgsState(
        x0,
        value,
        grad,
        np.int32(0),
        np.int32(1),
        wnp.where(done, 0, -1).astype(np.int32),
        memory,
        value + wnp.linalg.norm(grad).astype(real) / 2,
    )

    def body(state):
        towards = direction(state)
        slope = _inner(state.grad, towards)
        start = _LineSearchPoint(wnp.zeros((), real), state.value, slope, state.grad)
        guess = 1.01 * 2 * (state.value - state.old) / wnp.where(slope == 0, 1, slope)
        first = wnp.where((guess > 0) & (guess < 1), guess, 1).astype(real)

        def evaluate(step):
            value, grad = value_and_grad(state.x + step * towards)
            return _LineSearchPoint(step, value, _inner(grad, towards), grad)

        point, good, count = _line_search(evaluate, start, first, line_search_maxiter)
        moved = point.step * towards
        change = point.grad - state.grad
        status = wnp.where(good, -1, 5)
        status = wnp.where(state.iterations + 1 >= maxiter, 1, status)
        if maxfun is not None:
            status = wnp.where(state.evaluations + count >= maxfun, 2, status)
        if maxgrad is not None:
            status = wnp.where(state.evaluations + count >= maxgrad, 3, status)
        if ftol is not None:
            status = wnp.where(state.value - point.value < ftol, 4, status)
        status = wnp.where(_size(point.grad, norm) < gtol, 0, status).astype(np.int32)
        return _BfgsState(
            state.x + moved,
            point.value,
            point.grad,
            state.iterations + 1,
            state.evaluations + count.astype(np.int32),
            status,
            remember(state.memory, moved, change),
            state.value,
        )

    return lax.while_loop(lambda state: state.status < 0, body, state)


def _bfgs(
    value_and_grad: Callable,
    x0,
    *,
    maxiter=None,
    norm=math.inf,
    gtol: float = 1e-5,
    line_search_maxiter: int = 10,
) -> OptimizeResults:
    size = x0.shape[0]
    one = wnp.eye(size, dtype=x0.dtype)

    def direction(state):
        return -precise_matmul(state.memory[0], state.grad)

    def remember(memory, step, change):
        """Update the inverse Hessian. Scale the first one by the curvature of the first step (6.20), to match the function's units."""
        inverse, is_first = memory
        curvature, length = precise_matmul(step, change), precise_matmul(change, change)
        ok = curvature != 0
        inverse = inverse * wnp.where(
            is_first & (curvature > 0), curvature / wnp.where(length == 0, 1, length), 1
        )
        rho = wnp.where(ok, 1 / wnp.where(ok, curvature, 1), 0)
        turn = one - rho * wnp.outer(step, change)
        new = precise_matmul(precise_matmul(turn, inverse), turn.T) + rho * wnp.outer(step, step)
        return wnp.where(ok & wnp.all(wnp.isfinite(new)), new, inverse), is_first & ~ok

    state = _search(
        value_and_grad,
        x0,
        direction=direction,
        remember=remember,
        memory=(one, wnp.array(True)),
        gtol=gtol,
        norm=norm,
        maxiter=200 * size if maxiter is None else maxiter,
        line_search_maxiter=line_search_maxiter,
    )
    return _results(state, state.memory[0])


def _lbfgs(
    value_and_grad: Callable,
    x0,
    *,
    maxiter=None,
    norm=math.inf,
    maxcor: int = 10,
    ftol: float = 2.220446049250313e-09,
    gtol: float = 1e-5,
    maxfun=None,
    maxgrad=None,
    maxls: int = 20,
) -> OptimizeResults:
    size = x0.shape[0]
    real = typeof(wnp.real(x0)).dtype

    def direction(state):
        """The two-loop recursion. The newest pairs of steps and gradient changes are last; missing pairs have weight 0."""
        steps, changes, weights, scale = state.memory
        q, shares = state.grad, []
        for i in range(maxcor - 1, -1, -1):
            share = weights[i] * _inner(steps[i], q)
            shares.append(share)
            q = q - share * changes[i]
        q = scale * q
        for i in range(maxcor):
            q = q + steps[i] * (shares[maxcor - 1 - i] - weights[i] * _inner(changes[i], q))
        return -q

    def remember(memory, step, change):
        steps, changes, weights, _ = memory
        curvature, length = _inner(step, change), _inner(change, change)
        ok = curvature > 0
        new = (
            wnp.concatenate([steps[1:], step[None]]),
            wnp.concatenate([changes[1:], change[None]]),
            wnp.concatenate([weights[1:], (1 / wnp.where(ok, curvature, 1))[None]]),
            curvature / wnp.where(ok, length, 1),
        )
        return tuple(wnp.where(ok, a, b) for a, b in zip(new, memory))

    pairs = wnp.zeros((maxcor, size), x0.dtype)
    memory = (pairs, pairs, wnp.zeros(maxcor, real), wnp.ones((), real))
    state = _search(
        value_and_grad,
        x0,
        direction=direction,
        remember=remember,
        memory=memory,
        gtol=gtol,
        ftol=ftol,
        norm=norm,
        maxiter=200 * size if maxiter is None else maxiter,
        maxfun=maxfun,
        maxgrad=maxgrad,
        line_search_maxiter=maxls,
    )
    return _results(state, None)


def _results(state: _BfgsState, inverse) -> OptimizeResults:
    converged = (state.status == 0) | (state.status == 4)
    status, evaluations, iterations = [
        x.astype(int)
        for x in (
            wnp.where(state.status == 4, 0, state.status),
            state.evaluations,
            state.iterations,
        )
    ]
    return OptimizeResults(
        state.x,
        converged,
        status,
        state.value,
        state.grad,
        inverse,
        evaluations,
        evaluations,
        iterations,
    )


#: SciPy's name in lower case -> the method and its options
_METHODS: dict[str, tuple[Callable, frozenset]] = {
    "bfgs": (_bfgs, frozenset({"maxiter", "norm", "gtol", "line_search_maxiter"})),
    "l-bfgs-experimental-do-not-rely-on-this": (
        _lbfgs,
        frozenset({"maxiter", "norm", "maxcor", "ftol", "gtol", "maxfun", "maxgrad", "maxls"}),
    ),
}


def minimize(
    fun: Callable,
    x0: Any,
    args: tuple = (),
    *,
    method: str,
    tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:
    """Return a minimum of `fun(x, *args)` found from the vector `x0` by the method 'BFGS'.

    Options: `maxiter`; `gtol`, below which the norm of order `norm` of the gradient ends the search (also given by `tol`);
    `line_search_maxiter`. It works under `jit` and `vmap`; to differentiate a minimum use `lax.custom_root`.
    Raises TypeError if `args` is not a tuple, ValueError for another method, unknown options and an `x0` that is not a vector.

    >>> found = minimize(lambda x: wnp.sum((x - 3.0) ** 2), wnp.zeros(2), method="BFGS")
    >>> found.x.round(4).tolist(), bool(found.success)
    ([3.0, 3.0], True)
    """
    if not isinstance(args, tuple):
        raise TypeError(f"minimize: args {args!r} must be a tuple.")
    if not isinstance(method, str) or method.lower() not in _METHODS:
        raise ValueError(f"minimize: method {method!r} is not known; 'BFGS' is.")
    search, known = _METHODS[method.lower()]
    chosen = dict(options or {})
    unknown = sorted(set(chosen) - known)
    if unknown:
        raise ValueError(
            f"minimize: method {method!r} has no option {', '.join(unknown)}; it has {', '.join(sorted(known))}."
        )
    if tol is not None:
        chosen["gtol"] = tol
    x0 = concrete(inexact("minimize", x0))
    if x0.ndim != 1:
        raise ValueError(f"minimize: x0 must be a vector, got shape {tuple(x0.shape)}.")
    if search is _bfgs and dtypes.issubdtype(x0.dtype, np.complexfloating):
        raise ValueError("minimize: BFGS takes real vectors.")
    return search(_vector_function(fun, args), x0, **chosen)


guard_all(globals())
