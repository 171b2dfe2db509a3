"""The matmul driver: pack B, then multiply tile by tile over the pool.

`weft_gemm_*_tile(ptr desc)` walks rounds of (group of batch elements) x (chunk of column panels). In a round it packs B
if it is to be shared, task = (batch element, block of k, panel), then runs the tiles, task = (batch elements, rows,
panels). A tile goes through the blocks of k in order; sums of unfinished blocks wait in the worker's
scratch. A tile that packs its own B first packs a block of it, and then goes down its rows by strips, so that B stays in the
core's own cache while A and C pass by: where kernels may write C, sums wait there. Where the sum falls in parts, task = (batch element,
rows, panels, part); each keeps its sums, and a second run of tasks adds them.

The context of a task, eight words on the caller's stack: description, shared scratch, workers' scratch, first batch
element, first panel, panels, batch elements of the round, column tiles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence

from weft.codegen import gemm_asm
from weft.codegen._link import Part
from weft.codegen.gemm_shapes import LINE_BEATS, ROW_COUNTS, SPARE_ROWS, kernel_name, kernel_table, shapes
from weft.codegen.gemm_tail import Ends, add, finish
from weft.codegen.gemm_text import Decls
from weft.codegen.gemm_types import Recipe
from weft.codegen.gemm_way import BATCH, COLS, OUTER, ROWS, Described, Task, block_of, locate, offsets_function, pieces_of, runs, segments
from weft.codegen.gemm_words import ALONG, DIRECT, IN_RUNS, PRIVATE, SHARED, Word, way, ways
from weft.util.record import record, replace


def all_pieces(recipe: Recipe) -> frozenset[str]:
    """Return the names of all functions and branches that only some matmuls need."""
    usable = [shape for shape in shapes(recipe) if shape[0] or recipe.half_lanes]
    kinds = (False, True) if gemm_asm.finds_runs(recipe) else (False,)
    named = [kernel_name(r, *shape, runs) for runs in kinds for r in ROW_COUNTS for shape in usable]
    named += [] if recipe.is_complex or recipe.quads else ["along", "along_row"]
    packs_a = [] if recipe.quads else ways(recipe, "a")
    said = [f"{name}={value}" for name in _TOLD for value in (*range(_MOST_TOLD + 1), "many")]
    return frozenset([*named, "add", "back", "blocks", "finish", "tail", *packs_a, *ways(recipe, "b"), *said])


def pieces(recipe: Recipe, words: Sequence[int]) -> frozenset[str]:
    """Return the names of the functions and branches that the matmul described by `words` needs.

    Tiles have a multiple of `recipe.rows` rows but for the last, so all kernels but the full ones follow from M.
    """
    width, rest = words[Word.N] * recipe.parts, 0 if words[Word.BACK] else words[Word.M] % recipe.rows
    over = width % recipe.panel_lanes
    rows = [r for r in ROW_COUNTS if (words[Word.M] >= r if r == recipe.rows else rest & r)]
    used = [(recipe.vectors, False)] if width >= recipe.panel_lanes else []
    used += [(0 if over <= recipe.half_lanes else -(-over // recipe.lanes), True)] if over else []
    along, in_runs = words[Word.B_MODE] == ALONG, words[Word.A_DIRECT] == IN_RUNS
    found = ["along" if words[Word.M] > 1 else "along_row"] if along else [kernel_name(r, *shape, in_runs) for r in rows for shape in used]
    found += ["add"] if words[Word.PARTS] > 1 else []
    found += ["back"] if words[Word.BACK] else []
    found += ["blocks"] if words[Word.BLOCKS] > 1 else []
    found += ["tail"] if words[Word.TAIL_ARGS] else [] if words[Word.SIMPLE] else ["finish"]
    found += [] if words[Word.A_DIRECT] else [way(recipe, "a", words)]
    found += [] if words[Word.B_MODE] in (DIRECT, ALONG) else [way(recipe, "b", words)]
    return frozenset([*found, *_said(words)])


#: what of a matmul's words a driver may know: each value that is seen is the name of a piece, and where there is but one it is known
_TOLD = {"swapped": Word.SWAPPED, "simple": Word.SIMPLE, "a direct": Word.A_DIRECT, "b mode": Word.B_MODE, "in c": Word.SUMS_IN_C,
         "segments": Word.SEGMENTS, "batch": Word.BATCH, "share": Word.B_SHARE, "group": Word.GROUP, "task batch": Word.TASK_BATCH,
         "batch dims": Word.BATCH_DIMS, "outer dims": Word.OUTER_DIMS, "row dims": Word.ROW_DIMS, "col dims": Word.COL_DIMS}
_MOST_TOLD = max(SHARED, DIRECT, PRIVATE, ALONG)    # larger ones are not told apart


def _said(words: Sequence[int]) -> list[str]:
    return [f"{name}={words[word] if words[word] <= _MOST_TOLD else 'many'}" for name, word in _TOLD.items()]


def is_way(piece: str) -> bool:
    """Whether a piece is the driver's alone."""
    return "=" in piece


