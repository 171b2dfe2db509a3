"""Split rules: the computation of an op on blocks if a factor that cannot simply be cut is split over devices.

In:   an op with special factors (`ir.factors`), in blocks, one per device.
Out:  a `SplitRule` in `SPLIT_RULES`. The other modules of this package define the rules of weft's ops; they are loaded when a
      program first has a special factor (`partition.propagation.propagate`).
Laws: the assembled (or, for some rules, summed) results of all devices equal the results for whole operands. An op without a
      rule is also correct: its operands are gathered along special dims.
Next: docs/adding-a-partition-rule.md for an example; `partition.split_context` for the interface that rules use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, TypeVar, Unpack

from weft._engine.core.pass_rules import PassRules
from weft._engine.core.primitive import Primitive
from weft._engine.util.record import record

F = TypeVar("F", bound=Callable[..., Any])


def _never(*facts: Any) -> bool:
    return False


def _always(*facts: Any) -> bool:
    return True


@record
class SplitRule:
    """The computation of one op on split operands. `f` is a factor of `rule` (a FactorRule), `eqn` the equation.

    `local(ctx, args, **params)` computes the result(s) of one device from its blocks, with ordinary ops and the collectives
    of `ctx`, the `SplitContext`. `can_split(f, rule, eqn)` returns whether it supports splitting `f`.
    """

    local: Callable[..., Any]
    can_split: Callable[[int, Any, Any], bool]
    #: (f, rule, axes): whether splitting `f` makes the results partial sums over its axes; `axes` has the axes of all factors
    makes_partial_sums: Callable[[int, Any, Any], bool] = _never
    #: whether these partial sums only select: each element is on one device, the others have `halo.additive_identity`
    selects: bool = False
    #: (ctx, **params): the rows of the operands that a device needs if leaders of groups are split (`partition.rules.halo.Halo`s, which
    #: `ctx.halos()` returns in `local`); None if they have no pattern
    halos: Callable[..., Any] | None = None
    #: (f, rule, eqn): whether a follower of a group may be split without its leader
    splits_alone: Callable[[int, Any, Any], bool] = _never
    #: (f, rule): whether blocks of `f` may be padded at the end
    tolerates_padding: Callable[[int, Any], bool] = _always


SPLIT_RULES: PassRules[SplitRule] = PassRules("splitting special factors")


class SplitFacts(TypedDict, total=False):
    """The fields of a `SplitRule` that have defaults."""

    makes_partial_sums: Callable[[int, Any, Any], bool]
    selects: bool
    halos: Callable[..., Any] | None
    splits_alone: Callable[[int, Any, Any], bool]
    tolerates_padding: Callable[[int, Any], bool]


def split_rule(
    primitive: Primitive | str,
    can_split: Callable[[int, Any, Any], bool],
    **facts: Unpack[SplitFacts],
) -> Callable[[F], F]:
    """Return a decorator that registers a function as the local computation of the split rule of `primitive`; `facts` are other fields."""

    def register(local: F) -> F:
        SPLIT_RULES.add(primitive)(SplitRule(local, can_split, **facts))
        return local

    return register


def split_rule_of(primitive: Primitive) -> SplitRule | None:
    """Return the split rule of a primitive, or None."""
    return SPLIT_RULES.of_primitive(primitive)
