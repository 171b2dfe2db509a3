"""Split rules: how an op runs when a factor that cannot simply be cut is split over devices.

In:   an op with special factors (`ir.factors`), in blocks, one per device.
Out:  a `SplitRule` in `SPLIT_RULES`. The other modules of this package state those of weft's ops; they are loaded when a program
      first has a special factor (`partition.propagation.propagate`).
Laws: the results of all devices put together (or summed, where the rule says so) are those of the whole operands. An op without
      a rule is right, too: its operands are gathered along special dims.
Next: docs/adding-a-partition-rule.md writes one; `partition.split_context` is what a rule may use.
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
    """How one op runs on split operands. `f` is a factor of `rule` (a FactorRule), `eqn` the equation at hand.

    `local(ctx, args, **params)` computes the result(s) of one device from its blocks, with ordinary ops and the collectives
    of `ctx`, the `SplitContext`. `can_split(f, rule, eqn)` says whether it can with `f` split.
    """

    local: Callable[..., Any]
    can_split: Callable[[int, Any, Any], bool]
    #: (f, rule, axes): whether splitting `f` makes the results partial sums over its axes; `axes` has those of all factors
    makes_partial_sums: Callable[[int, Any, Any], bool] = _never
    #: whether those partial sums only select: each element stands on one device, the others hold `halo.additive_identity`
    selects: bool = False
    #: (ctx, **params): the rows of the operands that a device needs when leaders of groups are split (`partition.rules.halo.Halo`s, which
    #: `ctx.halos()` gives to `local`); None where they follow no pattern
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
    """Decorator: the split rule of `primitive` whose local computation is the function; `facts` are other fields."""

    def register(local: F) -> F:
        SPLIT_RULES.add(primitive)(SplitRule(local, can_split, **facts))
        return local

    return register


def split_rule_of(primitive: Primitive) -> SplitRule | None:
    """The split rule of a primitive, if it has one."""
    return SPLIT_RULES.of_primitive(primitive)
