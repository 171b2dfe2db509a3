"""Lowering of the program of one device to a module of replicas, with rules only for PJRT plugins.

In:   equations of the program of one device.
Out:  operations that XLA's compilers have on all platforms.
Laws: a plugin has neither LAPACK nor weft's own custom calls. A rule here writes the computation of
      such a call in plain operations, or raises NotImplementedError, which names the primitive, the
      user's line and a way out. Readable texts (`stablehlo`, `hlo_text`) do not use these rules.
Next: `rules.plugins` has the rules; `replica_program` writes whole programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np

from weft._engine.core.pass_rules import PassRules
from weft._engine.core.trace import extend_axis_env
from weft._engine.hlo.host_call_meetings import calls_host
from weft._engine.hlo.lowering import HloLowering, Rule, rule_of
from weft._engine.hlo.ops import HloBlock, HloValue, array_type
from weft._engine.ir.jaxpr import Eqn, Jaxpr
from weft._engine.util.errors import describe

#: a function that registers an equation with the host and returns its number
HostNumber = Callable[[Eqn], int]
#: the target of custom calls of the host; their attribute `number` selects the equation
HOST_TARGET = "weft_host"

#: rules that replace the rules of readable texts
PLUGIN_RULES: PassRules[Rule] = PassRules("plugins")
plugin_rule = PLUGIN_RULES.add


class ReplicaLowering(HloLowering):
    """A module of replicas under construction."""

    def __init__(
        self,
        name: str,
        axes: Sequence[tuple[Any, int]],
        host: HostNumber | None = None,
        platform: str = "",
    ):
        super().__init__(name)
        self.mesh = SimpleNamespace(shape_tuple=tuple(axes))
        self.host = host
        self.platform = platform

    def rule_for(self, primitive: Any) -> Rule | None:
        return PLUGIN_RULES.find(primitive) or rule_of(primitive)

    def equation(self, b: HloBlock, eqn: Eqn, args: Sequence[HloValue]) -> list[HloValue]:
        if self.rule_for(eqn.primitive) is None:
            refuse(eqn, "has no form that a plugin compiles.")
        return super().equation(b, eqn, args)

    def inline(self, b: HloBlock, jaxpr: Jaxpr, args: Sequence[HloValue]) -> list[HloValue]:
        if not self.chain and calls_host(jaxpr):
            self.chain = (self.device_number(b),)
        return super().inline(b, jaxpr, args)

    def chain_in(self, programs: Iterable[Jaxpr]) -> tuple[HloValue, ...]:
        return self.chain if any(map(calls_host, programs)) else ()

    def inline_function(
        self, b: HloBlock, fn: Callable, args: Sequence[HloValue]
    ) -> list[HloValue]:
        with extend_axis_env(self.mesh.shape_tuple, frozenset()):
            return super().inline_function(b, fn, args)

    def device_number(self, b: HloBlock) -> HloValue:
        return b.emit("replica_id", (), [array_type((), np.uint32)])[0]

    def next_channel(self) -> None:
        """Return None: collectives of replicas have no channels."""


def refuse(eqn: Eqn, reason: str, remedy: str = "") -> NoReturn:
    """Raise NotImplementedError for an equation that no plugin can run."""
    remedy = remedy or "Compute it on the CPU: jit(f, backend='cpu')."
    text = describe(eqn.primitive.name, reason, (), eqn.source, "", remedy)
    raise NotImplementedError(text)
