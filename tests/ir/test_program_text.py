"""Text of scheduled programs: every kind of step, equal kernels once."""

import numpy as np

from weft._engine.ir.loops import (
    Buf,
    Const,
    For,
    Index,
    Load,
    LoopKind,
    LoopsKernel,
    ScalarOp,
    StoreElement,
)
from weft._engine.ir.program import (
    Branch,
    BufferSlot,
    BufRef,
    Copy,
    Gemm,
    HostCallStep,
    Launch,
    LibraryCall,
    Loop,
    ScheduledProgram,
    SlotKind,
    WhileLoop,
)
from weft._engine.ir.text.program import program_text


def doubling(name):
    i = Index("i")
    body = StoreElement("y", i, ScalarOp("mul", (Load("x", i, "f32"), Const(2.0, "f32")), "f32"))
    return LoopsKernel(
        (Buf("x", "f32", 8, "in"), Buf("y", "f32", 8, "out")),
        (For("i", 8, (body,), LoopKind.VECTOR),),
        name=name,
    )


def test_every_kind_of_step():
    in_, out, temp = BufRef(0), BufRef(1), BufRef(2, 64, (("i", 32),))
    product = Gemm(
        2,
        3,
        4,
        in_,
        in_,
        out,
        (4, 1),
        (3, 1),
        (3, 1),
        "bf16",
        "f32",
        "f32",
        ((5, 8, 12, 6),),
        (),
        ((2, 4),),
    )
    steps = (
        Launch(doubling("a"), (in_, out)),
        Loop("i", 4, (Launch(doubling("b"), (in_, temp)),), reverse=True),
        WhileLoop((Copy(temp, in_, 1),), temp, (product,)),
        LibraryCall(
            "spotrf",
            2,
            ("U", 2, "y0", 2, 1.0, ("work", "float32", 8)),
            (("y0", out, 4, "float32"),),
        ),
        Branch(
            in_,
            (
                (Copy(out, in_, 4),),
                (HostCallStep(np.sort, ((in_, (8,), "float32"),), ((out, (8,), "float32"),)),),
            ),
        ),
    )
    slots = (
        BufferSlot(SlotKind.INPUT, 32),
        BufferSlot(SlotKind.OUTPUT, 32),
        BufferSlot(SlotKind.TEMP, 128, 16),
    )
    text = program_text(ScheduledProgram(slots, steps, 144, "f"))
    assert text.splitlines()[:18] == [
        "program f  arena 144 B",
        "  s0 in 32 B",
        "  s1 out 32 B",
        "  s2 temp 128 B at 16",
        "steps",
        "  launch k0(s0, s1)",
        "  for i in 4 backward",
        "    launch k0(s0, s2+64+i*32)",
        "  while s2+64+i*32 after",
        "    copy 1 B: s2+64+i*32 = s0",
        "  do",
        "    gemm bf16->f32 2x3x4 batch 5 rows of 2: s1 = s0 * s0",
        "  library 2 of spotrf('U', 2, y0, 2, 1.0, float32[8]): y0=float32[4] s1",
        "  case 0 of s0",
        "    copy 4 B: s1 = s0",
        "  case 1 of s0",
        "    host sort(float32[8] s0) -> float32[8] s1",
        "kernel k0(in x: f32[8], out y: f32[8]) {",
    ]
    assert text.count("kernel ") == 1