def _known(wanted: Collection[str]) -> dict[int, str]:
    """The words that are the same in all matmuls that are wanted."""
    seen: dict[str, list[str]] = {}
    for piece in wanted:
        name, told, value = piece.partition("=")
        if told:
            seen.setdefault(name, []).append(value)
    found = {_TOLD[name]: values[0] for name, values in seen.items() if len(values) == 1 and values[0] != "many"}
    found |= {} if "blocks" in wanted else {Word.BLOCKS: "1"}
    return found | ({} if "add" in wanted else {Word.PARTS: "1"})


def _in_runs(wanted: Collection[str]) -> bool:
    return any("_runs" in name for name in wanted)


def _packs(wanted: Collection[str], operand: str) -> bool:
    return any(name.startswith(f"pack_{operand}") for name in wanted)


def _ends_panels(recipe: Recipe, wanted: Collection[str]) -> bool:
    return recipe.flips and _packs(wanted, "b")


def _has_kernels(wanted: Collection[str]) -> bool:
    return any(name.startswith("kernel") for name in wanted)


def parts(recipe: Recipe, symbol: str, wanted: Collection[str]) -> list[Part]:
    """Return the modules of the tiled matmul for `recipe`, exported as `symbol`, for matmuls that need `wanted` pieces.

    What computes is optimized; the driver, which only finds the way, is not: it would take longer than all the rest.
    """
    listed = sorted(wanted)
    outer = [name for name in listed if name.startswith("pack") or name in ("add", "finish")]
    exports = dict.fromkeys([name.rpartition("_")[0] or name for name in outer])    # the ways to pack are one function
    exports |= {"end_panel": None} if _ends_panels(recipe, wanted) else {}
    found = _kernel_parts(recipe, listed)
    if outer:
        quick = all(_is_assembled(recipe, name) for name in outer)
        found.append(Part(f"helpers {recipe.name} {' '.join(outer)}", lambda: _helper_module(recipe, outer), tuple(exports), quick))
    for name in _along_names(wanted):
        from weft.codegen import gemm_asm_along

        write = functools.partial(_along_module, recipe, name)
        found.append(Part(f"{name} {recipe.name}", write, (name,), gemm_asm_along.suits(recipe)))
    return [*found, Part(f"{symbol} {' '.join(listed)}", lambda: _driver_module(recipe, symbol, wanted), (symbol,), quick=True)]


def _kernel_parts(recipe: Recipe, listed: list[str]) -> list[Part]:
    """The register kernels: assembled, or in two modules that are compiled side by side: those of the most rows, and those of fewer."""
    made = [name for name in listed if name.startswith("kernel")]
    most = [name for name in made if name.startswith(kernel_name(recipe.rows, 0, False)[:-1])]
    ways = [name for name in listed if name in ("blocks", "tail")]
    assembled = gemm_asm.suits(recipe.machine)
    write = gemm_asm.module if assembled else _kernel_module
    return [
        Part(f"kernels {recipe.name} {' '.join([*names, *ways])}", functools.partial(write, recipe, [*names, *ways]), names, assembled)
        for names in ([made] if assembled else [most, [name for name in made if name not in most]])
        if names
    ]


def _kernel_module(recipe: Recipe, wanted: Collection[str]) -> str:
    """The IR of register kernels."""
    from weft.codegen.gemm_micro import kernels  # where they are not assembled

    decls = Decls()
    text = kernels(recipe, decls, wanted)
    return str(decls) + text


def _is_assembled(recipe: Recipe, name: str) -> bool:
    """Whether a function that is no kernel is assembled (what ends panels then is, too)."""
    if name.startswith("pack"):
        from weft.codegen import gemm_asm_pack  # half of all first matmuls need none of them

        return gemm_asm_pack.function(recipe, name) is not None
    if name == "finish":
        from weft.codegen import gemm_asm_finish

        return gemm_asm_finish.finishes(recipe)
    return False


def _along_names(wanted: Collection[str]) -> list[str]:
    return [name for name in ("along", "along_row") if name in wanted]


def _along_module(recipe: Recipe, name: str) -> str:
    """`@along` or `@along_row`: assembled, or its IR."""
    from weft.codegen import gemm_asm_along

    if gemm_asm_along.suits(recipe):
        return gemm_asm_along.text(recipe, name)
    from weft.codegen.gemm_along import along

    decls = Decls()
    text = along(recipe, decls, name)
    return str(decls) + text


def _helper_module(recipe: Recipe, wanted: Collection[str]) -> str:
    """The IR of the other functions that touch elements."""
    assembled = _assembled_helpers(recipe, wanted)
    left = [name for name in wanted if name.rpartition("_")[0] not in assembled and name not in assembled]
    decls, made = Decls(), list(assembled.values())
    if left or (_ends_panels(recipe, wanted) and "end_panel" not in assembled):
        made += _compiled_helpers(recipe, decls, wanted, assembled)
    return "\n".join([*made[:len(assembled)], str(decls), *made[len(assembled):]])


