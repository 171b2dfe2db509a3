"""Guards: programs whose effects happen only if a flag is true.

Under `vmap`, a branch or a loop body runs on the whole batch, including examples that did not
select the branch or whose loop has ended. Values are selected afterwards; effects cannot be undone,
so each callback takes the flag of its example as a guard. Operations that hold programs define a
rule `guard` that passes the flag in: fn(on, operands, params) -> results.
"""

from __future__ import annotations

import numpy as np

from weft._engine.core.interpret import evaluate_with
from weft._engine.core.primitive import CallbackOp
from weft._engine.core.stage import stage
from weft._engine.ir.jaxpr import Eqn, Jaxpr
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.callback import guard_calls


def add_guard_input(jaxpr: Jaxpr) -> Jaxpr:
    """Return `jaxpr` with a leading boolean scalar input.

    If it is false, the program has no effects.
    """

    def make() -> Jaxpr:
        def run(on, *args):
            return evaluate_with(lambda eqn, operands: _bind(eqn, on, operands), jaxpr, args)

        return stage(run, [ShapedArray((), np.dtype(np.bool_)), *jaxpr.in_avals], jaxpr.name)

    return jaxpr.memo("guarded", make)


def _bind(eqn: Eqn, on, operands: list) -> list:
    """Return the results of an equation whose effects happen only if `on` is true."""
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
