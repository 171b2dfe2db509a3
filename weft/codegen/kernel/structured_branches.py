"""Branches and loops of unknown length: the `If` and `While` statements.

In:   the statement and the emitter of its kernel.
Out:  blocks of instructions; phi nodes carry what the bodies accumulate.
Laws: a condition is uniform over lanes. Instructions of an arm stay in it: they may be unsafe where it is not taken.
"""

from __future__ import annotations

from weft.codegen.ir.values import UNIFORM
from weft.codegen.kernel.emission import Emission
from weft.codegen.kernel.vectorization_plan import assigned
from weft.ir.loops import If, While


def branch(emitter: Emission, stmt: If) -> None:
    """A two-way branch on a condition that is the same in every lane."""
    cond = emitter.evaluate(stmt.cond)
    if cond.kind != UNIFORM:
        raise NotImplementedError("codegen: `if` inside a vector loop on a condition that varies over it")
    if cond.parts[0] in ("true", "false"):
        emitter.body(stmt.body if cond.parts[0] == "true" else stmt.orelse)
        return
    b = emitter.b
    then, other, join = b.label("then"), b.label("else"), b.label("join")
    carried = [name for name in assigned(stmt) if name in emitter.env]
    before = {name: emitter.env[name] for name in carried}
    arms = []
    for label, body in ((then, stmt.body), (other, stmt.orelse)):
        emitter.env.update(before)
        floors = b.floor, b.load_floor
        b.push(label)
        b.floor = b.load_floor = b.depth
        emitter.memo.clear()
        emitter.body(body)
        flat = emitter.flatten(carried)
        b.line(f"br label %{join}")
        arms.append((b.pop(), flat))
        b.floor, b.load_floor = floors
    b.line(f"br i1 {cond.parts[0]}, label %{then}, label %{other}")
    for label, (scope, _) in zip((then, other), arms):
        b.start_block(label)
        b.scopes[-1].lines += scope.lines
    b.start_block(join)
    merged = []
    for (type_, x), (_, y) in zip(arms[0][1], arms[1][1]):
        if x == y:
            merged.append(x)
        else:
            merged.append(b.here(f"phi {type_} [{x}, %{arms[0][0].label}], [{y}, %{arms[1][0].label}]"))
    emitter.unflatten(carried, merged)


def repeat(emitter: Emission, stmt: While) -> None:
    """Loop while a condition holds."""
    b = emitter.b
    head, inside, exit_ = b.label("while"), b.label("do"), b.label("exit")
    carried = [name for name in assigned(stmt) if name in emitter.env]
    before = emitter.flatten(carried)
    phis = [b.name("p") for _ in before]
    b.push(head)
    for phi in phis:
        b.define(phi)
    emitter.unflatten(carried, phis)
    load_floor, b.load_floor = b.load_floor, b.depth
    emitter.memo.clear()
    cond = emitter.evaluate(stmt.cond)
    b.line(f"br i1 {cond.parts[0]}, label %{inside}, label %{exit_}")
    b.start_block(inside)
    emitter.body(stmt.body)
    b.load_floor = load_floor
    after = emitter.flatten(carried)
    b.line(f"br label %{head}")
    scope = b.pop()
    parent = b.scopes[-1]
    parent.lines += [f"  br label %{head}", f"{head}:"]
    for phi, (type_, first), (_, last) in zip(phis, before, after):
        parent.lines.append(f"  {phi} = phi {type_} [{first}, %{parent.label}], [{last}, %{scope.label}]")
    parent.lines += scope.lines
    b.start_block(exit_)
    emitter.unflatten(carried, phis)
    for phi in phis:
        b.define(phi)
