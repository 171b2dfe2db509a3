"""User-defined types that `vmap` maps with the library's own functions (`register_vmappable`).

In:   a registered type; the type of its specs in `in_axes` and `out_axes`; and two functions. `to_elt(cont, index, x, spec)` returns
      the element of `x` for one example: it calls `cont(part, spec)` for an array or another registered value inside of `x`, and
      `index()` for the number of the example. `from_elt(cont, axis_size, elt, spec)` returns the whole value from an element: it
      calls `cont(axis_size, part, spec)` for the parts of the element.
Out:  `batch_elements`, which runs a flat function on elements, and `assemble_result`, which assembles a result.
Law:  operations that `to_elt` binds, and operations of `from_elt` on results of `cont`, work on all examples at once. Operations of
      `from_elt` on the parts of an element work on one example, as the mapped function does.
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
    """The base class of the entries of `in_axes` and `out_axes` for values of a `HiType`, whose `dec_rank` and `inc_rank` read them."""


class Vmappable(NamedTuple):
    """The registration of a type by a library."""

    spec_type: type
    axis_size_type: type
    to_elt: Callable[..., Any]
    from_elt: Callable[..., Any]
    make_iota: Callable[..., Any] | None


vmappable_types: dict[type, Vmappable] = {}


def is_vmappable(x: Any) -> bool:
    """Return whether the type of `x` is registered."""
    return type(x) in vmappable_types


def is_spec(x: Any) -> bool:
    """Return whether `x` is a spec, in `in_axes` or `out_axes`, of a value of a registered type or a `HiType`.

    An int is a dim of an array and not a spec, even if a registered type has ints as specs.
    """
    if isinstance(x, MappingSpec):
        return True
    return (
        bool(vmappable_types)
        and type(x) is not int
        and any(type(x) is kind.spec_type for kind in vmappable_types.values())
    )


def _iota_maker(axis_size: Any) -> Callable[..., Any] | None:
    """Return the function that creates the numbers of the examples of an axis with a size of a library's type; None for other sizes."""
    makers = [
        kind.make_iota
        for kind in vmappable_types.values()
        if kind.axis_size_type is type(axis_size) and kind.make_iota is not None
    ]
    return makers[0] if makers else None


def length_of_axis(axis_size: Any) -> Any:
    """Return the size of the mapped axis as an integer. For a size of a library's type, it is the length of its `make_iota`."""
    counter = _iota_maker(axis_size)
    return axis_size if counter is None else typeof(counter(axis_size)).shape[0]


def batch_elements(
    fun: Callable[..., Any],
    axis: BatchAxis,
    axis_size: Any,
    args: Sequence[Any],
    dims: Sequence[Any],
) -> tuple[list[Any], list[Any], BatchTrace]:
    """Call the flat function `fun` on the elements of `args`; return the results, their batch dims, and their trace.

    Results of registered types are elements; `assemble_result` converts them to whole values.
    """
    trace = BatchTrace(current_trace(), axis)
    numbers: list[Any] = []

    def index() -> BatchTracer:
        if not numbers:
            counter = _iota_maker(axis_size)
            numbers.append(
                BatchTracer(
                    trace, iota("int32", axis.size) if counter is None else counter(axis_size), 0
                )
            )
        return numbers[0]

    def element(x: Any, dim: Any) -> Any:
        if dim is None:
            return x
        if type(x) in vmappable_types:
            return vmappable_types[type(x)].to_elt(element, index, x, dim)
        ndim = typeof(x).ndim
        if not -ndim <= dim < ndim:
            raise ValueError(
                f"vmap was requested to map a part of an argument along axis {dim}, but its shape is {typeof(x).shape}. The "
                "to_elt function of its type (register_vmappable) passed this axis to cont."
            )
        if typeof(x).shape[dim] != axis.size:
            raise ValueError(
                f"vmap got inconsistent sizes for array axes to be mapped: a part of an argument has shape {typeof(x).shape}, "
                f"mapped along axis {dim}, but the mapped axis has size {axis.size}. The to_elt function of its type "
                "(register_vmappable) passed this axis to cont."
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


def assemble_result(
    out: Any, axis_size: Any, spec: Any, place: Callable[..., Any], trace: BatchTrace
) -> Any:
    """Return a result of a registered type from its element, a value of `trace`. `place(value, dim, spec)` does the same for an array."""

    def cont(size: Any, part: Any, inner: Any) -> Any:
        if type(part) in vmappable_types:
            with set_trace(trace):
                return vmappable_types[type(part)].from_elt(cont, size, part, inner)
        assert trace.parent is not None
        with set_trace(trace.parent):
            return place(*trace.split(part), inner)

    return cont(axis_size, out, spec)
