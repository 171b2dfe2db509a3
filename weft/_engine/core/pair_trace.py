"""Traces whose tracers join two values, such as a primal and a tangent.

In:   a flat function, and the two values of each argument.
Out:  the two values of each result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.core.trace import InnerTrace, check_leaks, extend_axis_env, set_trace
from weft._engine.util.config import config
from weft._engine.util.dispatch_state import guard


class PairTrace(InnerTrace):
    """A trace whose tracers join two values."""

    __slots__ = ()

    def join(self, first: Any, second: Any) -> Any:
        """Return the value that represents a pair."""
        raise NotImplementedError

    def split(self, x: Any) -> tuple[Any, Any]:
        """Return the pair that a value represents."""
        raise NotImplementedError


def run_pairs(
    trace: PairTrace,
    fun: Callable[..., Any],
    firsts: Sequence[Any],
    seconds: Sequence[Any],
    axes: Sequence[Any] = (),
) -> tuple[list[Any], list[Any]]:
    """Call the flat function `fun` on the pairs joined by `trace`, and return the first and the second values of its results.

    `axes` are named axes (name, size) in scope during the call. The call ends `trace`.
    """
    guard[0] += 1
    try:
        with set_trace(trace), extend_axis_env(axes):
            outs = fun(*map(trace.join, firsts, seconds))
        pairs = [trace.split(o) for o in outs]
    finally:
        guard[0] -= 1
        trace.finished = True
    del outs
    if config.check_tracer_leaks:
        check_leaks(trace)
    return [first for first, _ in pairs], [second for _, second in pairs]
