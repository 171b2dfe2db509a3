"""Batching rules of primitives, for `weft.vmap`.

In:   a primitive and a rule, `rule(args, dims, **params) -> (out, out_dim)`, where a dim is an int, or `not_mapped` for a
      value without the mapped axis; with `multiple_results`, lists of both. Rules of `fancy_primitive_batchers` take the
      mapped axis first (`size`, `name`); rules of `axis_primitive_batchers` take its size, its name and None first.
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
from weft._engine.transforms.vmappable import Vmappable, vmappable_types
from weft.interpreters.rule_table import RuleTable

not_mapped = None


def _axis_of(args: Sequence, dims: Sequence) -> BatchAxis:
    """Return the axis of the mapped operands."""
    return next(
        (BatchAxis(typeof(x).shape[d]) for x, d in zip(args, dims) if d is not None), BatchAxis(1)
    )


def _make_rule_adapter(kind: str, call: Callable) -> Callable:
    """Return an adapter from rules of a table to the calling convention of the slot."""

    def to_slot(primitive: Primitive, rule: Callable) -> Callable:
        batch = lambda axis, args, dims, **params: call(rule, axis, args, dims, params)
        batch.table = kind  # type: ignore[attr-defined]
        primitive.batched_always = kind != "plain" and isinstance(primitive, ExtensionPrimitive)
        return batch

    return to_slot


#: rules of values and dims only
primitive_batchers = RuleTable(
    "batch",
    _make_rule_adapter("plain", lambda rule, axis, args, dims, params: rule(args, dims, **params)),
    lambda p, rule: lambda args, dims, **params: rule(_axis_of(args, dims), args, dims, **params),
)
#: rules that take the mapped axis first, and also apply if no operand is mapped
fancy_primitive_batchers = RuleTable(
    "batch",
    _make_rule_adapter(
        "fancy", lambda rule, axis, args, dims, params: rule(axis, args, dims, **params)
    ),
    is_user_rule=lambda rule: getattr(rule, "table", "") in ("fancy", "axis"),
)
#: rules that take the size and the name of the mapped axis first
axis_primitive_batchers = RuleTable(
    "batch",
    _make_rule_adapter(
        "axis",
        lambda rule, axis, args, dims, params: rule(
            axis.size, axis.name, None, args, dims, **params
        ),
    ),
    is_user_rule=lambda rule: getattr(rule, "table", "") == "axis",
)


def _pair_with_dim(prim: Primitive, out: Any, dim: int) -> tuple[Any, Any]:
    return (out, [dim] * len(out)) if prim.multiple_results else (out, dim)


def defvectorized(prim: Primitive) -> None:
    """Declare a primitive elementwise on operands of equal shape.

    All mapped dims are moved to the first mapped operand's dim; operands without one are broadcast.
    """

    def batch(args: Sequence, dims: Sequence, **params: Any) -> tuple[Any, Any]:
        target = next(d for d in dims if d is not None)
        axis = _axis_of(args, dims)
        return _pair_with_dim(
            prim,
            prim.bind(*[to_dim(x, d, axis, target) for x, d in zip(args, dims)], **params),
            target,
        )

    primitive_batchers[prim] = batch


def defbroadcasting(prim: Primitive) -> None:
    """Declare a primitive elementwise on operands whose shapes broadcast."""

    def batch(args: Sequence, dims: Sequence, **params: Any) -> tuple[Any, Any]:
        shapes = {(typeof(x).shape, d) for x, d in zip(args, dims) if typeof(x).ndim}
        if len(shapes) == 1:  # scalars broadcast without reshaping
            ((_, dim),) = shapes
            if dim is not None:
                return _pair_with_dim(prim, prim.bind(*args, **params), dim)
        ranks = [typeof(x).ndim - (d is not None) for x, d in zip(args, dims)]
        fronted = [
            x if d is None else _insert_unit_dims(move_dim(x, d, 0), max(ranks) - rank)
            for x, d, rank in zip(args, dims, ranks)
        ]
        fronted = [
            expand_dims(x, tuple(range(max(ranks) + 1 - typeof(x).ndim)))
            if d is None and typeof(x).ndim
            else x
            for x, d in zip(fronted, dims)
        ]
        return _pair_with_dim(prim, prim.bind(*fronted, **params), 0)

    primitive_batchers[prim] = batch


def _insert_unit_dims(x: Any, count: int) -> Any:
    """Return `x` with `count` dims of size 1 after the first."""
    return expand_dims(x, tuple(range(1, 1 + count))) if count else x


def defreducer(prim: Primitive, *_: Any) -> None:
    """Declare that a primitive takes one operand and reduces the dims of its parameter `axes`."""

    def batch(
        args: Sequence, dims: Sequence, *, axes: Sequence[int], **params: Any
    ) -> tuple[Any, Any]:
        (x,), (dim,) = args, dims
        inner = tuple(a + (a >= dim) for a in axes)
        return _pair_with_dim(
            prim, prim.bind(x, axes=inner, **params), dim - sum(a < dim for a in inner)
        )

    primitive_batchers[prim] = batch


def broadcast(x: Any, sz: int, axis: int, mesh_axis: Any = None) -> Any:
    """Return `x` repeated `sz` times along a new dim `axis`.

    >>> broadcast(wnp.ones(2), 3, 0).shape
    (3, 2)
    """
    return add_batch_dim(x, sz, axis)


def bdim_at_front(x: Any, bdim: int | None, size: int, mesh_axis: Any = None) -> Any:
    """Return `x` with its mapped dim first; if it is not mapped, repeat it along a new first dim.

    >>> bdim_at_front(wnp.ones((2, 3)), 1, 3).shape, bdim_at_front(wnp.ones(2), None, 3).shape
    ((3, 2), (3, 2))
    """
    return add_batch_dim(x, size, 0) if bdim is None else move_dim(x, bdim, 0)


def moveaxis(x: Any, src: int | None, dst: int) -> Any:
    """Return `x` with dim `src` moved to `dst`; return `x` itself if `src` is `not_mapped`."""
    return x if src is None else move_dim(x, src % typeof(x).ndim, dst % typeof(x).ndim)


def register_vmappable(
    data_type: type,
    spec_type: type,
    axis_size_type: type,
    to_elt: Callable,
    from_elt: Callable,
    make_iota: Callable | None,
) -> None:
    """Let `vmap` map values of `data_type` as units, by user-defined functions; such a value need not be a pytree.

    `in_axes` and `out_axes` have a `spec_type` for it. `to_elt(cont, index, x, spec)` returns the value of one example;
    `cont(part, axis)` does the same for an array inside, and `index()` is the number of the example. `from_elt(cont,
    axis_size, elt, spec)` returns the whole value, with `cont(axis_size, part, axis)` for its arrays. `axis_size` is
    required unless an array is mapped as well; if it is an `axis_size_type` other than int, `make_iota(axis_size)`
    returns the numbers of the examples. None in `in_axes` leaves a value unmapped. Raises ValueError if the type is
    already registered, and TypeError if types are not classes or functions are not callable.

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
    if data_type in vmappable_types:
        raise ValueError(
            f"register_vmappable: {data_type.__name__} is registered already; unregister_vmappable comes first."
        )
    vmappable_types[data_type] = Vmappable(spec_type, axis_size_type, to_elt, from_elt, make_iota)


def unregister_vmappable(data_type: type) -> None:
    """Undo `register_vmappable`; KeyError if the type is not registered."""
    del vmappable_types[data_type]
