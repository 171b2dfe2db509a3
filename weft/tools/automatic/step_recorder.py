"""Records the jitted functions that a program calls, to plan the largest one.

In:   functions, calls, programs and results, as `hooks.after_tracing` and `hooks.after_calls` pass them.
Out:  a `JittedStep`: a function of positional arguments that runs the recorded program, and what is known of its arguments.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.api.struct import ShapeDtypeStruct
from weft._engine.control.custom_partition import without_partitions
from weft._engine.core.interpret import evaluate
from weft._engine.hlo.cost import module_cost
from weft._engine.hlo.text.hlo_text import lower_global
from weft._engine.util import tree
from weft._engine.util.record import record
from weft._engine.util.source import function_module
from weft.tools.automatic.leaf_names import names_of_call
from weft.tools.automatic.search import PlannedFunction


@record
class JittedStep:
    """The program of a jitted function for the types of its first call, as a function of positional arguments.

    flops    floating point operations of a call
    """

    name: str
    planned: PlannedFunction
    flops: float

    @property
    def state(self) -> list[str]:
        """The names of the arguments that are results of the call before."""
        return [self.planned.names[number] for _, number in self.planned.carried]


class TracedCall:
    """The first call of a jitted function.

    names     names of the leaves of its arguments
    carried   pairs of a result and the argument that it is in the next call, by number; empty until a call has such arguments
    """

    def __init__(self, jitted: Any, call: Any, traced: Any):
        self.jitted, self.call, self.traced = jitted, call, traced
        self.names = names_of_call(call.leaves, traced.arg_names)
        self.carried: tuple[tuple[int, int], ...] = ()
        self._results: list[weakref.ref[Any]] = []

    def add_call(self, call: Any, outs: Sequence[Any]) -> None:
        """Find results of the call before among the arguments of this one, and keep its own results in sight."""
        results = {id(x): i for i, ref in enumerate(self._results) if (x := ref()) is not None}
        if not self.carried and call.in_tree.num_leaves == self.call.in_tree.num_leaves:
            numbers = {results[id(x)]: i for i, x in enumerate(call.leaves) if id(x) in results}
            self.carried = tuple(sorted(numbers.items()))
        self._results = [weakref.ref(x) for x in outs]


class StepRecorder:
    """Records the jitted functions of a program as they are traced and called."""

    def __init__(self) -> None:
        self._first: dict[int, TracedCall] = {}  # by the identity of the function

    def on_trace(self, jitted: Any, call: Any, traced: Any) -> None:
        """Record a function with the types of its first trace, unless it is weft's own."""
        if function_module(jitted.fun).partition(".")[0] in ("weft", "jax"):
            return
        if id(jitted.fun) not in self._first:
            self._first[id(jitted.fun)] = TracedCall(jitted, call, traced)

    def on_call(self, jitted: Any, call: Any, outs: Sequence[Any]) -> None:
        """Record which arguments of a call are results of the call before."""
        first = self._first.get(id(jitted.fun))
        if first is not None:
            first.add_call(call, outs)

    def largest(self) -> JittedStep | None:
        """Return the function with the most floating point operations, the last one of equals; None if there is none.

        A function inside another one is traced first, so the outer one is chosen.
        """
        best: tuple[float, TracedCall] | None = None
        for first in self._first.values():
            flops = count_flops(first.traced)
            if best is None or flops >= best[0]:
                best = flops, first
        return None if best is None else jitted_step(best[1], flops=best[0])


def count_flops(traced: Any) -> float:
    """Return the floating point operations of a traced program; the number of equations if they are not known."""
    try:
        return module_cost(lower_global(without_partitions(traced.jaxpr), traced.name))["flops"]
    except NotImplementedError:  # for an operation that has no lowering to HLO
        return len(traced.jaxpr.eqns)


def jitted_step(first: TracedCall, flops: float) -> JittedStep:
    """Return a jitted function for the types of a call; keyword arguments follow the positional ones.

    The function runs the recorded program. The Python function may depend on what a library did around the call.
    """
    traced = first.traced
    structs = [
        ShapeDtypeStruct(a.shape, a.dtype, weak_type=getattr(a, "weak_type", False))
        for a in traced.in_avals
    ]
    positional, named = tree.tree_unflatten(traced.in_tree, structs)
    donated, donated_named = tree.tree_unflatten(traced.in_tree, traced.donated)
    flags = [
        all(tree.tree_leaves(x)) and bool(tree.tree_leaves(x))
        for x in (*donated, *donated_named.values())
    ]
    planned = PlannedFunction(
        _replayed(traced, len(positional), tuple(named)),
        (*positional, *named.values()),
        tuple(i for i, is_donated in enumerate(flags) if is_donated),
        first.names,
        first.carried,
    )
    return JittedStep(traced.name, planned, flops)


def _replayed(traced: Any, count: int, names: Sequence[str]) -> Callable[..., Any]:
    """Return a traced program as a function of `count` positional arguments and of the keyword arguments."""

    def step(*args: Any) -> Any:
        leaves = tree.tree_leaves((args[:count], dict(zip(names, args[count:]))))
        outs = evaluate(traced.jaxpr, *traced.consts, *leaves)
        return tree.tree_unflatten(traced.out_tree, outs)

    step.__name__ = traced.name
    return step
