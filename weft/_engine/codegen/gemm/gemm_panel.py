"""A tile of rows times a panel of B: one micro-kernel call per register tile.

In:   a tile and a panel, as values of the function under construction.
Out:  IR that calls the micro-kernels and passes finished sums to the epilogue.
"""

from __future__ import annotations

from collections.abc import Collection

from weft._engine.codegen.gemm.descriptor import BAND_ZERO, IN_RUNS, SHARED, Word
from weft._engine.codegen.gemm.gemm_epilogue import ResultStore
from weft._engine.codegen.gemm.operand_addressing import Task, row_block_count
from weft._engine.codegen.gemm.required_functions import has_runs, kernel_names, skinny_kernel_names
from weft._engine.codegen.ir.gemm_types import GemmTypes
from weft._engine.codegen.ir.microkernels import GEMM_LINE_K_STEPS, kernel_name, row_counts, shapes
from weft._engine.util.record import record


@record
class Tile:
    """One tile of one batch element: its operands, its first row of C, its rows and panels."""

    batch: str
    a: str
    b: str
    c: str
    i0: str
    rows: str
    p0: str
    p1: str
    ends: ResultStore

    def sums_of(self, f: Task, types: GemmTypes, sums: str, panel: str) -> str:
        """Return the address of a panel's sums in the sums of the tile."""
        return f.byte_address(
            sums,
            f.mul(
                f.mul(f.sub(panel, self.p0), f.descriptor_word(Word.SUMS_ROWS)),
                types.sums_row_bytes,
            ),
        )


def multiply_along_b_rows(
    f: Task, types: GemmTypes, t: Tile, a: str, a_stride: str, sums: str, needed: Collection[str]
) -> None:
    """Multiply all rows of C over all of k at once.

    Sums in scratch memory are copied to C if they need no conversion or epilogue.
    """
    names = skinny_kernel_names(needed)
    for name in names:
        f.decls.use(f"declare void @{name}(ptr, i64, i64, ptr, i64, i64, i64, ptr, i64)")
    function = (
        f"@{names[0]}"
        if len(names) == 1
        else f.select(f.equal(f.descriptor_word(Word.M), 1), "@along_row", "@along", "ptr")
    )
    f.decls.use("declare ptr @memcpy(ptr, ptr, i64)")
    col = f.mul(f.add(f.first_panel, t.p0), types.panel_cols)
    cols = f.min(f.sub(f.descriptor_word(Word.N), col), f.mul(f.sub(t.p1, t.p0), types.panel_cols))
    cms, cns, stride = (
        f.descriptor_word(Word.C_MS),
        f.descriptor_word(Word.C_NS),
        f.descriptor_word(Word.SUMS_STRIDE),
    )
    b, c = (
        f.byte_address(t.b, f.mul(col, f.descriptor_word(Word.B_NS))),
        f.byte_address(t.c, f.mul(col, cns)),
    )
    simple, in_c = (
        f.is_nonzero(f.descriptor_word(Word.SIMPLE)),
        f.is_nonzero(f.descriptor_word(Word.SUMS_IN_C)),
    )
    to, size = f.select(in_c, c, sums, "ptr"), f.mul(cols, types.acc_bytes)
    f.decls.use("declare ptr @memset(ptr, i32, i64)")
    f.loop(
        0,
        t.rows,
        1,
        lambda r: f.do(
            f"call ptr @memset(ptr {f.byte_address(to, f.mul(r, stride))}, i32 0, i64 {size})"
        ),
    )
    b_stride, steps = f.descriptor_word(Word.B_KS), f.descriptor_word(Word.STEPS)
    f.do(
        f"call void {function}(ptr {a}, i64 {a_stride}, i64 {t.rows}, ptr {b}, i64 {b_stride}, "
        f"i64 {steps}, i64 {cols}, ptr {to}, i64 {stride})"
    )

    def copy(r: str) -> None:
        target, source = f.byte_address(c, f.mul(r, cms)), f.byte_address(sums, f.mul(r, stride))
        f.do(f"call ptr @memcpy(ptr {target}, ptr {source}, i64 {size})")

    end = lambda: t.ends.take(sums, stride, c, cms, cns, row=t.i0, rows=t.rows, col=col, cols=cols)
    f.branch_without_values(
        simple,
        lambda: f.branch_without_values(in_c, lambda: None, lambda: f.loop(0, t.rows, 1, copy)),
        end,
    )


@record
class Panel:
    """One block of k and one panel of columns, packed or in place: operands, their strides, the
    tile's sums."""

    is_first: str
    is_last: str  # true if this block completes the tile's sums
    panel: str
    col: str
    a: str
    a_stride: str
    a_argument: str  # the kernel's argument: the stride, or the address of a list
    b: str
    b_stride: str
    k_steps: str
    sums: str


