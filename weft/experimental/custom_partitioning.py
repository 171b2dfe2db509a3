"""Functions with custom partitioning rules.

In:   a function of arrays, a rule for the propagation of shardings, and a function that returns the program of one device.
Out:  a function that the partitioner partitions by these rules, without looking inside.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any

from weft._engine.control.custom_partition import (
    BATCHING as BATCHING,
    Compound,
    EinsumRule,
    PartitionRule,
    custom_partitioning_p as custom_partitioning_p,
    parse_rule,
)
from weft._engine.core.stage import stage
from weft._engine.core.trace import any_tracers, current_trace, eval_trace, typeof
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.mesh import current_mesh, get_abstract_mesh
from weft._engine.util import tree
from weft._engine.util.errors import UnexpectedTracerError, describe
from weft._engine.util.source import function_name, user_frame


class CompoundFactor(Compound):
    """Several factors that form one dim, major to minor.

    >>> CompoundFactor("i", "j")
    CompoundFactor('i', 'j')
    """

    __slots__ = ()

    def __new__(cls, *factors: str) -> "CompoundFactor":
        if len(factors) < 2:
            raise ValueError("CompoundFactor: a compound of factors has at least two.")
        return super().__new__(cls, factors)

    def __repr__(self) -> str:
        return f"CompoundFactor({', '.join(map(repr, self))})"


class ArrayMapping(tuple):
    """The factors of the dims of one array: names, `CompoundFactor`s, and `BATCHING` for leading dims.

    >>> ArrayMapping(BATCHING, "i")
    ArrayMapping('…', 'i')
    """

    __slots__ = ()

    def __new__(cls, *dim_mappings: Any) -> "ArrayMapping":
        return super().__new__(cls, dim_mappings)

    def __repr__(self) -> str:
        return f"ArrayMapping({', '.join(map(repr, self))})"


class SdyShardingRule:
    """A rule for the propagation of shardings, built from parts instead of a string.

    >>> SdyShardingRule((ArrayMapping("i", "k"), ArrayMapping("k", "j")), (ArrayMapping("i", "j"),)).operand_mappings[0]
    ArrayMapping('i', 'k')
    """

    def __init__(
        self,
        operand_mappings: Sequence[ArrayMapping],
        result_mappings: Sequence[ArrayMapping],
        *,
        reduction_factors: Sequence[str] = (),
        need_replication_factors: Sequence[str] = (),
        permutation_factors: Sequence[str] = (),
        **factor_sizes: int,
    ):
        self.operand_mappings, self.result_mappings = (
            tuple(operand_mappings),
            tuple(result_mappings),
        )
        self.reduction_factors, self.need_replication_factors = (
            tuple(reduction_factors),
            tuple(need_replication_factors),
        )
        self.permutation_factors, self.factor_sizes = tuple(permutation_factors), factor_sizes

    def _einsum(self) -> EinsumRule:
        sides = [
            tuple(tuple(Ellipsis if d == BATCHING else d for d in mapping) for mapping in side)
            for side in (self.operand_mappings, self.result_mappings)
        ]
        return EinsumRule(
            sides[0],
            sides[1],
            tuple(self.factor_sizes.items()),
            self.reduction_factors,
            (*self.need_replication_factors, *self.permutation_factors),
        )


class custom_partitioning:
    """A function with a custom partition rule: see `def_partition`.

    Eagerly, on one device, and inside a `shard_map` over all axes, the function itself runs. `static_argnums` are passed
    to the rule first. There is no rule of differentiation or batching: wrap the function in `custom_vjp` or
    `custom_vmap`. Raises AttributeError if it is called without a partition rule.

    >>> @custom_partitioning
    ... def scaled(x): return 2 * x
    >>> def partition(mesh, args, result):
    ...     return mesh, lambda block: 2 * block, args[0].sharding, (args[0].sharding,)
    >>> _ = scaled.def_partition(partition, sharding_rule="... -> ...")
    >>> x = weft.device_put(wnp.arange(8.), weft.NamedSharding(weft.make_mesh((4,), ("a",)), weft.P("a")))
    >>> weft.jit(scaled)(x).sharding.spec == weft.P("a")
    True
    """

    def __init__(self, fun: Callable, static_argnums: int | Sequence[int] = ()):
        update_wrapper(self, fun, updated=())
        self.fun = fun
        self.static_argnums = (
            (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
        )
        self.partition: Callable | None = None
        self.infer: Callable | None = None
        self.sharding_rule: Any = None

    def def_partition(
        self,
        partition: Callable,
        infer_sharding_from_operands: Callable | None = None,
        propagate_user_sharding: Callable | None = None,
        decode_shardings: bool = True,
        sharding_rule: Any = None,
        *,
        reduction_factors: Sequence[str] = (),
        need_replication_factors: Sequence[str] = (),
        permutation_factors: Sequence[str] = (),
        **factor_sizes: int,
    ) -> Callable:
        """Set the partition rule.

        `partition(mesh, arg_shapes, result_shape)`, where the shapes have a `sharding`, returns the mesh, a function of
        blocks, and the shardings of results and arguments; arguments are resharded to them. `sharding_rule` lists the
        factors of all dims for the propagation of shardings: `"i k, k j -> i j"`; `need_replication_factors` are never
        split. Without it, `infer_sharding_from_operands(mesh, arg_shapes, result_shape)` returns the shardings of results;
        without both they are replicated. `propagate_user_sharding` and `decode_shardings` are not used. Raises ValueError
        for an invalid rule.
        """
        options = (reduction_factors, (*need_replication_factors, *permutation_factors))
        if isinstance(sharding_rule, str):
            sharding_rule = parse_rule(sharding_rule, factor_sizes, *options)
        elif isinstance(sharding_rule, SdyShardingRule):
            sharding_rule = sharding_rule._einsum()
        elif callable(sharding_rule):
            sharding_rule = _ComputedShardingRule(sharding_rule, factor_sizes, options)
        elif sharding_rule is not None:
            raise ValueError(
                f"custom_partitioning: sharding_rule must be a string, an SdyShardingRule or a function, got {sharding_rule!r}."
            )
        self.partition, self.infer, self.sharding_rule = (
            partition,
            infer_sharding_from_operands,
            sharding_rule,
        )
        return partition

    def _einsum_rule(self, static: list, jaxpr: Jaxpr) -> EinsumRule | None:
        """Return the sharding rule of a program after a check that it matches the program's types."""
        rule = self.sharding_rule
        if isinstance(rule, _ComputedShardingRule):
            rule = rule.rule(static, jaxpr)
        if rule is not None:
            rule.factors(jaxpr.in_avals, jaxpr.out_avals)  # raises if the rule does not match
        return rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = function_name(self.fun)
        if self.partition is None:
            raise AttributeError(
                f"custom_partitioning: {name} has no partition rule; set it with {name}.def_partition(...)."
            )
        if kwargs:
            args = _positional(self.fun, args, kwargs)
        static = {i % len(args): args[i] for i in self.static_argnums}
        dynamic_args = [x for i, x in enumerate(args) if i not in static]
        if _needs_no_partitioning(dynamic_args):
            return self.fun(*args)
        flat, in_tree = tree.tree_flatten(tuple(dynamic_args))
        out_tree: list = []

        def run(*xs: Any) -> list:
            dynamic = iter(tree.tree_unflatten(in_tree, xs))
            outs, structure = tree.tree_flatten(
                self.fun(*[static[i] if i in static else next(dynamic) for i in range(len(args))])
            )
            out_tree[:] = [structure]
            return outs

        jaxpr = stage(run, [typeof(x) for x in flat], name)
        if any_tracers(jaxpr.consts):
            raise UnexpectedTracerError(
                describe(
                    "custom_partitioning",
                    f"{name} closes over a traced value.",
                    (),
                    user_frame(),
                    "The program of one device is made of the arguments alone: pass it as one.",
                )
            )
        leading = tuple(static.values())
        partition = functools.partial(self.partition, *leading)
        infer = None if self.infer is None else functools.partial(self.infer, *leading)
        einsum = self._einsum_rule(list(leading), jaxpr)
        rule = PartitionRule(name, partition, infer, einsum, in_tree, out_tree[0])
        outs = custom_partitioning_p.bind(*flat, jaxpr=jaxpr, rule=rule)
        return tree.tree_unflatten(out_tree[0], outs)


