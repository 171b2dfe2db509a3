"""Padding of uneven dims: the uneven splits that are worthwhile, and the values in the padding.

A dim of s elements over n devices has blocks of ceil(s / n) elements; the last blocks are padded at the end with arbitrary
values. Elementwise ops may compute on the padding. A reduction over the dim has its neutral element there, and an op that
depends on positions along the dim masks by position. Arguments and results of programs are never uneven.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from weft._engine.core.primitive import CallbackOp, IndexOp, LibraryOp, ProductOp
from weft._engine.ir.factors import FactorRule
from weft._engine.ir.jaxpr import Eqn
from weft._engine.ir.specs import DimSpec, Spec
from weft._engine.ops.lowering_specs import ReduceSpec
from weft._engine.partition.reshard import is_even
from weft._engine.partition.rules.split_rule import split_rule_of

#: ops that run on the host, where padding could raise errors
_ON_THE_HOST = (LibraryOp, CallbackOp)


def worth_splitting(size: int, axes: DimSpec, sizes: Mapping[Any, int]) -> bool:
    """Return whether `axes` may split a dim of `size`: evenly, or with at most half as much padding as data.

    >>> [worth_splitting(s, ("x",), {"x": 8}) for s in (64, 63, 12, 9, 7, 3)]
    [True, True, True, False, True, False]
    """
    n = math.prod(sizes[a] for a in axes)
    return size % n == 0 or 2 * n * -(-size // n) <= 3 * size


def evenly_split(shape: Sequence[int], dims: Spec, sizes: Mapping[Any, int]) -> Spec:
    """Return `dims` with the leading axes per dim that split it evenly.

    >>> evenly_split((12, 8), (("x", "y"), ()), {"x": 4, "y": 2})
    (('x',), ())
    """
    even_dims: list[DimSpec] = []
    for size, axes in zip(shape, dims):
        while not is_even(size, axes, sizes):
            axes = axes[:-1]
        even_dims.append(axes)
    return tuple(even_dims)


def tolerates_padding(eqn: Eqn, rule: FactorRule, f: int) -> bool:
    """Return whether an equation is computed correctly if factor `f` is split unevenly."""
    if isinstance(eqn.primitive, _ON_THE_HOST):
        return False
    if isinstance(eqn.primitive, IndexOp) and any(
        f in dim for value in rule.ins[1:] for dim in value
    ):
        return False  # padding would be interpreted as positions
    mark = rule.special.get(f)
    if mark is not None and mark != "offset":
        split = split_rule_of(eqn.primitive)
        return split is not None and split.tolerates_padding(f, rule)
    return f not in rule.reduced or neutral_element(eqn, None) is not None


def neutral_element(eqn: Eqn, dtype: Any) -> Any:
    """Return the neutral element of the reduction `eqn`, for `dtype`; None if it is unknown."""
    if isinstance(eqn.primitive, ProductOp):
        return 0
    spec = eqn.primitive.lower
    if not isinstance(spec, ReduceSpec) or spec.combine.startswith("arg"):
        return None
    return 0 if dtype is None else spec.identity(dtype)
