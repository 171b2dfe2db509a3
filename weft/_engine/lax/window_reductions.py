"""Reductions by a user's function: over dims (`reduce`) and over windows (`reduce_window`).

The function combines two scalars. If staging finds one of the known monoids (add, mul, max, min,
and, or, xor), the reduction is that operation; any other function is applied elementwise, halving
the dim repeatedly.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.api.execute import to_array
from weft._engine.api.vmap import vmap
from weft._engine.control.custom_rules import custom_jvp
from weft._engine.control.scan import scan
from weft._engine.core.stage import stage
from weft._engine.core.trace import Tracer, typeof
from weft._engine.ir.registry import registry
from weft._engine.ir.rewrite import inline_calls, is_transparent
from weft._engine.ir.symbolic import SymbolicDim, is_at_most, max_dim
from weft._engine.ir.types import ShapedArray
from weft._engine.ops import arithmetic, bitwise, comparison, layout, reduce, slicing
from weft._engine.ops.conv_products import out_size
from weft._engine.ops.convolution import padtype_to_pads
from weft._engine.ops.families import canonical_dims, match_dtypes
from weft._engine.ops.indexing import GatherDimensionNumbers, gather
from weft._engine.ops.placement import with_out_sharding
from weft._engine.transforms.batch import move_dim
from weft._engine.util import dtypes, tree
from weft._engine.util.errors import InconclusiveDimensionOperation
from weft._engine.util.messages.quantities import quantity

_COMBINE = {
    "add": arithmetic.add,
    "mul": arithmetic.mul,
    "max": arithmetic.max,
    "min": arithmetic.min,
    "and": bitwise.bitwise_and,
    "or": bitwise.bitwise_or,
    "xor": bitwise.bitwise_xor,
}
_REDUCE = {
    "add": reduce.reduce_sum,
    "mul": reduce.reduce_prod,
    "max": reduce.reduce_max,
    "min": reduce.reduce_min,
    "and": reduce.reduce_and,
    "or": reduce.reduce_or,
    "xor": reduce.reduce_xor,
}


def monoid(computation: Callable, dtype: Any) -> str | None:
    """Return the name of the operation that `computation` is on two scalars of `dtype`, or None."""
    scalar = ShapedArray((), dtype)
    staged = stage(
        lambda x, y: tree.tree_leaves(computation(x, y)), [scalar, scalar], "computation"
    )
    jaxpr = inline_calls(staged, is_transparent)  # a jitted function counts as its only operation
    if len(jaxpr.eqns) != 1:
        return None
    (eqn,) = jaxpr.eqns
    same = lambda some, others: (
        len(some) == len(others) and set(map(id, some)) == set(map(id, others))
    )
    is_only_equation = same(eqn.invars, jaxpr.invars) and same(eqn.outvars, jaxpr.outvars)
    name = eqn.primitive.name
    return (
        name if name in _COMBINE and eqn.primitive is registry[name] and is_only_equation else None
    )


def _array(x):
    return x if isinstance(x, Tracer) else to_array(x)


def reduce_by(
    operands: Any,
    init_values: Any,
    computation: Callable,
    dimensions: Sequence[int],
    out_sharding: Any = None,
) -> Any:
    """Return `operands` reduced over `dimensions` by `computation`, from `init_values`.

    `operands` is an array, or a tree of arrays of one shape.

    `out_sharding` is the sharding of the results.

    >>> float(reduce_by(np.array([1.0, 4.0]), 0.0, lambda x, y: x + y, (0,)))
    5.0
    """
    if out_sharding is not None:
        whole = lambda: reduce_by(operands, init_values, computation, dimensions)
        return with_out_sharding(
            out_sharding, "reduce", whole, *tree.tree_leaves((operands, init_values))
        )
    flat, structure = tree.tree_flatten(operands)
    inits, structure_of_inits = tree.tree_flatten(init_values)
    if structure_of_inits != structure:
        raise ValueError(
            f"reduce: Operands must have the same tree structure as init_values, got "
            f" {structure} and {structure_of_inits}."
            f"{tree.describe_difference(structure, structure_of_inits, 'operands', 'init_values')}"
        )
    for x in inits:
        if np.ndim(x):
            raise ValueError(
                f"reduce found non-scalar initial value of shape {tuple(np.shape(x))}; there is one number for each operand."
            )
    flat = [_array(x) for x in flat]
    inits = [match_dtypes(x, i)[1] for x, i in zip(flat, inits)]
    dims = tuple(sorted(canonical_dims("reduce", dimensions, flat[0].ndim)))
    of_scalars = _of_scalars(computation, structure, "reduce")
    name = monoid(lambda x, y: of_scalars([x], [y]), flat[0].dtype) if len(flat) == 1 else None
    if name is not None:
        return tree.tree_unflatten(
            structure, [_COMBINE[name](_REDUCE[name](flat[0], dims), inits[0])]
        )
    combine = _elementwise(of_scalars)
    for d in reversed(dims):
        flat = _reduce_by_halving(flat, inits, combine, d)
    full_inits = [layout.broadcast_in_dim(i, tuple(x.shape), ()) for i, x in zip(inits, flat)]
    return tree.tree_unflatten(structure, combine(full_inits, flat))


def _of_scalars(computation: Callable, structure, api: str) -> Callable:
    """Return `computation`, a function of two trees of scalars, as a function of their leaf lists."""

    def combine(xs: list, ys: list) -> list:
        flat, out_structure = tree.tree_flatten(
            computation(tree.tree_unflatten(structure, xs), tree.tree_unflatten(structure, ys))
        )
        if out_structure != structure:
            raise ValueError(
                f"{api}: the result of the computation must have the tree structure of the operands, {structure}; "
                f"got {out_structure}."
                f"{tree.describe_difference(structure, out_structure, 'operands', 'result')}"
            )
        return flat

    return combine


def _elementwise(of_scalars: Callable) -> Callable:
    """Return a function of lists of scalars, applied elementwise to lists of arrays of one shape."""

    def combine(xs, ys):
        shape = tuple(xs[0].shape)
        flat = [[layout.reshape(v, (math.prod(shape),)) for v in side] for side in (xs, ys)]
        return [layout.reshape(v, shape) for v in vmap(of_scalars)(*flat)]

    return combine


def _reduce_by_halving(xs: list, inits: list, combine: Callable, dim: int) -> list:
    """Return `xs` combined along `dim`, which is removed."""
    size = xs[0].shape[dim]
    if isinstance(size, SymbolicDim) or size == 0:
        shape = tuple(n for d, n in enumerate(xs[0].shape) if d != dim)
        first = [layout.broadcast_in_dim(i, shape, ()) for i in inits]
        if size == 0:
            return first
        rows = [move_dim(x, dim, 0) for x in xs]
        return scan(lambda carry, row: (combine(carry, row), None), first, rows)[0]
    while (n := xs[0].shape[dim]) > 1:
        low = [slicing.slice_in_dim(x, 0, n // 2, axis=dim) for x in xs]
        high = [slicing.slice_in_dim(x, n // 2, n // 2 * 2, axis=dim) for x in xs]
        last_slices = [slicing.slice_in_dim(x, n - 1, n, axis=dim) for x in xs] if n % 2 else None
        xs = combine(low, high)
        if last_slices is not None:
            xs = [slicing.concatenate([x, r], dim) for x, r in zip(xs, last_slices)]
    return [layout.squeeze(x, (dim,)) for x in xs]


# ---- windows


@functools.cache
def _choose(name: str) -> Callable:
    """Return the larger or smaller of two values; only the first of equal values has a tangent."""

    @custom_jvp
    def choose(x, y):
        return _COMBINE[name](x, y)

    @choose.defjvp
    def _(primals, tangents):
        out = choose(*primals)
        return out, comparison.select(comparison.eq(primals[0], out), *tangents)

    return choose


@functools.cache
def _chosen_along(name: str, dim: int) -> Callable:
    """Return the maximum or minimum along a dim, with the derivative of `_choose`.

    The dim is removed.
    """

    @custom_jvp
    def choose(x):
        return _REDUCE[name](x, (dim,))

    @choose.defjvp
    def _(primals, tangents):
        (x,), (t,) = primals, tangents
        first = (reduce.argmax if name == "max" else reduce.argmin)(x, dim, np.int32)
        shape, others = tuple(x.shape), tuple(d for d in range(x.ndim) if d != dim)
        here = comparison.eq(
            layout.broadcasted_iota(np.int32, shape, dim),
            layout.broadcast_in_dim(first, shape, others),
        )
        return choose(x), reduce.reduce_sum(
            comparison.select(here, t, layout.full_like(t, 0)), (dim,)
        )

    return choose


def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Callable,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any:
    """Return the reduction of every window of `operand` (pooling).

    Borders are filled with `init_value`.

    A box is reduced one dim after the other, a window of width n in about log2(n) steps. The
    derivative of a maximum or minimum goes to the first of equal elements, rows before columns.

    >>> reduce_window(np.arange(4.0), 0.0, lambda x, y: x + y, (2,), (2,)).tolist()
    [1.0, 5.0]
    """
    flat, structure = tree.tree_flatten(operand)
    inits = tree.tree_leaves(init_value)
    flat = [_array(x) for x in flat]
    _check_inits(inits, len(flat))
    of_scalars = _of_scalars(computation, structure, "reduce_window")
    name = monoid(lambda x, y: of_scalars([x], [y]), flat[0].dtype) if len(flat) == 1 else None
    inits = _cast_inits(name, inits, flat)
    shape, dtype = flat[0].shape, flat[0].dtype
    window, strides, base, spread = _box_sizes(
        shape, window_dimensions, window_strides, base_dilation, window_dilation
    )
    pads = padding
    if isinstance(padding, str):  # the padding of the operand before its dilation, as in JAX
        sizes = [(k - 1) * d + 1 for k, d in zip(window, spread)]
        pads = padtype_to_pads(shape, sizes, strides, padding)
    combine, reduce_along = _reducers(name, dtype, of_scalars)
    borders = [(lo, hi, d - 1) for (lo, hi), d in zip(pads, base)]
    neutral = _is_neutral(name, inits[0], dtype)
    if not neutral:
        flat = _with_borders(flat, inits, borders, range(len(shape)))
    for d in reversed(range(len(shape))):
        if neutral:  # padding next to its windows, so that the partitioner handles both as one
            flat = _with_borders(flat, inits, borders, (d,))
        flat = _windows(flat, combine, reduce_along, d, window[d], strides[d], spread[d])
    if not neutral:
        flat = combine(
            [layout.broadcast_in_dim(i, tuple(x.shape), ()) for i, x in zip(inits, flat)], flat
        )
    return tree.tree_unflatten(structure, flat)


def _check_inits(inits: list, count: int) -> None:
    if any(np.ndim(i) for i in inits) or len(inits) != count:
        raise TypeError(
            f"reduce_window: init_value must be one scalar for each of {quantity(count, 'operand')}, got shapes "
            f"{[tuple(np.shape(i)) for i in inits]}."
        )


def _reducers(
    name: str | None, dtype: Any, of_scalars: Callable
) -> tuple[Callable, Callable | None]:
    """Return a function that combines two lists of arrays, and one that reduces a whole dim.

    The second is None if there is none.
    """
    if name is None:
        return _elementwise(of_scalars), None
    picks = name in ("max", "min") and dtypes.issubdtype(dtype, np.floating)
    one = _choose(name) if picks else _COMBINE[name]
    reduce_along = functools.partial(_chosen_along if picks else _whole, name)
    return (lambda xs, ys: [one(xs[0], ys[0])]), reduce_along


def _cast_inits(name: str | None, inits: list, xs: list) -> list:
    """Return initial values in the dtypes of the operands; -inf becomes the least of all integers."""
    dtype = typeof(inits[0]).dtype
    if name is not None and dtype != xs[0].dtype and _is_neutral(name, inits[0], dtype):
        inits = [np.asarray(_neutral(name, xs[0].dtype), xs[0].dtype)]
    return [match_dtypes(x, i)[1] for x, i in zip(xs, inits)]


def _box_sizes(shape: Sequence[int], *given: Sequence[int] | None) -> list[tuple[int, ...]]:
    """Return the window, its strides, the operand's dilation and the window's dilation.

    Each is 1 in each dim by default.
    """
    n = len(shape)
    sizes = [(1,) * n if v is None else tuple(v) for v in given]
    if any(len(v) != n for v in sizes):
        window, strides, base, spread = sizes
        raise ValueError(
            f"reduce_window: window {window}, strides {strides} and dilations {base}, {spread} must have one entry per dim of "
            f"the operand, shape {tuple(shape)}."
        )
    names = ("window_dimensions", "window_strides", "base_dilation", "window_dilation")
    for name, numbers in zip(names, sizes):
        if any(k < 1 for k in numbers):
            raise TypeError(
                f"reduce_window: {name} must have every element be at least 1, got {numbers}."
            )
    return sizes


def _with_borders(xs: list, inits: list, borders: list, dims: Sequence[int]) -> list:
    """Return operands with the borders and the dilation of some dims applied."""
    if all(borders[d] == (0, 0, 0) for d in dims):
        return xs
    config = [c if d in dims else (0, 0, 0) for d, c in enumerate(borders)]
    return [slicing.pad(x, i, config) for x, i in zip(xs, inits)]


def _is_neutral(name: str | None, init: Any, dtype: Any) -> bool:
    """Return whether `init` is the neutral element."""
    if name is None or isinstance(init, Tracer):
        return False
    value = _neutral(name, dtype)
    return value is not None and bool(np.asarray(init) == value)


def _neutral(name: str, dtype: Any) -> Any:
    """Return the neutral element for values of `dtype`, or None."""
    neutral_values = {
        "add": 0,
        "or": 0,
        "xor": 0,
        "mul": 1,
        "max": reduce.lowest,
        "min": reduce.highest,
        "and": None,
    }[name]
    return neutral_values(dtype) if callable(neutral_values) else neutral_values


def _whole(name: str, dim: int) -> Callable:
    return lambda x: _REDUCE[name](x, (dim,))


def _windows(
    xs: list,
    combine: Callable,
    reduce_along: Callable | None,
    dim: int,
    width: int,
    stride: int,
    spread: int,
) -> list:
    """Return windows of `width` elements, `spread` apart, reduced along one dim.

    `reduce_along(dim)` reduces a whole dim.
    """
    n = xs[0].shape[dim]
    count, reach = out_size(n, 0, 0, 1, width, spread, stride), (width - 1) * spread + 1
    if width == 1 and stride == 1:
        return xs
    if not count:
        return [slicing.slice_in_dim(x, 0, 0, axis=dim) for x in xs]
    if isinstance(count, SymbolicDim) and not is_at_most(reach, n):
        xs = _padded_to(xs, dim, reach)
    if reduce_along is not None and count == 1 and spread == 1:
        return [
            layout.expand_dims(reduce_along(dim)(x), (dim,)) for x in _strided(xs, dim, 0, width, 1)
        ]
    if isinstance(width, SymbolicDim):
        return [_gathered_windows(x, reduce_along, dim, width, count, stride, spread) for x in xs]
    if width <= 8:
        parts = [_strided(xs, dim, i * spread, count, stride) for i in range(width)]
        return functools.reduce(combine, parts)
    return _strided(_combine_runs(xs, combine, dim, width, spread), dim, 0, count, stride)


def _padded_to(xs: list, dim: int, size: Any) -> list:
    """Pad operands with zeros at the end of a symbolic dim that may be too short for one window.

    No window is taken there.
    """
    extra = max_dim(size - xs[0].shape[dim], 0)
    config = [(0, extra if d == dim else 0, 0) for d in range(xs[0].ndim)]
    return [slicing.pad(x, np.zeros((), x.dtype), config) for x in xs]


def _strided(xs: list, dim: int, start: Any, size: Any, step: Any) -> list:
    """Return the elements at `size` positions along a dim, `step` apart."""
    stop = start + max_dim((size - 1) * step + 1, 0)
    return [slicing.slice_in_dim(x, start, stop, step, dim) for x in xs]


def _combine_runs(xs: list, combine: Callable, dim: int, width: int, spread: int) -> list:
    """Return windows at every position, combined from runs of 1, 2, 4, ... elements.

    The binary digits of the width select the runs.
    """
    run, length, out, used = xs, 1, [], 0
    dense = xs[0].shape[dim] - (width - 1) * spread
    while True:
        if width & length:
            part = _strided(run, dim, used * spread, dense, 1)
            out = combine(out, part) if out else part
            used += length
        if length * 2 > width:
            return out
        size = run[0].shape[dim] - length * spread
        later = _strided(run, dim, length * spread, size, 1)
        run = combine(_strided(run, dim, 0, size, 1), later)
        length *= 2


def _gathered_windows(
    x: Any,
    reduce_along: Callable | None,
    dim: int,
    width: int,
    count: int,
    stride: int,
    spread: int,
) -> Any:
    """Return windows of a symbolic width along one dim, gathered before they are reduced."""
    if reduce_along is None:
        raise InconclusiveDimensionOperation(
            f"reduce_window: a window of the symbolic size '{width}' takes one of the operations add, mul, max, min, and, or, xor. Another "
            "function is applied once for each element of the window, whose number must be known."
        )
    place, tap = (layout.broadcasted_iota(np.dtype(np.int32), (count, width), d) for d in (0, 1))
    positions = arithmetic.add(
        arithmetic.mul(place, np.int32(stride)), arithmetic.mul(tap, np.int32(spread))
    )
    shape = tuple(x.shape)
    numbers = GatherDimensionNumbers(tuple(d for d in range(x.ndim) if d != dim), (dim,), (dim,))
    sizes = (*shape[:dim], 1, *shape[dim + 1 :])
    gathered = gather(x, layout.reshape(positions, (count * width, 1)), numbers, sizes, mode="clip")
    return reduce_along(dim + 1)(
        layout.reshape(gathered, (*shape[:dim], count, width, *shape[dim + 1 :]))
    )


def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Return the shape of `reduce_window`'s result.

    >>> reduce_window_shape_tuple((8,), (2,), (2,), [(0, 0)])
    (4,)
    """
    n = len(operand_shape)
    base, spread = base_dilation or (1,) * n, window_dilation or (1,) * n
    out = []
    for size, k, s, (lo, hi), b, d in zip(
        operand_shape, window_dimensions, window_strides, padding, base, spread
    ):
        out.append(out_size(size, lo, hi, b, k, d, s))
    return tuple(out)