def _assembled_helpers(recipe: Recipe, wanted: Collection[str]) -> dict[str, str]:
    """Those functions that are assembled as a whole, and what others call."""
    found = {}
    packs = [name for name in wanted if name.startswith("pack") and _is_assembled(recipe, name)]
    if packs:
        from weft.codegen import gemm_asm_pack

        found["lines"] = gemm_asm_pack.text({gemm_asm_pack.function(recipe, name) or "" for name in packs})
        alone = [name for name in packs if gemm_asm_pack.packs_alone(recipe, name[len("pack_")], wanted)]
        found |= {name.rpartition("_")[0]: gemm_asm_pack.entry(recipe, name) for name in alone}
    if "finish" in wanted and _is_assembled(recipe, "finish"):
        from weft.codegen import gemm_asm_finish

        found["finish"] = gemm_asm_finish.finish(recipe)
    if _ends_panels(recipe, wanted):
        from weft.codegen import gemm_asm_finish

        found |= {"end_panel": gemm_asm_finish.end_panel(recipe)} if gemm_asm_finish.ends_panels(recipe) else {}
    return found


def _compiled_helpers(recipe: Recipe, decls: Decls, wanted: Collection[str], assembled: Collection[str]) -> list[str]:
    """The IR of the others."""
    from weft.codegen.gemm_pack import end_panel, pack_a, pack_b

    return [
        finish(recipe, decls) if "finish" in wanted and "finish" not in assembled else "",
        pack_a(recipe, decls, wanted) if _packs(wanted, "a") and "pack_a" not in assembled else "",
        pack_b(recipe, decls, wanted) if _packs(wanted, "b") and "pack_b" not in assembled else "",
        end_panel(recipe, decls) if _ends_panels(recipe, wanted) and "end_panel" not in assembled else "",
        add(recipe, decls) if "add" in wanted else "",
    ]


def _driver_module(recipe: Recipe, symbol: str, wanted: Collection[str]) -> str:
    """The IR of the way from a description to the functions of the other modules."""
    decls, known = Decls(), _known(wanted)
    even = all(known.get(dims.count) == "0" for dims in (BATCH, OUTER, ROWS, COLS))
    made = [
        kernel_table(recipe, decls, wanted) if len(_kernels(wanted)) > 1 else "",
        "" if even else offsets_function(decls, recipe),
        _pack_rows(recipe, decls, known) if _packs(wanted, "a") else "",
        _pack_panel(recipe, decls, known) + _pack_task(recipe, decls, known) if _packs(wanted, "b") else "",
        _tile_task(recipe, decls, wanted, known),
        _add_task(recipe, decls, wanted, known) if "add" in wanted else "",
        _driver(recipe, decls, symbol, wanted, known),
    ]
    return str(decls) + "\n".join(made)


def _kernels(wanted: Collection[str]) -> list[str]:
    return [name for name in wanted if name.startswith("kernel")]


def _pack_panel(recipe: Recipe, decls: Decls, known: Mapping[int, str]) -> str:
    """`@pack_panel`: pack steps [first, last) of one panel (numbered from column 0) of the B that begins at `base`."""
    f = Described("internal void @pack_panel(ptr %desc, ptr %base, ptr %dst, i64 %panel, i64 %first, i64 %last)", decls,
                  recipe, known)  # fmt: skip
    col = f.mul("%panel", recipe.panel_cols)
    cols = f.min(f.sub(f.d(Word.N), col), recipe.panel_cols)
    ns, ks = f.d(Word.B_NS), f.d(Word.B_KS)

    def columns(done_cols: str, col_offset: str, count_cols: str) -> None:
        place = f.at("%dst", f.mul(done_cols, recipe.parts * recipe.acc_bytes))
        src = f.at("%base", col_offset)

        def pack(done: str, offset: str, count: str) -> None:
            to = f.at(place, f.mul(done, recipe.beats * recipe.panel_row_bytes))
            f.decls.use("declare void @pack_b(ptr, ptr, i64, i64, i64, i64)")
            f.do(f"call void @pack_b(ptr {to}, ptr {f.at(src, offset)}, i64 {ns}, i64 {ks}, i64 {count_cols}, i64 {count})")

        segments(f, recipe, "%first", "%last", 1, ks, pack)

    runs(f, col, f.add(col, cols), Word.COL_RUN, COLS, ns, columns)
    if recipe.flips:
        f.decls.use("declare void @end_panel(ptr, i64)")
        f.do(f"call void @end_panel(ptr %dst, i64 {f.sub('%last', '%first')})")
    return f.end()


def _pack_rows(recipe: Recipe, decls: Decls, known: Mapping[int, str]) -> str:
    """`@pack_rows`: pack steps [first, last) of rows [i0, i1) of the A that begins at `base`."""
    f = Described("internal void @pack_rows(ptr %desc, ptr %base, ptr %dst, i64 %i0, i64 %i1, i64 %first, i64 %last)", decls,
                  recipe, known)  # fmt: skip
    ms, ks, row_bytes = f.d(Word.A_MS), f.d(Word.A_KS), f.d(Word.A_ROW_BYTES)

    def rows(done_rows: str, row_offset: str, count_rows: str) -> None:
        place, src = f.at("%dst", f.mul(done_rows, row_bytes)), f.at("%base", row_offset)

        def pack(done: str, offset: str, count: str) -> None:
            to = f.at(place, f.mul(done, recipe.step_bytes))
            f.decls.use("declare void @pack_a(ptr, i64, ptr, i64, i64, i64, i64)")
            f.do(f"call void @pack_a(ptr {to}, i64 {row_bytes}, ptr {f.at(src, offset)}, i64 {ms}, i64 {ks}, "
                 f"i64 {count_rows}, i64 {count})")  # fmt: skip

        segments(f, recipe, "%first", "%last", 0, ks, pack)

    runs(f, "%i0", "%i1", Word.ROW_RUN, ROWS, ms, rows)
    return f.end()


