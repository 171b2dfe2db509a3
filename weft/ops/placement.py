"""Operations that say where or when, and change no value: `sharding_constraint`, `reshard`, `mesh_cast`, `optimization_barrier`.

`reshard` gives a value the type that its sharding says; `with_out_sharding` is how every function takes `out_sharding`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from weft.core.primitive import Primitive, unsupported
from weft.core.trace import UndefPrimal, Zero, lenient, typeof
from weft.ir.explicit import type_sharding
from weft.ir.factors import RuleBuilder, elementwise_rule
from weft.ir.mesh import current_mesh
from weft.ir.registry import registry
from weft.ir.shardings import NamedSharding
from weft.ir.specs import PartitionSpec
from weft.ir.types import ShapedArray
from weft.util.errors import ShardingError, describe
from weft.util.source import user_frame

#: what a primitive's `out_sharding` attribute says: how a user writes where its result is
OUT_SHARDING, READ_AT = "out_sharding={}", "x.at[...].get(out_sharding={})"


def _changes_no_value(primitive: Primitive, transpose: Callable) -> None:
    """Fill the slots of an operation that puts its operand under `sharding`, but the type and batch rules."""

    def jvp(primals, tangents, *, sharding):
        out = primitive.bind(primals[0], sharding=sharding)
        return out, tangents[0] if type(tangents[0]) is Zero else primitive.bind(tangents[0], sharding=sharding)

    primitive.define(
        reference=lambda x, *, sharding: x,
        jvp=jvp,
        transpose=transpose,
        factors=lambda in_avals, out_avals, **_: elementwise_rule(in_avals, out_avals, linear_ins=(0,)),
        lower=lambda b, index, x, *, in_avals, out_avals, sharding: x(index))


def _batched_by_type(primitive: Primitive) -> None:
    """Fill the batch slot where `sharding` is the type of the result: it gets a dim, split as the examples are."""

    @primitive.def_batch
    def batch(axis, args, dims, *, sharding):
        wider = None if sharding is None else sharding.with_dim(dims[0], axis.splits)
        return primitive.bind(args[0], sharding=wider), dims[0]


#: params: sharding. The value, with the promise of its layout; partitioning drops it.
sharding_constraint_p = Primitive("sharding_constraint", "constraint")


def sharding_constraint(x, sharding):
    """`x`, laid out as `sharding` says wherever the program computes it."""
    if not hasattr(sharding, "splits"):
        raise TypeError(f"sharding_constraint: `sharding` must be a Sharding, got {sharding!r:.80}.")
    return sharding_constraint_p.bind(x, sharding=sharding)


@sharding_constraint_p.def_type
def _constraint_type(aval, *, sharding):
    sharding.splits(aval.shape)                  # a dim need not divide, but there must be as many as it names
    _check_not_manual(aval, sharding)
    return aval if aval.explicit is not None else aval.update(sharding=type_sharding(sharding, aval.ndim))


def _check_not_manual(aval: ShapedArray, sharding: Any) -> None:
    """A block inside of a shard_map is what one device has of its manual axes: no constraint can split it over them."""
    inside = current_mesh()
    manual = set(inside.manual_axes) if inside is not None else set()
    named = [a for a in getattr(getattr(sharding, "spec", None), "axes", ()) if a in manual]
    if named:
        raise ShardingError(describe(
            "with_sharding_constraint", f"axis {named[0]!r} is manual inside of this shard_map.",
            [("value", aval.str_short()), ("sharding", sharding.spec)], user_frame(),
            "A value here is one device's block; over manual axes nothing is left to split.",
            f"Leave {named[0]!r} out, or move the value by a collective (all_to_all, psum_scatter)."))


@sharding_constraint_p.def_batch
def _constraint_batch(axis, args, dims, *, sharding):
    wider = sharding.with_free_dim(dims[0])
    if axis.spread and isinstance(wider, NamedSharding):
        twice = [a for a in axis.spread if a in sharding.spec.axes]
        if twice:
            raise ShardingError(f"vmap: spmd_axis_name={axis.spread} splits the mapped dim, and the constraint {sharding.spec} inside "
                                "splits "
                                f"another by {twice[0]!r}.\n  A mesh axis splits at most one dim.")
        entries = [axis.spread if d == dims[0] else entry for d, entry in enumerate(wider.spec)]
        wider = wider.with_spec(entries)
    return sharding_constraint(args[0], wider), dims[0]


_changes_no_value(sharding_constraint_p, lambda ct, x, *, sharding: (sharding_constraint(ct, sharding),))


#: params: sharding, whose mesh may be abstract. The value with the type that it says; explicit axes are moved to it.
reshard_p = Primitive("reshard", "constraint", implied=("sharding",), leaves_auto=True)


def reshard(x, sharding: NamedSharding):
    """`x`, laid out as `sharding` says, which becomes its type."""
    return reshard_p.bind(x, sharding=sharding)


@reshard_p.def_type
def _reshard_type(aval, *, sharding):
    sharding.check_shape(aval.shape, "the value given to reshard")
    return aval.update(sharding=type_sharding(sharding, aval.ndim))


_changes_no_value(reshard_p, lambda ct, x, *, sharding: (ct,))   # a cotangent takes the type of its primal where it is complete
_batched_by_type(reshard_p)


#: params: sharding, over an abstract mesh, or None. The value under another type; nothing is moved.
mesh_cast_p = Primitive("mesh_cast", "constraint", implied=("sharding",), leaves_auto=True)


def mesh_cast(x, sharding: NamedSharding | None):
    """`x` with a type that names other axes; its placement is for propagation to decide."""
    return mesh_cast_p.bind(x, sharding=sharding)


mesh_cast_p.define(type=lambda aval, *, sharding: aval.update(sharding=sharding))
_changes_no_value(mesh_cast_p, lambda ct, x, *, sharding: (mesh_cast(ct, x.aval.explicit),))
_batched_by_type(mesh_cast_p)


def laid_out_as(x, aval: ShapedArray):
    """`x` with the sharding of type `aval`, if that has one."""
    wanted = aval.explicit
    return x if wanted is None or typeof(x).explicit == wanted else reshard(x, wanted)


def named_sharding(sharding: Any, what: str, values: Sequence = ()) -> NamedSharding:
    """A NamedSharding, or a PartitionSpec over the mesh of the context or else of the types of `values`, as a NamedSharding."""
    if isinstance(sharding, NamedSharding):
        return sharding
    if not isinstance(sharding, PartitionSpec):
        raise TypeError(f"{what}: {sharding!r} is not a layout. Give a PartitionSpec or a NamedSharding.")
    mesh = current_mesh()
    if mesh is None:
        types = [getattr(x, "aval", None) for x in values]
        mesh = next((a.explicit.mesh for a in types if a is not None and a.explicit is not None), None)
    if mesh is None:
        raise ValueError(f"{what}: {sharding!r} names axes of a mesh, and there is none.\n"
                         "  Make one current with weft.set_mesh(mesh), or give NamedSharding(mesh, spec).")
    return NamedSharding(mesh, sharding)


def with_out_sharding(out_sharding: Any, what: str, compute: Callable, *values) -> Any:
    """`compute()`, laid out as `out_sharding` says if it is given. What `compute` binds may leave open how its result is laid out."""
    if out_sharding is None:
        return compute()
    sharding = named_sharding(out_sharding, f"{what}: out_sharding", values)
    with lenient():
        return reshard(compute(), sharding)


def takes_out_sharding(fun: Callable) -> Callable:
    """`fun` with a keyword `out_sharding`, a PartitionSpec or a NamedSharding that says how its result is laid out."""
    @functools.wraps(fun)
    def placed(*args, out_sharding: Any = None, **kwargs) -> Any:
        if out_sharding is None:
            return fun(*args, **kwargs)
        return with_out_sharding(out_sharding, fun.__name__, lambda: fun(*args, **kwargs), *args[:2])

    signature = inspect.signature(fun)
    extra = inspect.Parameter("out_sharding", inspect.Parameter.KEYWORD_ONLY, default=None)
    placed.__signature__ = signature.replace(parameters=[*signature.parameters.values(), extra])  # type: ignore[attr-defined]
    return placed


#: params: alike, the operands, which have one shape, are sharded alike; it may be absent. The operands, unchanged; simplification treats it
#: as opaque.
optimization_barrier_p = Primitive("optimization_barrier", "barrier", multiple_results=True)


def optimization_barrier(operands: Sequence, alike: bool = False) -> list:
    """The operands as they are, hidden from simplification: what is computed from them is not merged with the same computation
    elsewhere. With `alike` they are sharded in the same way."""
    return optimization_barrier_p.bind(*operands, **{"alike": True} if alike else {})


@optimization_barrier_p.def_jvp
def _barrier_jvp(primals, tangents, *, alike=False):
    outs = optimization_barrier(primals, alike)
    nonzero = [t for t in tangents if type(t) is not Zero]
    moved = iter(optimization_barrier(nonzero) if nonzero else [])
    return outs, [t if type(t) is Zero else next(moved) for t in tangents]


@optimization_barrier_p.def_transpose
def _barrier_transpose(cts, *args, alike=False):
    given = [ct for ct in cts if type(ct) is not Zero]
    moved = iter(optimization_barrier(given) if given else [])
    passed = [None if type(ct) is Zero else next(moved) for ct in cts]
    return [ct if isinstance(x, UndefPrimal) else None for ct, x in zip(passed, args)]


def _barrier_factors(in_avals, out_avals, *, alike=False):
    b = RuleBuilder()
    dims = [b.news(in_avals[0].shape)] * len(in_avals) if alike else [b.news(a.shape) for a in in_avals]
    return b.rule(dims, dims)


def _barrier_batch(axis, args, dims, *, alike=False):
    if alike and len(set(dims)) > 1:
        whole = (axis.size, *next(typeof(x).without_dim(d).shape for x, d in zip(args, dims) if d is not None))
        repeat = functools.partial(registry["broadcast_in_dim"].bind, shape=whole, broadcast_dimensions=tuple(range(1, len(whole))))
        front = lambda x, d: registry["transpose"].bind(x, permutation=(d, *(k for k in range(len(whole)) if k != d)))
        args = [repeat(x) if d is None else front(x, d) for x, d in zip(args, dims)]
        dims = [0] * len(dims)
    return optimization_barrier(args, alike), dims


optimization_barrier_p.define(
    type=lambda *avals, alike=False: avals, reference=lambda *xs, alike=False: list(xs), batch=_barrier_batch,
    factors=_barrier_factors, lower=unsupported("barriers are gone before fusion"))
