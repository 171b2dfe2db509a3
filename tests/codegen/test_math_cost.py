"""Vector functions use no more divisions, square roots and calls than their formulas need."""

from __future__ import annotations

import re

import pytest

from weft._engine.codegen.kernel.kernel_emitter import module_ir
from weft._engine.codegen.toolchain import target
from weft._engine.ir.loops import (
    Buf,
    For,
    Index,
    Load,
    LoopKind,
    LoopsKernel,
    ScalarOp,
    StoreElement,
)

#: function -> arguments, divisions, square roots and calls of rare paths, for one vector of f32
COSTS = {
    "exp": (1, 0, 0, 0),
    "log": (1, 1, 0, 0),
    "log1p": (1, 1, 0, 0),
    "log2": (1, 1, 0, 0),
    "tanh": (1, 1, 0, 0),
    "sinh": (1, 1, 0, 0),
    "asinh": (1, 1, 1, 1),
    "acosh": (1, 1, 1, 1),
    "atanh": (1, 1, 0, 0),
    "cbrt": (1, 0, 0, 0),
    "erf": (1, 0, 0, 0),
    "erf_inv": (1, 1, 0, 1),
    "lgamma": (1, 2, 0, 1),
    "digamma": (1, 3, 0, 1),
    "zeta": (2, 7, 0, 1),
    "polygamma": (2, 7, 0, 1),
    "bessel_i0e": (1, 2, 1, 0),
    "pow": (2, 1, 0, 1),
    "logaddexp": (2, 0, 0, 0),
    "rem": (2, 1, 0, 1),
}


def kernel(op: str, type_: str, arity: int, size: int) -> LoopsKernel:
    i = Index("i")
    bufs = [Buf(f"x{k}", type_, size) for k in range(arity)]
    value = ScalarOp(op, tuple(Load(buf.name, i, type_) for buf in bufs), type_)
    return LoopsKernel(
        (*bufs, Buf("y", type_, size, "out")),
        (For("i", size, (StoreElement("y", i, value),), LoopKind.VECTOR),),
    )


@pytest.mark.parametrize("op", sorted(COSTS))
def test_divisions_roots_and_calls(op):
    arity, *expected = COSTS[op]
    machine = target.current()
    text = module_ir([(kernel(op, "f32", arity, machine.lanes(4)), "k")], machine)
    body = text[text.index("define void @k(") :]
    body = body[: body.index("\n}")]
    assert [
        len(re.findall(word, body))
        for word in (" fdiv ", r"call .*@llvm\.sqrt", r"call .*@weft\.cold")
    ] == expected


def test_half_precision_takes_fewer_multiplications():
    counts = {}
    for type_ in ("f32", "bf16"):
        text = module_ir([(kernel("exp", type_, 1, 16), "k")], target.current())
        counts[type_] = len(re.findall(r"call .*@llvm\.fma| fmul ", text))
    assert counts["bf16"] < counts["f32"]
