"""Explicit shardings in the types of results, derived in one place for all operations.

In:   a primitive, the types of its operands, and the types of its results according to its type rule.
Out:  the types of the results with the shardings that the primitive's factor rule derives from the operands' shardings.
Laws: the type rules of operations with inner programs, constraints, collectives and `terms` state the shardings of their results.
      If the operands do not determine a result's sharding, ShardingTypeError names the user's line and a remedy. Programs that
      are evaluated again, and operations that rules derive, allow unspecified shardings: such a result has no explicit sharding there, and
      the partitioner chooses one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft._engine.core.partial_types import find_summed_axes, result_specs
from weft._engine.core.primitive import (
    CollectiveOp,
    ConstraintOp,
    ElementwiseOp,
    LayoutOp,
    PartialTermsOp,
    Primitive,
    ProductOp,
    RegionOp,
    has_rule,
)
from weft._engine.core.trace import trace_state, typeof
from weft._engine.ir.explicit import Conflict, OpTraits, is_partial, result_dims, spec_text
from weft._engine.ir.mesh import current_mesh
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.specs import PartitionSpec, Spec, spec_of_dims
from weft._engine.ir.types import ShapedArray
from weft._engine.util.errors import ShardingTypeError, describe
from weft._engine.util.source import user_frame

#: families whose type rules state the shardings of their results
_OWN_RULES = (RegionOp, ConstraintOp, CollectiveOp, PartialTermsOp)


def infer_sharded_types(
    primitive: Primitive,
    in_avals: Sequence[ShapedArray],
    out_avals: Sequence[ShapedArray],
    params: dict[str, Any],
) -> Sequence[ShapedArray]:
    """Return the types of the results with their shardings. At least one operand's type must have an explicit sharding."""
    if isinstance(primitive, _OWN_RULES):
        return out_avals
    meshes = list(dict.fromkeys([a.explicit.mesh for a in in_avals if a.explicit is not None]))
    if not trace_state.allows_unspecified:
        _check_meshes(primitive, meshes, in_avals)
    if len(meshes) > 1 or not has_rule(primitive.factors):
        return _without_shardings(out_avals)
    mesh = meshes[0]
    rule = primitive.factors(in_avals, out_avals, **params)
    specs = list(map(_dims_of, in_avals))
    traits = OpTraits(
        isinstance(primitive, ElementwiseOp),
        isinstance(primitive, LayoutOp),
        isinstance(primitive, ProductOp),
        primitive.shards_like_operands,
    )
    dims, conflict = result_dims(rule, traits, specs, mesh.shape)
    leaves_terms = bool(
        trace_state.unreduced_axes
    ) and trace_state.unreduced_axes <= find_summed_axes(rule, specs, mesh.shape)
    if conflict is None or leaves_terms:
        outs = [spec_of_dims(out) for out in dims]
        if any(map(is_partial, in_avals)):
            outs = result_specs(primitive, rule, in_avals, outs)
        if leaves_terms:
            outs = list(map(_with_terms, outs))
        return [a.update(sharding=NamedSharding(mesh, spec)) for a, spec in zip(out_avals, outs)]
    if trace_state.allows_unspecified:
        return _without_shardings(out_avals)
    raise ShardingTypeError(_message(primitive, in_avals, dims, conflict))


def _without_shardings(avals: Sequence[ShapedArray]) -> list[ShapedArray]:
    return [a.update(sharding=None) for a in avals]


def _dims_of(aval: ShapedArray) -> Spec:
    """Return the mesh axes that shard each dim of a type."""
    return ((),) * aval.ndim if aval.explicit is None else aval.explicit.spec_dims(aval.ndim)


def _with_terms(spec: PartitionSpec) -> PartitionSpec:
    """Return the spec of a sum that is left unreduced over the axes of the enclosing `leave_unreduced` context."""
    axes = trace_state.unreduced_axes
    if axes & set(spec.axes):
        return spec
    return spec.update(unreduced=axes, reduced=spec.reduced - axes)