def _pack_task(recipe: Recipe, decls: Decls, known: Mapping[int, str]) -> str:
    f = Task("pack_task", decls, recipe, known)
    offsets = f.slot("[3 x i64]")
    panel = f.rem("%task", f.panels)
    rest = f.div("%task", f.panels)
    blocks = f.d(Word.BLOCKS)
    block, batch = f.rem(rest, blocks), f.div(rest, blocks)
    # (of batch elements with the same B the first one's is packed)
    element = f.add(f.first_batch, f.mul(batch, f.d(Word.B_SHARE)))
    base = f.at(f.operands()[1], locate(f, BATCH, element, offsets)[1])
    width = f.d(Word.TILE_PANELS)
    p0 = f.mul(f.div(panel, width), width)
    dst = _shared_panel(f, batch, block, panel, p0, f.min(f.sub(f.panels, p0), width))
    first, last = block_of(f, block)
    number = f.add(f.first_panel, panel)
    f.do(f"call void @pack_panel(ptr {f.desc}, ptr {base}, ptr {dst}, i64 {number}, i64 {first}, i64 {last})")
    return f.end()


def _shared_panel(f: Task, of_b: str, block: str, panel: str, p0: str, width: str) -> str:
    """Where a block of a panel lies, packed for all: in the order in which the tile from `p0` on, `width` panels, goes."""
    first = f.mul(f.add(f.mul(of_b, f.panels), p0), f.d(Word.BLOCKS))
    slot = f.add(f.add(first, f.mul(block, width)), f.sub(panel, p0))
    return f.at(f.word("%ctx", 1, "ptr"), f.mul(slot, f.d(Word.PANEL_BYTES)))


def _tile_task(recipe: Recipe, decls: Decls, wanted: Collection[str], known: Mapping[int, str]) -> str:
    f = Task("tile_task", decls, recipe, known)
    mine = f.at(f.word("%ctx", 2, "ptr"), f.mul("%wid", f.d(Word.WORKER_BYTES)))
    sums, task, first, last = f.at(mine, f.d(Word.SUMS_OFFSET)), "%task", "0", f.d(Word.BLOCKS)
    if "add" in wanted:
        parts, blocks = f.d(Word.PARTS), f.d(Word.PART_BLOCKS)
        kept = f.at(f.word("%ctx", 1, "ptr"), f.mul("%task", f.d(Word.PART_BYTES)))
        sums = f.pick(f.equal(parts, 1), sums, kept, "ptr")
        task, first = f.div("%task", parts), f.mul(f.rem("%task", parts), blocks)
        last = f.min(f.add(first, blocks), last)
    _tiles(f, recipe, task, wanted, lambda t: _tile(f, recipe, t, _Part(mine, sums, first, last), wanted))
    return f.end()


def _add_task(recipe: Recipe, decls: Decls, wanted: Collection[str], known: Mapping[int, str]) -> str:
    """`@add_task`: add the parts of a tile's sums and hand them over."""
    decls.use("declare void @add(ptr, i64, i64)")
    f = Task("add_task", decls, recipe, known)
    parts, size = f.d(Word.PARTS), f.d(Word.PART_BYTES)
    sums = f.at(f.word("%ctx", 1, "ptr"), f.mul(f.mul("%task", parts), size))
    f.do(f"call void @add(ptr {sums}, i64 {parts}, i64 {size})")

    def tile(t: _Tile) -> None:
        def panel(p: str) -> None:
            col = f.mul(f.add(f.first_panel, p), recipe.panel_cols)
            cols = f.min(f.sub(f.d(Word.N), col), recipe.panel_cols)
            cms, cns = f.d(Word.C_MS), f.d(Word.C_NS)
            here = t.sums_of(f, recipe, sums, p)
            t.ends.take(here, recipe.panel_row_bytes, f.at(t.c, f.mul(col, cns)), cms, cns, row=t.i0, rows=t.rows, col=col, cols=cols)

        f.loop(t.p0, t.p1, 1, panel)

    _tiles(f, recipe, "%task", wanted, tile)
    return f.end()


