"""The matmul microkernels: a register tile of C over one block of k.

A kernel is
`void(ptr a, i64 as, ptr b, i64 bs, i64 beats, ptr src, i64 ss, ptr dst, i64 ds, i64 last, ptr prefetch, i64 next)`:
dst[r, lane] = (src[r, lane] or 0) + sum over beats of a[r, beat] * b[beat, lane]. Rows of a, src and dst are `as`, `ss` and
`ds` bytes apart, beats of b `bs` bytes; `src` may be null for zeros, or equal to `dst`. It prefetches `dst`, `prefetch` (part of
B's next panel) and `next` bytes after `a` (the next rows). With epilogues, kernels also take `ptr place, i64 pitch, ptr streams`
and prefetch rows `pitch` bytes apart at `place` bytes after each of the `STREAMS` pointers there, instead of `dst`. There are
kernels for several numbers of rows and every number of vectors, so that edges do no extra work; *edge* kernels use `last` lanes
of the last vector, others all of them, and very few columns use half vectors. Few rows may use `skinny_gemm` instead.
"""

from __future__ import annotations

from collections.abc import Collection

from weft._engine.codegen.ir.gemm_types import Recipe, llvm_type
from weft._engine.codegen.ir.ir_writer import FunctionWriter, const, suffix
from weft._engine.codegen.ir.microkernels import STREAMS, kernel_name, tiles, unrolled
from weft._engine.codegen.ir.writer import Declarations
from weft._engine.util.machine_model import MODEL

#: instructions that add products of joined elements to a sum; of two 8-bit operands the first has no sign
_ADDS = {
    "bf16": "@llvm.x86.avx512bf16.dpbf16ps.512",
    "i16": "@llvm.x86.avx512.vpdpwssd.512",
    "i8": "@llvm.x86.avx512.vpdpbusd.512",
    "u8": "@llvm.x86.avx512.vpdpbusd.512",
}
#: and those that leave the sum to another one
_PAIRS_OF_I16 = {
    64: "@llvm.x86.avx512.pmaddw.d.512",
    32: "@llvm.x86.avx2.pmadd.wd",
    16: "@llvm.x86.sse2.pmadd.wd",
}


def kernels(recipe: Recipe, decls: Declarations, wanted: Collection[str]) -> str:
    """Return the kernels whose names are wanted, each exported; they heed `src` if "blocks" is wanted."""
    made = []
    for tile in tiles(recipe):
        name = kernel_name(*tile)
        if name in wanted:
            made.append(
                _kernel(recipe, decls, name, *tile, "blocks" in wanted, "epilogue" in wanted)
            )
    return "\n".join(made)