def _check_meshes(
    primitive: Primitive, meshes: Sequence[Any], in_avals: Sequence[ShapedArray]
) -> None:
    """Raise ShardingTypeError unless all operands are on one mesh, and it is the context mesh if there is one."""
    title = f"For primitive {primitive.name}, context mesh and aval mesh differ"
    if len(meshes) > 1:
        raise ShardingTypeError(
            describe(
                title,
                "the operands are on different meshes.",
                _operand_rows(in_avals),
                user_frame(),
                "All operands of an operation with explicit shardings must be on one mesh.",
                "Move an operand with weft.sharding.reshard(x, NamedSharding(mesh, spec)).",
            )
        )
    context = current_mesh()
    if context is None or context.abstract_mesh is meshes[0]:
        return
    if context.empty or context.manual_axes:
        return
    if not any(
        a.explicit is not None and (a.explicit.spec.axes or is_partial(a)) for a in in_avals
    ):
        return  # replicated values are valid on any mesh
    raise ShardingTypeError(
        describe(
            title,
            "the operands are on a mesh that is not the context mesh.",
            [("context", context.abstract_mesh), *_operand_rows(in_avals)],
            user_frame(),
            "Explicit shardings must be on the context mesh, with its axis types.",
            "Move the operands with weft.sharding.reshard, or set their mesh with weft.set_mesh for this call.",
        )
    )


def check(
    primitive: Primitive,
    values: Sequence[Any],
    params: dict[str, Any],
    mapped_axes: tuple[Any, ...] = (),
) -> None:
    """Raise ShardingTypeError unless the types of `values` determine the shardings of the results.

    Raise it also if a result would be sharded over one of the mesh axes `mapped_axes`, which already shard the dim that vmap maps over
    (the types do not contain this dim). Transformations call this function before a rule derives other operations, because
    derived operations are not checked.
    """
    if trace_state.allows_unspecified:
        return
    avals = [typeof(x) for x in values]
    if not any(a.explicit is not None for a in avals):
        return
    for out in infer_sharded_types(primitive, avals, primitive.abstract(avals, params), params):
        conflicts = [
            a for a in mapped_axes if out.explicit is not None and a in out.explicit.spec.axes
        ]
        if conflicts:
            raise ShardingTypeError(
                describe(
                    primitive.name,
                    f"a dim of the result would be split by {conflicts[0]!r}, which splits the dim that vmap maps over.",
                    [
                        *((_operand(i), a.str_short(), "") for i, a in enumerate(avals)),
                        ("result", out.str_short(), ""),
                        ("mapped dim", f"split by {mapped_axes}", ""),
                    ],
                    user_frame(),
                    "A mesh axis splits at most one dim of a value; unmapped values cannot be sharded over the axes of the mapped dim.",
                    "Reshard the unmapped argument over other axes with weft.sharding.reshard, before vmap.",
                )
            )


def _operand_rows(in_avals: Sequence[ShapedArray]) -> list[tuple[Any, ...]]:
    """Return the rows of a message that describe the operands with explicit shardings."""
    return [
        (_operand(i), a.str_short(), a.explicit.mesh)
        for i, a in enumerate(in_avals)
        if a.explicit is not None
    ]


def _operand(i: int) -> str:
    return f"operand {i}"


def _message(
    primitive: Primitive, in_avals: Sequence[ShapedArray], outs: Sequence[Spec], conflict: Conflict
) -> str:
    rows = [
        (_operand(i), a.str_short(), conflict.notes.get(i, ""))
        for i, a in enumerate(in_avals)
        if a.explicit is not None or i in conflict.notes
    ]
    return describe(
        primitive.name + conflict.verb,
        conflict.fact,
        rows,
        user_frame(),
        conflict.rule,
        _remedy(primitive, outs, conflict),
    )


def _remedy(primitive: Primitive, outs: Sequence[Spec], conflict: Conflict) -> str:
    choice = primitive.out_sharding.format(spec_text(outs[0]))
    moved = ""
    if conflict.target is not None:
        moved = f"weft.sharding.reshard(<operand {conflict.operand}>, {spec_text(conflict.target)})"
    if choice and moved:
        return f"Give the sharding of the result, with {choice}, or reshard the operand first: {moved}."
    if choice:
        return f"Give the sharding of the result, with {choice} (or another one)."
    return (
        f"Reshard the operand first: {moved}."
        if moved
        else (
            f"Reshard an operand first with weft.sharding.reshard; the result could be {spec_text(outs[0])}."
        )
    )
