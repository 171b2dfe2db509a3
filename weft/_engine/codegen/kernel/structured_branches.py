"""Branches and loops of unknown length: the `If` and `While` statements.

In:   the statement and the emitter of its kernel.
Out:  blocks of instructions; phi nodes carry the accumulators of the bodies.
Laws: a condition is uniform over lanes. Instructions of an arm are not hoisted: they may be unsafe
      if it is not taken.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft._engine.codegen.ir.values import Uniform
from weft._engine.codegen.kernel.emission import Emission
from weft._engine.codegen.kernel.vectorization_plan import assigned_accumulators
from weft._engine.ir.loops import If, Stmt, While


def branch(emitter: Emission, stmt: If) -> None:
    """Emit a two-way branch on a condition that is the same in every lane."""
    cond = emitter.evaluate(stmt.cond)
    if not isinstance(cond, Uniform):
        raise NotImplementedError(
            "codegen: `if` inside a vector loop on a condition that varies over it"
        )
    if cond.parts[0] in ("true", "false"):
        emitter.body(stmt.body if cond.parts[0] == "true" else stmt.orelse)
        return
    carried = [name for name in assigned_accumulators(stmt) if name in emitter.env]
    before = {name: emitter.env[name] for name in carried}

    def arm(body: Sequence[Stmt]) -> list[str]:
        emitter.env.update(before)
        emitter.memo.clear()
        emitter.body(body)
        flat = emitter.flatten(carried)
        types[:] = [type_ for type_, _ in flat]
        return [register for _, register in flat]

    types: list[str] = []
    emitter.unflatten(
        carried,
        emitter.b.branch(cond.parts[0], lambda: arm(stmt.body), lambda: arm(stmt.orelse), types),
    )


def repeat(emitter: Emission, stmt: While) -> None:
    """Emit a loop that runs while a condition holds."""
    carried = [name for name in assigned_accumulators(stmt) if name in emitter.env]

    def test(*registers: str) -> str:
        emitter.unflatten(carried, registers)
        emitter.memo.clear()
        return emitter.evaluate(stmt.cond).parts[0]

    def body(*_: str) -> list[str]:
        emitter.body(stmt.body)
        return [register for _, register in emitter.flatten(carried)]

    emitter.unflatten(carried, emitter.b.loop_while([test], body, emitter.flatten(carried)))
