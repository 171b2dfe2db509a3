"""Check derivatives against finite differences.

Laws: forward, jvp(f)(x, t) is the central difference of f at x along t; backward, <ct, J t> == <vjp(ct), t>.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import weft
from weft._engine.util.source import guard_all
from weft.tree_util import tree_leaves, tree_map

# Tolerance and step of the difference quotient by the coarsest floating dtype among the values.
_TOLERANCE = {"float16": 5e-2, "bfloat16": 1e-1, "float32": 2e-3, "float64": 1e-5}
_STEP = {"float16": 1e-1, "bfloat16": 1e-1, "float32": 2.0**-11, "float64": 2.0**-17}
#: factors of the step, tried in order: values much larger than their differences need longer steps
_STEP_FACTORS = (1, 4, 16)

#: a bound, or bounds by dtype; other dtypes use the default
Tolerance = float | Mapping[Any, float] | None


def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int,
    modes: str | Sequence[str] = ("fwd", "rev"),
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
) -> None:
    """Check the derivatives of `f` at `args` up to `order` against difference quotients, in the modes "fwd" and "rev".
    `modes` is a sequence of modes, or a string that contains their names.

    Arguments are trees of floating (or complex) arrays; `eps` is the step; `atol` and `rtol` are bounds, or dicts from
    dtypes to bounds. Missing values follow from the dtype.
    Raises AssertionError if a derivative is wrong, ValueError for an unknown mode.

    >>> check_grads(wnp.sin, (wnp.arange(3.0),), order=2)
    """
    if isinstance(modes, str):
        modes = [mode for mode in ("fwd", "rev") if mode in modes] or [modes]
    unknown = set(modes) - {"fwd", "rev"}
    if unknown:
        raise ValueError(f"check_grads: modes are 'fwd' and 'rev', got {sorted(unknown)}")
    if not isinstance(order, (int, np.integer)) or order < 0:
        raise ValueError(
            f"check_grads: `order` must be an integer of at least 0, got {order!r:.60}."
        )
    args = tuple(args)
    if order == 0:
        return
    if "fwd" in modes:
        jvp = partial(weft.jvp, f)
        check_jvp(f, lambda primals, tangents: jvp(primals, tangents)[:2], args, atol, rtol, eps)
        tangents = _random_like(args, seed=order)
        check_grads(
            lambda *xs: weft.jvp(f, xs, tangents)[1], args, order - 1, modes, atol, rtol, eps
        )
    if "rev" in modes:
        vjp = partial(weft.vjp, f)
        check_vjp(f, vjp, args, atol, rtol, eps)
        cotangent = _random_like(f(*args), seed=-order)
        check_grads(
            lambda *xs: weft.vjp(f, *xs)[1](cotangent), args, order - 1, modes, atol, rtol, eps
        )


def check_jvp(
    f: Callable[..., Any],
    f_jvp: Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, Any]],
    args: Sequence[Any],
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
    err_msg: str = "",
) -> None:
    """Check `f_jvp(primals, tangents)` against `f` and its central differences."""
    args = tuple(args)

    def check(eps: float) -> None:
        tangents = _round_tangents(args, _random_like(args, seed=1), eps)
        value, tangent = f_jvp(args, tangents)
        _compare(
            value,
            f(*args),
            atol,
            rtol,
            f"check_grads: {err_msg} the primal output of jvp disagrees",
        )
        _compare(
            tangent,
            _difference(f, args, tangents, eps),
            atol,
            rtol,
            f"check_grads: {err_msg} the tangent output of jvp disagrees",
        )

    _check_with_steps(check, args, eps)


def check_vjp(
    f: Callable[..., Any],
    f_vjp: Callable[..., tuple[Any, Callable[[Any], Any]]],
    args: Sequence[Any],
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
    err_msg: str = "",
) -> None:
    """Check `f_vjp(*args)` against `f` and, by the adjoint identity, its central differences."""
    args = tuple(args)
    value, pull_back = f_vjp(*args)
    _compare(
        value, f(*args), atol, rtol, f"check_grads: {err_msg} the primal output of vjp disagrees"
    )
    cotangent = _random_like(value, seed=3)
    back = pull_back(cotangent)
    scale = 1 + np.sqrt(_inner(cotangent, cotangent))

    def check(eps: float) -> None:
        tangents = _round_tangents(args, _random_like(args, seed=2), eps)
        forward, backward = (
            _inner(cotangent, _difference(f, args, tangents, eps)),
            _inner(back, tangents),
        )
        _compare(
            np.asarray(backward / scale),
            np.asarray(forward / scale),
            atol,
            rtol,
            f"check_grads: {err_msg} the adjoint of vjp disagrees",
            value,
        )

    _check_with_steps(check, args, eps)


def _check_with_steps(
    check: Callable[[float], None], args: tuple[Any, ...], eps: float | None
) -> None:
    """Call `check(eps)`; without `eps`, try the steps for the dtype and raise the error of the shortest if all fail."""
    if eps is not None and not (isinstance(eps, (int, float, np.integer, np.floating)) and eps > 0):
        raise ValueError(f"`eps` must be a positive number, got {eps!r:.60}.")
    steps = [_STEP[_coarsest(args)] * factor for factor in _STEP_FACTORS] if eps is None else [eps]
    try:
        return check(steps[0])
    except AssertionError:
        for step in steps[1:]:
            try:
                return check(step)
            except AssertionError:
                continue
        raise


def _difference(
    f: Callable[..., Any], args: tuple[Any, ...], tangents: tuple[Any, ...], step: float
) -> Any:
    """Return the central difference of `f` along `tangents`."""

    def moved(sign: float) -> Any:
        return f(*tree_map(lambda x, t: _move(x, t, sign * step), args, tangents))

    def quotient(above: Any, below: Any) -> np.ndarray:
        above, below = np.asarray(above), np.asarray(below)
        if not _is_inexact(above):
            return np.zeros(above.shape, np.float64)
        above, below = _widen(above), _widen(below)
        are_equal_infinities = ~np.isfinite(above) & (above == below)  # infinite on both sides
        return np.where(
            are_equal_infinities, 0, above - np.where(are_equal_infinities, 0, below)
        ) / (2 * step)

    return tree_map(quotient, moved(+1.0), moved(-1.0))


def _round_tangents(args: Sequence[Any], tangents: Any, step: float) -> Any:
    """Return `tangents` rounded so that steps along them are exact in float32 or float64 arguments, without rounding error."""

    def leaf(x: Any, t: Any) -> Any:
        x, t = np.asarray(x), np.asarray(t)
        dtype = weft.dtypes.canonicalize_dtype(x.dtype) if _is_inexact(x) else None
        if dtype not in (np.float32, np.float64):
            return t
        grain = np.spacing(np.asarray(2 * np.abs(x) + step, dtype)).astype(np.float64) / step
        return np.asarray(np.round(t / grain) * grain, x.dtype)

    return tree_map(leaf, tuple(args), tangents)


def _move(x: Any, t: Any, step: float) -> Any:
    x = np.asarray(x)
    return (_widen(x) + step * _widen(np.asarray(t))).astype(x.dtype) if _is_inexact(x) else x


def _random_like(tree: Any, seed: int) -> Any:
    """Return standard normal values with the shapes and dtypes of `tree`; float0 zeros for its integers."""
    numbers = np.random.default_rng(abs(seed) * 2 + (seed < 0))

    def leaf(x: Any) -> np.ndarray:
        x = np.asarray(x)
        if not _is_inexact(x):
            return np.zeros(x.shape, weft.float0)
        values = numbers.standard_normal(x.shape)
        if np.issubdtype(x.dtype, np.complexfloating):
            values = values + 1j * numbers.standard_normal(x.shape)
        return np.asarray(values).astype(x.dtype)

    return tree_map(leaf, tree)


def _inner(a: Any, b: Any) -> float:
    """Return the real inner product of two trees, without conjugation, as derivatives pair with tangents."""
    pairs = zip(tree_leaves(a), tree_leaves(b), strict=True)
    products = [
        np.sum(_widen(np.asarray(x)) * _widen(np.asarray(y)))
        for x, y in pairs
        if _is_inexact(np.asarray(x))
    ]
    return float(np.real(sum(products)))


def _compare(
    actual: Any, expected: Any, atol: Tolerance, rtol: Tolerance, what: str, like: Any = None
) -> None:
    like = actual if like is None else like
    for x, y in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        if not _is_inexact(x):
            continue
        np.testing.assert_allclose(
            _widen(x),
            _widen(y),
            atol=_tolerance_for(atol, like),
            rtol=_tolerance_for(rtol, like),
            err_msg=what,
        )


def _tolerance_for(tolerance: Tolerance, like: Any) -> float:
    """Return the bound for values like `like`: the largest bound of their dtypes."""
    if tolerance is None or isinstance(tolerance, Mapping):
        bounds = {np.dtype(dtype).name: bound for dtype, bound in (tolerance or {}).items()}
        names = {np.asarray(x).dtype.name for x in tree_leaves(like)} & bounds.keys()
        return max([bounds[name] for name in names], default=_TOLERANCE[_coarsest(like)])
    if np.ndim(tolerance) or not isinstance(
        tolerance, (int, float, np.number, np.ndarray, weft.Array)
    ):
        raise TypeError(
            f"`atol` and `rtol` must be numbers, or map dtypes to numbers, got {tolerance!r:.60}."
        )
    if tolerance < 0:
        raise ValueError(f"`atol` and `rtol` must not be negative, got {tolerance!r:.60}.")
    return float(tolerance)


def _is_inexact(x: np.ndarray) -> bool:
    return np.issubdtype(x.dtype, np.inexact) or x.dtype.name == "bfloat16"


def _widen(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if np.issubdtype(x.dtype, np.complexfloating) else np.float64)


def _coarsest(tree: Any) -> str:
    """Return the name of the least precise real dtype among the floating leaves of `tree`, after canonicalization."""
    real_of = {"complex64": "float32", "complex128": "float64"}
    names = {
        np.dtype(weft.dtypes.canonicalize_dtype(np.asarray(x).dtype)).name
        for x in tree_leaves(tree)
        if _is_inexact(np.asarray(x))
    }
    names |= {real_of[name] for name in names & real_of.keys()}
    return next(
        (name for name in ("bfloat16", "float16", "float32", "float64") if name in names), "float32"
    )


guard_all(globals())
