"""The checker and the text of Loops kernels."""

from __future__ import annotations

import numpy as np
import pytest

from weft._engine.ir.loops import (
    Accum,
    Buf,
    Const,
    For,
    If,
    Index,
    Init,
    Let,
    Load,
    LoopKind,
    LoopsKernel,
    Pack,
    Prefetch,
    ScalarOp,
    ScalarRef,
    StoreElement,
    While,
    check,
)
from weft._engine.ir.loops_eval import evaluate
from weft._engine.ir.loops_text import canonical, parse_kernel, print_kernel

i, j = Index("i"), Index("j")
X, Y = Buf("x", "f32", 8), Buf("y", "f32", 8, "out")
TEXT = """
kernel everything(in x: f32[8], inout y: f32[8] alias x, in n: i64[1]; scratch t: c64[4], kept: f32[4]) {
  parallel p in 2 {
    acc s = -0.0:f32
    acc best = -inf:f32
    acc many = 0:i64
    let base = mul.i64(@p, 4:i64)
    vector i in 4 {
      let v = x[add.i64(%base, @i) ? lt.bool(@i, 3:i64) : 1e-30:f32]
      prefetch x[add.i64(@i, 64:i64)]
      pack kept by many = %v when gt.bool(%v, 0.5:f32)
      s add= %v when gt.bool(%v, 0.5:f32)
      best max= %v
      t[@i] = complex.c64(%v, x[@i ? true:bool])
    }
    serial j in n[0:i64] {
      y[add.i64(%base, @j)] add= real.f32(mul.c64(t[@j], (1.5,-2.0):c64)) when ne.bool(@j, 2:i64) streaming
    }
    while lt.bool(%s, 100.0:f32) {
      s set= add.f32(mul.f32(%s, %s), 101.0:f32)
    }
    if eq.bool(@p, 0:i64) {
      y[0:i64] = %s
    } else {
      y[7:i64] = %best
    }
  }
}
"""


def test_text_round_trip():
    kernel = parse_kernel(TEXT)
    assert print_kernel(kernel) == TEXT.strip()
    assert parse_kernel(print_kernel(kernel)) == kernel
    check(kernel)
    assert kernel.parallel_extent == 2


def test_the_name_is_no_part_of_the_identity():
    kernel = parse_kernel(TEXT)
    other = parse_kernel(TEXT.replace("everything", "anything"))
    assert canonical(kernel) == canonical(other) and kernel == other


def test_special_constants_round_trip():
    for value, type_ in (
        (float("inf"), "f64"),
        (float("-inf"), "bf16"),
        (1e300, "f64"),
        (-7, "i8"),
        (1 << 63, "u64"),
        (True, "bool"),
        (complex(float("inf"), -0.0), "c128"),
    ):
        kernel = LoopsKernel(
            (Buf("y", type_, 1, "out"),), (StoreElement("y", Const(0, "i64"), Const(value, type_)),)
        )
        assert parse_kernel(print_kernel(kernel)) == kernel


def test_unreadable_text():
    with pytest.raises(ValueError, match="expected 'kernel'"):
        parse_kernel("colonel x() {}")
    with pytest.raises(ValueError, match="cannot read"):
        parse_kernel("kernel x(in a: f32[3]) { ! }")


def test_evaluate_runs_the_parsed_text():
    x, y, n = np.arange(8, dtype=np.float32), np.zeros(8, np.float32), np.array([2])
    evaluate(parse_kernel(TEXT), x, y, n)
    # y[j] += re((x[4p+j] + i x[j]) * (1.5 - 2i)) for j < 2
    assert y[4] == 1.5 * 4 + 2 * 0 and y[5] == 1.5 * 5 + 2 * 1
    assert y[7] == 6.0 and y[0] > 100


def load(buf="x", type_="f32", at=i):
    return Load(buf, at, type_)


BROKEN = {
    "store to input": (For("i", 8, (StoreElement("x", i, load()),)),),
    "unknown buffer": (For("i", 8, (StoreElement("z", i, load()),)),),
    "not f32": (For("i", 8, (StoreElement("y", i, ScalarOp("cast", (load(),), "f64")),)),),
    "not in scope": (StoreElement("y", i, Const(0, "f32")),),
    "bound twice": (Let("a", Const(1, "i32")), Let("a", Const(2, "i32"))),
    "not declared": (Accum("s", "add", Const(1.0, "f32")),),
    "updated by": (Init("s", Const(1.0, "f32")), Accum("s", "div", Const(1.0, "f32"))),
    "set inside a vector loop": (
        Init("s", Const(1.0, "f32")),
        For("i", 8, (Accum("s", "set", load()),), LoopKind.VECTOR),
    ),
    "while inside a vector": (For("i", 8, (While(Const(False, "bool"), ()),), LoopKind.VECTOR),),
    "varies over": (
        For("i", 8, (If(ScalarOp("lt", (i, Const(3, "i64")), "bool"), ()),), LoopKind.VECTOR),
    ),
    "outermost": (For("i", 8, (For("j", 2, (), LoopKind.PARALLEL),), LoopKind.SERIAL),),
    "gives": (For("i", 8, (StoreElement("y", i, ScalarOp("add", (load(), i), "f32")),)),),
    "load of": (
        For("i", 8, (StoreElement("y", i, ScalarOp("cast", (Load("x", i, "f64"),), "f32")),)),
    ),
    "prefetch from unknown": (Prefetch("z", i),),
    "not declared before the loop": (
        For(
            "i",
            8,
            (Init("n", Const(0, "i64")), Pack("n", "y", load(), Const(True, "bool"))),
            LoopKind.VECTOR,
        ),
    ),
    "has type None": (StoreElement("y", Const(0, "i64"), ScalarRef("ghost", "f32")),),
}


@pytest.mark.parametrize("fact", BROKEN)
def test_checker_finds(fact):
    with pytest.raises(ValueError, match=fact):
        check(LoopsKernel((X, Y), BROKEN[fact]))


def test_evaluator_finds_an_index_outside():
    kernel = LoopsKernel((X, Y), (For("i", 9, (StoreElement("y", i, Const(0.0, "f32")),)),))
    with pytest.raises(IndexError, match="not within its 8 elements"):
        evaluate(kernel, np.zeros(8, np.float32), np.zeros(8, np.float32))
