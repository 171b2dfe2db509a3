"""The matmul driver: packs B, then multiplies tile by tile on the thread pool.

`weft_gemm_*_tile(ptr desc)` loops over rounds of (group of batch elements) x (chunk of column
panels). A round packs B if it is shared, with tasks (batch element, block of k, panel), then runs
the tiles, with tasks (batch elements, rows, panels). A tile visits the blocks of k in order;
unfinished sums stay in the worker's scratch memory. A tile that packs its own B packs one block,
then visits its rows strip by strip, so that B stays in the core's cache while A and C stream
through; if kernels may write C, unfinished sums stay in C. With split k, tasks are (batch element,
rows, panels, part); each stores its sums, and a second run of tasks adds them.

The context of a task is eight words on the caller's stack: descriptor, shared scratch memory,
workers' scratch memory, first batch element, first panel, panels, batch elements of the round,
column tiles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping

from weft._engine.codegen.gemm import (
    assembler_modules,
    operand_addressing as addressing,
    required_functions as required,
)
from weft._engine.codegen.gemm.descriptor import ALONG, DIRECT, IN_RUNS, PRIVATE, SHARED, Word
from weft._engine.codegen.gemm.gemm_epilogue import ResultStore, add, finish
from weft._engine.codegen.gemm.gemm_panel import Panel, Tile, multiply_along_b_rows, multiply_panel
from weft._engine.codegen.ir.gemm_types import GemmTypes
from weft._engine.codegen.ir.microkernels import (
    SPARE_ROWS,
    TILE_STATE_FUNCTIONS,
    kernel_name,
    kernel_table,
)
from weft._engine.codegen.ir.writer import Declarations, module_of
from weft._engine.codegen.toolchain.native_library import LibraryModule
from weft._engine.util.record import record, replace

#: the interface of a variant, together with `parts` and `driver`
all_features, features = required.all_features, required.features


def parts(types: GemmTypes, symbol: str, needed: Collection[str]) -> list[LibraryModule]:
    """Return the modules of the tiled matmul for `types`, exported as `symbol`.

    The modules that compute are optimized. The driver, which only computes addresses, is not:
    optimizing it would take longer than all other modules.
    """
    listed = sorted(needed)
    outer = [name for name in listed if name.startswith("pack") or name in ("add", "finish")]
    # all packings of an operand are one function
    exports = dict.fromkeys([name.rpartition("_")[0] or name for name in outer])
    exports |= {"end_panel": None} if required.ends_panels(types, needed) else {}
    modules = _kernel_parts(types, listed)
    if outer:
        quick = all(_is_assembled(types, name) for name in outer)
        name = f"helpers {types.name} {' '.join(outer)}"
        modules.append(
            LibraryModule(name, lambda: _helper_module(types, outer), tuple(exports), quick)
        )
    for name in required.skinny_kernel_names(needed):
        from weft._engine.codegen.gemm.avx512 import gemm_asm_skinny

        write = functools.partial(_build_skinny_module, types, name)
        modules.append(
            LibraryModule(f"{name} {types.name}", write, (name,), gemm_asm_skinny.suits(types))
        )
    return [*modules, driver(types, symbol, needed)]


def driver(types: GemmTypes, symbol: str, needed: Collection[str]) -> LibraryModule:
    """Return the last module of `parts`."""
    return LibraryModule(
        f"{symbol} {' '.join(sorted(needed))}",
        lambda: _driver_module(types, symbol, needed),
        (symbol,),
        quick=True,
    )


def _kernel_parts(types: GemmTypes, listed: list[str]) -> list[LibraryModule]:
    """Return the modules of register kernels: one in assembly, or two that compile in parallel
    (full and smaller row counts)."""
    kernels = [name for name in listed if name.startswith("kernel")]
    most = [name for name in kernels if name.startswith(kernel_name(types.rows, 0, False)[:-1])]
    options = [name for name in listed if name in ("blocks", "epilogue")]
    assembly_writer = assembler_modules.kernels(types)
    write = assembly_writer or _kernel_module
    modules = (
        [kernels] if assembly_writer else [most, [name for name in kernels if name not in most]]
    )
    return [
        LibraryModule(
            f"kernels {types.name} {' '.join([*names, *options])}",
            functools.partial(write, types, [*names, *options]),
            [*names, *(TILE_STATE_FUNCTIONS if types.has_tile_registers else ())],
            assembly_writer is not None,
        )
        for names in modules
        if names or types.has_tile_registers
    ]


def _kernel_module(types: GemmTypes, needed: Collection[str]) -> str:
    from weft._engine.codegen.gemm.gemm_micro import kernels  # lazy: only if they are not assembled

    return module_of(lambda decls: kernels(types, decls, needed))


def _is_assembled(types: GemmTypes, name: str) -> bool:
    """Return whether a function other than a kernel is assembled (the function that ends panels
    then is, too)."""
    if name.startswith("pack"):
        return assembler_modules.function(types, name) is not None
    if name == "finish":
        from weft._engine.codegen.gemm.avx512 import gemm_asm_epilogue

        return gemm_asm_epilogue.finishes(types)
    return False


def _build_skinny_module(types: GemmTypes, name: str) -> str:
    if types.has_tile_registers:
        from weft._engine.codegen.gemm.amx import tile_skinny

        return tile_skinny.text(types, name)
    from weft._engine.codegen.gemm.avx512 import gemm_asm_skinny

    if gemm_asm_skinny.suits(types):
        return gemm_asm_skinny.text(types, name)
    from weft._engine.codegen.gemm.skinny_gemm import build_skinny_function

    return module_of(lambda decls: build_skinny_function(types, decls, name))


def _helper_module(types: GemmTypes, needed: Collection[str]) -> str:
    """Return the IR of the other functions that access elements."""
    assembled_functions = _assembled_helpers(types, needed)
    missing = [
        name
        for name in needed
        if name.rpartition("_")[0] not in assembled_functions and name not in assembled_functions
    ]
    decls, functions = Declarations(), list(assembled_functions.values())
    if missing or (required.ends_panels(types, needed) and "end_panel" not in assembled_functions):
        functions += _compiled_helpers(types, decls, needed, assembled_functions)
    return "\n".join(
        [*functions[: len(assembled_functions)], str(decls), *functions[len(assembled_functions) :]]
    )


def _assembled_helpers(types: GemmTypes, needed: Collection[str]) -> dict[str, str]:
    """Return the functions that are assembled as a whole, and the assembly functions that others
    call ("lines")."""
    functions = {}
    packed = [name for name in needed if name.startswith("pack") and _is_assembled(types, name)]
    if packed:
        functions["lines"] = assembler_modules.text(
            types, {assembler_modules.function(types, name) or "" for name in packed}
        )
        alone = [
            name
            for name in packed
            if assembler_modules.has_only_these_packings(types, name[len("pack_")], needed)
        ]
        functions |= {
            name.rpartition("_")[0]: assembler_modules.entry(types, name) for name in alone
        }
    if "finish" in needed and _is_assembled(types, "finish"):
        from weft._engine.codegen.gemm.avx512 import gemm_asm_epilogue

        functions["finish"] = gemm_asm_epilogue.finish(types)
    if required.ends_panels(types, needed):
        from weft._engine.codegen.gemm.avx512 import gemm_asm_epilogue

        functions |= (
            {"end_panel": gemm_asm_epilogue.end_panel(types)}
            if gemm_asm_epilogue.ends_panels(types)
            else {}
        )
    return functions


def _compiled_helpers(
    types: GemmTypes, decls: Declarations, needed: Collection[str], done: Collection[str]
) -> list[str]:
    from weft._engine.codegen.gemm.gemm_pack import end_panel, pack_a, pack_b

    if types.multiplies_pairs:
        from weft._engine.codegen.gemm.gemm_pack_pairs import pack_a, pack_b
    return [
        finish(types, decls) if "finish" in needed and "finish" not in done else "",
        pack_a(types, decls, needed)
        if required.packs(needed, "a") and "pack_a" not in done
        else "",
        pack_b(types, decls, needed)
        if required.packs(needed, "b") and "pack_b" not in done
        else "",
        end_panel(types, decls)
        if required.ends_panels(types, needed) and "end_panel" not in done
        else "",
        add(types, decls) if "add" in needed else "",
    ]


def _driver_module(types: GemmTypes, symbol: str, needed: Collection[str]) -> str:
    """Return the IR of the driver, which calls the other modules' functions for a descriptor."""
    decls, known = Declarations(), required.find_constant_words(needed)
    even = all(
        known.get(dims.count) == "0"
        for dims in (addressing.BATCH, addressing.OUTER, addressing.ROWS, addressing.COLS)
    )
    functions = [
        kernel_table(types, decls, needed) if len(required.kernel_names(needed)) > 1 else "",
        "" if even else addressing.offsets_function(decls, types),
        _pack_rows(types, decls, known) if required.packs(needed, "a") else "",
        _pack_panel(types, decls, known) + _pack_task(types, decls, known)
        if required.packs(needed, "b")
        else "",
        _tile_task(types, decls, needed, known),
        _add_task(types, decls, needed, known) if "add" in needed else "",
        _driver(types, decls, symbol, needed, known),
    ]
    return str(decls) + "\n".join(functions)