def _tiles(f: Task, recipe: Recipe, task: str, wanted: Collection[str], each: Callable[["_Tile"], None]) -> None:
    """Go through the tiles of a task, one for each of its batch elements."""
    offsets = f.slot("[3 x i64]")
    ends = Ends(f, f.desc, wanted)
    row_tiles, tile_rows, tile_panels = f.d(Word.ROW_TILES), f.d(Word.TILE_ROWS), f.d(Word.TILE_PANELS)
    row_tile = f.rem(task, row_tiles)
    rest = f.div(task, row_tiles)
    col_tile, task_batch = (rest, "0") if f.batch == "1" else (f.rem(rest, f.col_tiles), f.div(rest, f.col_tiles))
    i0 = f.mul(row_tile, tile_rows)
    rows = f.min(f.sub(f.d(Word.M), i0), tile_rows)
    p0 = f.mul(col_tile, tile_panels)
    p1 = f.min(f.add(p0, tile_panels), f.panels)
    per_task = f.d(Word.TASK_BATCH)
    b0 = f.mul(task_batch, per_task)
    b1 = "1" if f.batch == "1" else f.min(f.add(b0, per_task), f.batch)

    def element(b: str) -> None:
        element = f.add(f.first_batch, b)
        a, bb, c = (f.at(p, offset) for p, offset in zip(f.operands(), locate(f, BATCH, element, offsets)))
        c = f.at(c, f.mul(i0, f.d(Word.C_MS)))
        ends.at(batch=element, pitch=f.div(f.d(Word.SUMS_STRIDE), recipe.acc_bytes * recipe.parts))
        each(_Tile(b, a, bb, c, i0, rows, p0, p1, ends))

    f.loop(b0, b1, 1, element)


@record
class _Tile:
    """One tile of one batch element: operands, C at its first row, its rows and panels."""

    batch: str
    a: str
    b: str
    c: str
    i0: str
    rows: str
    p0: str
    p1: str
    ends: Ends

    def sums_of(self, f: Task, recipe: Recipe, sums: str, panel: str) -> str:
        """Return where the sums of a panel lie among those of the tile."""
        return f.at(sums, f.mul(f.mul(f.sub(panel, self.p0), f.d(Word.SUMS_ROWS)), recipe.panel_row_bytes))


@record
class _Part:
    """What of k a task goes through, blocks [first, last), and where it packs and keeps its sums."""

    mine: str
    sums: str
    first: str
    last: str


def _tile(f: Task, recipe: Recipe, t: _Tile, part: _Part, wanted: Collection[str]) -> None:
    panel_buffer = f.at(part.mine, f.d(Word.PANEL_OFFSET))
    whole_sum = f.equal(f.d(Word.PARTS), 1) if "add" in wanted else "true"
    ms = f.d(Word.A_MS)
    direct, in_runs = f.some(f.d(Word.A_DIRECT)), f.equal(f.d(Word.A_DIRECT), IN_RUNS) if _in_runs(wanted) else "false"
    packs_a, packs_b = _packs(wanted, "a"), _packs(wanted, "b")
    as_ = f.pick(f.equal(f.d(Word.A_DIRECT), 1), ms, f.d(Word.A_ROW_BYTES)) if packs_a or in_runs != "false" else ms
    steps = f.at(part.mine, f.mul(f.add(f.d(Word.TILE_ROWS), SPARE_ROWS), 8))
    f.when(in_runs, lambda: _list_rows(f, t, part.mine))
    walk = as_ if in_runs == "false" else f.pick(in_runs, f.let(f"ptrtoint ptr {steps} to i64"), as_)
    b_mode, of_b, i0 = f.d(Word.B_MODE), f.div(t.batch, f.d(Word.B_SHARE)), t.i0

    def block(kb: str) -> None:
        first, last = block_of(f, kb)
        beats = f.mul(f.sub(last, first), recipe.beats)
        is_first, is_last = f.equal(kb, part.first), f.both(whole_sum, f.equal(f.add(kb, 1), part.last))
        private = lambda p: f.at(panel_buffer, f.mul(f.sub(p, t.p0), f.d(Word.PANEL_BYTES)))

        def pack(p: str) -> None:
            packing = f"ptr {f.desc}, ptr {t.b}, ptr {private(p)}, i64 {f.add(f.first_panel, p)}, i64 {first}, i64 {last}"
            f.do(f"call void @pack_panel({packing})")

        f.when(in_runs, lambda: _list_steps(f, recipe, steps, first, last))
        offset = f.mul(first, recipe.step_bytes)
        if f.d(Word.SEGMENTS) != "1":  # a block of A that is read where it lies is in one of them
            segment = f.div(first, f.d(Word.SEGMENT_STEPS))
            inside = f.mul(f.rem(first, f.d(Word.SEGMENT_STEPS)), recipe.step_bytes)
            offset = f.add(locate(f, OUTER, segment, f.slot("[2 x i64]"))[0], inside)

        def strip(t: _Tile, sums: str) -> None:
            a = f.at(f.at(t.a, f.mul(t.i0, ms)), offset)
            if packs_a:
                packing = f"ptr {f.desc}, ptr {t.a}, ptr {part.mine}, i64 {t.i0}, i64 {f.add(t.i0, t.rows)}, i64 {first}, i64 {last}"
                f.when(direct, lambda: None, lambda: f.do(f"call void @pack_rows({packing})"))
                a = f.pick(direct, a, part.mine, "ptr")
            a = f.pick(in_runs, f.at(part.mine, f.mul(f.sub(t.i0, i0), 8)), a, "ptr")

            def panel(p: str) -> None:
                col = f.mul(f.add(f.first_panel, p), recipe.panel_cols)
                bs = f.d(Word.B_KS)
                b = f.at(t.b, f.add(f.mul(first, bs), f.mul(col, f.d(Word.B_NS))))
                if packs_b:
                    shared = _shared_panel(f, of_b, kb, p, t.p0, f.sub(t.p1, t.p0))
                    packed = f.pick(f.equal(b_mode, SHARED), shared, private(p), "ptr")
                    in_place = f.equal(b_mode, DIRECT)
                    b = f.pick(in_place, b, packed, "ptr")
                    bs = f.pick(in_place, bs, recipe.panel_row_bytes)
                _panel(f, recipe, t, _Panel(is_first, is_last, p, col, a, as_, walk, b, bs, beats, sums), wanted)

            panels = lambda: f.loop(t.p0, t.p1, 1, panel)
            rows = lambda: _along(f, recipe, t, a, as_, sums, wanted)
            if not _along_names(wanted):
                panels()
            elif not _has_kernels(wanted):
                rows()
            else:
                f.when(f.equal(b_mode, ALONG), rows, panels)

        if packs_b:
            f.when(f.equal(b_mode, PRIVATE), lambda: f.loop(t.p0, t.p1, 1, pack))
            _strips(f, recipe, t, part.sums, wanted, strip)
        else:
            strip(t, part.sums)

    f.loop(part.first, part.last, 1, block)


