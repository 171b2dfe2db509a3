"""Small kernels in Loops and random arrays for them."""

from __future__ import annotations

import numpy as np

from tests.codegen.harness import random_array
from weft._engine.ir.loops import (
    COMPLEX,
    FLOATS,
    INTEGERS,
    Buf,
    Const,
    For,
    Index,
    Init,
    Load,
    LoopKind,
    LoopsKernel,
    Pack,
    ScalarOp,
    ScalarRef,
    StoreElement,
)

REAL = sorted(INTEGERS | FLOATS)
TYPES = [*REAL, "bool", *sorted(COMPLEX)]
i, j, k = Index("i"), Index("j"), Index("k")


def ix(value: int) -> Const:
    return Const(value, "i64")


def add(x, y):
    return ScalarOp("add", (x, y), x.type)


def mul(x, y):
    return ScalarOp("mul", (x, y), x.type)


def elementwise(op: str, types: list[str], result: str, size: int) -> LoopsKernel:
    bufs = [Buf(f"x{n}", type_, size) for n, type_ in enumerate(types)]
    value = ScalarOp(op, tuple(Load(buf.name, i, buf.type) for buf in bufs), result)
    return LoopsKernel(
        (*bufs, Buf("y", result, size, "out")),
        (For("i", size, (StoreElement("y", i, value),), LoopKind.VECTOR),),
    )


def arrays(kernel: LoopsKernel, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [random_array(rng, buf.type, buf.size) for buf in kernel.bufs]


def packed(type_: str, extent, room: int, kind: str) -> LoopsKernel:
    """Return the elements that are positive or true, and their indices, packed in blocks; and the
    count in each block."""
    x = Load("x", add(mul(j, ix(room)), i), type_)
    expected = x if type_ == "bool" else ScalarOp("gt", (x, Const(0, type_)), "bool")
    copies = tuple(
        StoreElement(to, add(mul(j, ix(room)), k), Load(copies, k, t))
        for to, copies, t in (("y", "a", type_), ("z", "b", "i32"))
    )
    block = (
        Init("n", ix(0)),
        Init("m", ix(0)),
        For(
            "i",
            extent,
            (Pack("n", "a", x, expected), Pack("m", "b", ScalarOp("cast", (i,), "i32"), expected)),
            kind,
        ),
        StoreElement("count", j, ScalarRef("n", "i64")),
        For("k", ScalarRef("m", "i64"), copies),
    )
    size = 3 * room
    bufs = (
        Buf("x", type_, size),
        Buf("y", type_, size, "inout"),
        Buf("z", "i32", size, "inout"),
        Buf("count", "i64", 3, "out"),
    )
    return LoopsKernel(bufs, (For("j", 3, block),), (Buf("a", type_, room), Buf("b", "i32", room)))
