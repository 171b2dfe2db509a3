"""Functions whose calls carry a group name, which compilers of other devices schedule together.

In:   functions, and names of groups.
Out:  functions whose calls have the name as an attribute in the texts of programs.
Law:  the name has no effect on fusion and scheduling in weft; see `weft.experimental.xla_metadata`.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.experimental.xla_metadata import xla_metadata_call, xla_metadata_call_p

__all__ = ["scheduling_group", "xla_metadata_call", "xla_metadata_call_p"]


def scheduling_group(name: str) -> Callable[[Callable], Callable]:
    """Decorator: give calls of a function the attribute `scheduling_group`, which its operations receive when it is inlined.

    >>> from weft.experimental.scheduling_groups import scheduling_group
    >>> @scheduling_group(name="layer:0")
    ... def f(x): return wnp.sin(x) * 2
    >>> 'call @xla_metadata_call(%arg0) {mhlo.frontend_attributes = {scheduling_group = "layer:0"}}' in weft.jit(f).lower(1.0).as_text()
    True
    """
    return xla_metadata_call(scheduling_group=name)
