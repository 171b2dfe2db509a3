"""The current trace, for libraries that interpret primitives themselves or guard state against being traced.

A trace of a library's own is a subclass of `Trace` that defines `process_primitive(primitive, tracers, params)`, with tracers of a subclass
of `Tracer`; `with set_current_trace(trace)` makes it interpret what is bound.
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
from weft._engine.util.state import guard
from weft.extend.context_block import ContextBlock


class TraceTag:
    """Marks the traces of one transformation."""


class set_current_trace(ContextBlock[None]):
    """A block in which `trace` interprets primitives. With `check_leaks`, UnexpectedTracerError if a tracer of it outlives the block.

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
    """A block that gets the current trace and has none of its own: operations are computed."""

    def _block(self) -> Iterator[Trace]:
        trace = current_trace()
        with set_trace(eval_trace):
            yield trace


@contextmanager
def eval_context() -> Iterator[None]:
    """A block in which primitives on known values are computed at once."""
    with set_trace(eval_trace):
        yield


def find_top_trace(_: Any = ()) -> Trace:
    """The current trace."""
    return current_trace()


def trace_state_clean() -> bool:
    """Whether nothing is being traced.

    >>> trace_state_clean(), weft.jit(lambda x: x + trace_state_clean())(1)
    (True, Array(1, dtype=int32, weak_type=True))
    """
    return current_trace() is eval_trace and not axis_env()


class OpaqueTraceState:
    """Equal to another while the same trace is current."""

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
    """What identifies the current trace by equality, and keeps none alive. `convention` names who asks.

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
    """Whether a program is being traced."""
    return any(isinstance(t, StageTrace) and not isinstance(t, LinearTrace) for t in _chain())


def unsafe_am_i_under_a_vmap_DO_NOT_USE() -> bool:
    """Whether a function is being mapped."""
    return any(isinstance(t, BatchTrace) for t in _chain())


def nonempty_axis_env_DO_NOT_USE() -> bool:
    """Whether named axes are in scope."""
    return bool(axis_env())


def unsafe_get_axis_names_DO_NOT_USE() -> list:
    """The named axes in scope, outermost first."""
    return list(dict.fromkeys(name for name, *_ in axis_env()))
