"""Matrix times a few vectors, both dense along k: dot products without packing.

`weft_gemm_*_dot(ptr desc)` takes the descriptor of the tiled matmul; a task is (batch element, row
tile). Columns are computed one after the other, so this variant is for very few columns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from weft._engine.codegen.gemm.descriptor import Word
from weft._engine.codegen.gemm.gemm_epilogue import ResultStore, finish
from weft._engine.codegen.gemm.gemm_micro import flip, join, multiply_add, sign_bits
from weft._engine.codegen.gemm.operand_addressing import (
    BATCH,
    Task,
    locate,
    offsets_function,
    row_block_count,
)
from weft._engine.codegen.ir.gemm_types import GemmTypes, llvm_type
from weft._engine.codegen.ir.ir_writer import LLVMFunctionWriter
from weft._engine.codegen.ir.microkernels import GEMM_AHEAD
from weft._engine.codegen.ir.scalar_types import mangle
from weft._engine.codegen.ir.writer import Declarations
from weft._engine.codegen.toolchain.native_library import LibraryModule
from weft._engine.util.machine_model import MODEL

# thresholds, measured on several machines
#: sums of a column that are stored together
_GEMM_VECTOR_SUMS = 64


#: rows of A that share a load of B, one function per count; more rows would be more memory streams
#: than the hardware follows
_ROW_COUNTS = (1, 2, 4, 8)


def all_features(types: GemmTypes) -> frozenset[str]:
    """Return the names of the optional functions: one per row count, and the two stores of sums."""
    return frozenset(["finish", "epilogue", *(f"dots_{rows}" for rows in _ROW_COUNTS)])


def features(types: GemmTypes, words: Sequence[int]) -> frozenset[str]:
    """Return the names of the optional functions that the matmul described by `words` needs.

    Row tiles are multiples of the largest count, so the remainder follows from M if it is known.
    """
    most, rows = _ROW_COUNTS[-1], words[Word.M]
    dots = [
        f"dots_{r}"
        for r in _ROW_COUNTS
        if words[Word.ANY_ROWS] or (rows >= most if r == most else rows % most & r)
    ]
    return frozenset([*dots, "epilogue" if words[Word.EPILOGUE_ARGS] else "finish"])


def parts(types: GemmTypes, symbol: str, needed: Collection[str]) -> list[LibraryModule]:
    """Return the modules of the dot-product matmul `symbol` with the `needed` functions."""
    inner = sorted([name for name in needed if name != "epilogue"])
    exports = ("dots", "finish") if "finish" in needed else ("dots",)
    return [
        LibraryModule(
            f"dots {types.name} {' '.join(inner)}", lambda: _dots_module(types, inner), exports
        ),
        driver(types, symbol, needed),
    ]


def driver(types: GemmTypes, symbol: str, needed: Collection[str]) -> LibraryModule:
    """Return the last module of `parts`."""
    return LibraryModule(
        f"{symbol} {' '.join(sorted(needed))}",
        lambda: _driver_module(types, symbol, needed),
        (symbol,),
        quick=True,
    )


def _dots_module(types: GemmTypes, needed: Collection[str]) -> str:
    """Return the IR of the functions that access elements, and of the table `dots`."""
    decls = Declarations()
    names = [f"dots_{rows}" for rows in _ROW_COUNTS]
    table = ", ".join(f"ptr @{name}" if name in needed else "ptr null" for name in names)
    functions = [
        *(_dots(types, decls, rows) for rows, name in zip(_ROW_COUNTS, names) if name in needed),
        f"@dots = constant [{len(names)} x ptr] [{table}]",
        finish(types, decls) if "finish" in needed else "",
    ]
    return str(decls) + "\n".join(functions)


def _driver_module(types: GemmTypes, symbol: str, needed: Collection[str]) -> str:
    """Return the IR of the driver, which calls the other modules' functions for a descriptor."""
    decls = Declarations()
    decls.use("@dots = external constant ptr")
    functions = [
        offsets_function(decls, types),
        _task(types, decls, needed),
        _driver(types, decls, symbol),
    ]
    return str(decls) + "\n".join(functions)