def _list_rows(f: Task, t: _Tile, list_: str) -> None:
    """Write the addresses of a tile's rows of A, which lie in runs."""
    ms = f.d(Word.A_MS)
    kind = "<8 x i64>"
    steps = f.let(f"mul {kind} {f.splat(ms, 'i64', 8)}, <{', '.join(f'i64 {i}' for i in range(8))}>")

    def run(done: str, offset: str, count: str) -> None:
        def some(i: str) -> None:  # (what is too much belongs to the next run, or is nobody's)
            first = f.let(f"ptrtoint ptr {f.at(t.a, f.add(offset, f.mul(i, ms)))} to i64")
            f.store("i64", 8, f.let(f"add {kind} {f.splat(first, 'i64', 8)}, {steps}"), f.at(list_, f.mul(f.add(done, i), 8)))

        f.loop(0, count, 8, some)

    runs(f, t.i0, f.add(t.i0, t.rows), Word.ROW_RUN, ROWS, ms, run)


def _list_steps(f: Task, recipe: Recipe, list_: str, first: str, last: str) -> None:
    """Write how steps [first, last) of A lie in its rows: see `gemm_asm_runs`."""
    per, ks, end = recipe.k_per_step, f.d(Word.A_KS), f.slot("ptr")
    put = lambda value, at: f.do(f"store i64 {value}, ptr {at}, align 8")
    put(f.mul(ks, per), list_)
    f.do(f"store ptr {f.at(list_, 8)}, ptr {end}, align 8")

    def run(_: str, offset: str, count: str) -> None:
        at = f.word(end, 0, "ptr")
        put(f.ceil_div(count, per), at)
        put(offset, f.at(at, 8))
        f.do(f"store ptr {f.at(at, 16)}, ptr {end}, align 8")

    segments(f, recipe, first, last, 0, ks, run)
    put("0", f.word(end, 0, "ptr"))


def _strips(f: Task, recipe: Recipe, t: _Tile, sums: str, wanted: Collection[str], each: Callable[[_Tile, str], None]) -> None:
    """Go through a tile by strips of rows, of which a block of A stays near while panels of B pass."""
    strip_rows, in_c = f.d(Word.STRIP_ROWS), f.some(f.d(Word.SUMS_IN_C))

    def strip(i: str) -> None:
        rows, c = f.min(f.sub(t.rows, i), strip_rows), f.at(t.c, f.mul(i, f.d(Word.C_MS)))
        kept = f.pick(in_c, 0, i) if "back" in wanted else i
        each(replace(t, i0=f.add(t.i0, i), rows=rows, c=c), f.at(sums, f.mul(kept, recipe.panel_row_bytes)))

    f.loop(0, t.rows, strip_rows, strip)


def _along(f: Task, recipe: Recipe, t: _Tile, a: str, a_stride: str, sums: str, wanted: Collection[str]) -> None:
    """A tile of all rows of C, over all of k at once; sums in scratch are copied to C if nothing else is to be done to them."""
    names = _along_names(wanted)
    for name in names:
        f.decls.use(f"declare void @{name}(ptr, i64, i64, ptr, i64, i64, i64, ptr, i64)")
    function = f"@{names[0]}" if len(names) == 1 else f.pick(f.equal(f.d(Word.M), 1), "@along_row", "@along", "ptr")
    f.decls.use("declare ptr @memcpy(ptr, ptr, i64)")
    col = f.mul(f.add(f.first_panel, t.p0), recipe.panel_cols)
    cols = f.min(f.sub(f.d(Word.N), col), f.mul(f.sub(t.p1, t.p0), recipe.panel_cols))
    cms, cns, stride = f.d(Word.C_MS), f.d(Word.C_NS), f.d(Word.SUMS_STRIDE)
    b, c = f.at(t.b, f.mul(col, f.d(Word.B_NS))), f.at(t.c, f.mul(col, cns))
    simple, in_c = f.some(f.d(Word.SIMPLE)), f.some(f.d(Word.SUMS_IN_C))
    to, size = f.pick(in_c, c, sums, "ptr"), f.mul(cols, recipe.acc_bytes)
    f.decls.use("declare ptr @memset(ptr, i32, i64)")
    f.loop(0, t.rows, 1, lambda r: f.do(f"call ptr @memset(ptr {f.at(to, f.mul(r, stride))}, i32 0, i64 {size})"))
    f.do(f"call void {function}(ptr {a}, i64 {a_stride}, i64 {t.rows}, ptr {b}, i64 {f.d(Word.B_KS)}, i64 {f.d(Word.STEPS)}, i64 {cols}, "
         f"ptr {to}, i64 {stride})")  # fmt: skip

    def copy(r: str) -> None:
        there, here = f.at(c, f.mul(r, cms)), f.at(sums, f.mul(r, stride))
        f.do(f"call ptr @memcpy(ptr {there}, ptr {here}, i64 {size})")

    end = lambda: t.ends.take(sums, stride, c, cms, cns, row=t.i0, rows=t.rows, col=col, cols=cols)
    f.when(simple, lambda: f.when(in_c, lambda: None, lambda: f.loop(0, t.rows, 1, copy)), end)


