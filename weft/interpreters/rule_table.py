"""Mappings from primitives to one kind of rule.

In:   a primitive of weft or of a library, and a rule in JAX's calling convention.
Out:  an attribute (slot) of the primitive. It is the only record, so a table shows the rule that transformations use.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, MutableMapping

from weft._engine.core.primitive import Primitive, has_rule
from weft._engine.ir.registry import registry
from weft._engine.util.messages.quantities import quantity

#: custom primitives with a registered rule; iterate over a copy, since other threads may add to it
_given: set[weakref.ref[Primitive]] = set()


class RuleTable(MutableMapping):
    """The rules in `slot`. `to_slot(primitive, rule)` and `to_table(primitive, rule)` translate calling conventions.

    >>> from weft.interpreters import ad
    >>> ad.primitive_jvps[lax.sin_p]([0.0], [2.0])
    (Array(0., dtype=float32, weak_type=True), Array(2., dtype=float32, weak_type=True))
    """

    def __init__(
        self,
        slot: str,
        to_slot: Callable = lambda primitive, rule: rule,
        to_table: Callable = lambda primitive, rule: rule,
        is_user_rule: Callable[[Callable], bool] = lambda rule: True,
    ):
        self.slot, self.to_slot, self.to_table, self.is_user_rule = (
            slot,
            to_slot,
            to_table,
            is_user_rule,
        )

    def __getitem__(self, primitive: Primitive) -> Callable:
        if primitive not in self:
            raise KeyError(primitive)
        rule = getattr(primitive, self.slot)
        return getattr(rule, "given_rule", None) or self.to_table(primitive, rule)

    def __setitem__(self, primitive: Primitive, rule: Callable) -> None:
        if not isinstance(primitive, Primitive):
            raise TypeError(
                f"a rule is for a primitive, got {primitive!r}. Make one with weft.extend.core.Primitive(name)."
            )
        slot_rule = self.to_slot(primitive, rule)
        if slot_rule is not rule:
            slot_rule.given_rule = rule
        primitive.define(**{self.slot: slot_rule})
        _given.add(weakref.ref(primitive, _given.discard))

    def __delitem__(self, primitive: Primitive) -> None:
        if primitive not in self:
            raise KeyError(primitive)
        delattr(primitive, self.slot)

    def __contains__(self, primitive: object) -> bool:
        return (
            isinstance(primitive, Primitive)
            and has_rule(rule := getattr(primitive, self.slot))
            and self.is_user_rule(rule)
        )

    def __iter__(self) -> Iterator[Primitive]:
        known = [*list(registry.values()), *[ref() for ref in list(_given)]]
        return iter([p for p in dict.fromkeys(known) if p in self])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<rules of {quantity(len(self), 'primitive')} for {self.slot}>"
