"""The end of a matmul: finished sums are rounded and stored to C, or passed to the step's epilogue.

An epilogue is a native kernel, `void(ptr context, i64, i64)`. Its context holds the addresses of
the sums, of their position in C (see `ir.program.PLACE`), and of the other buffers that it reads
and writes. Each task has its own context on its stack.
"""

from __future__ import annotations

from collections.abc import Collection

from weft._engine.codegen.gemm.descriptor import Word
from weft._engine.codegen.ir.gemm_types import GemmTypes, llvm_type, real_of
from weft._engine.codegen.ir.ir_writer import LLVMFunctionWriter, bits_of
from weft._engine.codegen.ir.microkernels import STREAMS
from weft._engine.codegen.ir.writer import Declarations, Operand
from weft._engine.ir.program import MOST_EPILOGUE_ARGS, PLACE


def finish(types: GemmTypes, decls: Declarations) -> str:
    """Return `@finish`, which rounds a tile of sums once and stores it with any strides."""
    f = LLVMFunctionWriter(
        "void @finish(ptr %sums, i64 %row_bytes, i64 %rows, i64 %cols, ptr %c, i64 %cms, i64 %cns)",
        decls,
        types.machine,
        "noinline nounwind",
    )
    part = real_of(types.out_type)
    part_bytes = types.out_bytes // types.real_parts
    lanes, acc, out = types.lanes, llvm_type(types.acc), llvm_type(part)

    def row(i: str) -> None:
        sums = f.byte_address("%sums", f.mul(i, "%row_bytes"))
        c = f.byte_address("%c", f.mul(i, "%cms"))

        def vectors(j: str) -> None:
            total = f.mul("%cols", types.real_parts)
            mask = f.mask_of_first_lanes(f.min(f.sub(total, j), lanes), lanes)
            value = f.load(acc, lanes, f.byte_address(sums, f.mul(j, types.acc_bytes)))
            f.store(
                out,
                lanes,
                f.convert(value, types.acc, part, lanes),
                f.byte_address(c, f.mul(j, part_bytes)),
                mask,
            )

        def elements(j: str) -> None:
            for p in range(types.real_parts):
                at = f.add(f.mul(f.mul(j, types.real_parts), types.acc_bytes), p * types.acc_bytes)
                value = f.read(acc, f.byte_address(sums, at), types.acc_bytes)
                place = f.byte_address(f.byte_address(c, f.mul(j, "%cns")), p * part_bytes)
                rounded = f.convert(value, types.acc, part, 0)
                f.do(f"store {out} {rounded}, ptr {place}, align {bits_of(out) // 8}")

        f.branch_without_values(
            f.equal("%cns", types.out_bytes),
            lambda: f.loop(0, f.mul("%cols", types.real_parts), lanes, vectors),
            lambda: f.loop(0, "%cols", 1, elements),
        )

    f.loop(0, "%rows", 1, row)
    return f.end()


def add(types: GemmTypes, decls: Declarations) -> str:
    """Return `@add`, which adds `parts` tiles of sums to the first one, in order.

    The tiles are `size` bytes apart.
    """
    f = LLVMFunctionWriter(
        "void @add(ptr %sums, i64 %parts, i64 %size)", decls, types.machine, "nounwind"
    )
    lanes, acc = types.lanes, llvm_type(types.acc)
    vector, plus = f"<{lanes} x {acc}>", "fadd" if types.is_float else "add"

    def place(offset: str) -> None:
        first = f.byte_address("%sums", offset)

        def part(_: str, before: str, sum: str) -> list[str]:
            here = f.byte_address(before, "%size")
            return [here, f.let(f"{plus} {vector} {sum}, {f.load(acc, lanes, here)}")]

        [_, sum] = f.loop(
            1, "%parts", 1, part, [("ptr", first), (vector, f.load(acc, lanes, first))]
        )
        f.store(acc, lanes, sum, first)

    f.loop(0, "%size", types.machine.vector_bytes, place)
    return f.end()


