"""Faults planted in the compiler: each changes one part of it for a test."""

from weft._engine import pipeline
from weft._engine.backends.cpu import compile as cpu_compile
from weft._engine.codegen.program import program as native_program
from weft._engine.ir import loops as L, program as P
from weft._engine.ir.registry import registry
from weft._engine.util.record import replace


def swap(jaxpr, old, new):
    """Return the program with one elementwise operation in the place of another."""
    eqns = [
        e.replace(primitive=registry[new]) if e.primitive.name == old else e for e in jaxpr.eqns
    ]
    return jaxpr.replace(eqns=eqns)


def in_simplify(monkeypatch, old="sin", new="cos"):
    """Make the first simplification replace an operation."""
    inner = pipeline.simplify
    monkeypatch.setattr(pipeline, "simplify", lambda jaxpr: swap(inner(jaxpr), old, new))


def in_stack(monkeypatch, old="sin", new="cos"):
    """Make the simplification of the stacked program replace an operation."""
    inner = cpu_compile.simplify
    monkeypatch.setattr(cpu_compile, "simplify", lambda jaxpr: swap(inner(jaxpr), old, new))


def in_lowering(monkeypatch, old="add", new="sub"):
    """Make kernels from Loops with another operation."""
    inner = cpu_compile.schedule
    monkeypatch.setattr(
        cpu_compile, "schedule", lambda jaxpr, *options: inner(swap(jaxpr, old, new), *options)
    )


def in_codegen(monkeypatch, old=" fadd ", new=" fsub "):
    """Replace an instruction in the LLVM IR of kernels."""
    inner = native_program._batch_ir
    monkeypatch.setattr(native_program, "_batch_ir", lambda batch: inner(batch).replace(old, new))


def in_bounds(monkeypatch, by=1):
    """Make kernels store their results `by` elements after the right addresses."""
    inner = cpu_compile.schedule

    def shifted(jaxpr, *options):
        scheduled = inner(jaxpr, *options)
        steps = tuple(
            replace(s, kernel=_shifted(s.kernel, by)) if isinstance(s, P.Launch) else s
            for s in scheduled.program.steps
        )
        scheduled.program = replace(scheduled.program, steps=steps)
        return scheduled

    monkeypatch.setattr(cpu_compile, "schedule", shifted)


def _shifted(kernel, by):
    def statement(stmt):
        if isinstance(stmt, L.StoreElement):
            return replace(stmt, index=L.ScalarOp("add", (stmt.index, L.Const(by, "i64")), "i64"))
        return (
            replace(stmt, body=tuple(map(statement, stmt.body)))
            if isinstance(stmt, L.For)
            else stmt
        )

    return replace(kernel, body=tuple(map(statement, kernel.body)))
