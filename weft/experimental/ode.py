"""Initial value problems of ordinary differential equations, solved with an adaptive step and differentiated by the adjoint method.

In:  the right side of y' = func(y, t, *args), a tree of arrays y0, and increasing times.
Out: y at each time, a tree of arrays with a first dim for the times.
How: the pair of Dormand & Prince (1980) of orders 5 and 4 chooses the steps, its interpolant of order 4 (Shampine, 1986) gives values
     between them. Reverse mode integrates y, its cotangent and the cotangents of the arguments backward in time (Pontryagin's adjoint).
Laws: the solver works on one real vector; complex numbers count as pairs. A time of the result never shortens a step.

>>> y = odeint(lambda y, t: -y, wnp.float32(1.0), wnp.array([0.0, 1.0, 2.0]), rtol=1e-6, atol=1e-6)
>>> [round(float(x), 4) for x in y]
[1.0, 0.3679, 0.1353]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import lax
from weft._engine.api.arrays import closure_convert
from weft._engine.api.autodiff import vjp
from weft._engine.control.custom_rules import custom_vjp
from weft._engine.util.dtypes import float0, is_complex, result_type
from weft._engine.util.source import api_boundary
from weft.tree_util import tree_flatten, tree_leaves, tree_map, tree_unflatten

__all__ = ["odeint"]

#: times, and weights of the earlier slopes, of the stages after the first
_NODES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
#: weights of the result of order 5 minus the weights of the result of order 4
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
#: weights of the slopes in the coefficients of θ, θ², θ³, θ⁴ of the interpolant
_DENSE = (
    (1.0, -8048581381 / 2820520608, 8663915743 / 2820520608, -12715105075 / 11282082432),
    (0.0, 0.0, 0.0, 0.0),
    (0.0, 131558114200 / 32700410799, -68118460800 / 10900136933, 87487479700 / 32700410799),
    (0.0, -1754552775 / 470086768, 14199869525 / 1410260304, -10690763975 / 1880347072),
    (0.0, 127303824393 / 49829197408, -318862633887 / 49829197408, 701980252875 / 199316789632),
    (0.0, -282668133 / 205662961, 2019193451 / 616988883, -1453857185 / 822651844),
    (0.0, 40617522 / 29380423, -110615467 / 29380423, 69997945 / 29380423),
)
_SAFETY, _SHRINK, _GROW = 0.9, 0.2, 10.0


@api_boundary
def odeint(
    func: Callable[..., Any], y0: Any, t: Any, *args: Any, rtol: float = 1.4e-8, atol: float = 1.4e-8, mxstep: float = math.inf,
    hmax: float = math.inf,
) -> Any:  # fmt: skip
    """Solve `dy/dt = func(y, t, *args)` from `y(t[0]) = y0`. Return y at the times `t`, of shape `(len(t), *y0.shape)` for each leaf.

    `t` is a vector of increasing times. A step is accepted if the root mean square of the estimated error is at most
    `atol + rtol |y|`; `hmax` limits its size, `mxstep` the number of steps to each time. If a time was not reached in
    `mxstep` steps, or no smaller step is possible, the interpolant of the last step is extrapolated. `func` may close over
    traced values. Reverse mode differentiates with respect to y0, t and args, to any order; forward mode raises TypeError.

    >>> def position(y0, frequency):
    ...     swing = lambda y, t, w: wnp.stack([y[1], -w * w * y[0]])
    ...     return odeint(swing, y0, wnp.array([0.0, 1.0]), frequency, rtol=1e-6, atol=1e-6)[1, 0]
    >>> value, slope = weft.value_and_grad(position, argnums=1)(wnp.array([1.0, 0.0]), 2.0)
    >>> f"{value:.3f} {slope:.3f}"                # cos w and -sin w
    '-0.416 -0.909'
    """
    ts = _inexact(t)
    if ts.ndim != 1 or not ts.size or wnp.issubdtype(ts.dtype, wnp.complexfloating):
        raise ValueError(
            f"odeint: t must be a vector of at least one real time; it has shape {ts.shape} and dtype {ts.dtype}"
        )
    y0 = tree_map(_inexact, y0)
    args = tree_map(wnp.asarray, args)
    converted, hoisted = closure_convert(func, y0, ts[0], *args)
    layout = _RavelLayout(y0)
    leaves, structure = tree_flatten((args, tuple(hoisted)))

    def field(state: Any, time: Any, leaves: Any) -> Any:
        args, hoisted = tree_unflatten(structure, leaves)
        return layout.slopes(converted(layout.unpack(state), time, *args, *hoisted))

    control = (float(rtol), float(atol), float(mxstep), float(hmax))
    return layout.unpack(_solve(field, control, layout.pack(y0), ts, leaves))


def _inexact(x: Any) -> Any:
    """Return `x` as a floating or complex array."""
    array: Any = wnp.asarray(x)
    return (
        array
        if wnp.issubdtype(array.dtype, wnp.inexact)
        else array.astype(wnp.promote_types(array.dtype, np.float32))
    )


class _RavelLayout:
    """The mapping between a tree of inexact arrays and one real vector."""

    def __init__(self, example: Any) -> None:
        leaves, self.structure = tree_flatten(example)
        self.shapes = [leaf.shape for leaf in leaves]
        self.dtypes = [np.dtype(leaf.dtype) for leaf in leaves]
        self.complex = list(map(is_complex, self.dtypes))
        self.dtype = (
            result_type(*(wnp.finfo(dtype).dtype for dtype in self.dtypes))
            if leaves
            else np.dtype(np.float32)
        )
        self.size = sum(
            math.prod(shape) * (2 if pair else 1)
            for shape, pair in zip(self.shapes, self.complex, strict=True)
        )

    def pack(self, tree: Any) -> Any:
        parts = []
        for leaf, pair in zip(tree_leaves(tree), self.complex, strict=True):
            parts += [wnp.real(leaf), wnp.imag(leaf)] if pair else [leaf]
        return (
            wnp.concatenate([wnp.ravel(part).astype(self.dtype) for part in parts])
            if parts
            else wnp.zeros(0, self.dtype)
        )

    def unpack(self, vectors: Any) -> Any:
        """Return the tree of a vector; dims before the last one are kept in front."""
        leaves, start = [], 0

        def take(shape: tuple[int, ...]) -> Any:
            nonlocal start
            start += math.prod(shape)
            return vectors[..., start - math.prod(shape) : start].reshape(
                *vectors.shape[:-1], *shape
            )

        for shape, dtype, pair in zip(self.shapes, self.dtypes, self.complex, strict=True):
            leaves.append(
                (lax.complex(take(shape), take(shape)) if pair else take(shape)).astype(dtype)
            )
        return tree_unflatten(self.structure, leaves)

    def slopes(self, out: Any) -> Any:
        """Return the result of the user's function as a vector. The result is the tree of y, or a tree with the same
        elements in this order, such as an array of slopes for a list of numbers."""
        leaves = [wnp.asarray(leaf) for leaf in tree_leaves(out)]
        if [leaf.shape for leaf in leaves] != self.shapes:
            sizes = [math.prod(shape) for shape in self.shapes]
            if sum(leaf.size for leaf in leaves) != sum(sizes):
                raise TypeError(
                    f"odeint: func must return slopes of the shapes of y, {self.shapes}; it returned {[leaf.shape for leaf in leaves]}"
                )
            whole = wnp.concatenate([wnp.ravel(leaf) for leaf in leaves])
            ends = list(itertools.accumulate(sizes))
            leaves = [
                whole[end - size : end].reshape(shape)
                for end, size, shape in zip(ends, sizes, self.shapes)
            ]
        for leaf, pair in zip(leaves, self.complex, strict=True):
            if not pair and wnp.issubdtype(leaf.dtype, wnp.complexfloating):
                raise TypeError(
                    f"odeint: func returned {leaf.dtype} for a y of real dtype; make y0 complex"
                )
        return self.pack(leaves)


def _solve(
    field: Callable[..., Any], control: tuple[float, ...], y0: Any, ts: Any, leaves: list[Any]
) -> Any:
    """Return the vectors at `ts`; `field(y, t, leaves)` is the slope."""
    leaves = [wnp.asarray(leaf) for leaf in leaves]  # literals of a program are Python numbers
    smooth = [i for i, leaf in enumerate(leaves) if wnp.issubdtype(leaf.dtype, wnp.inexact)]
    layout = _RavelLayout([leaves[i] for i in smooth])

    @custom_vjp
    def solve(y0: Any, ts: Any, leaves: Any) -> Any:
        return _integrate(lambda y, t: field(y, t, leaves), control, y0, ts)

    def forward(y0: Any, ts: Any, leaves: Any) -> Any:
        ys = solve(y0, ts, leaves)
        return ys, (ys, ts, leaves)

    def with_smooth(leaves: list[Any], values: Any) -> list[Any]:
        new = list(leaves)
        for i, value in zip(smooth, values, strict=True):
            new[i] = value
        return new

    def adjoint(state: Any, time: Any, leaves: Any) -> Any:
        """Return the slopes of y, its cotangent and the cotangents of the leaves in reversed time."""
        size = (state.size - layout.size) // 2
        y, cotangent = state[:size], state[size : 2 * size]
        pulled: Any = vjp(
            lambda y, values: field(y, -time, with_smooth(leaves, values)),
            y,
            [leaves[i] for i in smooth],
        )
        slope, pullback = pulled
        by_y, by_leaves = pullback(cotangent.astype(slope.dtype))
        return wnp.concatenate([-slope, by_y, layout.pack(by_leaves).astype(state.dtype)]).astype(
            state.dtype
        )

    def backward(residuals: Any, g: Any) -> Any:
        ys, ts, leaves = residuals
        leaves = [wnp.asarray(leaf) for leaf in leaves]
        dtype = result_type(ys.dtype, layout.dtype)
        size = ys.shape[1]

        def step(carry: Any, x: Any) -> Any:
            cotangent, total = carry
            before, time, y, g_here = x
            by_time = wnp.astype(wnp.sum(field(y, time, leaves) * g_here), ts.dtype)
            start = wnp.concatenate([y.astype(dtype), (cotangent + g_here).astype(dtype), total])
            end = _solve(adjoint, control, start, wnp.stack([-time, -before]), leaves)[1]
            return (end[size : 2 * size].astype(ys.dtype), end[2 * size :]), by_time

        start = (wnp.zeros(size, ys.dtype), wnp.zeros(layout.size, dtype))
        (cotangent, total), by_times = lax.scan(
            step, start, (ts[:-1], ts[1:], ys[1:], g[1:]), reverse=True
        )
        # moving the start time by dt changes the solution like changing y0 by -slope * dt
        by_start: Any = wnp.astype(-wnp.sum(field(ys[0], ts[0], leaves) * cotangent), ts.dtype)
        by_leaves = [np.zeros(leaf.shape, float0) for leaf in leaves]
        by_leaves = with_smooth(by_leaves, layout.unpack(total))
        return cotangent + g[0], wnp.concatenate([by_start[None], by_times]), by_leaves

    solve.defvjp(forward, backward)
    return solve(y0, ts, leaves)


def _integrate(
    slope: Callable[[Any, Any], Any], control: tuple[float, ...], y0: Any, ts: Any
) -> Any:
    """Return the solution at `ts`: step until a time is passed, then evaluate the interpolant of the last step."""
    rtol, atol, mxstep, hmax = control
    limit = np.int32(min(mxstep, np.iinfo(np.int32).max))
    dtype, time_dtype = y0.dtype, ts.dtype

    def size(error: Any, before: Any, after: Any) -> Any:
        """Return the error in units of the tolerance."""
        allowed = atol + rtol * wnp.maximum(wnp.abs(before), wnp.abs(after))
        return (
            wnp.sqrt(wnp.mean(wnp.square(error / allowed))).astype(time_dtype)
            if error.size
            else wnp.zeros((), time_dtype)
        )

    def advance(state: Any) -> Any:
        count, y, f, t, h, *last = state
        scale = h.astype(dtype)
        slopes, inner = [f], y
        for node, weights in zip(_NODES, _STAGES, strict=True):
            inner = y + scale * _combine(weights, slopes)
            slopes.append(slope(inner, t + np.asarray(node, time_dtype) * h).astype(dtype))
        error = size(scale * _combine(_ERROR, slopes), y, inner)
        dense = wnp.stack(
            [scale * _combine(column, slopes) for column in zip(*_DENSE, strict=True)]
        )
        accepted = error <= 1
        factor = wnp.clip(
            _SAFETY * wnp.where(error > 0, error, 1e-30) ** -0.2,
            _SHRINK,
            wnp.where(accepted, _GROW, 1.0),
        )
        # a non-finite error, as after an overflow, shrinks the step
        factor = wnp.asarray(wnp.where(wnp.isfinite(error), factor, _SHRINK), time_dtype)
        new = (inner, slopes[-1], t + h, t, h, y, dense)
        y, f, t, *last = (
            wnp.where(accepted, a, b) for a, b in zip(new, (y, f, t, *last), strict=True)
        )
        return (count + 1, y, f, t, wnp.minimum(h * factor, hmax).astype(time_dtype), *last)

    def to_time(state: Any, target: Any) -> Any:
        def unfinished(state: Any) -> Any:
            count, _, _, t, h, *_ = state
            return (t < target) & (count < limit) & (t + h > t)

        _, y, f, t, h, start, width, base, dense = lax.while_loop(
            unfinished, advance, (np.int32(0), *state)
        )
        theta = ((target - start) / wnp.where(width > 0, width, 1)).astype(dtype)
        value = base + theta * (
            dense[0] + theta * (dense[1] + theta * (dense[2] + theta * dense[3]))
        )
        return (y, f, t, h, start, width, base, dense), value

    f0 = slope(y0, ts[0]).astype(dtype)
    h = wnp.minimum(_first_step(slope, size, y0, f0, ts[0]), hmax).astype(time_dtype)
    state = (y0, f0, ts[0], h, ts[0], wnp.zeros_like(h), y0, wnp.zeros((4, *y0.shape), dtype))
    _, ys = lax.scan(to_time, state, ts[1:])
    return wnp.concatenate([y0[None], ys])


def _combine(weights: tuple[float, ...], slopes: list[Any]) -> Any:
    return sum(np.asarray(w, f.dtype) * f for w, f in zip(weights, slopes, strict=True) if w)


def _first_step(
    slope: Callable[[Any, Any], Any], size: Callable[..., Any], y0: Any, f0: Any, t0: Any
) -> Any:
    """Return a first step from the sizes of y, y' and an estimate of y'' (Hairer, Nørsett & Wanner, section II.4)."""
    size_y, size_f = size(y0, y0, y0), size(f0, y0, y0)
    small = (size_y < 1e-5) | (size_f < 1e-5)
    h: Any = wnp.asarray(
        wnp.where(small, 1e-6, 0.01 * size_y / wnp.where(small, 1, size_f)), t0.dtype
    )
    f1 = slope(y0 + h.astype(y0.dtype) * f0, t0 + h).astype(y0.dtype)
    largest = wnp.maximum(size_f, size(f1 - f0, y0, y0) / h)
    flat = largest <= 1e-15
    better = wnp.where(
        flat, wnp.maximum(1e-6, h * 1e-3), (0.01 / wnp.where(flat, 1, largest)) ** 0.2
    )
    return wnp.minimum(100 * h, better)