def _kernel(
    recipe: Recipe,
    decls: Declarations,
    name: str,
    rows: int,
    vectors: int,
    edge: bool,
    adds: bool,
    epilogue: bool,
) -> str:
    machine, acc = recipe.machine, llvm_type(recipe.acc)
    lanes, vectors = (recipe.lanes, vectors) if vectors else (recipe.half_lanes, 1)
    vector = f"<{lanes} x {acc}>"
    f = FunctionWriter(
        f"void @{name}(ptr noalias %a, i64 %as, ptr noalias %b, i64 %bs, i64 %beats, ptr %src, i64 %ss, "
        f"ptr %dst, i64 %ds, i64 %last, ptr %prefetch, i64 %next{', ptr %place, i64 %pitch, ptr %streams' if epilogue else ''})",
        decls,
        machine,
        "noinline nounwind",
    )
    tile = [(r, v) for r in range(rows) for v in range(vectors)]
    mask = f.first_lanes("%last", lanes) if edge else None
    row_offsets = ["0", *(f.mul("%as", r) for r in range(1, rows))]
    element_bytes = 4 if recipe.joined else recipe.acc_bytes
    unroll = unrolled(recipe, rows, vectors, edge)

    def beat(pa: str, pb: str, offset: int, sums: list[str]) -> list[str]:
        bs = []
        for v in range(vectors):
            # Without cheap masks the planner sees to it that a panel's edge can be read (packed and padded).
            masked = (
                mask if edge and v == vectors - 1 and machine.masks and not recipe.joined else None
            )
            kind = "i32" if recipe.joined else acc
            bs.append(f.load(kind, lanes, f.at(pb, v * machine.vector_bytes), masked))
        sums = list(sums)
        for r in range(rows):
            x = broadcast(f, recipe, f.at(f.at(pa, row_offsets[r]), offset), lanes)
            for v in range(vectors):
                i = r * vectors + v
                sums[i] = multiply_add(f, recipe, x, bs[v], sums[i], lanes)
        return sums

    def pair_of_beats(_: str, pa: str, pb: str, *state: str) -> list[str]:
        """Two beats that read the elements of a row of A together; it stays in a register no longer than its row takes."""
        sums, after = list(state), f.at(pb, "%bs")
        bs = [
            [f.load(acc, lanes, f.at(row, v * machine.vector_bytes)) for v in range(vectors)]
            for row in (pb, after)
        ]
        for r in range(rows):
            x = f.load(acc, 2, f.at(pa, row_offsets[r]))
            for h, of_b in enumerate(bs):
                one = f.shuffle(x, "poison", f"<2 x {acc}>", [h] * lanes)
                sums[r * vectors : (r + 1) * vectors] = [
                    multiply_add(f, recipe, one, b, sum, lanes)
                    for b, sum in zip(of_b, sums[r * vectors :])
                ]
        return [f.at(pa, 2 * element_bytes), f.at(after, "%bs"), *sums]

    def fetch_rows(i: str, pa: str, unroll: int) -> None:
        """Prefetch the same elements of the next rows of A, which are far apart: one row per iteration, or all in an unrolled one."""
        there = f.at(pa, "%next")
        if unroll == 1:
            f.prefetch(f.at(there, f.mul("%as", f.let(f"and i64 {i}, 7"))))
        for r in range(rows if unroll > 1 else 0):
            f.prefetch(f.at(there, row_offsets[r]))

    def fetch_place(i: str) -> None:
        """Prefetch where the sums will go, rows that are as far apart: one line per iteration."""
        lines = recipe.panel_row_bytes // 64
        row = f.at(
            "%place" if epilogue else "%dst",
            f.mul("%pitch" if epilogue else "%ds", f.let(f"and i64 {i}, 7")),
        )
        line = f.at(row, f.mul(f.let(f"and i64 {i}, {8 * (lines - 1)}"), 8))
        if epilogue:
            stream = f.let(f"and i64 {f.div(i, 8 * lines)}, {STREAMS - 1}")
            line = f.at(line, f.word(f.at("%streams", f.mul(stream, 8)), 0))
        f.prefetch(line)

    def steps(unroll: int, prefetching: bool):
        def body(i: str, pa: str, pb: str, *state: str) -> list[str]:
            sums, pf = (list(state[:-1]), state[-1]) if prefetching else (list(state), None)
            if pf:
                f.prefetch(pf)
            if rows == recipe.rows and not recipe.by_element:
                fetch_rows(i, pa, unroll)
            if prefetching:
                fetch_place(i)
            for u in range(unroll):
                sums = beat(pa, pb, u * element_bytes, sums)
                pb = f.at(pb, "%bs")
            return [
                f.at(pa, unroll * element_bytes),
                pb,
                *sums,
                *([f.at(pf, 64 // MODEL.gemm_line_beats)] if pf else []),
            ]

        return body

    state = [("ptr", "%a"), ("ptr", "%b"), *((vector, "zeroinitializer") for _ in tile)]
    prefetch = rows == recipe.rows and not edge and not recipe.by_element
    if unroll > 1:
        done = f.loop(
            0,
            f.div("%beats", unroll),
            1,
            pair_of_beats if recipe.by_element else steps(unroll, False),
            state,
        )
        state = [(t, v) for (t, _), v in zip(state, done)]
        rest = f.rem("%beats", unroll)
    else:
        rest = "%beats"
        state = [*state, ("ptr", "%prefetch")] if prefetch else state
    _, end, *sums = f.loop(0, rest, 1, steps(1, prefetch), state)
    sums = sums[: len(tile)]
    if recipe.flips:
        takes = [f.load(acc, lanes, f.at(end, v * machine.vector_bytes)) for v in range(vectors)]
        sums = [f.let(f"add {vector} {s}, {takes[v]}") for (_, v), s in zip(tile, sums)]

    masks = [mask if v == vectors - 1 else None for _, v in tile]

    def places(row: str, stride: str) -> list[str]:
        out: list[str] = []
        for r in range(rows):
            row = f.at(row, stride) if r else row
            out += [f.at(row, v * machine.vector_bytes) for v in range(vectors)]
        return out

    def with_source() -> list[str]:
        plus = "fadd" if recipe.is_float else "add"
        old = [f.load(acc, lanes, p, m) for p, m in zip(places("%src", "%ss"), masks)]
        return [f.let(f"{plus} {vector} {s}, {o}") for s, o in zip(sums, old)]

    if adds:
        sums = f.when_value(f.let("icmp ne ptr %src, null"), with_source, sums, vector)
    for s, p, m in zip(sums, places("%dst", "%ds"), masks):
        f.store(acc, lanes, s, p, m)
    return f.end()


def join(f: FunctionWriter, recipe: Recipe, value: str, lanes: int) -> str:
    """Join elements, `k_per_step` to a lane: `value` has `k_per_step * lanes` of them, as stored in memory."""
    wide = recipe.k_per_step * lanes
    value = f.convert(value, recipe.in_type, recipe.joined, wide)
    return f.let(f"bitcast <{wide} x {llvm_type(recipe.joined)}> {value} to <{lanes} x i32>")


def flip(f: FunctionWriter, recipe: Recipe, value: str, lanes: int) -> str:
    """Return joined elements of A as the multiply-add needs them."""
    return f.let(f"xor <{lanes} x i32> {value}, {sign_bits(lanes)}") if recipe.flips else value


def sign_bits(lanes: int) -> str:
    """Return joined elements of 8 bits whose sign bits alone are set: what flipped zeros are."""
    return const("i32", 0x80808080, lanes)


def broadcast(f: FunctionWriter, recipe: Recipe, pointer: str, lanes: int) -> str:
    """Return a step of A in every lane."""
    kind = "i32" if recipe.joined else llvm_type(recipe.acc)
    align = recipe.in_bytes if recipe.joined else recipe.acc_bytes
    return f.splat(f.let(f"load {kind}, ptr {pointer}, align {align}"), kind, lanes)


def multiply_add(f: FunctionWriter, recipe: Recipe, x: str, y: str, sum: str, lanes: int) -> str:
    """Return `sum` plus products of elements of A and of B, all vectors as they were packed."""
    acc = llvm_type(recipe.acc)
    vector = f"<{lanes} x {acc}>"
    if recipe.joined:
        return _multiply_add_joined(f, recipe, x, y, sum)
    if recipe.is_float:
        # fmuladd: one rounding where the machine has it, never a library call where it has not.
        name = f"@llvm.fmuladd.v{lanes}{suffix(acc)}"
        f.decls.use(f"declare {vector} {name}({vector}, {vector}, {vector})")
        return f.let(f"call {vector} {name}({vector} {x}, {vector} {y}, {vector} {sum})")
    return f.let(f"add {vector} {f.let(f'mul {vector} {x}, {y}')}, {sum}")


def _multiply_add_joined(f: FunctionWriter, recipe: Recipe, x: str, y: str, sum: str) -> str:
    lanes, vector = recipe.lanes, f"<{recipe.lanes} x {llvm_type(recipe.acc)}>"
    joined = f"<{recipe.k_per_step * lanes} x {'bfloat' if recipe.is_float else llvm_type(recipe.joined)}>"
    x, y = (f.let(f"bitcast <{lanes} x i32> {z} to {joined}") for z in (x, y))
    if (
        recipe.flips and recipe.in_type == "i8"
    ):  # the first one without signs: for i8 that is the flipped one
        x, y = y, x
    name = _ADDS.get(recipe.joined) if recipe.is_float or recipe.machine.i8_dot else None
    if name:
        f.decls.use(f"declare {vector} {name}({vector}, {joined}, {joined})")
        return f.let(f"call {vector} {name}({vector} {sum}, {joined} {y}, {joined} {x})")
    name = _PAIRS_OF_I16[recipe.machine.vector_bytes]
    f.decls.use(f"declare {vector} {name}({joined}, {joined})")
    return f.let(
        f"add {vector} {f.let(f'call {vector} {name}({joined} {x}, {joined} {y})')}, {sum}"
    )
