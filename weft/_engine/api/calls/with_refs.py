"""Calls with mutable arrays: references become arguments, and their final values results.

In:   a jitted function, and a call with references among its arguments, or of a function that closes over some.
Out:  the results of a jitted function of the values; the references get their final values.
Law:  inside other transformations the function is inlined, so that references hold values of these transformations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from weft._engine.api.calls.call_cache import CallCache, FlatCall
from weft._engine.api.calls.options import JitOptions
from weft._engine.api.struct import is_ref_struct
from weft._engine.control.hijax_types import extract_mutable_values, on_copies, write_back_contents
from weft._engine.control.ref import (
    LiftedRefs,
    check_aliases,
    check_returned,
    is_ref,
    trace_with_refs,
)
from weft._engine.core.interpret import evaluate
from weft._engine.core.stage import ClosedOverRefsError
from weft._engine.core.trace import any_tracers, eval_trace, trace_state
from weft._engine.util import tree


class Jitted(Protocol):
    """The part of `JitFunction` that calls with references use."""

    fun: Callable
    options: JitOptions
    is_lifted: bool
    traced_once: list
    _cache: CallCache

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def trace(self, *args: Any, **kwargs: Any) -> Any: ...
    def _flatten(self, args: tuple, kwargs: dict) -> FlatCall: ...
    def _rebuild(self, statics: tuple, in_tree: Any, leaves: Sequence) -> tuple[tuple, dict]: ...
    def _leaf_names(self, in_tree: Any) -> list[str]: ...
    def _variant(self, fun: Callable, **changes: Any) -> Jitted: ...


def call_on_parts(jitted: Jitted, args: tuple, kwargs: dict) -> Any:
    """Call with mutable values of hijax types by calling a function of the arrays that they consist of."""
    lifted = jitted._cache.lifted
    inner = lifted.get("mutable")
    if inner is None:

        def on_arrays(*args, **kwargs):
            return on_copies(jitted.fun, args, kwargs)

        functools.update_wrapper(on_arrays, jitted.fun)
        outs = jitted.options.out_shardings
        inner = lifted["mutable"] = jitted._variant(
            on_arrays, out_shardings=None if outs is None else (outs, None)
        )
    (args, kwargs), values = extract_mutable_values((args, kwargs))
    out, contents = inner(*args, **kwargs)
    write_back_contents(values, contents)
    return out


def call_with_refs(
    jitted: Jitted, call: FlatCall, refs: Sequence, used: ClosedOverRefsError | None = None
) -> Any:
    """Call a function of the values of references: of reference arguments, and of the references that it closes over (`refs`).

    `used` is the exception of the trace that discovered the latter.
    """
    names = jitted._leaf_names(call.in_tree)
    passed = [(x, names[i]) for i, x in enumerate(call.leaves) if is_ref(x)]
    passed_refs, passed_names = [ref for ref, _ in passed], [name for _, name in passed]
    check_aliases(jitted.fun, "jit", passed_refs, passed_names)
    if trace_state.trace is not eval_trace or any_tracers(call.leaves):
        return _inline(jitted, call, refs, used)

    def run(known: list) -> tuple:
        inner, (args, kwargs) = on_values(jitted, known, call)
        if (
            used is not None
            and used.out_tree is not None
            and not passed
            and [*map(id, known)] == [*map(id, used.refs)]
        ):
            inner.traced_once[:] = [used]
        return [*known], inner([r[...] for r in known], *args, **kwargs)

    closed = jitted._cache.refs
    new = [r for r in refs if not any(r is k for k in closed)]
    closed[:], (out, state, passed_values) = trace_with_refs(
        run, [*closed, *new], passed_refs, jitted.fun, "jit", passed_names
    )
    for ref, value in zip([*closed, *passed_refs], [*state, *passed_values]):
        ref._write(value)
    return out


def _inline(
    jitted: Jitted, call: FlatCall, refs: Sequence, used: ClosedOverRefsError | None
) -> Any:
    """Run the function, or the program of it that was just traced, under the current trace."""
    if used is not None and used.out_tree is not None:
        outs = evaluate(used.program, *[r[...] for r in refs], *call.leaves)
        count = len(outs) - len(refs)
        for ref, value in zip(refs, outs[count:]):
            ref._write(value)
        return tree.tree_unflatten(used.out_tree, outs[:count])
    out = jitted.fun(*call.args, **call.kwargs)
    check_returned(jitted.fun, "jit", tree.tree_leaves(out))
    return out


def on_values(jitted: Jitted, refs: list, call: FlatCall) -> tuple[Jitted, tuple[tuple, dict]]:
    """Return the function of values (first of the references `refs`), and the arguments with references replaced by their values."""
    leaves = call.leaves
    positions = tuple([i for i, x in enumerate(leaves) if is_ref(x) or is_ref_struct(x)])
    values = [
        x[...] if is_ref(x) else x.update(is_ref=False) if is_ref_struct(x) else x for x in leaves
    ]
    inner = _restore_refs(jitted, refs, positions, jitted._leaf_names(call.in_tree))
    return inner, jitted._rebuild(call.statics, call.in_tree, values)


def _restore_refs(jitted: Jitted, refs: list, positions: tuple, names: list[str]) -> Jitted:
    """Return the function of values, which passes references to the original function for the leaves at `positions`."""
    key = tuple(map(id, refs)), positions
    inner = jitted._cache.lifted.get(key)
    if inner is not None:
        return inner
    traced_once: list = []  # the trace of the function before its references were known

    def with_values(values, *args, **kwargs):
        call = jitted._flatten(args, kwargs)

        def fun(*leaves):
            call_args, call_kwargs = jitted._rebuild(call.statics, call.in_tree, leaves)
            return jitted.fun(*call_args, **call_kwargs)

        first = traced_once.pop() if traced_once else None
        on_refs: Callable = functools.update_wrapper(fun, jitted.fun)
        return LiftedRefs(on_refs, "jit", refs, positions, names, first).call(values, call.leaves)

    functools.update_wrapper(with_values, jitted.fun)
    vars(with_values).pop("__wrapped__")  # its signature is another
    ins, outs = jitted.options.in_shardings, jitted.options.out_shardings
    inner = jitted._variant(
        with_values,
        in_shardings=(None, *ins) if isinstance(ins, (tuple, list)) else ins,
        out_shardings=None if outs is None else (outs, None, None),
        static_argnums=_shift(jitted.options.static_argnums),
        donate_argnums=_shift(jitted.options.donate_argnums),
    )
    inner.is_lifted, inner.traced_once = True, traced_once
    jitted._cache.lifted[key] = inner
    return inner


def _shift(numbers: Sequence[int]) -> tuple[int, ...]:
    """Return argument numbers shifted by one additional leading argument."""
    return tuple([n + 1 if n >= 0 else n for n in numbers])
