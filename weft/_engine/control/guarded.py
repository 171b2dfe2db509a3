"""Guards: a program whose effects happen only where a flag holds.

Under `vmap`, a branch or a loop body runs on the whole batch although some examples did not choose it, or are done. Values
are selected afterwards; effects cannot be taken back, so each callback inside gets the flag of its example as a guard.
An operation that holds programs has a slot `guard` that passes the flag in: fn(on, operands, params) -> results.
"""

from __future__ import annotations

import numpy as np

from weft._engine.core.interpret import evaluate_by
from weft._engine.core.primitive import CallbackOp
from weft._engine.core.stage import stage
from weft._engine.ir.jaxpr import Eqn, Jaxpr
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.callback import guard_calls


def guarded(jaxpr: Jaxpr) -> Jaxpr:
    """`jaxpr` with one more input before the others, a boolean scalar; where it is false no effect of the program happens."""

    def make() -> Jaxpr:
        def run(on, *args):
            return evaluate_by(lambda eqn, operands: _bind(eqn, on, operands), jaxpr, args)

        return stage(run, [ShapedArray((), np.dtype(np.bool_)), *jaxpr.in_avals], jaxpr.name)

    return jaxpr.memo("guarded", make)


def _bind(eqn: Eqn, on, operands: list) -> list:
    """The results of an equation whose effects, if any, happen where `on` holds."""
    primitive, params = eqn.primitive, eqn.params
    if not eqn.effects - {"inspect"}:
        outs = primitive.bind(*operands, **params)
        return outs if primitive.multiple_results else [outs]
    if isinstance(primitive, CallbackOp):
        return guard_calls(primitive, on, operands, params)
    rule = primitive.guard
    if rule is None:
        raise NotImplementedError(
            f"vmap: {primitive.name} has effects ({', '.join(sorted(eqn.effects))}) inside a branch or loop "
            "that not all examples take, and cannot keep them apart. Move the effects out of it."
        )
    return rule(on, operands, params)
