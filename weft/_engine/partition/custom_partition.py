"""Partitioning of functions with user-defined partition rules (`custom_partitioning`).

In:   the partitioner of the enclosing program and an equation of `custom_partitioning`, with the layouts from propagation.
Out:  its results as values: the rule receives the layouts, and returns the requested layouts and the program of one device.
Laws: operands are moved to the layouts that the rule requests; the rule's own collectives are recorded. If the enclosing program
      is already a program of one device, the function itself runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft._engine.control.custom_partition import PartitionRule, partition_rule_error
from weft._engine.core.stage import stage
from weft._engine.core.trace import derived_trace, eval_trace, extend_axis_env
from weft._engine.ir.jaxpr import Eqn
from weft._engine.ir.types import ShapedArray
from weft._engine.partition.nested_shard_map import rename
from weft._engine.partition.padding import evenly_split
from weft._engine.partition.partitioner import Partitioner
from weft._engine.partition.propagation.layout_rule import operand_info, specs
from weft._engine.partition.reshard import Placement
from weft._engine.partition.values import LocalValue
from weft._engine.util import tree
from weft._engine.util.trees.narrowing import is_tuple_or_list


def compute(outer: Partitioner, eqn: Eqn) -> list[LocalValue]:
    """Return the results of a function with a user-defined partition rule."""
    values, rule = [outer.read(a) for a in eqn.invars], eqn.params["rule"]
    if outer.manual:
        return outer.run(eqn.params["jaxpr"], values)
    fine, mesh = outer.target_specs.meshes
    _, local, out_shardings, arg_shardings = _call_rule(outer, eqn, values)
    ins = specs(
        rule,
        "argument",
        tuple(arg_shardings),
        rule.in_tree,
        [v.aval for v in values],
        fine,
        outer.sizes,
        eqn,
    )
    outs = specs(
        rule,
        "result",
        out_shardings,
        rule.out_tree,
        [v.aval for v in eqn.outvars],
        fine,
        outer.sizes,
        eqn,
    )
    places = [Placement(s) for s in ins]
    blocks = [
        outer.materialize(v, p, "enters", f"the partition of {rule.name} takes it as {p}")
        for v, p in zip(values, places)
    ]
    avals = [outer.local_aval(v.aval, p) for v, p in zip(values, places)]

    def flat(*xs: Any) -> list[Any]:
        leaves, structure = tree.tree_flatten(local(*tree.tree_unflatten(rule.in_tree, xs)))
        if structure != rule.out_tree:
            raise partition_rule_error(
                rule,
                "gives a function of blocks with other results than the whole",
                [("blocks", structure), ("whole", rule.out_tree)],
                eqn,
            )
        return leaves

    with derived_trace(eval_trace), extend_axis_env(mesh.shape_tuple, frozenset()):
        body = stage(flat, avals, rule.name)
    body = rename(body, mesh, fine)
    return _run(outer, eqn, rule, body, blocks, [Placement(s) for s in outs])


def _call_rule(outer: Partitioner, eqn: Eqn, values: Sequence[LocalValue]) -> Sequence[Any]:
    """Return the mesh, the function of blocks, and the result and argument shardings that the rule returns for the present layouts."""
    rule, (fine, mesh) = eqn.params["rule"], outer.target_specs.meshes

    def infos(avals: Sequence[Any], dims: Iterable[Any]) -> list[Any]:
        splits = [evenly_split(a.shape, d, outer.sizes) for a, d in zip(avals, dims)]
        return [operand_info(a, s, fine, mesh) for a, s in zip(avals, splits)]

    args = infos([v.aval for v in values], [v.placement.dims for v in values])
    results = infos([v.aval for v in eqn.outvars], map(outer.target_specs.spec, eqn.outvars))
    with derived_trace(eval_trace):
        choice = rule.partition(
            mesh,
            tree.tree_unflatten(rule.in_tree, args),
            tree.tree_unflatten(rule.out_tree, results),
        )
    if not is_tuple_or_list(choice) or len(choice) != 4:
        raise partition_rule_error(rule, f"gives {choice!r}", (), eqn)
    return choice


def _run(
    outer: Partitioner,
    eqn: Eqn,
    rule: PartitionRule,
    body: Any,
    blocks: Sequence[Any],
    outs: Sequence[Placement],
) -> list[LocalValue]:
    """Return the results of the rule's program of one device on `blocks`."""

    def whole(aval: ShapedArray) -> Placement:
        return Placement(((),) * aval.ndim)

    outside, outer.manual, outer.depth = (
        outer.manual,
        outer.manual.union(outer.sizes),
        outer.depth + 1,
    )
    results = outer.run(
        body, [LocalValue(v.aval, whole(v.aval), block) for v, block in zip(body.invars, blocks)]
    )
    outer.manual, outer.depth = outside, outer.depth - 1
    outer.trace.source, outer.eqn = eqn.source, eqn
    local_values: list[LocalValue] = []
    for i, (value, place, var) in enumerate(zip(results, outs, eqn.outvars)):
        promised = outer.local_aval(var.aval, place)
        if value.aval.shape != promised.shape or value.aval.dtype != promised.dtype:
            raise partition_rule_error(
                rule,
                "gives blocks of another type than its result shardings say",
                [
                    (
                        f"result {i}",
                        f"blocks {value.aval.str_short()}",
                        f"{place} of {var.aval.str_short()} has blocks {promised.str_short()}",
                    )
                ],
                eqn,
            )
        local = outer.materialize(
            value, whole(value.aval), "leaves", f"the partition of {rule.name} gives it"
        )
        local_values.append(LocalValue(var.aval, place, local))
    return local_values