@record
class _Panel:
    """One block of k and one panel of columns, packed or in place: operands, their strides, the tile's sums."""

    is_first: str
    is_last: str  # and the tile's sums are whole with it
    panel: str
    col: str
    a: str
    a_stride: str
    a_given: str  # to the kernel: the stride, or a list
    b: str
    b_stride: str
    beats: str
    sums: str


def _panel(f: Task, recipe: Recipe, t: _Tile, p: _Panel, wanted: Collection[str]) -> None:
    lanes, row_bytes = recipe.lanes, recipe.panel_row_bytes
    cols = f.min(f.sub(f.d(Word.N), p.col), recipe.panel_cols)
    width = f.mul(cols, recipe.parts)
    if any(name.endswith("edge") for name in wanted):
        vectors = f.div(f.add(width, lanes - 1), lanes)
        last_lanes = f.sub(width, f.mul(f.sub(vectors, 1), lanes))
        whole = f.equal(width, recipe.panel_lanes)
        kind = f.pick(whole, recipe.vectors + 1, f.pick(f.less(recipe.half_lanes, width), vectors, 0))
    else:  # all panels are whole
        kind, last_lanes = str(recipe.vectors + 1), str(lanes)
    simple = f.some(f.d(Word.SIMPLE))
    sums_in_c = f.some(f.d(Word.SUMS_IN_C))
    cms, cns = f.d(Word.C_MS), f.d(Word.C_NS)
    c_panel = f.at(t.c, f.mul(p.col, cns))
    sums = t.sums_of(f, recipe, p.sums, p.panel)
    to_c = f.both(p.is_last, simple)
    to_finish = f.both(p.is_last, f.no(simple))
    # Each tile of rows fetches a slice of the next panel into the second-level cache.
    is_shared = f.equal(f.d(Word.B_MODE), SHARED)
    ahead = f.pick(is_shared, f.at(p.b, f.d(Word.PANEL_BYTES)), p.b, "ptr")
    # The first panel that a tile of rows meets asks for the next rows of A; then they are near.
    next_rows = f.pick(f.equal(p.panel, t.p0), f.mul(p.a_stride, recipe.rows), 0)
    slice_ = f.pick(is_shared, f.mul(f.div(p.beats, LINE_BEATS), 64), 0)

    pieces = _Pieces(f, recipe, t.rows, wanted)
    [only] = _kernels(wanted) if len(_kernels(wanted)) == 1 else [""]
    if only:
        f.decls.use(f"declare void @{only}()")

    in_runs = f.pick(f.equal(f.d(Word.A_DIRECT), IN_RUNS), len(ROW_COUNTS), 0) if _in_runs(wanted) and not only else "0"
    at_once = (p.is_first, to_c) == ("true", "true")    # all of the sum, into C

    def rows(_: str, i: str) -> list[str]:
        piece = pieces.at(i)
        index = f.add(f.mul(f.add(piece.kind, in_runs), len(shapes(recipe))), kind)
        kernel = f.let(f"load ptr, ptr {f.at('@kernels', f.mul(index, 8))}") if not only else f"@{only}"
        c = f.at(c_panel, f.mul(piece.first, cms))
        # What reaches back makes sums of rows before it once more, the same ones, and must not add them to those in C.
        reaches = pieces.reach_back and not at_once
        in_c = f.both(sums_in_c, f.equal(piece.first, i)) if reaches else sums_in_c
        mine = c if at_once else f.pick(in_c, c, f.at(sums, f.mul(f.pick(sums_in_c, 0, i) if reaches else i, row_bytes)), "ptr")
        kept = f.pick(in_c, cms, row_bytes)
        dst, ds = f.pick(to_c, c, mine, "ptr"), f.pick(to_c, cms, kept)
        src = f.pick(p.is_first, "null", mine, "ptr")
        a = f.at(p.a, f.mul(piece.first, p.a_stride))
        pf = f.at(ahead, f.mul(f.div(i, recipe.rows), slice_))
        place = t.ends.place(to_finish, c, cms, dst, ds)
        f.do(
            f"call void {kernel}(ptr {a}, i64 {p.a_given}, ptr {p.b}, i64 {p.b_stride}, i64 {p.beats}, ptr {src}, i64 {kept}, "
            f"ptr {dst}, i64 {ds}, i64 {last_lanes}, ptr {pf}, i64 {next_rows}{place})"
        )

        if not at_once:
            made = f.at(mine, f.mul(f.sub(i, piece.first), row_bytes)) if pieces.reach_back else mine
            place = {"row": f.add(t.i0, i), "rows": piece.new, "col": p.col, "cols": cols}
            f.when(to_finish, lambda: t.ends.take(made, row_bytes, f.at(c_panel, f.mul(i, cms)), cms, cns, **place))
        return [f.add(i, piece.new)]

    f.loop(0, pieces.count, 1, rows, [("i64", "0")])