def _needs_no_partitioning(operands: list) -> bool:
    """Return True if there is nothing to partition: outside of programs, and inside shard_map."""
    if current_trace() is eval_trace and not any_tracers(tree.tree_leaves(operands)):
        return True
    mesh = current_mesh()
    return mesh is not None and not mesh.empty and mesh.are_all_axes_manual


class _ComputedShardingRule:
    """A sharding rule computed by a function of the mesh and the types."""

    def __init__(self, function: Callable, sizes: dict[str, int], options: tuple):
        self.function, self.sizes, self.options = function, sizes, options

    def rule(self, static: list, jaxpr: Jaxpr) -> EinsumRule:
        rule = self.function(
            *static, get_abstract_mesh(), list(jaxpr.in_avals), list(jaxpr.out_avals)
        )
        return (
            parse_rule(rule, self.sizes, *self.options) if isinstance(rule, str) else rule._einsum()
        )


def _positional(fun: Callable, args: tuple, kwargs: dict) -> tuple:
    bound = inspect.signature(fun).bind(*args, **kwargs)
    bound.apply_defaults()
    if bound.kwargs:
        raise TypeError(
            f"custom_partitioning: {function_name(fun)}: keyword-only arguments {list(bound.kwargs)} have no positions."
        )
    return bound.args