def multiply_panel(f: Task, types: GemmTypes, t: Tile, p: Panel, needed: Collection[str]) -> None:
    row_bytes = types.sums_row_bytes
    cols = f.min(f.sub(f.descriptor_word(Word.N), p.col), types.panel_cols)
    width = f.mul(cols, types.real_parts)
    kind, last_lanes = _kernel_of_width(f, types, width, needed)
    simple = f.is_nonzero(f.descriptor_word(Word.SIMPLE))
    sums_in_c = f.is_nonzero(f.descriptor_word(Word.SUMS_IN_C))
    cms, cns = f.descriptor_word(Word.C_MS), f.descriptor_word(Word.C_NS)
    c_panel = f.byte_address(t.c, f.mul(p.col, cns))
    sums = t.sums_of(f, types, p.sums, p.panel)
    to_c = f.logical_and(p.is_last, simple)
    to_finish = f.logical_and(p.is_last, f.logical_not(simple))
    # Each register tile prefetches a slice of the next panel into the L2 cache. (Packed panels follow
    # one another, but only shared ones are far.)
    is_shared = (
        "true" if types.has_tile_registers else f.equal(f.descriptor_word(Word.B_MODE), SHARED)
    )
    prefetched = f.select(
        is_shared, f.byte_address(p.b, f.descriptor_word(Word.PANEL_BYTES)), p.b, "ptr"
    )
    # The first panel of a tile prefetches the next rows of A; the other panels find them in cache.
    next_rows = f.select(f.equal(p.panel, t.p0), f.mul(p.a_stride, types.rows), 0)
    slice_ = f.select(is_shared, f.mul(f.div(p.k_steps, GEMM_LINE_K_STEPS), 64), 0)

    row_blocks = _RowBlocks(f, types, t.rows, needed)
    [only] = kernel_names(needed) if len(kernel_names(needed)) == 1 else [""]
    if only:
        f.decls.use(f"declare void @{only}()")

    in_runs = (
        f.select(f.equal(f.descriptor_word(Word.A_DIRECT), IN_RUNS), len(row_counts(types)), 0)
        if has_runs(needed) and not only
        else "0"
    )
    at_once = (p.is_first, to_c) == ("true", "true")  # the whole sum, stored to C

    def rows(_: str, i: str) -> list[str]:
        row_block = row_blocks.row_block_at(i)
        index = f.add(f.mul(f.add(row_block.kind, in_runs), len(shapes(types))), kind)
        kernel = (
            f.let(f"load ptr, ptr {f.byte_address('@kernels', f.mul(index, 8))}")
            if not only
            else f"@{only}"
        )
        c = f.byte_address(c_panel, f.mul(row_block.first, cms))
        # A row block that reaches back recomputes the same sums of previous rows, which must not be
        # added to C again.
        reaches = row_blocks.reach_back and not at_once
        in_c = f.logical_and(sums_in_c, f.equal(row_block.first, i)) if reaches else sums_in_c
        block_sums = (
            c
            if at_once
            else f.select(
                in_c,
                c,
                f.byte_address(sums, f.mul(f.select(sums_in_c, 0, i) if reaches else i, row_bytes)),
                "ptr",
            )
        )
        sums_stride = f.select(in_c, cms, row_bytes)
        dst, ds = f.select(to_c, c, block_sums, "ptr"), f.select(to_c, cms, sums_stride)
        src = f.select(p.is_first, "null", block_sums, "ptr")
        a = f.byte_address(p.a, f.mul(row_block.first, p.a_stride))
        pf = f.byte_address(prefetched, f.mul(f.div(i, types.rows), slice_))
        place = t.ends.place(to_finish, c, cms, dst, ds)
        place = f", i64 {row_block.new}{place}" if types.has_tile_registers else place
        f.do(
            f"call void {kernel}(ptr {a}, i64 {p.a_argument}, ptr {p.b}, i64 {p.b_stride}, i64 {p.k_steps}, ptr {src}, i64 {sums_stride}, "
            f"ptr {dst}, i64 {ds}, i64 {last_lanes}, ptr {pf}, i64 {next_rows}{place})"
        )

        if not at_once:
            new_sums = (
                f.byte_address(block_sums, f.mul(f.sub(i, row_block.first), row_bytes))
                if row_blocks.reach_back
                else block_sums
            )
            place = {"row": f.add(t.i0, i), "rows": row_block.new, "col": p.col, "cols": cols}
            f.branch_without_values(
                to_finish,
                lambda: t.ends.take(
                    new_sums, row_bytes, f.byte_address(c_panel, f.mul(i, cms)), cms, cns, **place
                ),
            )
        return [f.add(i, row_block.new)]

    first, count = (
        _find_needed_row_blocks(f, types.rows, t, p.col, cols, row_blocks.count)
        if "band" in needed
        else ("0", row_blocks.count)
    )
    f.loop(first, count, 1, rows, [("i64", f.mul(first, types.rows))])


