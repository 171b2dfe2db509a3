"""Unreduced and reduced axes in the types of results.

A value is unreduced over a mesh axis if the devices along it hold terms of the value, and reduced over an axis if the devices along
it hold equal copies whose cotangents are terms of a sum.

In:   a primitive with its factor rule, the types of its operands, the specs of its results.
Out:  per result its unreduced and its reduced axes.
Laws: operations that are linear in an operand accept an unreduced operand. A sum requires all operands to be unreduced over the
      same axes. A product accepts one unreduced operand; the other operands must be reduced over its axes, because their
      cotangents are sums over these axes. Other operations need the sum and raise ShardingTypeError, or NotImplementedError if
      no sharding of the other operands would help. Derived operations, which allow unspecified shardings, sum the terms instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft._engine.core.primitive import ElementwiseOp, Primitive, ProductOp, has_rule
from weft._engine.core.trace import trace_state
from weft._engine.ir.factors import FactorRule, axes_of_factors
from weft._engine.ir.specs import NO_AXES, PartitionSpec, Spec
from weft._engine.ir.types import ShapedArray
from weft._engine.util.errors import ShardingTypeError, describe
from weft._engine.util.source import user_frame

#: values of `computes` for elementwise operations that apply to each term, rounding included
_TERM_BY_TERM = frozenset({"copy", "cast"})
_ADD_UP = "Sum the terms first with weft.sharding.reshard(x, P(...)), without unreduced axes."


def result_specs(
    primitive: Primitive,
    rule: FactorRule,
    avals: Sequence[ShapedArray],
    outs: Sequence[PartitionSpec],
) -> list[PartitionSpec]:
    """Return the specs `outs` of the results with their unreduced and reduced axes."""
    specs = [None if a.explicit is None else a.explicit.spec for a in avals]
    operands = _PartialOperands(
        primitive,
        rule,
        avals,
        [NO_AXES if s is None else s.unreduced for s in specs],
        [NO_AXES if s is None else s.reduced for s in specs],
        [None if s is None else frozenset(s.axes) for s in specs],
    )
    terms, reduced = operands.terms(), operands.find_reduced_axes()
    complete_specs: list[PartitionSpec] = []
    for spec in outs:
        common_axes = terms & set(spec.axes)
        if common_axes:
            terms = operands.refuse(
                ShardingTypeError,
                f"the result would be split by {_text(common_axes)}, over which an operand is unreduced.",
                "A mesh axis cannot both split a dim of a value and be an unreduced axis of it.",
            )
        complete_specs.append(
            spec.update(unreduced=terms, reduced=reduced - terms - set(spec.axes))
        )
    return complete_specs


def manual_terms(
    primitive: Primitive,
    avals: Sequence[ShapedArray],
    outs: Sequence[ShapedArray],
    params: dict[str, Any],
) -> tuple[frozenset[Any], frozenset[Any]]:
    """Return the manual axes over which the results, of types `outs`, are unreduced, and those over which they are reduced.

    The rules of `result_specs` apply, with an axis over which a value varies in the place of an axis that shards it. Operands that
    do not vary over an axis may be combined with unreduced and reduced operands: the cast to varying sums their cotangents.
    """
    varying = [a.vma - a.vma_unreduced - a.vma_reduced if a.vma else None for a in avals]
    unreduced = [a.vma_unreduced for a in avals]
    if not has_rule(primitive.factors):
        what = f"{primitive.name} has no rule for unreduced operands."
        if any(unreduced):
            _raise_unless_allowed(primitive, avals, NotImplementedError, what, "")
        return NO_AXES, NO_AXES
    operands = _PartialOperands(
        primitive,
        primitive.factors(avals, outs, **params),
        avals,
        unreduced,
        [a.vma_reduced for a in avals],
        varying,
        True,
    )
    terms, reduced = operands.terms(), operands.find_reduced_axes()
    common_axes = terms & NO_AXES.union(
        *[v for v, a in zip(varying, avals) if v is not None and a.dtype != np.bool_]
    )
    if common_axes:
        terms = operands.refuse(
            ShardingTypeError,
            f"an operand varies over {_text(common_axes)}, over which another operand is unreduced.",
            "Operands that are combined with an unreduced value must be equal on all devices along its unreduced axes.",
            "Sum the terms first with lax.psum.",
        )
    return terms, reduced - terms - NO_AXES.union(*[v for v in varying if v is not None])


class _PartialOperands:
    """The operands of one operation with their mesh axes.

    unreduced   per operand, the axes over which it is unreduced
    equal       per operand, the axes over which it is reduced (equal copies)
    split       per operand, the axes that shard it; None if its type has no explicit sharding
    manual      whether the axes are manual axes
    """

    def __init__(
        self,
        primitive: Primitive,
        rule: FactorRule,
        avals: Sequence[ShapedArray],
        unreduced: Sequence[frozenset[Any]],
        equal: Sequence[frozenset[Any]],
        split: Sequence[frozenset[Any] | None],
        manual: bool = False,
    ):
        self.manual = manual
        self.primitive, self.rule, self.avals = primitive, rule, avals
        self.unreduced, self.equal, self.split = unreduced, equal, split

    def refuse(
        self, kind: type[Exception], what: str, rule: str, remedy: str = _ADD_UP
    ) -> frozenset[Any]:
        """Raise `kind`, or return no axes for a derived operation."""
        return _raise_unless_allowed(self.primitive, self.avals, kind, what, rule, remedy)

    def terms(self) -> frozenset[Any]:
        """Return the axes over which the results are unreduced."""
        axes_of_operands = {i: axes for i, axes in enumerate(self.unreduced) if axes}
        if not axes_of_operands:
            return NO_AXES
        (first, axes), rule = next(iter(axes_of_operands.items())), self.rule
        if isinstance(self.primitive, ProductOp) and not trace_state.allows_unspecified:
            return self.refuse(
                ShardingTypeError,
                f"operand {first} is unreduced over {_text(axes)}, and operands of a contraction "
                "cannot be unreduced.",
                "The result of a contraction may be unreduced, but its operands may not.",
            )
        if self.primitive.computes in _TERM_BY_TERM:
            return axes
        if any(i not in rule.linear_ins for i in axes_of_operands):
            return self.refuse(
                NotImplementedError,
                f"unreduced rule for {self.primitive.name} is not implemented: operand {first} is "
                f"unreduced over {_text(axes)}.",
                "The operation is not linear in this operand, so it needs the sum of the terms.",
            )
        if rule.additive:
            return self.sum_of_terms(first, axes)
        if len(axes_of_operands) > 1:
            return self.refuse(
                ShardingTypeError,
                "more than one operand is unreduced.",
                "A product of sums is not the sum of products.",
            )
        return self.product_of_terms(first, axes)

    def sum_of_terms(self, first: int, axes: frozenset[Any]) -> frozenset[Any]:
        """Return the unreduced axes of a sum of operands; `first` is the first unreduced operand, over `axes`."""
        plain = [i for i in self.rule.linear_ins if self.unreduced[i] != axes]
        filled = not isinstance(self.primitive, ElementwiseOp) and all(
            not self.avals[i].ndim and not self.unreduced[i] for i in plain
        )
        if not plain or filled:
            return axes
        return self.refuse(
            ShardingTypeError,
            f"operand {first} is unreduced over {_text(axes)}, and operand {plain[0]} "
            f"{_unreduced_text(self.unreduced[plain[0]])}.",
            "All operands of a sum must be unreduced over the same axes.",
        )

    def product_of_terms(self, first: int, axes: frozenset[Any]) -> frozenset[Any]:
        """Return the unreduced axes of a product of operands; `first` is the only unreduced operand, over `axes`."""
        if (
            not isinstance(self.primitive, ElementwiseOp)
            or self.manual
            or trace_state.allows_unspecified
        ):
            return axes
        for i, aval in enumerate(self.avals):
            if i != first and aval.dtype != np.bool_ and not axes <= self.equal[i]:
                return self.refuse(
                    ShardingTypeError,
                    f"operand {first} is unreduced over {_text(axes)}, and operand {i} is not reduced "
                    "there.",
                    "Factors of an unreduced value must be reduced over its axes: their cotangents are sums over them.",
                    f"Reshard operand {i} with P(..., reduced={{{_text(axes)}}}).",
                )
        return axes

    def find_reduced_axes(self) -> frozenset[Any]:
        """Return the axes over which the results are reduced."""
        axes = NO_AXES.union(*self.equal)
        if not axes or isinstance(self.primitive, ProductOp):
            return NO_AXES
        if isinstance(self.primitive, ElementwiseOp) and not trace_state.allows_unspecified:
            for i, aval in enumerate(self.avals):
                split = self.split[i]
                if (
                    split is None
                    or not aval.ndim
                    or aval.dtype == np.bool_
                    or axes <= self.equal[i] | self.unreduced[i]
                ):
                    continue
                split = axes & split
                if self.manual and not split:
                    continue
                how = (
                    f"is split by {_text(split)}"
                    if split
                    else f"is replicated over {_text(axes - self.equal[i])}"
                )
                self.refuse(
                    ShardingTypeError,
                    f"operand {i} {how}, over which another operand is reduced.",
                    "Cotangents of a reduced value are terms of a sum; cotangents of the other operands are not.",
                    f"Reshard all operands the same way, with P(..., reduced={{{_text(axes)}}}) or without it.",
                )
        return axes


def find_summed_axes(
    rule: FactorRule, ins: Sequence[Spec], sizes: Mapping[Any, int]
) -> frozenset[Any]:
    """Return the axes over which results are sums of terms on the devices, because they shard a summed factor of all operands."""
    in_results = {f for out in rule.outs for dim in out for f in dim}
    axes_of_factor: dict[int, set[Any]] = {}
    for factors, dims in zip(rule.ins, ins):
        axes = axes_of_factors(factors, dims, rule, sizes)[0]
        for f in {f for dim in factors for f in dim}:
            axes_of_factor.setdefault(f, set()).add(axes.get(f, ()))
    return frozenset(
        a
        for f, ways in axes_of_factor.items()
        if rule.reduced.get(f) == "add" and f not in in_results and len(ways) == 1
        for a in next(iter(ways))
    )


def _raise_unless_allowed(
    primitive: Primitive,
    avals: Sequence[ShapedArray],
    kind: type[Exception],
    what: str,
    rule: str,
    remedy: str = _ADD_UP,
) -> frozenset[Any]:
    """Raise `kind`, or return no axes for a derived operation."""
    if trace_state.allows_unspecified:
        return NO_AXES
    rows = [(f"operand {i}", a.str_short()) for i, a in enumerate(avals)]
    raise kind(describe(primitive.name, what, rows, user_frame(), rule, remedy))


def _unreduced_text(axes: frozenset[Any]) -> str:
    return f"over {_text(axes)}" if axes else "is not"


def _text(axes: Any) -> str:
    return ", ".join(sorted(map(repr, axes)))
