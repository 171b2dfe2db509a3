"""Layouts as arguments and results of the user's partition rules (`custom_partitioning`).

In:   an equation of `custom_partitioning`, and the known layouts.
Out:  operands as passed to the rule, the rule's shardings on the axes of the program, and its inferred layouts, for propagation.
Next: `custom_partition` makes the function local.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft._engine.control.custom_partition import PartitionRule, partition_rule_error
from weft._engine.core.trace import derived_trace, eval_trace
from weft._engine.ir.jaxpr import Eqn, Var
from weft._engine.ir.mesh import Mesh
from weft._engine.ir.program_mesh import to_spec
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.specs import Spec, spec_of_dims
from weft._engine.ir.types import ShapedArray
from weft._engine.partition.padding import evenly_split
from weft._engine.util import tree
from weft._engine.util.record import record


@record
class OperandInfo:
    """A value as passed to a rule: shape, dtype and sharding."""

    shape: tuple[int, ...]
    dtype: Any
    sharding: NamedSharding
    weak_type: bool = False

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return ShapedArray(self.shape, self.dtype).size


def operand_info(aval: ShapedArray, spec: Spec, fine: Mesh, mesh: Mesh) -> OperandInfo:
    """Return a value that is split by axes of `fine`, as passed to a rule: on `mesh`, and whole in dims whose split `mesh` cannot express."""
    named = NamedSharding(fine, spec_of_dims(spec))
    coarse = to_spec(named, mesh, aval.ndim)
    full_spec = spec_of_dims(((),) * aval.ndim if coarse is None else coarse)
    return OperandInfo(aval.shape, aval.dtype, NamedSharding(mesh, full_spec), aval.weak_type)


def specs(
    rule: PartitionRule,
    what: str,
    shardings: Any,
    structure: Any,
    avals: Sequence[ShapedArray],
    mesh: Mesh,
    sizes: Any,
    eqn: Eqn,
) -> list[Spec]:
    """Return the layouts that a rule requests by a tree of shardings, on the axes of the program."""
    try:
        flat = tree.broadcast_prefix(
            shardings, tree.tree_unflatten(structure, avals), is_leaf=lambda x: x is None
        )
    except ValueError:
        raise partition_rule_error(
            rule,
            f"gives {what} shardings of another structure than the {what}s",
            [("shardings", shardings), (f"{what}s", structure)],
            eqn,
        ) from None
    out_specs: list[Spec] = []
    for i, (sharding, aval) in enumerate(zip(flat, avals)):
        spec = ((),) * aval.ndim if sharding is None else to_spec(sharding, mesh, aval.ndim)
        if spec is None or evenly_split(aval.shape, spec, sizes) != spec:
            raise partition_rule_error(
                rule,
                f"asks for a layout of {what} {i} that cannot be made",
                [(what, aval.str_short(), sharding), ("mesh", mesh)],
                eqn,
            )
        out_specs.append(spec)
    return out_specs


class InferTransfer:
    """The transfer of specs from the operands of a `custom_partitioning` equation to its results, by the rule's inference."""

    __slots__ = ("eqn", "variables")

    def __init__(self, eqn: Eqn):
        self.eqn = eqn
        self.variables = [a for a in eqn.invars if type(a) is Var]

    def __call__(self, state: Any) -> None:
        rule, (fine, mesh) = self.eqn.params["rule"], state.meshes
        infos = [
            operand_info(a.aval, evenly_split(a.aval.shape, state.spec(a), state.sizes), fine, mesh)
            for a in self.eqn.invars
        ]
        results = [operand_info(v.aval, ((),) * v.aval.ndim, fine, mesh) for v in self.eqn.outvars]
        with derived_trace(eval_trace):
            inferred = rule.infer(
                mesh,
                tree.tree_unflatten(rule.in_tree, infos),
                tree.tree_unflatten(rule.out_tree, results),
            )
        avals = [v.aval for v in self.eqn.outvars]
        carried = max([state.carried.get(a, 0) for a in self.variables], default=0)
        for var, spec in zip(
            self.eqn.outvars,
            specs(rule, "result", inferred, rule.out_tree, avals, fine, state.sizes, self.eqn),
        ):
            state.extend(var, spec, carried)
