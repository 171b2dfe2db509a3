"""The current trace, for libraries that interpret primitives themselves or protect state from being traced.

A custom trace is a subclass of `Trace` that defines `process_primitive(primitive, tracers, params)`, with tracers of a
subclass of `Tracer`. Inside `with set_current_trace(trace)`, it interprets every primitive that is bound.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from weft._engine.core.stage import StageTrace
from weft._engine.core.trace import (
    Trace,
    axis_env,
    check_leaks,
    current_trace,
    eval_trace,
    set_trace,
)
from weft._engine.transforms.batch import BatchTrace
from weft._engine.transforms.linearize import LinearTrace
from weft._engine.util.dispatch_state import guard
from weft.extend.context_block import ContextBlock


class TraceTag:
    """A mark that identifies the traces of one transformation."""


class set_current_trace(ContextBlock[None]):
    """A context that makes `trace` interpret primitives. With `check_leaks`, a tracer that outlives the context raises
    UnexpectedTracerError.

    >>> with set_current_trace(find_top_trace(())): print(wnp.add(1, 2))
    3
    """

    def __init__(self, trace: Trace | None, check_leaks: bool = False):
        self.trace, self.check_leaks = eval_trace if trace is None else trace, check_leaks

    def _block(self) -> Iterator[None]:
        guard[0] += 1
        try:
            with set_trace(self.trace):
                yield
        finally:
            guard[0] -= 1
        if self.check_leaks:
            check_leaks(self.trace)


class take_current_trace(ContextBlock[Trace]):
    """A context that returns the current trace and suspends it: operations inside are computed eagerly."""

    def _block(self) -> Iterator[Trace]:
        trace = current_trace()
        with set_trace(eval_trace):
            yield trace


@contextmanager
def eval_context() -> Iterator[None]:
    """A context that computes primitives on concrete values eagerly."""
    with set_trace(eval_trace):
        yield


def find_top_trace(_: Any = ()) -> Trace:
    """Return the current trace."""
    return current_trace()


def trace_state_clean() -> bool:
    """Return True if no trace is active.

    >>> trace_state_clean(), weft.jit(lambda x: x + trace_state_clean())(1)
    (True, Array(1, dtype=int32, weak_type=True))
    """
    return current_trace() is eval_trace and not axis_env()


class OpaqueTraceState:
    """A token that equals another one if both were taken under the same current trace."""

    __slots__ = ("_trace", "_hash")

    def __init__(self, trace: Trace):
        self._trace: Callable[[], Any] = weakref.ref(trace)
        self._hash = hash(id(trace))

    def __eq__(self, other: object) -> bool:
        trace = self._trace()
        return isinstance(other, OpaqueTraceState) and trace is not None and trace is other._trace()

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"OpaqueTraceState({type(self._trace()).__name__})"


def get_opaque_trace_state(convention: str | None = None) -> OpaqueTraceState:
    """Return a token that identifies the current trace by equality without keeping it alive. `convention` names the caller.

    >>> get_opaque_trace_state(convention="mine") == get_opaque_trace_state(convention="mine")
    True
    """
    return OpaqueTraceState(current_trace())


def _chain() -> Iterator[Trace]:
    trace: Trace | None = current_trace()
    while trace is not None:
        yield trace
        trace = trace.parent


def unsafe_am_i_under_a_jit_DO_NOT_USE() -> bool:
    """Return True if a program is being traced."""
    return any(isinstance(t, StageTrace) and not isinstance(t, LinearTrace) for t in _chain())


def unsafe_am_i_under_a_vmap_DO_NOT_USE() -> bool:
    """Return True if a function is being mapped."""
    return any(isinstance(t, BatchTrace) for t in _chain())


def nonempty_axis_env_DO_NOT_USE() -> bool:
    """Return True if named axes are in scope."""
    return bool(axis_env())


def unsafe_get_axis_names_DO_NOT_USE() -> list:
    """Return the named axes in scope, outermost first."""
    return list(dict.fromkeys(name for name, *_ in axis_env()))
