"""Packing: copies blocks of operands to the accumulator's type, in the micro-kernels' order.

`@pack_a(ptr dst, i64 row_bytes, ptr src, i64 ms, i64 ks, i64 rows, i64 k)` writes rows of steps;
`@pack_b(ptr dst, ptr src, i64 ns, i64 ks, i64 cols, i64 k)` writes one panel: rows of
`panel_row_bytes`, one per k step; only the first `cols` columns are written. Each function has three
access patterns, chosen by the operand's byte strides: dense along the packed rows (copy), dense
across them (transpose squares in registers), and any other (element by element). Squares may write
zeros after a block, up to a vector's number of rows or steps: blocks are packed in ascending order,
with that much space after the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from weft._engine.codegen.gemm import assembler_modules
from weft._engine.codegen.gemm.descriptor import has_squares
from weft._engine.codegen.gemm.gemm_micro import flip, join, multiply_add, sign_bits
from weft._engine.codegen.ir.gemm_types import GemmTypes, llvm_type, real_of
from weft._engine.codegen.ir.ir_writer import LLVMFunctionWriter, bits_of
from weft._engine.codegen.ir.microkernels import GEMM_PACK_PREFETCH_ROWS
from weft._engine.codegen.ir.writer import Declarations, Operand

_Path = Callable[[], None]


# -- loading one vector of packed elements


def _unit(types: GemmTypes) -> str:
    """Return the LLVM type of one step of A.

    It is i32 for joined elements, the bits of a complex number, else the accumulator's type.
    """
    if types.joined_type:
        return "i32"
    return f"i{8 * types.step_bytes}" if types.is_complex else llvm_type(types.acc)


def _convert(f: LLVMFunctionWriter, types: GemmTypes, value: str, lanes: int) -> str:
    return (
        value
        if types.is_complex or types.joined_type
        else f.convert(value, types.in_type, types.acc, lanes)
    )


def _in_unit(types: GemmTypes) -> str:
    return _unit(types) if types.is_complex else llvm_type(types.in_type)


def _mask_before_k(f: LLVMFunctionWriter, types: GemmTypes, lanes: int, step: str, k: str) -> str:
    """Return the mask of the elements before `k` in `lanes` steps from `step` on."""
    per = types.k_per_step
    first = f.mul(step, per)
    count = f.select(f.less(first, k), f.sub(k, first), 0)
    return f.mask_of_first_lanes(f.min(count, lanes * per), lanes * per)


def _load_k_steps(
    f: LLVMFunctionWriter, types: GemmTypes, src: str, lanes: int, step: str, mask: str
) -> str:
    """Load `lanes` steps of one row or column with dense k; zero outside the mask."""
    per = types.k_per_step
    value = f.load(
        _in_unit(types),
        lanes * per,
        f.byte_address(src, f.mul(f.mul(step, per), types.in_bytes)),
        mask,
    )
    return to_unit(f, types, value, lanes)


def to_unit(f: LLVMFunctionWriter, types: GemmTypes, value: str, lanes: int) -> str:
    """Convert elements from their memory type to `lanes` packed steps."""
    return join(f, types, value, lanes) if types.joined_type else _convert(f, types, value, lanes)


def _across_k(
    f: LLVMFunctionWriter,
    types: GemmTypes,
    src: str,
    ks: str,
    lanes: int,
    step: str,
    k: str,
    mask: str | None,
) -> str:
    """Load one step of `lanes` adjacent rows or columns, dense in that direction; zero beyond k."""
    per, unit = types.k_per_step, _in_unit(types)
    parts = []
    for h in range(per):
        here = f.add(f.mul(step, per), h)
        inside = f.less(here, k)
        on = f.splat(inside, "i1", lanes)
        m = f.let(f"and <{lanes} x i1> {mask}, {on}") if mask else on
        parts.append(f.load(unit, lanes, f.byte_address(src, f.mul(here, ks)), m))
    return to_unit(f, types, interleave(f, types, parts, lanes), lanes)


def interleave(f: LLVMFunctionWriter, types: GemmTypes, parts: list[str], lanes: int) -> str:
    """Interleave vectors of `lanes` elements each: the first elements of all, then the second
    elements, and so on."""
    while len(parts) > 1:
        half, order = len(parts) // 2, [i // 2 + lanes * (i % 2) for i in range(2 * lanes)]
        vector, lanes = f"<{lanes} x {_in_unit(types)}>", 2 * lanes
        parts = [f.shuffle(x, y, vector, order) for x, y in zip(parts[:half], parts[half:])]
    return parts[0]


def _element(f: LLVMFunctionWriter, types: GemmTypes, src: str, at: str) -> str:
    unit = _in_unit(types)
    value = f.read(unit, f.byte_address(src, at), min(types.in_bytes, bits_of(unit) // 8, 8))
    return _convert(f, types, value, 0)


def pack_paths(
    f: LLVMFunctionWriter, along: str, across: str, paths: dict[str, _Path], needed: Collection[str]
) -> None:
    """Choose one of the packings (name -> code) by two stride conditions; omit those not needed."""

    def take(kind: str) -> None:
        for name, code in paths.items():
            if name.endswith(kind) and name in needed:
                return code()
        f.decls.use("declare void @llvm.trap()")
        f.do("call void @llvm.trap()")

    only = {name.rpartition("_")[2] for name in paths if name in needed}
    if len(only) == 1:
        return take(only.pop())
    f.branch_without_values(
        along,
        lambda: take("copy"),
        lambda: f.branch_without_values(across, lambda: take("transpose"), lambda: take("scalar")),
    )


def _assembled_call(
    f: LLVMFunctionWriter,
    types: GemmTypes,
    feature: str,
    dst: str,
    step: Operand,
    src: str,
    src_step: str,
    lines: str,
    length: str,
) -> _Path | None:
    """Return the call of an assembly function that packs lines; None if there is none. `length` is
    in elements."""
    name = assembler_modules.function(types, feature)
    if name is None:
        return None

    def call() -> None:
        f.decls.use(f"declare void @{name}(ptr, i64, ptr, i64, i64, i64)")
        size = f.mul(length, types.in_bytes) if assembler_modules.counts_bytes(name) else length
        f.do(
            f"call void @{name}(ptr {dst}, i64 {step}, ptr {src}, i64 {src_step}, i64 {lines}, i64 {size})"
        )

    return call


def pack_a(types: GemmTypes, decls: Declarations, needed: Collection[str]) -> str:
    f = LLVMFunctionWriter(
        "void @pack_a("
        "ptr noalias %dst, i64 %row_bytes, ptr noalias %src, i64 %ms, i64 %ks, i64 %rows, i64 %k)",
        decls,
        types.machine,
        "noinline nounwind",
    )
    unit, step_bytes, per = _unit(types), types.step_bytes, types.k_per_step
    lanes = max(types.machine.vector_bytes // step_bytes, 1)
    steps = f.ceil_div("%k", per)

    def place(i: str, s: str) -> str:
        return f.byte_address(f.byte_address("%dst", f.mul(i, "%row_bytes")), f.mul(s, step_bytes))

    def put(value: str, i: str, s: str) -> None:
        f.store(unit, lanes, flip(f, types, value, lanes), place(i, s))

    def copy() -> None:
        def row(i: str) -> None:
            src = f.byte_address("%src", f.mul(i, "%ms"))

            def whole(s: str) -> None:
                value = f.load(
                    _in_unit(types),
                    lanes * per,
                    f.byte_address(src, f.mul(s, per * types.in_bytes)),
                )
                put(to_unit(f, types, value, lanes), i, s)

            full = f.mul(f.div(f.div("%k", per), lanes), lanes)
            f.loop(0, full, lanes, whole)
            f.loop(
                full,
                steps,
                lanes,
                lambda s: put(
                    _load_k_steps(
                        f, types, src, lanes, s, _mask_before_k(f, types, lanes, s, "%k")
                    ),
                    i,
                    s,
                ),
            )

        f.loop(0, "%rows", 1, row)

    def transpose() -> None:
        distance = f.mul("%ks", lanes * per)

        def rows(s: str) -> None:
            here = f.byte_address("%src", f.mul(f.mul(s, per), "%ks"))

            def square(i: str) -> None:
                mask = f.mask_of_first_lanes(f.min(f.sub("%rows", i), lanes), lanes)
                src = f.byte_address("%src", f.mul(i, types.in_bytes))
                loads = [
                    _across_k(f, types, src, "%ks", lanes, f.add(s, t), "%k", mask)
                    for t in range(lanes)
                ]
                # Rows are too far apart for the hardware prefetcher.
                next_square = f.byte_address(
                    f.byte_address(here, f.mul(i, types.in_bytes)), distance
                )
                for t in range(lanes * per):
                    f.prefetch(f.byte_address(next_square, f.mul("%ks", t)))
                for t, value in enumerate(f.transpose(loads, unit)):
                    put(value, f.add(i, t), s)

            f.loop(0, "%rows", lanes, square)

        f.loop(0, steps, lanes, rows)

    def scalar() -> None:
        def row(i: str) -> None:
            src = f.byte_address("%src", f.mul(i, "%ms"))

            def emit_element(s: str) -> None:
                if per == 1:
                    f.do(
                        f"store {unit} {_element(f, types, src, f.mul(s, '%ks'))}, ptr {place(i, s)}, align 4"
                    )
                else:
                    store_joined(
                        f,
                        types,
                        src,
                        s,
                        "%ks",
                        "%k",
                        place(i, s),
                        0x80 if types.flips_signs else 0,
                    )

            f.loop(0, steps, 1, emit_element)

        f.loop(0, "%rows", 1, row)

    across = f.equal("%ms", types.in_bytes) if has_squares(types, "a") else "false"
    paths = {
        "pack_a_copy": _assembled_call(
            f, types, "pack_a_copy", "%dst", "%row_bytes", "%src", "%ms", "%rows", "%k"
        )
        or copy,
        "pack_a_transpose": _assembled_call(
            f, types, "pack_a_transpose", "%dst", "%row_bytes", "%src", "%ks", "%k", "%rows"
        )
        or transpose,
        "pack_a_scalar": scalar,
    }
    pack_paths(f, f.equal("%ks", types.in_bytes), across, paths, needed)
    return f.end()


def store_joined(
    f: LLVMFunctionWriter,
    types: GemmTypes,
    src: str,
    step: str,
    ks: str,
    k: str,
    place: str,
    flips: int,
) -> None:
    """Store one step of one row or column element by element, with zeros beyond `k`."""
    first, kind = f.mul(step, types.k_per_step), llvm_type(types.joined_type)
    size = bits_of(kind) // 8
    for part in range(types.k_per_step):
        at = f.add(first, part)
        inside = f.less(at, k)
        # Missing elements at the end are loaded from a valid address and then cleared.
        there = f.byte_address(src, f.mul(f.select(inside, at, first), ks))
        value = f.read(_in_unit(types), there, types.in_bytes)
        value = f.let(
            f"select i1 {inside}, {kind} {f.convert(value, types.in_type, types.joined_type, 0)}, {kind} 0"
        )
        value = f.let(f"xor {kind} {value}, {flips}") if flips else value
        f.do(f"store {kind} {value}, ptr {f.byte_address(place, part * size)}, align {size}")


def pack_b(types: GemmTypes, decls: Declarations, needed: Collection[str]) -> str:
    f = LLVMFunctionWriter(
        "void @pack_b(ptr noalias %dst, ptr noalias %src, i64 %ns, i64 %ks, i64 %cols, i64 %k)",
        decls,
        types.machine,
        "noinline nounwind",
    )
    if types.is_complex:
        _pack_complex_b(f, types, needed)
        return f.end()
    if types.quads:
        _pack_quads(f, types, needed)
        return f.end()
    unit, lanes, per = _unit(types), types.lanes, types.k_per_step
    steps = f.ceil_div("%k", per)
    row_bytes, vector_bytes = types.panel_row_bytes, types.machine.vector_bytes

    def place(s: str, j: Operand) -> str:
        return f.byte_address(
            f.byte_address("%dst", f.mul(s, row_bytes)), f.mul(j, vector_bytes // lanes)
        )

    def copy() -> None:
        distance = f.mul("%ks", GEMM_PACK_PREFETCH_ROWS)

        def whole_row(s: str) -> None:
            for v in range(types.vectors):
                parts = []
                for h in range(per):
                    src = f.byte_address(
                        f.byte_address("%src", f.mul(f.add(f.mul(s, per), h), "%ks")),
                        v * lanes * types.in_bytes,
                    )
                    parts.append(f.load(_in_unit(types), lanes, src))
                    if v * lanes * types.in_bytes % 64 == 0:
                        f.prefetch(f.byte_address(src, distance))
                f.store(
                    unit,
                    lanes,
                    to_unit(f, types, interleave(f, types, parts, lanes), lanes),
                    place(s, v * lanes),
                )

        def edge_row(s: str) -> None:
            def vector(j: str) -> None:
                mask = f.mask_of_first_lanes(f.min(f.sub("%cols", j), lanes), lanes)
                src = f.byte_address("%src", f.mul(j, types.in_bytes))
                f.store(
                    unit,
                    lanes,
                    _across_k(f, types, src, "%ks", lanes, s, "%k", mask),
                    place(s, j),
                    mask,
                )

            f.loop(0, "%cols", lanes, vector)

        # Full panels use the fast path for all whole steps; an incomplete joined step uses the
        # careful path.
        full = f.select(f.equal("%cols", types.panel_cols), f.div("%k", per), 0)
        f.loop(0, full, 1, whole_row)
        f.loop(full, steps, 1, edge_row)

    def transpose() -> None:
        def columns(j: str) -> None:
            remaining = f.sub("%cols", j)
            mask, last = f.mask_of_first_lanes(f.min(remaining, lanes), lanes), f.sub(remaining, 1)
            src = f.byte_address("%src", f.mul(j, "%ns"))
            # (Values that are loaded for missing columns are not stored.)
            there = [
                f.byte_address(src, f.mul(f.min(t, last) if t else 0, "%ns")) for t in range(lanes)
            ]

            def square(s: str) -> None:
                inside = _mask_before_k(f, types, lanes, s, "%k")
                loads = [_load_k_steps(f, types, column, lanes, s, inside) for column in there]
                for t, value in enumerate(f.transpose(loads, unit)):
                    f.store(unit, lanes, value, place(f.add(s, t), j), mask)

            f.loop(0, steps, lanes, square)

        f.loop(0, "%cols", lanes, columns)

    def scalar() -> None:
        def row(s: str) -> None:
            def emit_element(j: str) -> None:
                src = f.byte_address("%src", f.mul(j, "%ns"))
                if per == 1:
                    f.do(
                        f"store {unit} {_element(f, types, src, f.mul(s, '%ks'))}, ptr {place(s, j)}, align 4"
                    )
                else:
                    store_joined(f, types, src, s, "%ks", "%k", place(s, j), 0)

            f.loop(0, "%cols", 1, emit_element)

        f.loop(0, steps, 1, row)

    paths = {
        "pack_b_copy": _assembled_call(
            f, types, "pack_b_copy", "%dst", row_bytes, "%src", "%ks", "%k", "%cols"
        )
        or copy,
        "pack_b_transpose": _assembled_call(
            f, types, "pack_b_transpose", "%dst", row_bytes, "%src", "%ns", "%cols", "%k"
        )
        or transpose,
        "pack_b_scalar": scalar,
    }
    pack_paths(f, f.equal("%ns", types.in_bytes), f.equal("%ks", types.in_bytes), paths, needed)
    return f.end()


def end_panel(types: GemmTypes, decls: Declarations) -> str:
    """Return `@end_panel`, which stores after the steps of a panel the negated surplus of flipped
    signs, for the kernel to add."""
    f = LLVMFunctionWriter(
        "void @end_panel(ptr noalias %panel, i64 %steps)", decls, types.machine, "nounwind"
    )
    lanes, vector = types.lanes, f"<{types.lanes} x i32>"

    def step(s: str, *sums: str) -> list[str]:
        row = f.byte_address("%panel", f.mul(s, types.panel_row_bytes))
        parts = [
            f.load("i32", lanes, f.byte_address(row, v * types.machine.vector_bytes))
            for v in range(types.vectors)
        ]
        return [
            multiply_add(f, types, sign_bits(lanes), part, sum, lanes)
            for part, sum in zip(parts, sums)
        ]

    sums = f.loop(0, "%steps", 1, step, [(vector, "zeroinitializer")] * types.vectors)
    end = f.byte_address("%panel", f.mul("%steps", types.panel_row_bytes))
    for v, sum in enumerate(sums):
        negated = f.let(f"sub {vector} zeroinitializer, {sum}")
        f.store("i32", lanes, negated, f.byte_address(end, v * types.machine.vector_bytes))
    return f.end()


def _pack_quads(f: LLVMFunctionWriter, types: GemmTypes, needed: Collection[str]) -> None:
    """Emit the packing of quads: four k of each column, side by side."""
    acc, width = llvm_type(types.acc), 4 * types.lanes

    def copy() -> None:
        mask = f.mask_of_first_lanes("%cols", width)

        def step(s: str) -> None:
            rows = [f.byte_address("%src", f.mul(f.add(f.mul(s, 4), h), "%ks")) for h in range(4)]
            interleaved = interleave(
                f, types, [f.load(acc, width, row, mask) for row in rows], width
            )
            f.store(
                acc,
                4 * width,
                interleaved,
                f.byte_address("%dst", f.mul(s, types.panel_row_bytes)),
            )

        f.loop(0, f.div("%k", 4), 1, step)

    def scalar() -> None:
        def column(j: str) -> None:
            src, dst = (
                f.byte_address("%src", f.mul(j, "%ns")),
                f.byte_address("%dst", f.mul(j, types.step_bytes)),
            )

            def step(s: str) -> None:
                for h in range(4):
                    value = _element(f, types, src, f.mul(f.add(f.mul(s, 4), h), "%ks"))
                    place = f.byte_address(
                        dst, f.add(f.mul(s, types.panel_row_bytes), h * types.acc_bytes)
                    )
                    f.do(f"store {acc} {value}, ptr {place}, align {types.acc_bytes}")

            f.loop(0, f.div("%k", 4), 1, step)

        f.loop(0, "%cols", 1, column)

    pack_paths(
        f,
        f.equal("%ns", types.in_bytes),
        "false",
        {"pack_b_copy": copy, "pack_b_scalar": scalar},
        needed,
    )


def _pack_complex_b(f: LLVMFunctionWriter, types: GemmTypes, needed: Collection[str]) -> None:
    """Emit the packing of complex B in two k steps per k: (re, im) and (-im, re) of each column, so
    that a real kernel sums complex products."""
    real, lanes = llvm_type(real_of(types.in_type)), types.lanes
    vector = f"<{lanes} x {real}>"
    half = types.acc_bytes
    swap = [i ^ 1 for i in range(lanes)]
    signs = ", ".join(f"{real} {-1.0 if i % 2 == 0 else 1.0}" for i in range(lanes))

    def place(s: str, k_step: int, j: str) -> str:
        row = f.add(f.mul(s, 2), k_step)
        return f.byte_address(
            f.byte_address("%dst", f.mul(row, types.panel_row_bytes)), f.mul(j, 2 * half)
        )

    def both_k_steps(s: str, j: str, value: str, mask: str) -> None:
        f.store(real, lanes, value, place(s, 0, j), mask)
        turned = f.let(f"fmul {vector} {f.shuffle(value, value, vector, swap)}, <{signs}>")
        f.store(real, lanes, turned, place(s, 1, j), mask)

    def copy() -> None:
        def row(s: str) -> None:
            def columns(j: str) -> None:
                mask = f.mask_of_first_lanes(f.min(f.mul(f.sub("%cols", j), 2), lanes), lanes)
                src = f.byte_address(
                    f.byte_address("%src", f.mul(s, "%ks")), f.mul(j, types.in_bytes)
                )
                both_k_steps(s, j, f.load(real, lanes, src, mask), mask)

            f.loop(0, "%cols", max(lanes // 2, 1), columns)

        f.loop(0, "%k", 1, row)

    def scalar() -> None:
        def row(s: str) -> None:
            def column(col: str) -> None:
                src = f.byte_address(f.byte_address("%src", f.mul(s, "%ks")), f.mul(col, "%ns"))
                re = f.read(real, src, half)
                im = f.read(real, f.byte_address(src, half), half)
                for k_step, pair in enumerate([(re, im), (f.let(f"fneg {real} {im}"), re)]):
                    for p, value in enumerate(pair):
                        f.do(
                            f"store {real} {value}, ptr {f.byte_address(place(s, k_step, col), p * half)}, align {half}"
                        )

            f.loop(0, "%cols", 1, column)

        f.loop(0, "%k", 1, row)

    pack_paths(
        f,
        f.equal("%ns", types.in_bytes),
        "false",
        {"pack_b_copy": copy, "pack_b_scalar": scalar},
        needed,
    )
