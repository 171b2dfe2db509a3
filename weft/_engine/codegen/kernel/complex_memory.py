"""Loads and stores of consecutive complex elements.

In:   a load or store in a vector loop whose index grows by one per iteration, and the kernel
      emitter.
Out:  for a load, one wide load and two shuffles per part; for a store, one shuffle and one wide
      store.
Laws: memory interleaves (real, imaginary) pairs; registers hold one vector of real and one of
      imaginary parts.
"""

from __future__ import annotations

from weft._engine.codegen.ir.scalar_types import MEMORY, vector
from weft._engine.codegen.ir.values import Affine, ComplexPair, EmittedValue, Varying, leaves
from weft._engine.codegen.kernel.emission import Emission
from weft._engine.ir.loops import ITEMSIZE, REAL_OF, Buf


def load(
    e: Emission, buf: Buf, index: Affine, guard: EmittedValue | None, other: EmittedValue | None
) -> EmittedValue:
    """Load consecutive complex elements: load vectors of pairs and separate their parts."""
    lanes, type_ = e.lanes, REAL_OF[buf.type]
    index = index if guard is None else e.clamp_index(guard, index, buf.size)
    memory, wide = (
        vector(MEMORY[type_], 2 * lanes.w),
        Affine(e.multiply_by_constant(index.base, 2), 2),
    )
    conds = None if guard is None else e.registers_of(guard)
    halves: tuple[list[str], list[str]] = [], []
    for part in range(e.parts):
        pointer = e.vector_address(buf.name, type_, wide, part * lanes.w)
        mask = e.mask_of(part, None if conds is None else conds[part])
        if mask is None:
            text = f"load {memory}, ptr {pointer}, align {ITEMSIZE[type_]}{e.alias_tag(buf.name)}"
            raw = e.read(buf.name, text, pointer)
        else:
            raw = e.masked_load(
                buf.name, memory, pointer, _double(e, mask), ITEMSIZE[type_], 2 * lanes.w
            )
        for half in (0, 1):
            halves[half].append(e.b.shuffle(memory, raw, "poison", range(half, 2 * lanes.w, 2)))
    pair = ComplexPair(buf.type, Varying(type_, tuple(halves[0])), Varying(type_, tuple(halves[1])))
    if guard is None:
        return pair
    return e.operate("select", [guard, pair, other or e.constant(0, buf.type)], buf.type)


def store(
    emitter: Emission, buf: Buf, value: EmittedValue, index: Affine, guard: EmittedValue | None
) -> None:
    """Store consecutive complex elements: interleave their parts into vectors of pairs."""
    lanes, b, type_ = emitter.lanes, emitter.b, REAL_OF[buf.type]
    half, memory = vector(MEMORY[type_], lanes.w), vector(MEMORY[type_], 2 * lanes.w)
    wide = Affine(emitter.multiply_by_constant(index.base, 2), 2)
    conds = None if guard is None else emitter.registers_of(guard)
    order = [lane // 2 + lane % 2 * lanes.w for lane in range(2 * lanes.w)]
    for part, (x, y) in enumerate(zip(*map(emitter.registers_of, leaves(value)))):
        pairs = b.shuffle(half, x, y, order)
        pointer, mask = (
            emitter.vector_address(buf.name, type_, wide, part * lanes.w),
            emitter.mask_of(part, None if conds is None else conds[part]),
        )
        mask = mask and _double(emitter, mask)
        emitter.write(memory, pairs, pointer, (ITEMSIZE[type_], emitter.alias_tag(buf.name)), mask)


def _double(e: Emission, mask: str) -> str:
    """Return a mask with each lane repeated twice, for pairs."""
    return e.b.shuffle(e.lanes.i1, mask, "poison", [lane // 2 for lane in range(2 * e.lanes.w)])