def _dots(types: GemmTypes, decls: Declarations, rows: int) -> str:
    """Return `@dots_<rows>`: sums[r] = sum over k of a[r, k] * b[k]."""
    f = LLVMFunctionWriter(
        f"internal void @dots_{rows}(ptr %sums, ptr noalias %a, i64 %as, ptr noalias %b, i64 %k)",
        decls,
        types.machine,
        "noinline nounwind",
    )
    lanes, acc = types.lanes, llvm_type(types.acc)
    vector = f"<{lanes} x {acc}>"
    wide = lanes * types.k_per_step
    # Independent sums per row hide the latency of additions; together they take half of the
    # registers.
    chains = max(1, min(2 if rows > 2 else 4, types.machine.registers // 2 // rows))
    at_once = max(chains, MODEL.cache_line // (wide * types.in_bytes))

    def load(base: str, at: str, mask: str | None) -> str:
        value = f.load(
            llvm_type(types.in_type), wide, f.byte_address(base, f.mul(at, types.in_bytes)), mask
        )
        if types.joined_type:
            return join(f, types, value, lanes)
        return f.convert(value, types.in_type, types.acc, lanes)

    row_of = ["%a", *(f.byte_address("%a", f.mul("%as", r)) for r in range(1, rows))]
    visit = f.mul("%as", rows)
    distance = f.mul(visit, f.ceil_div(GEMM_AHEAD, visit))

    def fetch(row: str, at: str) -> None:
        """Prefetch the same part of later rows: rows are too short for the hardware prefetcher."""
        for line in range(0, wide * types.in_bytes, MODEL.cache_line):
            there = f.byte_address(row, f.add(f.add(f.mul(at, types.in_bytes), line), distance))
            f.prefetch(there)

    def stretch(count: int, masked: bool):
        def body(k: str, *sums: str) -> list[str]:
            out = list(sums)
            for c in range(count):
                at, chain = f.add(k, c * wide), c % chains
                mask = f.mask_of_first_lanes(f.min(f.sub("%k", at), wide), wide) if masked else None
                y = load("%b", at, mask)
                if types.flips_signs:
                    out[chain - chains] = multiply_add(
                        f, types, sign_bits(lanes), y, out[chain - chains], lanes
                    )
                for r in range(rows):
                    i = r * chains + chain
                    if (
                        rows == _ROW_COUNTS[-1]
                        and not masked
                        and c * wide * types.in_bytes % MODEL.cache_line == 0
                    ):
                        fetch(row_of[r], at)
                    x = flip(f, types, load(row_of[r], at, mask), lanes)
                    out[i] = multiply_add(f, types, x, y, out[i], lanes)
            return out

        return body

    # (The last chains hold the surplus of flipped sign bits in each row.)
    zero = [(vector, "zeroinitializer")] * ((rows + types.flips_signs) * chains)
    whole = f.mul(f.div("%k", at_once * wide), at_once * wide)
    sums = f.loop(0, whole, at_once * wide, stretch(at_once, False), zero)
    sums = f.loop(whole, "%k", wide, stretch(1, True), [(vector, s) for s in sums])
    _store_totals(f, types, sums, rows, chains)
    return f.end()


def _store_totals(
    f: LLVMFunctionWriter, types: GemmTypes, sums: list[str], rows: int, chains: int
) -> None:
    """Add up the chains of each row and their lanes, and store the totals."""
    lanes, acc = types.lanes, llvm_type(types.acc)
    vector, plus = f"<{lanes} x {acc}>", "fadd" if types.is_float else "add"
    totals = []
    for r in range(rows + types.flips_signs):
        total, *others = sums[r * chains : (r + 1) * chains]
        for other in others:
            total = f.let(f"{plus} {vector} {total}, {other}")
        totals.append(total)
    name = f"@llvm.vector.reduce.{plus}.v{lanes}{mangle(acc)}"
    start = f"{acc} -0.0, " if types.is_float else ""
    f.decls.use(f"declare {acc} {name}({f'{acc}, ' if types.is_float else ''}{vector})")
    for r in range(rows):
        total = (
            f.let(f"sub {vector} {totals[r]}, {totals[rows]}") if types.flips_signs else totals[r]
        )
        reassoc = "reassoc " if types.is_float else ""
        one = f.let(f"call {reassoc}{acc} {name}({start}{vector} {total})")
        f.do(
            f"store {acc} {one}, ptr {f.byte_address('%sums', r * types.acc_bytes)}, align {types.acc_bytes}"
        )


def _task(types: GemmTypes, decls: Declarations, needed: Collection[str]) -> str:
    f = Task("dot_task", decls, types)
    offsets, sums = f.slot("[3 x i64]"), f.slot(f"[{_GEMM_VECTOR_SUMS} x i64]")
    ends = ResultStore(f, f.desc, needed)
    row_tiles, tile_rows = f.descriptor_word(Word.ROW_TILES), f.descriptor_word(Word.TILE_ROWS)
    row_tile, batch = f.rem("%task", row_tiles), f.div("%task", row_tiles)
    i0 = f.mul(row_tile, tile_rows)
    end = f.min(f.add(i0, tile_rows), f.descriptor_word(Word.M))
    a, b, c = (
        f.byte_address(p, offset)
        for p, offset in zip(f.operands(), locate(f, BATCH, batch, offsets))
    )
    ms, ns, cms, cns, k = (
        f.descriptor_word(w) for w in (Word.A_MS, Word.B_NS, Word.C_MS, Word.C_NS, Word.K)
    )
    ends.at(batch=batch, pitch="0")

    def stretch(i1: str) -> None:
        i2 = f.min(end, f.add(i1, _GEMM_VECTOR_SUMS))

        def column(j: str) -> None:
            vector = f.byte_address(b, f.mul(j, ns))

            def rows(_: str, i: str) -> list[str]:
                remaining = f.sub(i2, i)
                r, index = "1", "0"
                for number, count in enumerate(_ROW_COUNTS):
                    fits = f.let(f"icmp uge i64 {remaining}, {count}")
                    r, index = f.select(fits, count, r), f.select(fits, number, index)
                dots = f.let(f"load ptr, ptr {f.byte_address('@dots', f.mul(index, 8))}")
                row_sums = f.byte_address(sums, f.mul(f.sub(i, i1), types.acc_bytes))
                f.do(
                    f"call void {dots}(ptr {row_sums}, ptr {f.byte_address(a, f.mul(i, ms))}, i64 {ms}, ptr {vector}, i64 {k})"
                )
                return [f.add(i, r)]

            count = f.sub(i2, i1)
            f.loop(0, row_block_count(f, count, _ROW_COUNTS[-1]), 1, rows, [("i64", i1)])
            place = f.byte_address(c, f.add(f.mul(i1, cms), f.mul(j, cns)))
            # If the operands were exchanged, part of a column of this problem is part of a row of
            # C.
            ends.take(sums, 0, place, "0", cms, row=j, rows="1", col=i1, cols=count)

        f.loop(0, f.descriptor_word(Word.N), 1, column)

    f.loop(i0, end, _GEMM_VECTOR_SUMS, stretch)
    return f.end()


def _driver(types: GemmTypes, decls: Declarations, symbol: str) -> str:
    decls.use("declare void @weft_parallel_for(ptr, ptr, i64)")
    f = LLVMFunctionWriter(f"void @{symbol}(ptr %desc)", decls, types.machine)
    ctx = f.slot("[8 x i64]")
    f.do(f"store ptr %desc, ptr {ctx}")
    tasks = f.mul(f.load_word("%desc", Word.BATCH), f.load_word("%desc", Word.ROW_TILES))
    f.do(f"call void @weft_parallel_for(ptr @dot_task, ptr {ctx}, i64 {tasks})")
    return f.end()
