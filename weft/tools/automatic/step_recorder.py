"""Records the jitted functions that a program calls, to plan the largest one.

In:   functions, calls and programs, as `hooks.after_tracing` passes them.
Out:  a `JittedStep`: a function of positional arguments, their types, and which of them are donated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft._engine.api.struct import ShapeDtypeStruct
from weft._engine.control.custom_partition import without_partitions
from weft._engine.hlo.cost import module_cost
from weft._engine.hlo.text.hlo_text import lowered
from weft._engine.util import tree
from weft._engine.util.record import record
from weft._engine.util.source import function_module


@record
class JittedStep:
    """A jitted function with the types of its first call: as a function of positional arguments.

    donate_argnums   arguments whose memory the results take
    flops            floating point operations of a call
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    donate_argnums: tuple[int, ...]
    flops: float


class StepRecorder:
    """Records the jitted functions of a program as they are traced."""

    def __init__(self) -> None:
        self._first: dict[int, tuple[Any, Any, Any]] = {}  # by the identity of the function

    def on_trace(self, jitted: Any, call: Any, traced: Any) -> None:
        """Record a function with the types of its first trace, unless it is weft's own."""
        if function_module(jitted.fun).partition(".")[0] not in ("weft", "jax"):
            self._first.setdefault(id(jitted.fun), (jitted, call, traced))

    def largest(self) -> JittedStep | None:
        """Return the function with the most floating point operations, the last one of equals; None if there is none.

        A function inside another one is traced first, so the outer one is chosen.
        """
        best: tuple[float, Any] | None = None
        for entry in self._first.values():
            flops = count_flops(entry[2])
            if best is None or flops >= best[0]:
                best = flops, entry
        return None if best is None else jitted_step(*best[1], flops=best[0])


def count_flops(traced: Any) -> float:
    """Return the floating point operations of a traced program; the number of equations if they are not known."""
    try:
        return module_cost(lowered(without_partitions(traced.jaxpr), traced.name))["flops"]
    except NotImplementedError:  # for an operation that has no lowering to HLO
        return len(traced.jaxpr.eqns)


def jitted_step(jitted: Any, call: Any, traced: Any, flops: float) -> JittedStep:
    """Return a jitted function for the types of a call. Static arguments are bound; keyword arguments follow the positional ones."""
    structs = [
        ShapeDtypeStruct(a.shape, a.dtype, weak_type=getattr(a, "weak_type", False))
        for a in traced.in_avals
    ]
    positional, named = tree.tree_unflatten(call.in_tree, structs)
    donated, donated_named = tree.tree_unflatten(call.in_tree, traced.donated)
    flags = [
        all(tree.tree_leaves(x)) and bool(tree.tree_leaves(x))
        for x in (*donated, *donated_named.values())
    ]
    names, count, fun, statics = tuple(named), len(positional), jitted.fun, call.statics
    in_tree, rebuild = call.in_tree, jitted._rebuild

    def step(*args: Any) -> Any:
        leaves = tree.tree_leaves((args[:count], dict(zip(names, args[count:]))))
        values, keywords = rebuild(statics, in_tree, leaves)
        return fun(*values, **keywords)

    step.__name__ = jitted.name
    numbers = tuple(i for i, is_donated in enumerate(flags) if is_donated)
    return JittedStep(
        jitted.name,
        fun if not names and not statics else step,
        (*positional, *named.values()),
        numbers,
        flops,
    )
