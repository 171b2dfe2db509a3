"""Faults planted in Loops kernels: accesses, loops and statements that are slightly wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft._engine.ir import loops as L, loops_eval
from weft._engine.util.record import replace

#: a place in a kernel: field names and positions in tuples
Path = tuple[str | int, ...]


def part_at(node: Any, path: Path) -> Any:
    """Return the part of a kernel at a path."""
    for step in path:
        node = node[step] if isinstance(step, int) else getattr(node, step)
    return node


def with_part(node: Any, path: Path, part: Any) -> Any:
    """Return a kernel with another part at a path; None drops an item of a tuple."""
    if not path:
        return part
    step, tail = path[0], path[1:]
    if isinstance(step, int):
        if not tail and part is None:
            return (*node[:step], *node[step + 1 :])
        return (*node[:step], with_part(node[step], tail, part), *node[step + 1 :])
    return replace(node, **{step: with_part(getattr(node, step), tail, part)})


def paths(node: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of the statements and expressions of a kernel."""
    if isinstance(node, tuple):
        for k, item in enumerate(node):
            yield from paths(item, (*path, k))
    elif isinstance(node, L.LoopsKernel):
        yield from paths(node.body, ("body",))
    elif hasattr(type(node), "__slots__") and type(node).__module__ == L.__name__:
        yield path
        for name in type(node).__slots__:
            yield from paths(getattr(node, name), (*path, name))


def _add_one(x: L.Expr) -> L.Expr:
    return L.ScalarOp("add", (x, L.Const(1, "i64")), "i64")


def _subtract_one(x: L.Expr) -> L.Expr:
    return L.ScalarOp("sub", (x, L.Const(1, "i64")), "i64")


def _shift_load(part: Any) -> Any:
    return replace(part, index=_add_one(part.index)) if isinstance(part, L.Load) else part


def _shift_load_down(part: Any) -> Any:
    return replace(part, index=_subtract_one(part.index)) if isinstance(part, L.Load) else part


def _drop_guard(part: Any) -> Any:
    return replace(part, guard=None) if isinstance(part, L.Load | L.StoreElement) else part


def _shift_store(part: Any) -> Any:
    return replace(part, index=_add_one(part.index)) if isinstance(part, L.StoreElement) else part


def _shorten_loop(part: Any) -> Any:
    if not isinstance(part, L.For):
        return part
    return replace(
        part, extent=part.extent - 1 if isinstance(part.extent, int) else _subtract_one(part.extent)
    )


def _lengthen_loop(part: Any) -> Any:
    if not isinstance(part, L.For):
        return part
    return replace(
        part, extent=part.extent + 1 if isinstance(part.extent, int) else _add_one(part.extent)
    )


def _change_stride(part: Any) -> Any:
    """Multiply by another constant."""
    if (
        isinstance(part, L.ScalarOp)
        and part.op in ("mul", "div", "rem")
        and part.type == "i64"
        and isinstance(part.args[1], L.Const)
    ):
        return replace(part, args=(part.args[0], L.Const(part.args[1].value + 1, "i64")))
    return part


def _swap_strides(part: Any) -> Any:
    """Exchange the factors of two terms of a sum."""
    if not (isinstance(part, L.ScalarOp) and part.op == "add" and part.type == "i64"):
        return part
    one, other = part.args
    if isinstance(one, L.ScalarOp) and one.op == "mul" and isinstance(one.args[1], L.Const):
        step = one.args[1]
        return replace(part, args=(one.args[0], L.ScalarOp("mul", (other, step), "i64")))
    return part


def _exchange_cases(part: Any) -> Any:
    if isinstance(part, L.ScalarOp) and part.op == "select":
        return replace(part, args=(part.args[0], part.args[2], part.args[1]))
    return part


def _drop_statement(part: Any) -> Any:
    return None if isinstance(part, L.StoreElement | L.Accum | L.For | L.Interleave) else part


MUTATIONS: dict[str, Callable[[Any], Any]] = {
    "shift load": _shift_load,
    "shift load down": _shift_load_down,
    "drop guard": _drop_guard,
    "shift store": _shift_store,
    "shorten loop": _shorten_loop,
    "lengthen loop": _lengthen_loop,
    "change stride": _change_stride,
    "swap strides": _swap_strides,
    "exchange cases": _exchange_cases,
    "drop statement": _drop_statement,
}


def mutants(kernel: L.LoopsKernel, name: str) -> list[L.LoopsKernel]:
    """Return the kernels with one mutation of a kind."""
    mutate, kernels = MUTATIONS[name], []
    for path in paths(kernel):
        part = part_at(kernel, path)
        changed = mutate(part)
        if changed is not part and changed != part:
            kernels.append(with_part(kernel, path, changed))
    return kernels


def values_of(kernel: L.LoopsKernel, seed: int = 0) -> list[np.ndarray] | None:
    """Return what a kernel stores for random inputs; None if it accesses memory outside of its
    buffers."""
    rng = np.random.default_rng(seed)
    arrays = []
    for buf in kernel.bufs:
        dtype = loops_eval.DTYPES[buf.type]
        values = rng.normal(size=buf.size) if dtype.kind in "fcV" else rng.integers(0, 2, buf.size)
        arrays.append(
            values.astype(dtype) if buf.mode == "in" else np.full(buf.size, 77).astype(dtype)
        )
    try:
        loops_eval.evaluate(kernel, *arrays)
    except (IndexError, KeyError):
        return None
    return [array for array, buf in zip(arrays, kernel.bufs) if buf.mode != "in"]


def changes_values(kernel: L.LoopsKernel, mutant: L.LoopsKernel) -> bool:
    """Return whether a mutant computes other values, more than rounding differs, or accesses memory
    outside of its buffers."""
    one, other = values_of(kernel), values_of(mutant)
    if one is None or other is None:
        return True
    return not all(np.allclose(a, b, 1e-3, 1e-5, equal_nan=True) for a, b in zip(one, other))


def some(items: list[Any], count: int, seed: int = 0) -> list[Any]:
    """Return at most `count` items, drawn by seed."""
    return items if len(items) <= count else random.Random(seed).sample(items, count)