@record
class _Piece:
    """Some rows of a tile that are made together: the first one, how many of them are new, the number of their kernels."""

    first: str
    new: str
    kind: str


class _Pieces:
    """How the rows of a tile fall in pieces of the most rows and, at the end, in smaller ones; or the last one reaches back."""

    def __init__(self, f: Task, recipe: Recipe, rows: str, wanted: Collection[str]) -> None:
        self.f, self.rows, self.most = f, rows, recipe.rows
        self.reach_back = "back" in wanted
        #: beside the most rows; without them none but the last piece can be short, and that reaches back
        self.fewer = any(name.startswith(kernel_name(r, 0, False)[:-1]) for r in ROW_COUNTS if r < self.most for name in wanted)
        self.back = f.let(f"icmp ne i64 {f.d(Word.BACK)}, 0") if self.reach_back and self.fewer else str(self.reach_back).lower()
        whole = f.ceil_div(rows, self.most) if self.reach_back or not self.fewer else ""
        self.count = whole if not self.fewer else pieces_of(f, rows, self.most)
        if self.reach_back and self.fewer:
            self.count = f.pick(self.back, whole, self.count)

    def at(self, i: str) -> _Piece:
        """The piece that begins at row `i`, or reaches back from there."""
        f, most = self.f, ROW_COUNTS.index(self.most)
        left = f.sub(self.rows, i)
        r, kind = (str(self.most), str(most)) if not self.fewer else ("1", "0")
        for number, count in enumerate(ROW_COUNTS if self.fewer else ()):
            enough = f.let(f"icmp uge i64 {left}, {count}")
            r, kind = f.pick(enough, count, r), f.pick(enough, number, kind)
        if not self.reach_back:
            return _Piece(i, r, kind)
        short = f.both(self.back, f.less(left, self.most))
        kind = f.pick(short, most, kind) if self.fewer else kind
        return _Piece(f.pick(short, f.sub(self.rows, self.most), i), f.pick(short, left, r), kind)


def _driver(recipe: Recipe, decls: Decls, symbol: str, wanted: Collection[str], known: Mapping[int, str]) -> str:
    decls.use("declare void @weft_parallel_for(ptr, ptr, i64)")
    decls.use("declare ptr @weft_scratch_take(i64)")
    decls.use("declare void @weft_scratch_give(ptr)")
    f = Described(f"void @{symbol}(ptr %desc)", decls, recipe, known)
    d = f.d
    ctx = f.slot("[8 x i64]")
    shared, workers = d(Word.SHARED_BYTES), f.mul(d(Word.WORKERS), d(Word.WORKER_BYTES))
    total = f.add(shared, workers)
    some = f.some(total)
    [scratch] = f.when_value(some, lambda: [f.let(f"call ptr @weft_scratch_take(i64 {total})")], ["null"], "ptr")

    def put(i: int, value: str, type: str = "i64") -> None:
        f.do(f"store {type} {value}, ptr {f.at(ctx, 8 * i)}")

    put(0, "%desc", "ptr")
    put(1, scratch, "ptr")
    put(2, f.at(scratch, shared), "ptr")
    panels = f.div(f.add(d(Word.N), recipe.panel_cols - 1), recipe.panel_cols)
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
            pieces = f.mul(f.mul(f.div(batch, d(Word.B_SHARE)), d(Word.BLOCKS)), here)
            if _packs(wanted, "b"):
                pack = lambda: f.do(f"call void @weft_parallel_for(ptr @pack_task, ptr {ctx}, i64 {pieces})")
                f.when(f.equal(d(Word.B_MODE), SHARED), pack)
            tasks = f.mul(f.mul(f.ceil_div(batch, d(Word.TASK_BATCH)), d(Word.ROW_TILES)), col_tiles)
            parts = d(Word.PARTS) if "add" in wanted else "1"
            f.do(f"call void @weft_parallel_for(ptr @tile_task, ptr {ctx}, i64 {f.mul(tasks, parts)})")
            if "add" in wanted:
                add = lambda: f.do(f"call void @weft_parallel_for(ptr @add_task, ptr {ctx}, i64 {tasks})")
                f.when(f.less(1, parts), add)

        f.loop(0, panels, d(Word.CHUNK_PANELS), chunk)

    f.loop(0, d(Word.BATCH), d(Word.GROUP), group)
    f.when(some, lambda: f.do(f"call void @weft_scratch_give(ptr {scratch})"))
    return f.end()
