"""Random kernels, native against the evaluator: nested loops, shared names, accumulators, guards
and every type."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.harness import check, random_array
from weft._engine.ir.loops import (
    FLOATS,
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
    ScalarOp,
    ScalarRef,
    StoreElement,
)

REAL = ["bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "f64"]
FLOAT_OPS = ["add", "sub", "mul", "div", "min", "max"]
INT_OPS = [
    "add",
    "sub",
    "mul",
    "div",
    "rem",
    "min",
    "max",
    "and",
    "or",
    "xor",
    "shl",
    "shr_logical",
    "shr_arithmetic",
]
BOOL_OPS = ["and", "or", "xor", "min", "max"]


def ix(value: int) -> Const:
    return Const(value, "i64")


def mul_add(x, factor: int, y):
    return ScalarOp("add", (ScalarOp("mul", (x, ix(factor)), "i64"), y), "i64")


class Maker:
    """A generator of one random kernel: rows times columns, read through several index maps."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.rows, self.cols = int(self.rng.integers(1, 5)), int(self.rng.integers(1, 75))
        self.n = self.rows * self.cols
        self.bufs: list[Buf] = []
        self.names: list[ScalarRef] = []
        self.count = 0

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def buffer(self, type_: str) -> str:
        for buf in self.bufs:
            if buf.type == type_ and self.chance(0.6):
                return buf.name
        self.bufs.append(Buf(self.fresh("x"), type_, self.n))
        return self.bufs[-1].name

    def place(self):
        """Return an index inside the buffers: dense, transposed, reversed, a row, a column, or
        folded."""
        i, j = Index("i"), Index("j")
        dense = mul_add(i, self.cols, j)
        return self.pick(
            [
                dense,
                dense,
                mul_add(j, self.rows, i),
                ScalarOp("sub", (ix(self.n - 1), dense), "i64"),
                j,
                i,
                ScalarOp("rem", (mul_add(j, 3, i), ix(self.n)), "i64"),
                ScalarOp("div", (dense, ix(2)), "i64"),
                ix(0),
            ]
        )

    def load(self, type_: str):
        name = self.buffer(type_)
        if self.chance(0.25):
            i, j = Index("i"), Index("j")
            low = int(self.rng.integers(0, self.cols))
            guard = ScalarOp(self.pick(["ge", "lt"]), (j, ix(low)), "bool")
            if self.chance(0.3):
                guard = ScalarOp("and", (guard, ScalarOp("ne", (i, ix(1)), "bool")), "bool")
            other = self.expr(type_, 0) if self.chance(0.5) else None
            return Load(name, self.place(), type_, guard, other)
        return Load(name, self.place(), type_)

    def expr(self, type_: str, depth: int):
        known = [ref for ref in self.names if ref.type == type_]
        if known and self.chance(0.3):
            return self.pick(known)
        if depth <= 0 or self.chance(0.1):
            if self.chance(0.2):
                return Const(
                    bool(self.rng.integers(2)) if type_ == "bool" else int(self.rng.integers(0, 9)),
                    type_,
                )
            return self.load(type_)
        sub = lambda t=type_: self.expr(t, depth - 1)
        if self.chance(0.12):
            return ScalarOp("select", (sub("bool"), sub(), sub()), type_)
        if self.chance(0.2):
            source = self.pick(REAL)
            return ScalarOp("cast", (sub(source),), type_)
        if type_ == "bool":
            if self.chance(0.7):
                source = self.pick(REAL[1:])
                return ScalarOp(
                    self.pick(["eq", "ne", "lt", "le", "gt", "ge"]),
                    (sub(source), sub(source)),
                    "bool",
                )
            return ScalarOp(self.pick(BOOL_OPS), (sub(), sub()), type_)
        if self.chance(0.15):
            return ScalarOp(self.pick(["neg", "abs", "sign"]), (sub(),), type_)
        op = self.pick(FLOAT_OPS if type_ in FLOATS else INT_OPS)
        return ScalarOp(op, (sub(), sub()), type_)

    def reduction(self) -> tuple[str, str]:
        """Return (operation, type) of a reduction whose result does not depend on order."""
        type_ = self.pick(REAL)
        if type_ in FLOATS:
            return self.pick(["min", "max"]), type_
        return self.pick(
            ["or", "min", "max"] if type_ == "bool" else ["add", "mul", "min", "max", "and", "xor"]
        ), type_

    def kernel(self) -> LoopsKernel:
        vector_inner = self.chance(0.7)
        before, inner, after = [], [], []
        reductions = [self.reduction() for _ in range(int(self.rng.integers(0, 3)))]
        accs = []
        for _, type_ in reductions:
            name = self.fresh("s")
            accs.append(name)
            before.append(
                Init(name, Const(bool(self.chance(0.5)) if type_ == "bool" else 1, type_))
            )
        for _ in range(int(self.rng.integers(0, 3))):
            value = self.expr(self.pick(REAL), 3)
            name = self.fresh("v")
            inner.append(Let(name, value))
            self.names.append(ScalarRef(name, value.type))
        outs = []
        for _ in range(int(self.rng.integers(1, 3))):
            type_ = self.pick(REAL)
            outs.append(Buf(self.fresh("y"), type_, self.n, "inout"))
            guard = self.expr("bool", 1) if self.chance(0.3) else None
            inner.append(
                StoreElement(
                    outs[-1].name,
                    mul_add(Index("i"), self.cols, Index("j")),
                    self.expr(type_, 3),
                    guard,
                )
            )
        for name, (op, type_) in zip(accs, reductions):
            guard = self.expr("bool", 1) if self.chance(0.3) else None
            inner.append(Accum(name, op, self.expr(type_, 2), guard))
        for name, (_, type_) in zip(accs, reductions):
            outs.append(
                Buf(self.fresh("z"), type_, self.rows if vector_inner else self.cols, "inout")
            )
            after.append(
                StoreElement(
                    outs[-1].name, Index("i" if vector_inner else "j"), ScalarRef(name, type_)
                )
            )
        if vector_inner:
            if self.chance(0.2):
                inner = [If(ScalarOp("lt", (Index("i"), ix(2)), "bool"), tuple(inner))]
            outer = self.pick([LoopKind.SERIAL, LoopKind.PARALLEL])
            body = For(
                "i",
                self.rows,
                (*before, For("j", self.cols, tuple(inner), LoopKind.VECTOR), *after),
                outer,
            )
        else:
            body = For(
                "j",
                self.cols,
                (*before, For("i", self.rows, tuple(inner)), *after),
                LoopKind.VECTOR,
            )
        return LoopsKernel((*self.bufs, *outs), (body,))


@pytest.mark.parametrize("seed", range(120))
def test_random_kernel(seed):
    maker = Maker(seed)
    kernel = maker.kernel()
    arrays = [random_array(maker.rng, buf.type, buf.size) for buf in kernel.bufs]
    check(kernel, *arrays)
