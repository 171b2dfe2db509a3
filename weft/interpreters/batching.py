"""Mapping of primitives: how `weft.vmap` applies one to values with one more dim.

In:   a primitive and a rule, `rule(args, dims, **params) -> (out, out_dim)`, where a dim is an int, or `not_mapped` for a
      value that is the same for all; with `multiple_results` lists of both. Rules of `fancy_primitive_batchers` take the mapped
      axis first (`size`, `name`), those of `axis_primitive_batchers` its size, its name and None.
Out:  entries of the tables, which `weft.vmap` and the partitioner use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.core.extension import ExtensionPrimitive
from weft._engine.core.primitive import BatchAxis, Primitive
from weft._engine.core.trace import typeof
from weft._engine.ops.layout import expand_dims
from weft._engine.transforms.batch import (
    BatchTrace as BatchTrace,
    BatchTracer as BatchTracer,
    add_batch_dim,
    move_dim,
    to_dim,
)
from weft._engine.transforms.vmappable import Vmappable, registered
from weft.interpreters.rule_table import RuleTable

not_mapped = None


def _axis_of(args: Sequence, dims: Sequence) -> BatchAxis:
    """The axis that mapped operands show."""
    return next(
        (BatchAxis(typeof(x).shape[d]) for x, d in zip(args, dims) if d is not None), BatchAxis(1)
    )


def _kind(kind: str, call: Callable) -> Callable:
    """Translates a rule of a table to the calling convention of the slot."""

    def to_slot(primitive: Primitive, rule: Callable) -> Callable:
        batch = lambda axis, args, dims, **params: call(rule, axis, args, dims, params)
        batch.table = kind  # type: ignore[attr-defined]
        primitive.batched_always = kind != "plain" and isinstance(primitive, ExtensionPrimitive)
        return batch

    return to_slot


#: rules on values and dims alone
primitive_batchers = RuleTable(
    "batch",
    _kind("plain", lambda rule, axis, args, dims, params: rule(args, dims, **params)),
    lambda p, rule: lambda args, dims, **params: rule(_axis_of(args, dims), args, dims, **params),
)
#: rules that take the mapped axis first, and are asked for values that are not mapped, too
fancy_primitive_batchers = RuleTable(
    "batch",
    _kind("fancy", lambda rule, axis, args, dims, params: rule(axis, args, dims, **params)),
    given=lambda rule: getattr(rule, "table", "") in ("fancy", "axis"),
)
#: rules that take the size and the name of the mapped axis first
axis_primitive_batchers = RuleTable(
    "batch",
    _kind(
        "axis",
        lambda rule, axis, args, dims, params: rule(
            axis.size, axis.name, None, args, dims, **params
        ),
    ),
    given=lambda rule: getattr(rule, "table", "") == "axis",
)


def _outs(prim: Primitive, out: Any, dim: int) -> tuple[Any, Any]:
    return (out, [dim] * len(out)) if prim.multiple_results else (out, dim)


def defvectorized(prim: Primitive) -> None:
    """State that a primitive works on each element by itself; its operands have one shape.

    A mapped value that meets one that is not mapped, or is mapped over another dim, is brought to its dim.
    """

    def batch(args: Sequence, dims: Sequence, **params: Any) -> tuple[Any, Any]:
        target = next(d for d in dims if d is not None)
        axis = _axis_of(args, dims)
        return _outs(
            prim,
            prim.bind(*[to_dim(x, d, axis, target) for x, d in zip(args, dims)], **params),
            target,
        )

    primitive_batchers[prim] = batch


def defbroadcasting(prim: Primitive) -> None:
    """State that a primitive works on each element by itself, on operands of shapes that broadcast."""

    def batch(args: Sequence, dims: Sequence, **params: Any) -> tuple[Any, Any]:
        shapes = {(typeof(x).shape, d) for x, d in zip(args, dims) if typeof(x).ndim}
        if len(shapes) == 1:  # operands of rank 0 are for all
            ((_, dim),) = shapes
            if dim is not None:
                return _outs(prim, prim.bind(*args, **params), dim)
        ranks = [typeof(x).ndim - (d is not None) for x, d in zip(args, dims)]
        fronted = [
            x if d is None else _lifted(move_dim(x, d, 0), max(ranks) - rank)
            for x, d, rank in zip(args, dims, ranks)
        ]
        fronted = [
            expand_dims(x, tuple(range(max(ranks) + 1 - typeof(x).ndim)))
            if d is None and typeof(x).ndim
            else x
            for x, d in zip(fronted, dims)
        ]
        return _outs(prim, prim.bind(*fronted, **params), 0)

    primitive_batchers[prim] = batch


def _lifted(x: Any, count: int) -> Any:
    """`x` with `count` dims of size 1 after the first."""
    return expand_dims(x, tuple(range(1, 1 + count))) if count else x


def defreducer(prim: Primitive, *_: Any) -> None:
    """State that a primitive takes one operand and reduces the dims of its parameter `axes`."""

    def batch(
        args: Sequence, dims: Sequence, *, axes: Sequence[int], **params: Any
    ) -> tuple[Any, Any]:
        (x,), (dim,) = args, dims
        inner = tuple(a + (a >= dim) for a in axes)
        return _outs(prim, prim.bind(x, axes=inner, **params), dim - sum(a < dim for a in inner))

    primitive_batchers[prim] = batch


def broadcast(x: Any, sz: int, axis: int, mesh_axis: Any = None) -> Any:
    """`x` repeated `sz` times along a new dim `axis`.

    >>> broadcast(wnp.ones(2), 3, 0).shape
    (3, 2)
    """
    return add_batch_dim(x, sz, axis)


def bdim_at_front(x: Any, bdim: int | None, size: int, mesh_axis: Any = None) -> Any:
    """`x` with its mapped dim in front; repeated along a new one if it is not mapped.

    >>> bdim_at_front(wnp.ones((2, 3)), 1, 3).shape, bdim_at_front(wnp.ones(2), None, 3).shape
    ((3, 2), (3, 2))
    """
    return add_batch_dim(x, size, 0) if bdim is None else move_dim(x, bdim, 0)


def moveaxis(x: Any, src: int | None, dst: int) -> Any:
    """`x` with dim `src` moved to `dst`; itself if `src` is `not_mapped`."""
    return x if src is None else move_dim(x, src % typeof(x).ndim, dst % typeof(x).ndim)


def register_vmappable(
    data_type: type,
    spec_type: type,
    axis_size_type: type,
    to_elt: Callable,
    from_elt: Callable,
    make_iota: Callable | None,
) -> None:
    """Have `vmap` map values of `data_type` as wholes, by functions of the caller's; such a value need not be a pytree.

    `in_axes` and `out_axes` have a `spec_type` for it. `to_elt(cont, index, x, spec)` gives the value per example; `cont(part, axis)`
    does so for an array inside, and `index()` is the number of the example. `from_elt(cont, axis_size, elt, spec)` gives the whole
    value, with `cont(axis_size, part, axis)`. The size of the mapped axis is given by `axis_size`, unless an array is mapped as well;
    where it is an `axis_size_type` that is not int, `make_iota(axis_size)` gives the numbers of the examples. None in `in_axes` leaves
    a value as it is. Raises ValueError if the type is registered, and TypeError if types are not classes or functions cannot be called.

    >>> class Column:
    ...     def __init__(self, data): self.data = data
    >>> register_vmappable(Column, int, int, lambda cont, index, x, axis: Column(cont(x.data, axis)),
    ...                    lambda cont, size, elt, axis: Column(cont(size, elt.data, axis)), None)
    >>> double = lambda column: Column(2 * column.data)
    >>> weft.vmap(double, axis_size=3)(Column(wnp.ones((3, 2)))).data.shape
    (3, 2)
    >>> unregister_vmappable(Column)
    """
    for name, kind in (
        ("data_type", data_type),
        ("spec_type", spec_type),
        ("axis_size_type", axis_size_type),
    ):
        if not isinstance(kind, type):
            raise TypeError(f"register_vmappable: {name} must be a class, got {kind!r}.")
    for name, call in (("to_elt", to_elt), ("from_elt", from_elt), ("make_iota", make_iota)):
        if not callable(call) and (name != "make_iota" or call is not None):
            raise TypeError(f"register_vmappable: {name} must be a function, got {call!r}.")
    if data_type in registered:
        raise ValueError(
            f"register_vmappable: {data_type.__name__} is registered already; unregister_vmappable comes first."
        )
    registered[data_type] = Vmappable(spec_type, axis_size_type, to_elt, from_elt, make_iota)


def unregister_vmappable(data_type: type) -> None:
    """Undo `register_vmappable`; KeyError if the type is not registered."""
    del registered[data_type]
