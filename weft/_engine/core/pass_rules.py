"""Tables of the rules that a pass adds to ops.

In:   a rule and its ops: a class of primitives, a primitive, or the name of a primitive if the pass should not load its module.
Out:  the rule of an op: its own rule, else the rule of the nearest class of the op that has one.
Laws: each name in a table is the name of exactly one primitive (`tests/ops/test_pass_rules.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from weft._engine.core.primitive import Primitive
from weft._engine.util.errors import MissingRuleError

R = TypeVar("R")
Key = Primitive | type[Primitive] | str


class PassRules(Generic[R]):
    """The rules of one pass. `purpose` completes "the op has no rule for ..." in errors."""

    def __init__(self, purpose: str, rules: dict[Key, R] | None = None):
        self.purpose = purpose
        self._rules: dict[Key, R] = dict(rules or {})

    def add(self, *keys: Key) -> Callable[[R], R]:
        """Decorator: set the rule of these ops."""

        def register(rule: R) -> R:
            self._rules.update(dict.fromkeys(keys, rule))
            return rule

        return register

    def of_primitive(self, primitive: Primitive) -> R | None:
        """Return the rule of the primitive itself, or None."""
        rule = self._rules.get(primitive)
        return self._rules.get(primitive.name) if rule is None else rule

    def of_class(self, primitive: Primitive) -> R | None:
        """Return the rule of the primitive's nearest class that has one, or None."""
        return next((self._rules[c] for c in type(primitive).__mro__ if c in self._rules), None)

    def find(self, primitive: Primitive) -> R | None:
        """Return the rule of an op, or None."""
        rule = self.of_primitive(primitive)
        return self.of_class(primitive) if rule is None else rule

    def __getitem__(self, primitive: Primitive) -> R:
        rule = self.find(primitive)
        if rule is None:
            raise MissingRuleError(f"{primitive.name} has no rule for {self.purpose}.")
        return rule

    def __iter__(self) -> Iterator[Key]:
        return iter(self._rules)