def _kernel_of_width(
    f: Task, types: GemmTypes, width: str, needed: Collection[str]
) -> tuple[str, str]:
    """Return the index of the kernel for `width` lanes among the kernels of one row count, and the
    lanes of its last vector."""
    lanes = types.lanes
    if not types.has_tile_registers and not any(name.endswith("edge") for name in needed):
        return str(types.vectors + 1), str(lanes)  # no panel has an edge
    vectors = f.div(f.add(width, lanes - 1), lanes)
    last_lanes = f.sub(width, f.mul(f.sub(vectors, 1), lanes))
    if types.has_tile_registers:
        return f.sub(vectors, 1), last_lanes
    whole = f.equal(width, types.panel_lanes)
    few = f.select(f.less(types.half_lanes, width), vectors, 0)
    return f.select(whole, types.vectors + 1, few), last_lanes


def _find_needed_row_blocks(
    f: Task, most: int, t: Tile, col: str, cols: str, count: str
) -> tuple[str, str]:
    """Return the range of row blocks with elements that are read (see `Word.BAND_FROM`)."""
    here = f.add(t.i0, BAND_ZERO)
    first = f.min(f.sub(f.max(f.add(col, f.descriptor_word(Word.BAND_FROM)), here), here), t.rows)
    end = f.sub(f.max(f.add(f.add(col, cols), f.descriptor_word(Word.BAND_TO)), here), here)
    # If rows at the end of the tile are needed, all smaller row blocks are included.
    return f.div(first, most), f.select(f.less(end, t.rows), f.ceil_div(end, most), count)


@record
class _RowBlock:
    """Rows of a tile that one kernel computes: the first row, the number of new rows, the kernel's index."""

    first: str
    new: str
    kind: str


class _RowBlocks:
    """The division of a tile's rows into full row blocks and a remainder: smaller row blocks, or one
    full row block that overlaps the one before ("reaches back").

    With tile registers, one row block has all remaining rows.
    """

    def __init__(self, f: Task, types: GemmTypes, rows: str, needed: Collection[str]) -> None:
        self.f, self.rows, self.full_rows, self.counts = f, rows, types.rows, row_counts(types)
        self.reach_back, self.tiles = "back" in needed, types.has_tile_registers
        #: True if smaller kernels exist; without them only the last row block can be short, and it
        #: reaches back
        self.fewer = any(
            name.startswith(kernel_name(r, 0, False)[:-1])
            for r in self.counts
            if r < self.full_rows
            for name in needed
        )
        self.back = (
            f.let(f"icmp ne i64 {f.descriptor_word(Word.REPEATS_ROWS)}, 0")
            if self.reach_back and self.fewer
            else str(self.reach_back).lower()
        )
        self.fewer = self.fewer and not self.tiles
        whole = f.ceil_div(rows, self.full_rows) if self.reach_back or not self.fewer else ""
        self.count = whole if not self.fewer else row_block_count(f, rows, self.full_rows)
        if self.reach_back and self.fewer:
            self.count = f.select(self.back, whole, self.count)

    def row_block_at(self, i: str) -> _RowBlock:
        """Return the row block that begins at row `i`, or that reaches back from row `i`."""
        f, most = self.f, self.counts.index(self.full_rows)
        remaining = f.sub(self.rows, i)
        if self.tiles:
            kind = f.select(f.less(self.counts[0], remaining), 1, 0)
            return _RowBlock(i, f.min(remaining, self.full_rows), kind)
        r, kind = (str(self.full_rows), str(most)) if not self.fewer else ("1", "0")
        for number, count in enumerate(self.counts if self.fewer else ()):
            fits = f.let(f"icmp uge i64 {remaining}, {count}")
            r, kind = f.select(fits, count, r), f.select(fits, number, kind)
        if not self.reach_back:
            return _RowBlock(i, r, kind)
        short = f.logical_and(self.back, f.less(remaining, self.full_rows))
        kind = f.select(short, most, kind) if self.fewer else kind
        return _RowBlock(
            f.select(short, f.sub(self.rows, self.full_rows), i),
            f.select(short, remaining, r),
            kind,
        )
