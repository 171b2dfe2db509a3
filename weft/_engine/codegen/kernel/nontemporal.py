"""Cache hints of a kernel: nontemporal stores and prefetches.

In:   a streaming `StoreElement` inside a vector loop, or a `Prefetch`, and the emitter of the kernel.
Out:  nontemporal stores of full vectors if the buffer is aligned, else ordinary stores; prefetches.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft._engine.codegen.ir.scalar_types import MEMORY, vector
from weft._engine.codegen.ir.values import Affine, EmittedValue, Uniform, constant
from weft._engine.codegen.kernel.emission import Emission
from weft._engine.ir.loops import COMPLEX, ITEMSIZE, REAL_OF, Prefetch, StoreElement
from weft._engine.util.machine_model import MODEL


def prefetch(emitter: Emission, stmt: Prefetch) -> None:
    """Prefetch the cache lines of a block, unless its elements are too far apart to benefit."""
    b, type_, index = emitter.b, emitter.buffers[stmt.buf].type, emitter.evaluate(stmt.index)
    b.declare("llvm.prefetch.p0", "void", "ptr", "i32", "i32", "i32")
    step = 1
    if type_ in COMPLEX:
        type_, step, index = REAL_OF[type_], 2, emitter.operate("mul", [index, constant(2)], "i64")
    places: list[str] = []
    if not emitter.vectorized or isinstance(index, Uniform):
        places = [emitter.address(stmt.buf, type_, index)]
    elif isinstance(index, Affine) and step <= index.stride <= MODEL.cache_line // ITEMSIZE[type_]:
        base = emitter.address(
            stmt.buf,
            type_,
            emitter.sum(index.base, emitter.multiply_by_constant(emitter.induction, index.stride)),
        )
        lines = range(
            0, emitter.parts * emitter.lanes.w * index.stride * ITEMSIZE[type_], MODEL.cache_line
        )
        places = [b.pure(f"getelementptr i8, ptr {base}, i64 {at}", base) for at in lines]
    for place in places:
        b.do(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 2, i32 1)")


def store(
    emitter: Emission, stmt: StoreElement, type_: str, value: EmittedValue, index: Affine
) -> None:
    """Emit nontemporal stores of whole vectors if the buffer is aligned at run time, else ordinary ones."""
    b, lanes, memory = emitter.b, emitter.lanes, vector(MEMORY[type_], emitter.lanes.w)
    nbytes, tag = ITEMSIZE[type_] * lanes.w, emitter.alias_tag(stmt.buf)
    _, registers = lanes.all_to_memory(emitter.registers_of(value), type_)
    offset = 0
    if index.stride < 0:
        registers, offset = [emitter.reverse_lanes(x, memory) for x in registers], lanes.w - 1
    base = emitter.address(stmt.buf, type_, emitter.sum(index.base, constant(-offset)))
    places = [
        emitter.vector_address(stmt.buf, type_, index, part * lanes.w + offset)
        for part in range(emitter.parts)
    ]
    while nbytes < emitter.target.vector_bytes and len(registers) % 2 == 0 and index.stride > 0:
        # half lines are joined into full lines
        count = 2 * nbytes // ITEMSIZE[type_]
        order = ", ".join([f"i32 {lane}" for lane in range(count)])
        registers = [
            b.pure(f"shufflevector {memory} {x}, {memory} {y}, <{count} x i32> <{order}>", x, y)
            for x, y in zip(registers[0::2], registers[1::2])
        ]
        places, nbytes, memory = places[0::2], 2 * nbytes, vector(MEMORY[type_], count)
    store_if_aligned(
        emitter, base, list(zip(registers, places)), memory, nbytes, ITEMSIZE[type_], tag
    )


def store_if_aligned(
    emitter: Emission,
    base: str,
    stores: Sequence[tuple[str, str]],
    memory: str,
    nbytes: int,
    size: int,
    tag: str,
) -> None:
    """Store (register, address) pairs: nontemporal if `base` is a multiple of `nbytes`, else
    ordinary, aligned to `size`."""
    b = emitter.b
    address = b.pure(f"ptrtoint ptr {base} to i64", base)
    low = b.pure(f"and i64 {address}, {nbytes - 1}", address)

    def write(alignment: str) -> None:
        for register, place in stores:
            b.do(f"store {memory} {register}, ptr {place}, align {alignment}")

    b.branch(
        b.pure(f"icmp eq i64 {low}, 0", low),
        lambda: write(f"{nbytes}{tag}, !nontemporal !1"),
        lambda: write(f"{size}{tag}"),
    )
    emitter.has_nontemporal_stores = True
