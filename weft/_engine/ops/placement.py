"""Ops on placement and order that change no value: `sharding_constraint`, `layout_constraint`,
`reshard`, `mesh_cast`, `optimization_barrier`.

`reshard` gives a value the type with a sharding; `with_out_sharding` implements `out_sharding` of
every function.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from weft._engine.core.primitive import (
    BarrierOp,
    ConstraintOp,
    ElementwiseOp,
    PartialTermsOp,
    Primitive,
    declare_unsupported,
)
from weft._engine.core.trace import (
    UndefPrimal,
    Zero,
    allow_open_shardings,
    leave_unreduced,
    typeof,
)
from weft._engine.ir.explicit import dual, type_sharding
from weft._engine.ir.factors import RuleBuilder, elementwise_rule
from weft._engine.ir.mesh import AxisType, Mesh, current_mesh, meshes_without_axis_types, spec_mesh
from weft._engine.ir.registry import registry
from weft._engine.ir.shardings import NamedSharding, Sharding
from weft._engine.ir.specs import PartitionSpec, UnreducedKind
from weft._engine.ir.types import ShapedArray
from weft._engine.util.errors import ShardingError, ShardingTypeError, describe
from weft._engine.util.source import user_frame

if TYPE_CHECKING:
    from weft._engine.core.primitive import BatchAxis
    from weft._engine.ir.build import LoopsBuilder
    from weft._engine.ir.factors import FactorRule
    from weft._engine.ir.loops import Expr
    from weft._engine.ops.rule_types import (
        Array,
        ArrayLike,
        Avals,
        BatchDims,
        ElementIndex,
        ElementReader,
        Ints,
        NumPyArray,
        Value,
        Values,
    )

#: forms of a primitive's `out_sharding` attribute: how a user writes the sharding of a result
OUT_SHARDING, READ_AT = "out_sharding={}", "x.at[...].get(out_sharding={})"


def _operand(x: Value, **_: Any) -> Value:
    return x


def _operand_element(b: LoopsBuilder, index: ElementIndex, x: ElementReader, **_: Any) -> Expr:
    return x(index)


def _linear_factors(in_avals: Avals, out_avals: Avals, **_: Any) -> FactorRule:
    return elementwise_rule(in_avals, out_avals, linear_ins=(0,))


def _changes_no_value(primitive: Primitive, transpose: Callable[..., Values]) -> None:
    """Fill the slots of an op that applies `sharding` to its operand.

    Type and batch rules are left out.
    """

    def jvp(primals: Values, tangents: Values, *, sharding: NamedSharding):
        out = primitive.bind(primals[0], sharding=sharding)
        return out, tangents[0] if type(tangents[0]) is Zero else primitive.bind(
            tangents[0], sharding=sharding
        )

    primitive.define(
        reference=_operand,
        jvp=jvp,
        transpose=transpose,
        factors=_linear_factors,
        lower=_operand_element,
    )


def _batched_by_type(primitive: Primitive) -> None:
    """Fill the batch slot where `sharding` is the type of the result.

    The sharding gets a dim, split like the examples.
    """

    @primitive.def_batch
    def batch(
        axis: BatchAxis, args: Values, dims: Sequence[int], *, sharding: NamedSharding | None
    ):
        wider = None if sharding is None else sharding.with_dim(dims[0], axis.explicit_axes)
        return primitive.bind(args[0], sharding=wider), dims[0]


#: params: sharding. The value, constrained to the sharding; partitioning removes the op.
sharding_constraint_p = ConstraintOp("sharding_constraint")


def sharding_constraint(x: ArrayLike, sharding: Any) -> Array:
    """Return `x`, constrained to `sharding` wherever the program computes it."""
    if not hasattr(sharding, "splits"):
        raise TypeError(
            f"sharding_constraint: `sharding` must be a Sharding, got {sharding!r:.80}."
        )
    return sharding_constraint_p.bind(x, sharding=sharding)


@sharding_constraint_p.def_type
def _constraint_type(aval: ShapedArray, *, sharding: NamedSharding):
    sharding.splits(aval.shape)  # a dim need not divide, but there must be as many dims as it names
    _check_not_manual(aval, sharding)
    return (
        aval
        if aval.explicit is not None
        else aval.update(sharding=type_sharding(sharding, aval.ndim))
    )


def _check_not_manual(aval: ShapedArray, sharding: Any) -> None:
    """Raise ValueError for a constraint over manual axes.

    A block inside a shard_map is one device's part over these axes, so no constraint can split it
    over them.
    """
    inside = current_mesh()
    manual: set[Any] = set(inside.manual_axes) if inside is not None else set()
    named = [a for a in getattr(getattr(sharding, "spec", None), "axes", ()) if a in manual]
    if named:
        raise ShardingError(
            describe(
                "with_sharding_constraint",
                f"axis {named[0]!r} is manual inside of this shard_map.",
                [("value", aval.str_short()), ("sharding", sharding.spec)],
                user_frame(),
                "A value here is one device's block; over manual axes nothing is left to split.",
                f"Leave {named[0]!r} out, or move the value by a collective (all_to_all, psum_scatter).",
            )
        )


@sharding_constraint_p.def_batch
def _constraint_batch(axis: BatchAxis, args: Values, dims: Sequence[int], *, sharding: Sharding):
    if not axis.spmd_axes:
        return sharding_constraint(args[0], sharding.with_free_dim(dims[0])), dims[0]
    if not isinstance(sharding, NamedSharding):
        raise ShardingError(
            f"vmap: spmd_axis_name={axis.spmd_axes} is to split the mapped dim, and the constraint inside is a "
            f"{type(sharding).__name__}, which names no mesh axes.\n  Constrain to NamedSharding(mesh, spec), or to a "
            "PartitionSpec inside the mesh context manager."
        )
    twice = [a for a in axis.spmd_axes if a in sharding.spec.axes]
    if twice:
        raise ShardingError(
            f"vmap: spmd_axis_name={axis.spmd_axes} splits the mapped dim, and the constraint {sharding.spec} inside "
            f"splits another by {twice[0]!r}.\n  A mesh axis splits at most one dim."
        )
    wider = sharding.with_free_dim(dims[0])
    entries = [axis.spmd_axes if d == dims[0] else entry for d, entry in enumerate(wider.spec)]
    return sharding_constraint(args[0], wider.with_spec(entries)), dims[0]


def _constraint_transpose(ct: Value, x: UndefPrimal, *, sharding: NamedSharding) -> Values:
    return (sharding_constraint(ct, sharding),)


_changes_no_value(sharding_constraint_p, _constraint_transpose)


#: params: order, of all dims, the slowest first. The value, stored in this dim order where it is a
#: result; the compiler removes the op.
layout_constraint_p = ElementwiseOp("layout_constraint", computes="copy", casts=True)


def layout_constraint(x: Value, order: Sequence[int]):
    """Return `x`, stored with its dims in `order` if it is a result of the program."""
    return layout_constraint_p.bind(x, order=tuple(order))


def _layout_jvp(primals: Values, tangents: Values, *, order: Ints):
    out = layout_constraint(primals[0], order)
    return out, tangents[0] if type(tangents[0]) is Zero else layout_constraint(tangents[0], order)


def _layout_batch(axis: BatchAxis, args: Values, dims: Sequence[int], *, order: Ints):
    (at,) = dims
    return layout_constraint(args[0], (at, *[d + (d >= at) for d in order])), at


def _layout_transpose(ct: Value, x: UndefPrimal, *, order: Ints) -> Values:
    return (layout_constraint(ct, order),)


layout_constraint_p.define(
    type=_operand,
    reference=_operand,
    jvp=_layout_jvp,
    batch=_layout_batch,
    transpose=_layout_transpose,
    factors=_linear_factors,
    lower=_operand_element,
)


#: params: sharding, whose mesh may be abstract. The value with a type of this sharding; explicit
#: axes are moved to it.
reshard_p = ConstraintOp("reshard", implied=("sharding",), leaves_auto=True)


def reshard(x: Value, sharding: NamedSharding):
    """Return `x` with the type of `sharding`.

    A sharding over automatic axes leaves the placement to the compiler.
    """
    mesh = _context_mesh_of(sharding.mesh)
    if not mesh.explicit_axes and mesh not in meshes_without_axis_types:
        return x if typeof(x).explicit is None else mesh_cast(x, None)
    return reshard_p.bind(x, sharding=sharding)


def _context_mesh_of(mesh: Any) -> Any:
    """Return the context mesh if it has the same axes as `mesh`, else `mesh`.

    The context mesh records whether the user gave its axis types.
    """
    context = spec_mesh()
    return context if context is not None and context.abstract_mesh is mesh else mesh


@reshard_p.def_type
def _reshard_type(aval: ShapedArray, *, sharding: NamedSharding):
    sharding.check_shape(aval.shape, "the value given to reshard")
    _check_kind(aval, sharding.spec)
    return aval.update(sharding=type_sharding(sharding, aval.ndim))


def _check_kind(aval: ShapedArray, spec: PartitionSpec) -> None:
    """Raise ValueError for an unreduced maximum or minimum.

    A plain value can become terms of a sum (itself and zeros), but not operands of a maximum or
    minimum.
    """
    if spec.unreduced_kind not in (None, UnreducedKind.sum):
        raise ValueError(
            describe(
                "reshard",
                f"only sums can be unreduced, not a {spec.unreduced_kind.name}: the sharding cannot be more unreduced than the "
                "value is.",
                [("value", aval.str_short()), ("sharding", spec)],
                user_frame(),
                "Terms of a sum are the value and zeros.",
                "Leave `unreduced_kind` out, or reduce with lax.pmax or lax.pmin in shard_map.",
            )
        )


def _reshard_transpose(ct: Value, x: UndefPrimal, *, sharding: NamedSharding) -> Values:
    return (ct,)  # a cotangent takes its type where it is complete


_changes_no_value(reshard_p, _reshard_transpose)
_batched_by_type(reshard_p)


#: params: sharding, over an abstract mesh, or None. The value with another type; nothing is moved.
mesh_cast_p = ConstraintOp("mesh_cast", implied=("sharding",), leaves_auto=True)


def mesh_cast(x: Value, sharding: NamedSharding | None):
    """Return `x` with a type over other axes; propagation chooses its placement."""
    return mesh_cast_p.bind(x, sharding=sharding)


@mesh_cast_p.def_type
def _mesh_cast_type(aval: ShapedArray, *, sharding: NamedSharding | None) -> ShapedArray:
    return aval.update(sharding=sharding)


def _mesh_cast_transpose(ct: Value, x: UndefPrimal, *, sharding: NamedSharding | None) -> Values:
    return (mesh_cast(ct, dual(x.aval.explicit)),)


_changes_no_value(mesh_cast_p, _mesh_cast_transpose)
_batched_by_type(mesh_cast_p)


#: params: sharding, of the first dim of the result. The terms of a sum over the devices along its
#: axes, as entries of that dim. The compiler chooses them: the partial sums of the devices, or the
#: value and zeros.
terms_p = PartialTermsOp("terms")


def terms(x: Value, mesh: Any, axes: tuple[Any, ...]):
    """Return the terms of `x` over the `axes` of `mesh`, in order, along a new first dim."""
    n, explicit = math.prod(mesh.shape[a] for a in axes), typeof(x).explicit
    if n == 1:
        return repeat_per_device(x, mesh, axes)
    if explicit is not None and set(axes) <= set(explicit.mesh.explicit_axes):
        return terms_p.bind(x, sharding=NamedSharding(mesh, PartitionSpec(axes)))
    aval = typeof(x)  # the type records no terms: they are the value and zeros
    with allow_open_shardings():
        first = registry["broadcast_in_dim"].bind(
            x, shape=(1, *aval.shape), broadcast_dimensions=tuple(range(1, aval.ndim + 1))
        )
        return registry["pad"].bind(
            first,
            np.zeros((), aval.dtype)[()],
            padding_config=((0, n - 1, 0), *[(0, 0, 0)] * aval.ndim),
        )


def repeat_per_device(x: Value, mesh: Any, axes: tuple[Any, ...]):
    """Return `x` repeated for each device along the `axes` of `mesh`, along a new first dim."""
    shape, out_type = (
        typeof(x).shape,
        _terms_type(typeof(x), sharding=NamedSharding(mesh, PartitionSpec(axes))),
    )
    with allow_open_shardings():
        repeated = registry["broadcast_in_dim"].bind(
            x, shape=out_type.shape, broadcast_dimensions=tuple(range(1, len(shape) + 1))
        )
        return reshard_like(repeated, out_type)


def sum_of_terms(x: Value, axes: tuple[Any, ...]):
    """Return the sum (of bools: the logical or) of the entries of `x` along its first dim, its terms over the mesh axes `axes`."""
    reduction = "reduce_or" if typeof(x).dtype == np.bool_ else "reduce_sum"
    with allow_open_shardings(), leave_unreduced(frozenset(axes)):
        return registry[reduction].bind(x, axes=(0,))


@terms_p.def_type
def _terms_type(aval: ShapedArray, *, sharding: NamedSharding):
    axes, mesh = sharding.spec.axes, sharding.mesh
    typed = None
    if aval.explicit is not None:
        mine = aval.explicit.spec
        first = tuple(a for a in axes if a in aval.explicit.mesh.explicit_axes)
        typed = aval.explicit.with_spec(
            mine.update(
                (first or None, *mine.partitions),
                unreduced=mine.unreduced - set(axes),
                reduced=mine.reduced - set(axes),
            )
        )
    return aval.update(shape=(math.prod(mesh.shape[a] for a in axes), *aval.shape), sharding=typed)


def _terms_reference(x: NumPyArray, *, sharding: NamedSharding):
    others = math.prod(sharding.mesh.shape[a] for a in sharding.spec.axes) - 1
    return np.concatenate([x[None], np.zeros((others, *x.shape), x.dtype)])


def _terms_transpose(ct: Value, x: UndefPrimal, *, sharding: NamedSharding):
    with allow_open_shardings():
        shape = typeof(ct).shape
        first = registry["slice"].bind(
            ct, start_indices=(0,) * len(shape), limit_indices=(1, *shape[1:]), strides=None
        )
        return (registry["reduce_sum"].bind(first, axes=(0,)),)


def _terms_factors(in_avals: Avals, out_avals: Avals, **_: Any):
    b = RuleBuilder()
    ins, terms = b.add_factors(in_avals[0].shape), b.add_factors(out_avals[0].shape[:1])
    return b.rule([ins], [[*terms, *ins]], special={terms[0]: "replicate"}, linear_ins=(0,))


def _terms_jvp(
    primals: Values, tangents: Values, *, sharding: NamedSharding
) -> tuple[Value, Value]:
    (t,) = tangents
    out = terms_p.bind(primals[0], sharding=sharding)
    return out, t if type(t) is Zero else terms_p.bind(t, sharding=sharding)


def _terms_batch(
    axis: BatchAxis, args: Values, dims: Sequence[int], *, sharding: NamedSharding
) -> tuple[Value, int]:
    return terms_p.bind(args[0], sharding=sharding), dims[0] + 1


terms_p.define(
    reference=_terms_reference,
    jvp=_terms_jvp,
    transpose=_terms_transpose,
    factors=_terms_factors,
    batch=_terms_batch,
    lower=declare_unsupported("the partitioner places the terms"),
)


def reshard_like(x: Value, aval: ShapedArray, cotangent: bool = False):
    """Return `x` with the sharding in type `aval` (or of its cotangents), if there is one."""
    sharding = dual(aval.explicit) if cotangent else aval.explicit
    return x if sharding is None or typeof(x).explicit == sharding else reshard(x, sharding)


def named_sharding(sharding: Any, what: str) -> NamedSharding:
    """Return a NamedSharding, or a PartitionSpec over the context mesh, as a NamedSharding.

    Raise ValueError if there is no mesh, for axes that are not explicit, and for a memory kind over
    a mesh without devices. Automatic axes are accepted if `make_mesh` chose their type by default;
    JAX makes these explicit.
    """
    if not isinstance(sharding, (NamedSharding, PartitionSpec)):
        raise TypeError(
            f"{what}: {sharding!r} is not a layout. Give a PartitionSpec or a NamedSharding."
        )
    if isinstance(sharding, NamedSharding):
        mesh = sharding.mesh
        if mesh.empty:
            return sharding  # no axis is explicit
    else:
        mesh = spec_mesh()
    if mesh is None or mesh.empty:
        raise ValueError(
            f"{what}: {sharding!r} names axes of a mesh, and there is none. Using PartitionSpec when you are not under a mesh "
            "context is not allowed.\n  Make one current with weft.set_mesh(mesh), or give NamedSharding(mesh, spec)."
        )
    if (
        isinstance(sharding, NamedSharding)
        and sharding.memory_kind is not None
        and not isinstance(mesh, Mesh)
    ):
        raise ShardingError(
            f"{what}: a sharding with a memory_kind is not allowed: {sharding!r}.\n"
            "  Types name no memory. Use device_put to move values to memory of another kind."
        )
    named = NamedSharding(mesh, sharding.spec if isinstance(sharding, NamedSharding) else sharding)
    refused = (
        {AxisType.Manual}
        if _context_mesh_of(mesh) in meshes_without_axis_types
        else {AxisType.Manual, AxisType.Auto}
    )
    for axis, kind in zip(mesh.axis_names, mesh.axis_types):
        if kind in refused and axis in named.spec.axes:
            way = (
                "Over automatic axes, lax.with_sharding_constraint asks for a layout."
                if kind is AxisType.Auto
                else "Inside shard_map, a value is one device's block; collectives move it."
            )
            raise ShardingError(
                f"{what}: PartitionSpec passed to {what.partition(':')[0]} cannot contain axis names that are of type Auto "
                f"or Manual, got {named.spec}: {axis!r} is of type {kind.name} in {mesh}.\n"
                f"  Types tell of explicit axes alone. {way}"
            )
    return named


def with_out_sharding(
    out_sharding: Any,
    what: str,
    compute: Callable[..., Any],
    *values: Value,
    contracts: bool = False,
) -> Any:
    """Return `compute()`, with `out_sharding` if it is given.

    The ops that `compute` binds may leave the sharding of their results open. Sums over dims that
    the unreduced axes of `out_sharding` split are not completed; if it `contracts`, there must be
    such a sum.
    """
    if out_sharding is None:
        return compute()
    sharding = named_sharding(out_sharding, f"{what}: out_sharding")
    terms = sharding.spec.unreduced
    if not terms:
        with allow_open_shardings():
            return reshard(compute(), sharding)
    with allow_open_shardings(), leave_unreduced(terms):
        out = compute()
    if contracts and terms - _unreduced(out):
        raise ShardingTypeError(
            describe(
                what,
                f"the result is to be unreduced over {sorted(map(str, terms))}, and its terms are not there: the contracted dims of both "
                "operands are not split by these axes.",
                [
                    *((f"operand {i}", typeof(x).str_short()) for i, x in enumerate(values)),
                    ("out_sharding", sharding.spec),
                ],
                user_frame(),
                "Devices have terms of a contraction over the axes that split the contracted dims, of both operands alike.",
                "Reshard the operands first, or leave these axes out.",
            )
        )
    return reshard(out, sharding)


def _unreduced(x: Value) -> frozenset[Any]:
    sharding = typeof(x).explicit
    return frozenset() if sharding is None else sharding.spec.unreduced


@overload
def takes_out_sharding(
    fun: Callable[..., Any], *, contracts: bool = False, sums: bool = True
) -> Callable[..., Any]: ...
@overload
def takes_out_sharding(
    fun: None = None, *, contracts: bool = False, sums: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...
def takes_out_sharding(
    fun: Callable[..., Any] | None = None, *, contracts: bool = False, sums: bool = True
) -> Callable[..., Any]:
    """Return `fun` with a keyword `out_sharding`, the sharding of its result; also a decorator.

    The sharding is a PartitionSpec or a NamedSharding. It may be unreduced only if `fun` `sums`.
    """
    if fun is None:
        return functools.partial(takes_out_sharding, contracts=contracts, sums=sums)

    @functools.wraps(fun)
    def placed(*args: Value, out_sharding: Any = None, **kwargs: Any) -> Any:
        if out_sharding is None:
            return fun(*args, **kwargs)
        if not sums and getattr(getattr(out_sharding, "spec", out_sharding), "unreduced", None):
            raise NotImplementedError(
                f"{fun.__name__}: the result cannot be laid out as {out_sharding}: only sums can be unreduced.\n"
                "  Leave the unreduced axes out of out_sharding."
            )
        return with_out_sharding(
            out_sharding,
            fun.__name__,
            lambda: fun(*args, **kwargs),
            *[x for x in args[:3] if not isinstance(x, str)],
            contracts=contracts,
        )

    signature = inspect.signature(fun)
    extra = inspect.Parameter("out_sharding", inspect.Parameter.KEYWORD_ONLY, default=None)
    placed.__signature__ = signature.replace(parameters=[*signature.parameters.values(), extra])  # type: ignore[attr-defined]
    return placed


#: params: alike: the operands have one shape and are sharded in the same way; may be absent. The
#: operands, unchanged; simplification treats it as opaque.
optimization_barrier_p = BarrierOp("optimization_barrier", multiple_results=True)


def optimization_barrier(operands: Sequence[Any], alike: bool = False) -> list[Any]:
    """Return the operands unchanged, hidden from simplification.

    Computations on the results are not merged with equal computations elsewhere. With `alike` the
    operands are sharded in the same way.
    """
    return optimization_barrier_p.bind(*operands, **{"alike": True} if alike else {})


@optimization_barrier_p.def_jvp
def _barrier_jvp(primals: Values, tangents: Values, *, alike: Any = False):
    outs = optimization_barrier(primals, alike)
    nonzero = [t for t in tangents if type(t) is not Zero]
    moved = iter(optimization_barrier(nonzero) if nonzero else [])
    return outs, [t if type(t) is Zero else next(moved) for t in tangents]


@optimization_barrier_p.def_transpose
def _barrier_transpose(cts: Values, *args: Value, alike: Any = False):
    nonzero = [ct for ct in cts if type(ct) is not Zero]
    moved = iter(optimization_barrier(nonzero) if nonzero else [])
    passed = [None if type(ct) is Zero else next(moved) for ct in cts]
    return [ct if isinstance(x, UndefPrimal) else None for ct, x in zip(passed, args)]


def _barrier_factors(in_avals: Avals, out_avals: Avals, *, alike: Any = False):
    b = RuleBuilder()
    dims = (
        [b.add_factors(in_avals[0].shape)] * len(in_avals)
        if alike
        else [b.add_factors(a.shape) for a in in_avals]
    )
    return b.rule(dims, dims)


def _barrier_batch(axis: BatchAxis, args: Values, dims: BatchDims, *, alike: Any = False):
    if alike and len(set(dims)) > 1:
        whole = (
            axis.size,
            *next(typeof(x).without_dim(d).shape for x, d in zip(args, dims) if d is not None),
        )
        repeat = functools.partial(
            registry["broadcast_in_dim"].bind,
            shape=whole,
            broadcast_dimensions=tuple(range(1, len(whole))),
        )
        front: Callable[[Value, int], Value] = lambda x, d: registry["transpose"].bind(
            x, permutation=(d, *(k for k in range(len(whole)) if k != d))
        )
        args = [repeat(x) if d is None else front(x, d) for x, d in zip(args, dims)]
        dims = [0] * len(dims)
    return optimization_barrier(args, alike), dims


def _all_operands(*xs: Value, alike: bool = False) -> list[Value]:
    return list(xs)


optimization_barrier_p.define(
    type=_all_operands,
    reference=_all_operands,
    batch=_barrier_batch,
    factors=_barrier_factors,
    lower=declare_unsupported("barriers are gone before fusion"),
)
