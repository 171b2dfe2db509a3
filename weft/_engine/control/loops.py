"""Loops by `scan` and `while_loop`: `fori_loop` over a range of numbers, `map` over slices of
arrays."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from weft._engine.control.ref import lift_refs, thread_refs
from weft._engine.control.scan import bind_scan, check_unroll, scan
from weft._engine.control.staged_body import (
    adapt_function,
    freeze_numpy_arrays,
    runs_in_python,
    to_strong_type,
)
from weft._engine.control.while_loop import bind_while
from weft._engine.core.primitive import BatchAxis
from weft._engine.core.stage import ClosedOverRefsError
from weft._engine.core.trace import EvalTrace, Tracer, current_trace, typeof
from weft._engine.ir.symbolic import SymbolicDim, max_dim
from weft._engine.ops.arithmetic import add
from weft._engine.ops.comparison import lt
from weft._engine.ops.layout import reshape
from weft._engine.ops.slicing import concatenate, slice_in_dim
from weft._engine.transforms.batch import batch_flat, to_dim
from weft._engine.util import dtypes, tree
from weft._engine.util.errors import describe
from weft._engine.util.source import api_boundary, user_frame


def _fori_with_refs(
    plain: Callable,
    first: ClosedOverRefsError | None,
    lower: Any,
    upper: Any,
    body_fun: Callable,
    init_val: Any,
    *,
    unroll: int | bool | None = None,
) -> Any:
    """Apply `fori_loop` with references in its function: their values are carried."""

    def run(funs, values, args):
        last, state = plain(
            lower,
            upper,
            lambda i, s: funs[0].call(s[1], (i, s[0]))[:2],
            (args[1], values),
            unroll=unroll,
        )
        return last, state, []

    return lift_refs(first, "fori_loop", (lower, init_val), [body_fun], run)


@api_boundary
@thread_refs(_fori_with_refs)
def fori_loop(
    lower: Any, upper: Any, body_fun: Callable, init_val: Any, *, unroll: int | bool | None = None
) -> Any:
    """Repeat `val = body_fun(i, val)` for i from `lower` to `upper - 1`, and return the last value.

    The bounds are integers, or floats of one dtype: `i` is then `lower`, `lower + 1` and so on
    below `upper`. With bounds that are known while tracing, the loop is a `scan` and has
    derivatives of both modes. With traced bounds it is a `while_loop`: it has no reverse mode, and
    `unroll` raises ValueError. TypeError is raised if `val` changes its structure, shapes or
    dtypes.

    >>> int(lax.fori_loop(1, 5, lambda i, product: product * i, 1))
    24
    """
    if not callable(body_fun):
        raise TypeError(f"fori_loop: the body must be callable, got {body_fun!r}.")
    if unroll is not None:
        check_unroll("fori_loop", unroll)
    lower, upper = _bounds(lower, upper)
    known = [_concrete_number(x) for x in (lower, upper)]
    if runs_in_python():
        init_val = freeze_numpy_arrays(init_val)
        for i in range(_steps(*known)):
            init_val = body_fun(known[0] + i, init_val)
        return init_val
    if None in known and unroll not in (None, True, False):
        raise ValueError(
            describe(
                "fori_loop",
                f"Can only use `unroll` where the bounds are known while tracing, got unroll={unroll}.",
                (),
                user_frame(),
                "A loop of a number of steps that is not known is a while_loop.",
                "Leave `unroll` out, or make the bounds static.",
            )
        )
    if type(current_trace()) is EvalTrace or None in known:
        # nothing is differentiated: one program serves every number of steps
        return bind_while(
            "fori_loop", _below, adapt_function(body_fun, _step), (lower, upper, init_val)
        )[2]
    (_, last), _ = bind_scan(
        "fori_loop",
        adapt_function(body_fun, _scan_step),
        (lower, init_val),
        [],
        tree.tree_structure(None),
        _steps(*known),
        False,
        1 if unroll is None else unroll,
    )
    return last


def _bounds(lower: Any, upper: Any) -> tuple:
    """Return both bounds with one integer or float type."""
    avals = [typeof(lower), typeof(upper)]
    for name, aval in zip(("lower", "upper"), avals):
        if aval.shape or not (
            dtypes.issubdtype(aval.dtype, np.integer) or dtypes.issubdtype(aval.dtype, np.floating)
        ):
            raise TypeError(
                describe(
                    "fori_loop",
                    f"{name} must be a scalar, an integer or a float, got {aval.str_short()}.",
                    (),
                    user_frame(),
                )
            )
    if avals[0].dtype != avals[1].dtype:
        if avals[0].weak_type == avals[1].weak_type:
            raise TypeError(
                describe(
                    "fori_loop",
                    "lower and upper arguments to fori_loop must have equal types.",
                    [("lower", avals[0].str_short()), ("upper", avals[1].str_short())],
                    user_frame(),
                    "The counter has one type.",
                    "Cast one of them with .astype.",
                )
            )

        if avals[0].weak_type and avals[0].dtype.kind == avals[1].dtype.kind:
            return to_strong_type(lower, avals[1].dtype), upper
        return lower, to_strong_type(upper, avals[0].dtype)
    return lower, upper


def _concrete_number(x: Any) -> Any:
    """Return the number if it is known while tracing, else None."""
    if isinstance(x, Tracer):
        x = x.concrete()
    if x is None or isinstance(x, (int, float, SymbolicDim)):
        return x
    return int(x) if dtypes.is_native_integer(typeof(x).dtype) else float(x)


def _steps(lower: int | float, upper: int | float) -> int:
    count = upper - lower
    return max_dim(count if isinstance(count, SymbolicDim) else math.ceil(count), 0)


def _increment(i):

    return add(i, np.ones((), typeof(i).dtype)[()])


def _below(state):

    return lt(state[0], state[1])


def _step(body, state):
    i, upper, value = state
    return _increment(i), upper, body(i, value)


def _scan_step(body, state, _):
    i, value = state
    return (_increment(i), body(i, value)), None


@api_boundary
def map(f: Callable, xs: Any, *, batch_size: int | None = None) -> Any:
    """Apply `f` to each slice of `xs` along dim 0, one after another, and stack the results.

    Like `vmap(f)(xs)`, in the memory of one slice at a time; `batch_size` processes that many
    slices at once (0 and None: one). Results have one more dim than those of `f`. Raises ValueError
    if the sizes of dim 0 differ or `xs` has no arrays.

    >>> lax.map(lambda x: x * x, wnp.arange(4)).tolist()
    [0, 1, 4, 9]
    """
    batch_size = 0 if batch_size is None else operator.index(batch_size)
    if batch_size < 0:
        raise ValueError(f"map: batch_size must not be negative, got {batch_size}.")
    if not batch_size:
        return scan(adapt_function(f, _apply), None, xs)[1]
    leaves, structure = tree.tree_flatten(xs)
    sizes = {typeof(x).shape[0] for x in leaves if typeof(x).ndim}
    if len(sizes) != 1 or not all(typeof(x).ndim for x in leaves):
        raise ValueError(
            f"map: xs need one common leading axis, got {', '.join(typeof(x).str_short() for x in leaves)}."
        )
    (size,) = sizes
    return _map_batches(f, leaves, structure, size, batch_size)


def _map_batches(f: Callable, leaves: list, structure: Any, size: int, batch_size: int) -> Any:
    """Process whole batches by a scan, and the remaining slices as one more batch."""

    whole = size - size % batch_size
    parts = []
    if whole:
        rows = [
            reshape(
                slice_in_dim(x, 0, whole), (whole // batch_size, batch_size, *typeof(x).shape[1:])
            )
            for x in leaves
        ]
        ys = scan(adapt_function(f, _apply_batch), None, tree.tree_unflatten(structure, rows))[1]
        parts.append(tree.tree_map(lambda y: reshape(y, (whole, *typeof(y).shape[2:])), ys))
    if whole < size or not size:
        parts.append(
            _batch(
                f, tree.tree_unflatten(structure, [slice_in_dim(x, whole, size) for x in leaves])
            )
        )
    return parts[0] if len(parts) == 1 else tree.tree_map(lambda *ys: concatenate(ys, 0), *parts)


def _apply(f, carry, x):
    return carry, f(x)


def _apply_batch(f, carry, batch):
    return carry, _batch(f, batch)


def _batch(f: Callable, batch: Any) -> Any:
    """Return `f` mapped over dim 0 of every array of a tree."""
    leaves, structure = tree.tree_flatten(batch)
    axis = BatchAxis(typeof(leaves[0]).shape[0])
    out_tree: list = []

    def flat(*xs):
        outs, out_structure = tree.tree_flatten(f(tree.tree_unflatten(structure, xs)))
        out_tree[:] = [out_structure]
        return outs

    outs, dims = batch_flat(flat, axis, leaves, [0] * len(leaves))
    return tree.tree_unflatten(out_tree[0], [to_dim(y, d, axis, 0) for y, d in zip(outs, dims)])