class ResultStore:
    """The code that stores results: the step's epilogue, `finish`, or neither.

    It is neither if kernels write C themselves.
    """

    def __init__(self, f: LLVMFunctionWriter, desc: str, needed: Collection[str]) -> None:
        self.f = f
        self.stores = "finish" in needed
        self.epilogue = _EpilogueCall(f, desc) if "epilogue" in needed else None

    def place(self, done: str, c: str, cms: str, dst: str, ds: str) -> str:
        """Return a kernel's prefetch arguments.

        They are C's position in the epilogue's streams if this block completes sums, else `dst`.
        """
        return self.epilogue.streams(done, c, cms, dst, ds) if self.epilogue else ""

    def at(self, **place: str) -> None:
        """Set words of the position of the next sums."""
        if self.epilogue:
            self.epilogue.at(**place)

    def take(self, sums: str, row_bytes: Operand, c: str, cms: str, cns: str, **place: str) -> None:
        """Pass finished sums to the epilogue, or round and store them at `c`."""
        call = lambda: self.epilogue.call(sums, **place) if self.epilogue else None

        def store() -> None:
            self.f.decls.use("declare void @finish(ptr, i64, i64, i64, ptr, i64, i64)")
            shape = f"i64 {row_bytes}, i64 {place['rows']}, i64 {place['cols']}"
            self.f.do(f"call void @finish(ptr {sums}, {shape}, ptr {c}, i64 {cms}, i64 {cns})")

        if self.epilogue and self.stores:
            self.f.branch_without_values(self.epilogue.exists, call, store)
        elif self.epilogue:
            call()
        elif self.stores:
            store()


class _EpilogueCall:
    """The step's epilogue with its context, in a task."""

    def __init__(self, f: LLVMFunctionWriter, desc: str) -> None:
        self.f = f
        self.context, self.place = (
            f.slot(f"[{2 + MOST_EPILOGUE_ARGS} x ptr]"),
            f.slot(f"[{len(PLACE)} x i64]"),
        )
        self.function = f.load_word(desc, Word.EPILOGUE, "ptr")
        self.exists = f.let(f"icmp ne ptr {self.function}, null")
        f.do(f"store ptr {self.place}, ptr {f.byte_address(self.context, 8)}, align 8")
        arguments = f.byte_address(desc, f.mul(f.load_word(desc, Word.EPILOGUE_AT), 8))

        def hand_on(i: str) -> None:
            offset = f.mul(i, 8)
            argument = f.load_word(f.byte_address(arguments, offset), 0, "ptr")
            target = f.byte_address(f.byte_address(self.context, 16), offset)
            f.do(f"store ptr {argument}, ptr {target}, align 8")

        f.loop(0, f.load_word(desc, Word.EPILOGUE_ARGS), 1, hand_on)
        self.listed, self.nowhere = f.slot(f"[{STREAMS} x ptr]"), f.slot(f"[{STREAMS} x ptr]")
        chosen = f.load_word(desc, Word.EPILOGUE_STREAMS)
        self.some = f.let(f"icmp ne i64 {chosen}, 0")

        def choose(i: str) -> None:
            number = f.let(f"and i64 {f.let(f'lshr i64 {chosen}, {f.mul(i, 8)}')}, 255")
            pointer = f.load_word(f.byte_address(self.context, f.mul(number, 8)), 1, "ptr")
            f.do(f"store ptr {pointer}, ptr {f.byte_address(self.listed, f.mul(i, 8))}, align 8")
            f.do(f"store ptr null, ptr {f.byte_address(self.nowhere, f.mul(i, 8))}, align 8")

        f.loop(0, STREAMS, 1, choose)

    def streams(self, done: str, c: str, cms: str, dst: str, ds: str) -> str:
        f = self.f
        there = f.logical_and(done, self.some)
        place, pitch = f.select(there, c, dst, "ptr"), f.select(there, cms, ds)
        return (
            f", ptr {place}, i64 {pitch}, ptr {f.select(there, self.listed, self.nowhere, 'ptr')}"
        )

    def call(self, sums: str, **place: str) -> None:
        """Call the epilogue on the sums at a position; omitted position words keep their values."""
        f = self.f
        f.do(f"store ptr {sums}, ptr {self.context}, align 64")
        self.at(**place)
        f.do(f"call void {self.function}(ptr {self.context}, i64 0, i64 0)")

    def at(self, **place: str) -> None:
        """Set words of the position."""
        for name, value in place.items():
            self.f.do(
                f"store i64 {value}, ptr {self.f.byte_address(self.place, 8 * PLACE.index(name))}, align 8"
            )
