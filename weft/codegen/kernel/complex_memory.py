"""Consecutive complex elements: interleaved (real, imaginary) pairs in memory, one vector of each in registers.

In:   a load or store inside a vector loop whose index grows by one per iteration, and the evaluator of expressions.
Out:  one wide load and two shuffles per part; one shuffle and one wide store.
"""

from __future__ import annotations

from weft.codegen.ir.builder import MEMORY, mangle, vector
from weft.codegen.ir.values import Value, affine, constant, pair, varying
from weft.codegen.kernel.emission import Emission
from weft.ir.loops import ITEMSIZE, REAL_OF, Buf


def load(e: Emission, buf: Buf, index: Value, guard: Value | None, other: Value | None) -> Value:
    """Consecutive complex elements: whole vectors of pairs, then taken apart."""
    lanes, type_ = e.lanes, REAL_OF[buf.type]
    index = index if guard is None else e.inside(guard, index, buf.size)
    memory, wide = vector(MEMORY[type_], 2 * lanes.w), affine(e.scaled(index.base, 2), 2)
    conds = None if guard is None else e.spread(guard)
    halves: tuple[list[str], list[str]] = [], []
    for part in range(e.parts):
        pointer = e.vector_address(buf.name, type_, wide, part * lanes.w)
        mask = e.masks[part]
        if conds is not None:
            mask = conds[part] if mask is None else lanes.both(conds[part], mask)
        if mask is None:
            text = f"load {memory}, ptr {pointer}, align {ITEMSIZE[type_]}{e.alias_tag(buf.name)}"
            raw = e.read(buf.name, text, pointer)
        else:
            raw = e.masked_load(buf.name, memory, pointer, _doubled(e, mask), ITEMSIZE[type_], 2 * lanes.w)
        for half in (0, 1):
            order = ", ".join([f"i32 {2 * lane + half}" for lane in range(lanes.w)])
            halves[half].append(e.b.pure(
                f"shufflevector {memory} {raw}, {memory} poison, <{lanes.w} x i32> <{order}>", raw))
    made = pair(buf.type, varying(type_, tuple(halves[0])), varying(type_, tuple(halves[1])))
    if guard is None:
        return made
    return e.operate("select", [guard, made, other or e.constant(0, buf.type)], buf.type)


def store(emitter: Emission, buf: Buf, value: Value, index: Value, guard: Value | None) -> None:
    """Consecutive complex elements, woven into whole vectors of pairs."""
    lanes, b, type_ = emitter.lanes, emitter.b, REAL_OF[buf.type]
    half, memory = vector(MEMORY[type_], lanes.w), vector(MEMORY[type_], 2 * lanes.w)
    wide, bits = emitter.operate("mul", [index, constant(2)], "i64"), vector("i1", 2 * lanes.w)
    size, tag = ITEMSIZE[type_], emitter.alias_tag(buf.name)
    conds = None if guard is None else emitter.spread(guard)
    order = ", ".join([f"i32 {lane // 2 + lane % 2 * lanes.w}" for lane in range(2 * lanes.w)])
    for part, (x, y) in enumerate(zip(emitter.spread(value.real), emitter.spread(value.imag))):
        pairs = b.pure(f"shufflevector {half} {x}, {half} {y}, <{2 * lanes.w} x i32> <{order}>", x, y)
        pointer, mask = emitter.vector_address(buf.name, type_, wide, part * lanes.w), emitter.masks[part]
        if conds is not None:
            mask = conds[part] if mask is None else lanes.both(conds[part], mask)
        if mask is None:
            b.do(f"store {memory} {pairs}, ptr {pointer}, align {size}{tag}")
            continue
        called = f"llvm.masked.store.{mangle(memory)}.p0"
        b.declare(called, "void", memory, "ptr", "i32", bits)
        mask = _doubled(emitter, mask)
        b.do(f"call void @{called}({memory} {pairs}, ptr {pointer}, i32 {size}, {bits} {mask}){tag}")


def _doubled(e: Emission, mask: str) -> str:
    """Each lane of a mask twice, for pairs."""
    width = e.lanes.w
    order = ", ".join([f"i32 {lane // 2}" for lane in range(2 * width)])
    text = f"shufflevector {e.lanes.i1} {mask}, {e.lanes.i1} poison, <{2 * width} x i32> <{order}>"
    return e.b.pure(text, mask)
