"""Compress-store: values stored consecutively where a condition holds, the `Pack` statement.

In:   a `Pack`, inside a vector loop or not, and the emitter of its kernel.
Out:  the selected lanes of a vector side by side, and one store of them after the previous ones.
Laws: a full vector is stored however few lanes are selected, since a buffer with room for all iterations has room for that. For
      masked lanes that need not hold, and only the selected ones are stored.
"""

from __future__ import annotations

from weft.codegen.ir.builder import mangle
from weft.codegen.ir.values import Value, uniform
from weft.codegen.kernel.emission import Emission
from weft.ir.loops import ITEMSIZE, Pack


def pack(emitter: Emission, stmt: Pack) -> None:
    """Emit the stores and the new count."""
    value, guard = emitter.evaluate(stmt.value), emitter.evaluate(stmt.guard)
    if emitter.vectorized:
        _side_by_side(emitter, stmt, value, guard)
        return
    one = uniform("i64", emitter.scalar.convert("zext", "i1", guard.parts[0], "i64"))
    emitter.store_real(stmt.stored(), emitter.buffers[stmt.buf].type, emitter.buffers[stmt.buf].size, value, emitter.env[stmt.acc], None)
    emitter.env[stmt.acc] = emitter.operate("add", [emitter.env[stmt.acc], one], "i64")


def _side_by_side(emitter: Emission, stmt: Pack, value: Value, guard: Value) -> None:
    b, lanes, type_ = emitter.b, emitter.lanes, emitter.buffers[stmt.buf].type
    bits = f"i{lanes.w}"
    for x, wanted, mask in zip(emitter.spread(value), emitter.spread(guard), emitter.masks):
        wanted = wanted if mask is None else lanes.both(wanted, mask)
        memory, x = lanes.to_memory(x, type_)
        called = f"llvm.experimental.vector.compress.{mangle(memory)}"
        b.declare(called, memory, memory, lanes.i1, memory)
        packed = b.pure(f"call {memory} @{called}({memory} {x}, {lanes.i1} {wanted}, {memory} poison)", x, wanted)
        count = b.intrinsic("ctpop", bits, lanes.convert("bitcast", lanes.i1, wanted, bits))
        place = emitter.address(stmt.buf, type_, emitter.env[stmt.acc])
        first = None if mask is None else emitter.lanes_below(lanes.splat(emitter.scalar.convert("zext", bits, count, "i32"), "i32"))
        emitter.write(memory, packed, place, (ITEMSIZE[type_], emitter.alias_tag(stmt.buf)), first)
        more = uniform("i64", emitter.scalar.convert("zext", bits, count, "i64"))
        emitter.env[stmt.acc] = emitter.operate("add", [emitter.env[stmt.acc], more], "i64")
