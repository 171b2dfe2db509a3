"""Rules for reductions, running reductions and sorts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft._engine.control.scan import scan
from weft._engine.core.primitive import ReduceOp, ScanOp
from weft._engine.hlo.lowering import result_types, rule
from weft._engine.hlo.ops import HloBlock, HloValue, array_type, dtype_kind, is_static
from weft._engine.ir.jaxpr import Eqn
from weft._engine.ir.registry import registry
from weft._engine.ops.families import full, is_narrow, move_dim
from weft._engine.ops.layout import rev
from weft._engine.ops.prefix_scans import prefixes
from weft._engine.ops.reduce import argmax_p, highest, lowest
from weft._engine.ops.sorting import take_along

#: operations that combine two elements, by their names in `ReduceSpec`, `ScanSpec` and
#: `ScatterSpec`
COMBINES = {
    "add": "add",
    "mul": "multiply",
    "max": "maximum",
    "min": "minimum",
    "and": "and",
    "or": "or",
    "xor": "xor",
}


def combiner(combine: str) -> Callable[[HloBlock, HloValue, HloValue], HloValue]:
    """Return a function that writes the region which combines two elements."""
    return lambda r, x, y: r.op(COMBINES[combine], x, y)


def compute_in_float32(
    b: HloBlock, combine: str | None, fn: Callable[..., HloValue], *xs: HloValue
) -> HloValue:
    """Return `fn(*xs)`.

    Floating-point sums and products of at most 16 bits are computed in float32.
    """
    dtype = xs[0].dtype
    if combine not in ("add", "mul") or dtype_kind(dtype) != "f" or not is_narrow(dtype):
        return fn(*xs)
    return b.convert(fn(*[b.convert(x, np.float32) for x in xs]), dtype)


# --- reductions


@rule(ReduceOp)
def _reduce(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    spec = eqn.primitive.lower
    run = lambda x: b.reduce(
        [x],
        [b.constant(spec.identity(x.dtype), x.dtype)],
        eqn.params["axes"],
        combiner(spec.combine),
    )[0]
    return compute_in_float32(b, spec.combine, run, x)


@rule("argmax", "argmin")
def _arg_reduce(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    """Select the extreme element with its position.

    A NaN is more extreme than numbers; among equal elements the first one is selected.
    """
    (axis,), dtype = eqn.params["axes"], eqn.params["index_dtype"]
    direction, neutral = ("GT", lowest) if eqn.primitive is argmax_p else ("LT", highest)

    def pick(r: HloBlock, x: HloValue, i: HloValue, y: HloValue, j: HloValue) -> list[HloValue]:
        wins, ties = r.compare(direction, x, y), r.compare("EQ", x, y)
        if dtype_kind(x.dtype) == "f":
            x_nan, y_nan = r.compare("NE", x, x), r.compare("NE", y, y)
            wins = r.op("or", wins, r.op("and", x_nan, r.op("not", y_nan)))
            ties = r.op("or", ties, r.op("and", x_nan, y_nan))
        first = r.op("or", wins, r.op("and", ties, r.compare("LT", i, j)))
        return [r.op("select", first, x, y, type=x.type), r.op("select", first, i, j, type=i.type)]

    inits = [b.constant(neutral(x.dtype), x.dtype), b.constant(0, dtype)]
    return b.reduce([x, b.iota(x.shape, dtype, axis)], inits, (axis,), pick)[1]


# --- running reductions


@rule(ScanOp)
def _reduce_prefixes(b: HloBlock, eqn: Eqn, x: HloValue) -> HloValue:
    """Write a reduction over the windows that end, or begin, at each element."""
    spec, axis = eqn.primitive.lower, eqn.params["axis"]
    n = x.shape[axis]
    if x.type.size == 0:
        return x
    ones, at = [1] * x.ndim, lambda value: [value if d == axis else (0, 0) for d in range(x.ndim)]

    def run(x: HloValue) -> HloValue:
        if not is_static([n]):
            return b.context.inline_function(b, lambda x: [_prefixes_in_loop(x, eqn)], [x])[0]
        element = array_type((), x.dtype)
        init = b.constant(spec.identity(x.dtype), x.dtype)
        window = tuple(n if d == axis else 1 for d in range(x.ndim))
        return b.emit(
            "reduce_window",
            (x, init),
            [x.type],
            [b.region([element, element], combiner(spec.combine))],
            window=window,
            strides=tuple(ones),
            base_dilations=tuple(ones),
            window_dilations=tuple(ones),
            padding=at((0, n - 1) if eqn.params["reverse"] else (n - 1, 0)),
        )[0]

    return compute_in_float32(b, spec.combine, run, x)


def _prefixes_in_loop(x: Any, eqn: Eqn) -> Any:
    """Return the running reduction by a loop over elements, for a symbolic length."""
    combine, axis = eqn.primitive.lower.combine, eqn.params["axis"]
    rows = move_dim(x, axis, 0)

    def step(total: Any, row: Any) -> tuple[Any, Any]:
        total = registry[combine].bind(total, row)
        return total, total

    init = full(rows.shape[1:], eqn.primitive.lower.identity(x.dtype), x.dtype)
    return move_dim(scan(step, init, rows, reverse=eqn.params["reverse"])[1], 0, axis)


@rule("associative_scan")
def _associative_scan(b: HloBlock, eqn: Eqn, *xs: HloValue) -> list[HloValue]:
    combine, axis, reverse = eqn.params["combine"], eqn.params["axis"], eqn.params["reverse"]

    def run(*xs):
        turned = [rev(x, (axis,)) for x in xs] if reverse else list(xs)
        results = prefixes(turned, combine, axis)
        return [rev(x, (axis,)) for x in results] if reverse else results

    return b.context.inline_function(b, run, xs)


# --- sorts


def _sort_keys(r: HloBlock, x: HloValue) -> list[HloValue]:
    """Return sort keys for a key, the most significant first.

    In their total order zeros are equal and NaN is the last.
    """
    kind = dtype_kind(x.dtype)
    if kind == "c":
        return [k for part in ("real", "imag") for k in _sort_keys(r, r.real(x, part))]
    if kind != "f":
        return [x]
    x_zero, x_nan = r.compare("EQ", x, r.like(x, 0)), r.compare("NE", x, x)
    x = r.op("select", x_zero, r.like(x, 0), x, type=x.type)
    return [r.op("select", x_nan, r.like(x, np.nan), x, type=x.type)]


def _emit_sort(
    b: HloBlock,
    xs: list[HloValue],
    dim: int,
    num_keys: int,
    is_stable: bool = True,
    direction: str = "LT",
) -> list[HloValue]:
    def before(r: HloBlock, *pairs: HloValue) -> HloValue:
        keys = [
            (p, q)
            for x, y in zip(pairs[: 2 * num_keys : 2], pairs[1 : 2 * num_keys : 2])
            for p, q in zip(_sort_keys(r, x), _sort_keys(r, y))
        ]

        def test(direction: str, x: HloValue, y: HloValue) -> HloValue:
            return r.compare(direction, x, y, total=dtype_kind(x.dtype) == "f")

        *majors, minor = keys
        precedes = test(direction, *minor)
        for pair in reversed(majors):
            less = test(direction, *pair)
            precedes = r.op("or", less, r.op("and", test("EQ", *pair), precedes))
        return precedes

    types = [array_type((), x.dtype) for x in xs for _ in range(2)]
    return b.emit(
        "sort", xs, [x.type for x in xs], [b.region(types, before)], dim=dim, is_stable=is_stable
    )


@rule("sort")
def _sort(b: HloBlock, eqn: Eqn, *xs: HloValue) -> list[HloValue]:
    p = eqn.params
    return (
        list(xs)
        if not xs[0].type.size
        else _emit_sort(b, list(xs), p["dimension"], p["num_keys"], p["is_stable"])
    )


@rule("sorted_rows")
def _sorted_rows(b: HloBlock, eqn: Eqn, x: HloValue) -> list[HloValue]:
    return _emit_sort(b, [x], x.ndim - 1, 1)


@rule("row_order")
def _row_order(b: HloBlock, eqn: Eqn, x: HloValue, *previous: HloValue) -> HloValue:
    """Return positions sorted by their elements; ties keep the order of the previous pass."""
    last, order = x.ndim - 1, previous[0] if previous else b.iota(x.shape, np.int32, x.ndim - 1)
    if previous:
        x = b.context.inline_function(b, lambda x, at: [take_along(x, at, last)], [x, order])[0]
    return _emit_sort(b, [x, order], last, 1, direction="GT" if eqn.params["descending"] else "LT")[
        1
    ]


@rule("leading")
def _leading(b: HloBlock, eqn: Eqn, x: HloValue) -> list[HloValue]:
    results = _emit_sort(
        b, [x, b.iota(x.shape, np.int32, x.ndim - 1)], x.ndim - 1, 1, direction="GT"
    )
    return [b.slice(y, (0,) * x.ndim, result_types(eqn)[0].shape) for y in results]


@rule("top_k")
def _top_k(b: HloBlock, eqn: Eqn, x: HloValue) -> list[HloValue]:
    axis, (out, _) = eqn.params["axis"], result_types(eqn)
    results = [x, b.iota(x.shape, np.int32, axis)]
    results = _emit_sort(b, results, axis, 1, direction="GT") if x.type.size else results
    return [b.slice(y, (0,) * x.ndim, out.shape) for y in results]
