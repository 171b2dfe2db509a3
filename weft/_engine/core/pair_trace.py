"""Traces whose tracers join two values, such as a primal and a tangent.

In:   a flat function, and the two values of each argument.
Out:  the two values of each result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.core.trace import InnerTrace, check_leaks, extend_axis_env, set_trace
from weft._engine.util.config import config
from weft._engine.util.state import guard


class PairTrace(InnerTrace):
    """A trace whose tracers join two values."""

    __slots__ = ()

    def join(self, first: Any, second: Any) -> Any:
        """The value that stands for a pair."""
        raise NotImplementedError

    def split(self, x: Any) -> tuple[Any, Any]:
        """The pair that a value stands for."""
        raise NotImplementedError


def run_pairs(
    trace: PairTrace,
    fun: Callable[..., Any],
    firsts: Sequence[Any],
    seconds: Sequence[Any],
    axes: Sequence[Any] = (),
) -> tuple[list[Any], list[Any]]:
    """Flat `fun` on the pairs that `trace` joins, with named `axes` in scope: the two halves of its results. `trace` ends here."""
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
