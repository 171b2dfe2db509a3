"""Compress-store, the `Pack` statement: values that satisfy a condition are stored consecutively.

In:   a `Pack`, inside a vector loop or not, and the emitter of its kernel.
Out:  the selected lanes of a vector, moved together and stored after the previous ones.
Laws: AVX2 has no instruction for this; its eight words are permuted by a table (LLVM would store
      them one by one). A full vector is stored even if few lanes are selected, because the buffer
      holds all iterations. Under a mask the buffer may end earlier, so only the selected lanes are
      stored.
"""

from __future__ import annotations

from weft._engine.codegen.ir.scalar_types import mangle
from weft._engine.codegen.ir.values import EmittedValue, Uniform
from weft._engine.codegen.kernel.emission import Emission
from weft._engine.ir.loops import ITEMSIZE, Pack

_ORDERS = "weft.compress.orders"


def pack(emitter: Emission, stmt: Pack) -> None:
    """Emit the stores and update the count."""
    value, guard = emitter.evaluate(stmt.value), emitter.evaluate(stmt.guard)
    if emitter.vectorized:
        _pack_lanes(emitter, stmt, value, guard)
        return
    one = Uniform("i64", emitter.scalar.convert("zext", "i1", guard.parts[0], "i64"))
    emitter.store_real(
        stmt.store_statement(),
        emitter.buffers[stmt.buf].type,
        emitter.buffers[stmt.buf].size,
        value,
        emitter.env[stmt.acc],
        None,
    )
    emitter.env[stmt.acc] = emitter.operate("add", [emitter.env[stmt.acc], one], "i64")


def _pack_lanes(emitter: Emission, stmt: Pack, value: EmittedValue, guard: EmittedValue) -> None:
    b, lanes, type_ = emitter.b, emitter.lanes, emitter.buffers[stmt.buf].type
    bits = f"i{lanes.w}"
    for x, selected_lanes, mask in zip(
        emitter.registers_of(value), emitter.registers_of(guard), emitter.masks
    ):
        selected_lanes = selected_lanes if mask is None else lanes.logical_and(selected_lanes, mask)
        memory, x = lanes.to_memory(x, type_)
        selected = lanes.convert("bitcast", lanes.i1, selected_lanes, bits)
        if lanes.target.level == "avx2" and memory == "<8 x i32>":
            packed = _compress_words(emitter, x, selected)
        else:
            called = f"llvm.experimental.vector.compress.{mangle(memory)}"
            b.declare(called, memory, memory, lanes.i1, memory)
            packed = b.pure(
                f"call {memory} @{called}({memory} {x}, {lanes.i1} {selected_lanes}, {memory} poison)",
                x,
                selected_lanes,
            )
        count = b.intrinsic("ctpop", bits, selected)
        place = emitter.address(stmt.buf, type_, emitter.env[stmt.acc])
        first = (
            None
            if mask is None
            else emitter.lanes_below(
                lanes.splat(emitter.scalar.convert("zext", bits, count, "i32"), "i32")
            )
        )
        emitter.write(memory, packed, place, (ITEMSIZE[type_], emitter.alias_tag(stmt.buf)), first)
        more = Uniform("i64", emitter.scalar.convert("zext", bits, count, "i64"))
        emitter.env[stmt.acc] = emitter.operate("add", [emitter.env[stmt.acc], more], "i64")


def _compress_words(emitter: Emission, x: str, selected: str) -> str:
    """Move the words of an AVX2 register whose bits are set in `selected` to the front."""
    b = emitter.b
    b.helpers[_ORDERS] = (
        f"@{_ORDERS} = private unnamed_addr constant [256 x <8 x i8>] [{', '.join(map(_order, range(256)))}]\n"
    )
    number = b.pure(f"zext i8 {selected} to i64", selected)
    place = b.pure(f"getelementptr <8 x i8>, ptr @{_ORDERS}, i64 {number}", number)
    order = b.pure(f"load <8 x i8>, ptr {place}, align 8", place)
    b.declare("llvm.x86.avx2.permd", "<8 x i32>", "<8 x i32>", "<8 x i32>")
    wide = b.pure(f"zext <8 x i8> {order} to <8 x i32>", order)
    return b.pure(f"call <8 x i32> @llvm.x86.avx2.permd(<8 x i32> {x}, <8 x i32> {wide})", x, wide)


def _order(selected: int) -> str:
    """Return the positions of the set bits, then zeros, as an LLVM vector constant."""
    numbers = [bit for bit in range(8) if selected >> bit & 1]
    return (
        f"<8 x i8> <{', '.join([f'i8 {number}' for number in numbers + [0] * (8 - len(numbers))])}>"
    )
