"""Types of a library's own that `vmap` maps as wholes: functions that the library gives take them apart and put them together.

In:   a registered type, with the type of what stands for it in `in_axes` and `out_axes` (its spec), and two functions:
      `to_elt(cont, index, x, spec)` gives the value per example, where `cont(part, spec)` does so for an array or another registered
      value inside `x`, and `index()` is the number of the example; `from_elt(cont, axis_size, elt, spec)` gives the whole again,
      where `cont(axis_size, part, spec)` does so for a part.
Out:  `batch_elements`, which runs a flat function on values per example, and `whole`, which puts a result together.
Law:  an operation that `to_elt` calls works on all examples at once, and so does one of `from_elt` on what `cont` gave; on the parts of
      the value per example, `from_elt` works per example, as the mapped function does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft._engine.core.pair_trace import run_pairs
from weft._engine.core.primitive import BatchAxis
from weft._engine.core.trace import current_trace, set_trace, typeof
from weft._engine.ops.layout import iota
from weft._engine.transforms.batch import BatchTrace, BatchTracer


class MappingSpec:
    """The base of what says in `in_axes` and `out_axes` how a value of a `HiType` is mapped: its `dec_rank` and `inc_rank` read it."""


class Vmappable(NamedTuple):
    """What a library said of a type."""

    spec_type: type
    axis_size_type: type
    to_elt: Callable[..., Any]
    from_elt: Callable[..., Any]
    make_iota: Callable[..., Any] | None


registered: dict[type, Vmappable] = {}


def is_vmappable(x: Any) -> bool:
    """Whether `x` is of a registered type."""
    return type(x) in registered


def is_spec(x: Any) -> bool:
    """Whether `x` stands for a value of a registered type, or of a `HiType`, in `in_axes` or `out_axes`. An int does not: it is a dim of an
    array, also where a registered type has ints as its specs."""
    if isinstance(x, MappingSpec):
        return True
    return (
        bool(registered)
        and type(x) is not int
        and any(type(x) is kind.spec_type for kind in registered.values())
    )


def _counter(axis_size: Any) -> Callable[..., Any] | None:
    """What makes the numbers of the examples of an axis whose size is not an integer; None: the size is one."""
    makers = [
        kind.make_iota
        for kind in registered.values()
        if kind.axis_size_type is type(axis_size) and kind.make_iota is not None
    ]
    return makers[0] if makers else None


def length_of_axis(axis_size: Any) -> Any:
    """The integer that a given size of the mapped axis means: where a library has a type for it, the length of its `make_iota`."""
    counter = _counter(axis_size)
    return axis_size if counter is None else typeof(counter(axis_size)).shape[0]


def batch_elements(
    fun: Callable[..., Any],
    axis: BatchAxis,
    axis_size: Any,
    args: Sequence[Any],
    dims: Sequence[Any],
) -> tuple[list[Any], list[Any], BatchTrace]:
    """Results of flat `fun` on the elements of `args`, the dims they are mapped over, and the trace that they belong to.

    A result of a registered type is still an element; `whole` makes it one value.
    """
    trace = BatchTrace(current_trace(), axis)
    numbers: list[Any] = []

    def index() -> BatchTracer:
        if not numbers:
            counter = _counter(axis_size)
            numbers.append(
                BatchTracer(
                    trace, iota("int32", axis.size) if counter is None else counter(axis_size), 0
                )
            )
        return numbers[0]

    def element(x: Any, dim: Any) -> Any:
        if dim is None:
            return x
        if type(x) in registered:
            return registered[type(x)].to_elt(element, index, x, dim)
        ndim = typeof(x).ndim
        if not -ndim <= dim < ndim:
            raise ValueError(
                f"vmap was requested to map a part of an argument along axis {dim}, but its shape is {typeof(x).shape}: the "
                "to_elt of its type (register_vmappable) gave cont that axis."
            )
        if typeof(x).shape[dim] != axis.size:
            raise ValueError(
                f"vmap got inconsistent sizes for array axes to be mapped: a part of an argument has shape {typeof(x).shape}, "
                f"mapped along axis {dim}, where the mapped axis has size {axis.size}. The to_elt of its type "
                "(register_vmappable) gave cont that axis."
            )
        return trace.join(x, dim % ndim)

    elements = [element(x, d) for x, d in zip(args, dims)]
    outs, out_dims = run_pairs(
        trace,
        fun,
        elements,
        [None] * len(elements),
        [(axis.name, axis.size)] if axis.name is not None else [],
    )
    return outs, out_dims, trace


def whole(out: Any, axis_size: Any, spec: Any, place: Callable[..., Any], trace: BatchTrace) -> Any:
    """A result of a registered type from its element, a value of `trace`; `place(value, dim, spec)` does so for an array per example."""

    def cont(size: Any, part: Any, inner: Any) -> Any:
        if type(part) in registered:
            with set_trace(trace):
                return registered[type(part)].from_elt(cont, size, part, inner)
        assert trace.parent is not None
        with set_trace(trace.parent):
            return place(*trace.split(part), inner)

    return cont(axis_size, out, spec)