def _pack_panel(types: GemmTypes, decls: Declarations, known: Mapping[int, str]) -> str:
    """Return `@pack_panel`, which packs steps [first, last) of one panel (numbered from column 0)
    of the B at `base`."""
    f = addressing.DescriptorWriter("internal void @pack_panel(ptr %desc, ptr %base, ptr %dst, i64 %panel, i64 %first, i64 %last)", decls,
                  types, known)  # fmt: skip
    col = f.mul("%panel", types.panel_cols)
    cols = f.min(f.sub(f.descriptor_word(Word.N), col), types.panel_cols)
    ns, ks = f.descriptor_word(Word.B_NS), f.descriptor_word(Word.B_KS)

    def clear() -> None:
        """Clear the panel if it has missing columns: kernels multiply them, too, and leftover
        subnormals would take a hundred times as long."""
        width = types.machine.vector_bytes

        def row(i: str) -> None:
            for v in range(types.panel_row_bytes // width):
                f.store(
                    "i8",
                    width,
                    "zeroinitializer",
                    f.byte_address("%dst", f.add(f.mul(i, types.panel_row_bytes), v * width)),
                )

        f.loop(0, f.mul(f.sub("%last", "%first"), types.k_steps_per_step), 1, row)

    if types.is_float and not types.machine.masks:
        f.branch_without_values(f.less(cols, types.panel_cols), clear)

    def columns(done_cols: str, col_offset: str, count_cols: str) -> None:
        place = f.byte_address("%dst", f.mul(done_cols, types.column_bytes))
        src = f.byte_address("%base", col_offset)

        def pack(done: str, offset: str, count: str) -> None:
            to = f.byte_address(place, f.mul(done, types.k_steps_per_step * types.panel_row_bytes))
            f.decls.use("declare void @pack_b(ptr, ptr, i64, i64, i64, i64)")
            f.do(
                f"call void @pack_b(ptr {to}, ptr {f.byte_address(src, offset)}, i64 {ns}, i64 {ks}, i64 {count_cols}, i64 {count})"
            )

        addressing.segments(f, types, "%first", "%last", 1, ks, pack)

    addressing.visit_runs(f, col, f.add(col, cols), Word.COL_RUN, addressing.COLS, ns, columns)
    if types.tile_steps > 1:
        steps = f.sub("%last", "%first")

        def clear_steps() -> None:
            """Clear the steps after the last one, up to a whole tile."""
            end = f.byte_address("%dst", f.mul(steps, types.panel_row_bytes))
            for offset in range(0, types.tile_steps * types.panel_row_bytes, 64):
                f.store("i8", 64, "zeroinitializer", f.byte_address(end, offset))

        f.branch_without_values(f.is_nonzero(f.rem(steps, types.tile_steps)), clear_steps)
    if types.flips_signs:
        f.decls.use("declare void @end_panel(ptr, i64)")
        f.do(f"call void @end_panel(ptr %dst, i64 {f.sub('%last', '%first')})")
    return f.end()


def _pack_rows(types: GemmTypes, decls: Declarations, known: Mapping[int, str]) -> str:
    """Return `@pack_rows`, which packs steps [first, last) of rows [i0, i1) of the A at `base`."""
    f = addressing.DescriptorWriter("internal void @pack_rows(ptr %desc, ptr %base, ptr %dst, i64 %i0, i64 %i1, i64 %first, i64 %last)", decls,
                  types, known)  # fmt: skip
    ms, ks, row_bytes = (
        f.descriptor_word(Word.A_MS),
        f.descriptor_word(Word.A_KS),
        f.descriptor_word(Word.A_ROW_BYTES),
    )

    def rows(done_rows: str, row_offset: str, count_rows: str) -> None:
        place, src = (
            f.byte_address("%dst", f.mul(done_rows, row_bytes)),
            f.byte_address("%base", row_offset),
        )

        def pack(done: str, offset: str, count: str) -> None:
            to = f.byte_address(place, f.mul(done, types.step_bytes))
            f.decls.use("declare void @pack_a(ptr, i64, ptr, i64, i64, i64, i64)")
            f.do(f"call void @pack_a(ptr {to}, i64 {row_bytes}, ptr {f.byte_address(src, offset)}, i64 {ms}, i64 {ks}, "
                 f"i64 {count_rows}, i64 {count})")  # fmt: skip

        addressing.segments(f, types, "%first", "%last", 0, ks, pack)

    addressing.visit_runs(f, "%i0", "%i1", Word.ROW_RUN, addressing.ROWS, ms, rows)
    if types.tile_steps > 1:
        steps = f.sub("%last", "%first")

        def clear_steps(row: str) -> None:
            """Clear the steps after the last one, up to a whole tile."""
            end = f.byte_address(
                "%dst", f.add(f.mul(row, row_bytes), f.mul(steps, types.step_bytes))
            )
            f.store("i8", types.tile_steps * types.step_bytes, "zeroinitializer", end)

        last = f.rem(steps, types.tile_steps)
        rows_to_clear = f.select(f.is_nonzero(last), f.sub("%i1", "%i0"), 0)
        f.loop(0, rows_to_clear, 1, clear_steps)
    return f.end()


def _pack_task(types: GemmTypes, decls: Declarations, known: Mapping[int, str]) -> str:
    f = addressing.Task("pack_task", decls, types, known)
    offsets = f.slot("[3 x i64]")
    panel = f.rem("%task", f.panels)
    block_number = f.div("%task", f.panels)
    blocks = f.descriptor_word(Word.BLOCKS)
    block, batch = f.rem(block_number, blocks), f.div(block_number, blocks)
    # (Of batch elements with the same B, only the first one's B is packed.)
    element = f.add(f.first_batch, f.mul(batch, f.descriptor_word(Word.B_SHARE)))
    base = f.byte_address(
        f.operands()[1], addressing.locate(f, addressing.BATCH, element, offsets)[1]
    )
    width = f.descriptor_word(Word.TILE_PANELS)
    p0 = f.mul(f.div(panel, width), width)
    dst = _address_shared_panel(f, batch, block, panel, p0, f.min(f.sub(f.panels, p0), width))
    first, last = addressing.block_of(f, block)
    number = f.add(f.first_panel, panel)
    f.do(
        f"call void @pack_panel(ptr {f.desc}, ptr {base}, ptr {dst}, i64 {number}, i64 {first}, i64 {last})"
    )
    return f.end()


def _address_shared_panel(
    f: addressing.Task, of_b: str, block: str, panel: str, p0: str, width: str
) -> str:
    """Return the address of a block of a shared packed panel, stored in the order of use by the
    tile of `width` panels from `p0` on."""
    first = f.mul(f.add(f.mul(of_b, f.panels), p0), f.descriptor_word(Word.BLOCKS))
    slot = f.add(f.add(first, f.mul(block, width)), f.sub(panel, p0))
    return f.byte_address(
        f.load_word("%ctx", 1, "ptr"), f.mul(slot, f.descriptor_word(Word.PANEL_BYTES))
    )


def _tile_task(
    types: GemmTypes, decls: Declarations, needed: Collection[str], known: Mapping[int, str]
) -> str:
    f = addressing.Task("tile_task", decls, types, known)
    worker_scratch = f.byte_address(
        f.load_word("%ctx", 2, "ptr"), f.mul("%wid", f.descriptor_word(Word.WORKER_BYTES))
    )
    sums, task, first, last = (
        f.byte_address(worker_scratch, f.descriptor_word(Word.SUMS_OFFSET)),
        "%task",
        "0",
        f.descriptor_word(Word.BLOCKS),
    )
    if "add" in needed:
        parts, blocks = f.descriptor_word(Word.PARTS), f.descriptor_word(Word.PART_BLOCKS)
        part_sums = f.byte_address(
            f.load_word("%ctx", 1, "ptr"), f.mul("%task", f.descriptor_word(Word.PART_BYTES))
        )
        sums = f.select(f.equal(parts, 1), sums, part_sums, "ptr")
        task, first = f.div("%task", parts), f.mul(f.rem("%task", parts), blocks)
        last = f.min(f.add(first, blocks), last)
    configure, release = TILE_STATE_FUNCTIONS if types.has_tile_registers else ("", "")
    if configure:
        f.decls.use(f"declare void @{configure}()")
        f.decls.use(f"declare void @{release}()")
        f.do(f"call void @{configure}()")
    _tiles(
        f,
        types,
        task,
        needed,
        lambda t: _tile(f, types, t, _ContractionPart(worker_scratch, sums, first, last), needed),
    )
    if release:
        f.do(f"call void @{release}()")
    return f.end()


def _add_task(
    types: GemmTypes, decls: Declarations, needed: Collection[str], known: Mapping[int, str]
) -> str:
    """Return `@add_task`, which adds the parts of a tile's sums and finishes them."""
    decls.use("declare void @add(ptr, i64, i64)")
    f = addressing.Task("add_task", decls, types, known)
    parts, size = f.descriptor_word(Word.PARTS), f.descriptor_word(Word.PART_BYTES)
    sums = f.byte_address(f.load_word("%ctx", 1, "ptr"), f.mul(f.mul("%task", parts), size))
    f.do(f"call void @add(ptr {sums}, i64 {parts}, i64 {size})")

    def tile(t: Tile) -> None:
        def panel(p: str) -> None:
            col = f.mul(f.add(f.first_panel, p), types.panel_cols)
            cols = f.min(f.sub(f.descriptor_word(Word.N), col), types.panel_cols)
            cms, cns = f.descriptor_word(Word.C_MS), f.descriptor_word(Word.C_NS)
            here = t.sums_of(f, types, sums, p)
            t.ends.take(
                here,
                types.sums_row_bytes,
                f.byte_address(t.c, f.mul(col, cns)),
                cms,
                cns,
                row=t.i0,
                rows=t.rows,
                col=col,
                cols=cols,
            )

        f.loop(t.p0, t.p1, 1, panel)

    _tiles(f, types, "%task", needed, tile)
    return f.end()


def _tiles(
    f: addressing.Task,
    types: GemmTypes,
    task: str,
    needed: Collection[str],
    each: Callable[["Tile"], None],
) -> None:
    """Loop over the tiles of a task, one for each of its batch elements."""
    offsets = f.slot("[3 x i64]")
    ends = ResultStore(f, f.desc, needed)
    row_tiles, tile_rows, tile_panels = (
        f.descriptor_word(Word.ROW_TILES),
        f.descriptor_word(Word.TILE_ROWS),
        f.descriptor_word(Word.TILE_PANELS),
    )
    row_tile = f.rem(task, row_tiles)
    tile_index = f.div(task, row_tiles)
    col_tile, task_batch = (
        (tile_index, "0")
        if f.batch == "1"
        else (f.rem(tile_index, f.col_tiles), f.div(tile_index, f.col_tiles))
    )
    i0 = f.mul(row_tile, tile_rows)
    rows = f.min(f.sub(f.descriptor_word(Word.M), i0), tile_rows)
    p0 = f.mul(col_tile, tile_panels)
    p1 = f.min(f.add(p0, tile_panels), f.panels)
    per_task = f.descriptor_word(Word.TASK_BATCH)
    b0 = f.mul(task_batch, per_task)
    b1 = "1" if f.batch == "1" else f.min(f.add(b0, per_task), f.batch)

    def element(b: str) -> None:
        element = f.add(f.first_batch, b)
        a, bb, c = (
            f.byte_address(p, offset)
            for p, offset in zip(
                f.operands(), addressing.locate(f, addressing.BATCH, element, offsets)
            )
        )
        c = f.byte_address(c, f.mul(i0, f.descriptor_word(Word.C_MS)))
        ends.at(
            batch=element,
            pitch=f.div(f.descriptor_word(Word.SUMS_STRIDE), types.acc_bytes * types.real_parts),
        )
        each(Tile(b, a, bb, c, i0, rows, p0, p1, ends))

    f.loop(b0, b1, 1, element)


@record
class _ContractionPart:
    """The part of k of a task, blocks [first, last), and the addresses of operands and sums."""

    mine: str
    sums: str
    first: str
    last: str


def _tile(
    f: addressing.Task, types: GemmTypes, t: Tile, part: _ContractionPart, needed: Collection[str]
) -> None:
    panel_buffer = f.byte_address(part.mine, f.descriptor_word(Word.PANEL_OFFSET))
    whole_sum = f.equal(f.descriptor_word(Word.PARTS), 1) if "add" in needed else "true"
    ms = f.descriptor_word(Word.A_MS)
    direct, in_runs = (
        f.is_nonzero(f.descriptor_word(Word.A_DIRECT)),
        f.equal(f.descriptor_word(Word.A_DIRECT), IN_RUNS)
        if required.has_runs(needed)
        else "false",
    )
    packs_a, packs_b = required.packs(needed, "a"), required.packs(needed, "b")
    as_ = (
        f.select(
            f.equal(f.descriptor_word(Word.A_DIRECT), 1), ms, f.descriptor_word(Word.A_ROW_BYTES)
        )
        if packs_a or in_runs != "false"
        else ms
    )
    steps = f.byte_address(
        part.mine, f.mul(f.add(f.descriptor_word(Word.TILE_ROWS), SPARE_ROWS), 8)
    )
    f.branch_without_values(in_runs, lambda: _list_rows(f, t, part.mine))
    walk = (
        as_ if in_runs == "false" else f.select(in_runs, f.let(f"ptrtoint ptr {steps} to i64"), as_)
    )
    b_mode, of_b, i0 = (
        f.descriptor_word(Word.B_MODE),
        f.div(t.batch, f.descriptor_word(Word.B_SHARE)),
        t.i0,
    )

    def block(kb: str) -> None:
        first, last = addressing.block_of(f, kb)
        k_steps = f.mul(f.sub(last, first), types.k_steps_per_step)
        is_first, is_last = (
            f.equal(kb, part.first),
            f.logical_and(whole_sum, f.equal(f.add(kb, 1), part.last)),
        )
        private = lambda p: f.byte_address(
            panel_buffer, f.mul(f.sub(p, t.p0), f.descriptor_word(Word.PANEL_BYTES))
        )

        def pack(p: str) -> None:
            packing = f"ptr {f.desc}, ptr {t.b}, ptr {private(p)}, i64 {f.add(f.first_panel, p)}, i64 {first}, i64 {last}"
            f.do(f"call void @pack_panel({packing})")

        f.branch_without_values(in_runs, lambda: _list_steps(f, types, steps, first, last))
        offset = f.mul(first, types.step_bytes)
        if f.descriptor_word(Word.SEGMENTS) != "1":
            # a block of A that is read in place is in one segment
            segment = f.div(first, f.descriptor_word(Word.SEGMENT_STEPS))
            inside = f.mul(f.rem(first, f.descriptor_word(Word.SEGMENT_STEPS)), types.step_bytes)
            offset = f.add(
                addressing.locate(f, addressing.OUTER, segment, f.slot("[2 x i64]"))[0], inside
            )

        def strip(t: Tile, sums: str) -> None:
            a = f.byte_address(f.byte_address(t.a, f.mul(t.i0, ms)), offset)
            if packs_a:
                packing = f"ptr {f.desc}, ptr {t.a}, ptr {part.mine}, i64 {t.i0}, i64 {f.add(t.i0, t.rows)}, i64 {first}, i64 {last}"
                f.branch_without_values(
                    direct, lambda: None, lambda: f.do(f"call void @pack_rows({packing})")
                )
                a = f.select(direct, a, part.mine, "ptr")
            a = f.select(in_runs, f.byte_address(part.mine, f.mul(f.sub(t.i0, i0), 8)), a, "ptr")

            def panel(p: str) -> None:
                col = f.mul(f.add(f.first_panel, p), types.panel_cols)
                bs = f.descriptor_word(Word.B_KS)
                b = f.byte_address(
                    t.b, f.add(f.mul(first, bs), f.mul(col, f.descriptor_word(Word.B_NS)))
                )
                if packs_b:
                    shared = _address_shared_panel(f, of_b, kb, p, t.p0, f.sub(t.p1, t.p0))
                    packed = f.select(f.equal(b_mode, SHARED), shared, private(p), "ptr")
                    in_place = f.equal(b_mode, DIRECT)
                    b = f.select(in_place, b, packed, "ptr")
                    bs = f.select(in_place, bs, types.panel_row_bytes)
                multiply_panel(
                    f,
                    types,
                    t,
                    Panel(is_first, is_last, p, col, a, as_, walk, b, bs, k_steps, sums),
                    needed,
                )

            panels = lambda: f.loop(t.p0, t.p1, 1, panel)
            rows = lambda: multiply_along_b_rows(f, types, t, a, as_, sums, needed)
            if not required.skinny_kernel_names(needed):
                panels()
            elif not required.kernel_names(needed):
                rows()
            else:
                f.branch_without_values(f.equal(b_mode, ALONG), rows, panels)

        if packs_b:
            f.branch_without_values(f.equal(b_mode, PRIVATE), lambda: f.loop(t.p0, t.p1, 1, pack))
            _strips(f, types, t, part.sums, needed, strip)
        else:
            strip(t, part.sums)

    f.loop(part.first, part.last, 1, block)


def _list_rows(f: addressing.Task, t: Tile, list_: str) -> None:
    """Write the address list of a tile's rows of A, which are in runs."""
    ms = f.descriptor_word(Word.A_MS)
    kind = "<8 x i64>"
    steps = f.let(
        f"mul {kind} {f.splat(ms, 'i64', 8)}, <{', '.join(f'i64 {i}' for i in range(8))}>"
    )

    def run(done: str, offset: str, count: str) -> None:
        def emit_rows(
            i: str,
        ) -> None:  # (surplus addresses are overwritten by the next run, or not used)
            first = f.let(f"ptrtoint ptr {f.byte_address(t.a, f.add(offset, f.mul(i, ms)))} to i64")
            f.store(
                "i64",
                8,
                f.let(f"add {kind} {f.splat(first, 'i64', 8)}, {steps}"),
                f.byte_address(list_, f.mul(f.add(done, i), 8)),
            )

        f.loop(0, count, 8, emit_rows)

    addressing.visit_runs(f, t.i0, f.add(t.i0, t.rows), Word.ROW_RUN, addressing.ROWS, ms, run)


def _list_steps(f: addressing.Task, types: GemmTypes, list_: str, first: str, last: str) -> None:
    """Write the list of the positions of steps [first, last) in the rows of A (see
    `indirect_operand`)."""
    per, ks, end = types.k_per_step, f.descriptor_word(Word.A_KS), f.slot("ptr")
    put = lambda value, at: f.do(f"store i64 {value}, ptr {at}, align 8")
    put(f.mul(ks, per), list_)
    f.do(f"store ptr {f.byte_address(list_, 8)}, ptr {end}, align 8")

    def run(_: str, offset: str, count: str) -> None:
        at = f.load_word(end, 0, "ptr")
        put(f.ceil_div(count, per), at)
        put(offset, f.byte_address(at, 8))
        f.do(f"store ptr {f.byte_address(at, 16)}, ptr {end}, align 8")

    addressing.segments(f, types, first, last, 0, ks, run)
    put("0", f.load_word(end, 0, "ptr"))


def _strips(
    f: addressing.Task,
    types: GemmTypes,
    t: Tile,
    sums: str,
    needed: Collection[str],
    each: Callable[[Tile, str], None],
) -> None:
    """Process a tile by strips of rows; a strip's block of A stays in cache while panels of B
    stream through."""
    strip_rows, in_c = (
        f.descriptor_word(Word.STRIP_ROWS),
        f.is_nonzero(f.descriptor_word(Word.SUMS_IN_C)),
    )

    def strip(i: str) -> None:
        rows, c = (
            f.min(f.sub(t.rows, i), strip_rows),
            f.byte_address(t.c, f.mul(i, f.descriptor_word(Word.C_MS))),
        )
        sums_row = f.select(in_c, 0, i) if "back" in needed else i
        each(
            replace(t, i0=f.add(t.i0, i), rows=rows, c=c),
            f.byte_address(sums, f.mul(sums_row, types.sums_row_bytes)),
        )

    f.loop(0, t.rows, strip_rows, strip)


def _driver(
    types: GemmTypes,
    decls: Declarations,
    symbol: str,
    needed: Collection[str],
    known: Mapping[int, str],
) -> str:
    decls.use("declare void @weft_parallel_for(ptr, ptr, i64)")
    decls.use("declare ptr @weft_scratch_take(i64)")
    decls.use("declare void @weft_scratch_give(ptr)")
    f = addressing.DescriptorWriter(f"void @{symbol}(ptr %desc)", decls, types, known)
    d = f.descriptor_word
    ctx = f.slot("[8 x i64]")
    shared, workers = d(Word.SHARED_BYTES), f.mul(d(Word.WORKERS), d(Word.WORKER_BYTES))
    total = f.add(shared, workers)
    is_nonempty = f.is_nonzero(total)
    [scratch] = f.branch_with_values(
        is_nonempty, lambda: [f.let(f"call ptr @weft_scratch_take(i64 {total})")], ["null"], "ptr"
    )

    def put(i: int, value: str, type: str = "i64") -> None:
        f.do(f"store {type} {value}, ptr {f.byte_address(ctx, 8 * i)}")

    put(0, "%desc", "ptr")
    put(1, scratch, "ptr")
    put(2, f.byte_address(scratch, shared), "ptr")
    panels = f.div(f.add(d(Word.N), types.panel_cols - 1), types.panel_cols)

    def group(b: str) -> None:
        batch = f.min(f.sub(d(Word.BATCH), b), d(Word.GROUP))
        put(3, b)
        put(6, batch)

        def chunk(p: str) -> None:
            here = f.min(f.sub(panels, p), d(Word.CHUNK_PANELS))
            col_tiles = f.ceil_div(here, d(Word.TILE_PANELS))
            put(4, p)
            put(5, here)
            put(7, col_tiles)
            parts = f.mul(f.mul(f.div(batch, d(Word.B_SHARE)), d(Word.BLOCKS)), here)
            if required.packs(needed, "b"):
                pack = lambda: f.do(
                    f"call void @weft_parallel_for(ptr @pack_task, ptr {ctx}, i64 {parts})"
                )
                f.branch_without_values(f.equal(d(Word.B_MODE), SHARED), pack)
            tasks = f.mul(
                f.mul(f.ceil_div(batch, d(Word.TASK_BATCH)), d(Word.ROW_TILES)), col_tiles
            )
            parts = d(Word.PARTS) if "add" in needed else "1"
            f.do(
                f"call void @weft_parallel_for(ptr @tile_task, ptr {ctx}, i64 {f.mul(tasks, parts)})"
            )
            if "add" in needed:
                add = lambda: f.do(
                    f"call void @weft_parallel_for(ptr @add_task, ptr {ctx}, i64 {tasks})"
                )
                f.branch_without_values(f.less(1, parts), add)

        f.loop(0, panels, d(Word.CHUNK_PANELS), chunk)

    f.loop(0, d(Word.BATCH), d(Word.GROUP), group)
    f.branch_without_values(
        is_nonempty, lambda: f.do(f"call void @weft_scratch_give(ptr {scratch})")
    )
    return f.end()
