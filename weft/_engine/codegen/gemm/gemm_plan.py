"""The plan of a matmul: its variant, blocking, packing and split into tasks.

In:   a `Problem`, the `GemmTypes` of its types, the number of threads.
Out:  the function's name (types and variant) and the words of the descriptor (see `descriptor`);
      pointers are 0.
Laws: a plan never changes which products are summed. The choice of tasks and packing does not
      change the bits of the result: every sum runs over k in the same blocks in the same order, and
      its split into parts depends on the problem alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from weft._engine.codegen.gemm import assembler_support
from weft._engine.codegen.gemm.descriptor import (
    ALONG,
    BAND_ZERO,
    DIRECT,
    IN_RUNS,
    PRIVATE,
    SHARED,
    Word,
)
from weft._engine.codegen.gemm.gemm_problem import Problem, fold, is_dot, orient
from weft._engine.codegen.ir.gemm_types import GemmTypes
from weft._engine.codegen.ir.microkernels import SPARE_ROWS, STREAMS
from weft._engine.util.machine_model import MODEL
from weft._engine.util.record import record, replace

# thresholds, measured on several machines
#: maximum steps of k in a block, between two accesses to C; the second value for many rows and wide
#: vectors
_GEMM_BLOCK_STEPS = (384, 512)
#: factor of the maximum that a single block may reach: 513 steps need not access C twice
_GEMM_ONE_BLOCK = 9 / 8
#: bytes of A that stay in the L2 cache while panels of B and sums pass through
_GEMM_STRIP_BYTES = 200 << 10
#: minimum and maximum rows of A in a strip: the minimum fits with any block, more than the maximum
#: gain nothing
_GEMM_STRIP_ROWS = (48, 512)
#: bytes of B that are packed for all tasks at a time: 16 panels of 2048 steps, with the space after
#: each
_GEMM_SHARED_BYTES = 9 << 20
#: bytes of B that a task packs for itself; twice as many if strips of A are packed, too
_GEMM_PRIVATE_BYTES = 400 << 10
#: bytes of unfinished sums that stay in the L2 cache, too
_GEMM_SUMS_BYTES = 512 << 10
#: a large B is streamed once for up to this many rows of A
_GEMM_SKINNY_ROWS = 128
#: B is read along its rows for up to this many rows of A if it would be packed otherwise, and if it
#: is in no cache
_GEMM_ALONG_ROWS = (16, 64)
#: maximum bytes of A, which each task packs whole and reads once per stretch of B
_GEMM_ALONG_BYTES = 4 << 20
#: bytes of sums that stay in the L1 cache meanwhile
_GEMM_ALONG_SUMS_BYTES = 32 << 10
#: rows of B read together: for fewer rows of A than a kernel has, and for more
_GEMM_SKINNY_ROWS_OF_B = (16, 64)
#: number of tasks that a long sum with few results is split into
_GEMM_PARTS = 16
#: minimum number of blocks per part
_GEMM_PART_BLOCKS = 4
#: maximum number of parts, and of tasks in all, that justify the additions if steps of A are not
#: adjacent
_GEMM_STRIDED_PARTS = (4, 192)
#: minimum number of adjacent rows of A that are computed as a product of their own
_GEMM_RUN_ROWS = 64
#: rows of C for each row that may be computed twice
_GEMM_ROWS_PER_REPEATED = 32
#: minimum rows and k that justify packing B by fours, and minimum elements of A that justify
#: compiling it
_GEMM_QUADS = (32, 1 << 18)
#: minimum length of a run of A, in elements along k, that justifies address lists
_GEMM_RUN = 8
#: bytes of a run that justify address lists regardless of the overlap of rows
_GEMM_LONG_RUN_BYTES = 512
#: maximum stride between steps of A (its largest power-of-two factor) if a cache is to hold a block
#: of them
_GEMM_STRIDE_BYTES = 1 << 10
#: maximum such stride for evenly spaced rows that are multiplied by at most half a panel of B
_GEMM_EVEN_STRIDE_BYTES = 1 << 12
#: bytes of a block of B that stay in the L1 cache if steps of A are more than a cache line apart
_GEMM_ACROSS_BYTES = 32 << 10
#: rows of A that the dot-product variant multiplies together
_GEMM_VECTOR_ROWS = 8
#: bytes of B that stay in the L2 cache and in the last-level cache
_GEMM_CACHED_BYTES = (1 << 19, 8 << 20)
#: maximum bytes of B that is always read in place
_GEMM_IN_PLACE_BYTES = 1 << 19
#: B is read in place for up to this many rows of A
_GEMM_IN_PLACE_ROWS = 512
#: with short vectors, B in place need only fit in the L2 cache for up to this many rows of A
_GEMM_NEAR_ROWS = 256
#: rows of A that collide in cache sets are copied if B has at least this many columns
_GEMM_COLLIDING_COLUMNS = 512
#: estimated cycles to transpose a vector
_GEMM_PACK_TRANSPOSE = 20
#: estimated cycles to gather a vector element by element
_GEMM_PACK_SCALAR = 48
#: packing B once for all tasks must be faster by this factor: it takes memory and shares a cache
_GEMM_SHARED_GAIN = 1.01
#: estimated cycles per vector and k step for a tile to use a B that is packed for all tasks
_GEMM_PASS = 2
#: estimated cycles of overhead per task
_GEMM_TASK_CYCLES = 300
#: estimated cycles to start the tasks
_GEMM_FORK_CYCLES = 6000
#: steps of k in a block of tiles: a panel of B, 16 KiB, stays in the L1 cache
_GEMM_TILE_BLOCK_STEPS = 128
#: minimum multiply-adds of a product in tiles: an estimate, not measured
_GEMM_TILE_PRODUCTS = 1 << 15
#: minimum rows of A of a product in tiles: if B is read along its rows, and if it is packed (estimates)
_GEMM_TILE_ROWS = (2, 3)


def plan(p: Problem, types: GemmTypes, threads: int) -> tuple[str, tuple[int, ...]]:
    """Return the function's name without prefix (types and variant), and the descriptor's words."""
    p = orient(fold(p, types), types)
    types = replace(types, tiles=_suits_tiles(p, types))
    p = convert_runs_to_batch(p, types)
    if is_dot(p, types):
        return f"{types.name}_dot", _words(p, _dot_split(p, types, threads))
    types = replace(types, quads=_suits_quads(p, types))
    return f"{types.name}_tile", _words(p, _tile_split(p, types, threads))


def convert_runs_to_batch(p: Problem, types: GemmTypes) -> Problem:
    """Turn long runs of rows into batch elements with the same B.

    Runs that kernels find through lists stay rows.

    Each run is then read in place, where all rows would be copied otherwise. Problems with
    epilogues are returned unchanged, because epilogues count rows and batch elements in the
    original order.
    """
    run = p.m // math.prod(e for e, _ in p.rows)
    if (
        not p.rows
        or p.epilogue_args is not None
        or run < _GEMM_RUN_ROWS
        or _reads_a_by_lists(p, types)
    ):
        return p
    dims, step = [], p.m * p.c[0]
    for e, stride in p.rows:
        step //= e
        dims.append((e, stride, 0, step))
    batched = replace(p, m=run, rows=(), band=None, batch=(*p.batch, *dims))
    return batched if _a_direct(batched, types, _block_steps(batched, types)) else p


# -- dot products


def _dot_split(p: Problem, types: GemmTypes, threads: int) -> dict[int, int]:
    work = p.m * p.n * p.k * p.batches // types.lanes
    tasks = min(threads * 4, work // 4000, p.m * p.batches) if threads > 1 else 1
    tiles = min(_ceil(max(tasks, 1), max(p.batches, 1)), _ceil(p.m, _GEMM_VECTOR_ROWS)) or 1
    rows = max(_up(_ceil(p.m, tiles), _GEMM_VECTOR_ROWS), _GEMM_VECTOR_ROWS)
    return {Word.TILE_ROWS: rows, Word.ROW_TILES: _ceil(p.m, rows)}


# -- tiles


def _suits_tiles(p: Problem, types: GemmTypes) -> bool:
    """True if a matrix unit with tiles of several rows multiplies the operands, and pays: tiles of few
    rows or columns take as long as full ones."""
    in_tiles = replace(types, tiles=True)
    if types.in_type not in types.machine.tile_speeds or in_tiles.unit is None:
        return False
    few = p.m < _GEMM_TILE_ROWS[not _is_along(p, in_tiles)]
    is_small = p.m * p.n * p.k * p.segments < _GEMM_TILE_PRODUCTS
    return not few and not is_small and not is_dot(p, types)


def _suits_quads(p: Problem, types: GemmTypes) -> bool:
    """True if C has so few columns that quads use vectors better.

    One vector of sums would stall on latency and on loads of A.
    """
    kind = (
        types.acc == "f32"
        and types.can_read_b_in_place
        and assembler_support.has_avx512(types.machine)
    )
    few_rows, many_rows = (
        4 * p.n <= 3 * types.lanes,
        min(p.m, p.k) >= _GEMM_QUADS[0] and p.m * p.k * p.batches >= _GEMM_QUADS[1],
    )
    return (
        kind
        and few_rows
        and many_rows
        and p.grouped != "k"
        and p.k % 4 == 0
        and not p.cols
        and p.segments == 1
        and _a_direct(p, types, 1)
    )


def _tile_split(p: Problem, types: GemmTypes, threads: int) -> dict[int, int]:
    work = _SplitProblem(p, types, threads)
    split = _best_split(work)
    group, chunk = p.batches, work.panels
    if split.mode == SHARED:
        round_bytes = work.panels * work.blocks * work.panel_bytes
        fit = min(p.batches // p.b_share, _GEMM_SHARED_BYTES // max(round_bytes, 1))
        group = p.b_share * max(fit, 1)
        chunk = _chunk(work.panels, work.blocks * work.panel_bytes, split.tile_panels)
        split = replace(split, tile_panels=min(split.tile_panels, chunk))
    scratch = _scratch(work, split)
    shared_bytes = 0
    if split.mode == SHARED:
        shared_bytes = group // p.b_share * work.blocks * chunk * work.panel_bytes
    row_tiles = _ceil(p.m, split.tile_rows)
    if work.parts > 1:
        tiles = row_tiles * _ceil(work.panels, split.tile_panels)
        shared_bytes = p.batches * tiles * work.parts * scratch.sums_bytes
    private = split.tile_panels * work.panel_bytes if split.mode == PRIVATE else 0
    panel_offset = scratch.a_bytes + scratch.sums_bytes
    return {
        Word.SIMPLE: int(work.simple),
        Word.A_DIRECT: work.a_direct,
        Word.B_MODE: split.mode,
        Word.BLOCK_STEPS: work.block_steps,
        Word.STEPS: work.steps,
        Word.BLOCKS: work.all_blocks,
        Word.SEGMENT_STEPS: work.segment_steps,
        Word.TILE_ROWS: split.tile_rows,
        Word.ROW_TILES: row_tiles,
        Word.TILE_PANELS: split.tile_panels,
        Word.CHUNK_PANELS: chunk,
        Word.GROUP: max(group, 1),
        Word.TASK_BATCH: split.task_batch,
        Word.A_ROW_BYTES: work.a_row_bytes,
        Word.PANEL_BYTES: work.panel_bytes,
        Word.SHARED_BYTES: shared_bytes,
        Word.WORKER_BYTES: panel_offset + private,
        Word.SUMS_OFFSET: scratch.a_bytes,
        Word.PANEL_OFFSET: panel_offset,
        Word.WORKERS: threads,
        Word.PARTS: work.parts,
        Word.PART_BLOCKS: work.blocks,
        Word.PART_BYTES: scratch.sums_bytes,
        Word.STRIP_ROWS: scratch.strip_rows,
        Word.SUMS_IN_C: int(scratch.sums_in_c),
        Word.REPEATS_ROWS: int(scratch.recomputes_rows),
        Word.SUMS_ROWS: scratch.sums_rows,
        Word.SUMS_STRIDE: scratch.sums_stride,
    }


@record
class _TaskScratch:
    """Scratch memory of a worker: packed A, then sums, then its own panels of B."""

    strip_rows: int  # rows of a tile that are multiplied by all panels together
    a_bytes: int
    sums_bytes: int
    sums_rows: int
    sums_stride: int
    sums_in_c: bool  # True if C holds unfinished sums
    recomputes_rows: bool  # True if the last tile recomputes some previous rows


def _scratch(work: _SplitProblem, split: _TileSplit) -> _TaskScratch:
    p, types, simple = work.problem, work.types, work.simple
    strip_rows = _strip_rows(work, split) if split.mode == PRIVATE else split.tile_rows
    in_c = simple and (
        p.m == 1
        if work.along
        else split.mode == PRIVATE and work.blocks > 1 and not types.has_tile_registers
    )
    recomputes_rows = (
        work.parts == 1
        and not work.along
        and not types.has_tile_registers
        and p.grouped != "m"
        and _recomputes_previous_rows(p.m, split.tile_rows, strip_rows, types.rows)
    )
    rows, stride = split.tile_rows, types.sums_row_bytes
    row_bytes = split.tile_panels * stride
    if work.along:
        rows = 0 if in_c else p.m
        stride = row_bytes = row_bytes + types.machine.vector_bytes
    elif in_c:
        rows = types.rows if recomputes_rows else 0
    elif simple and work.blocks == 1:
        rows = 0
    a_bytes, sums_bytes = _a_bytes(work, split, strip_rows), _up(rows * row_bytes, 64)
    if work.along and types.has_tile_registers:  # the buffer of `amx.tile_skinny` follows
        columns = _up(split.tile_panels * types.panel_cols, types.cols_along_b_row)
        sums_bytes += columns * types.tile_steps * types.column_bytes
    return _TaskScratch(strip_rows, a_bytes, sums_bytes, rows, stride, in_c, recomputes_rows)


def _a_bytes(work: _SplitProblem, split: _TileSplit, strip_rows: int) -> int:
    """Return the bytes of a worker's packed A, or of its address lists."""
    if work.a_direct == IN_RUNS:
        lists = (split.tile_rows + SPARE_ROWS) * 8
        return _up(lists + (work.block_steps // work.segment_steps + 4) * 16, 64)
    if work.a_direct:
        return 0
    square = _square(work.types)  # a transposed square may begin at any row
    rows = _up(strip_rows, square) + (square if work.problem.rows else 0)
    return _up(rows * work.a_row_bytes, 64)


def _block_steps(p: Problem, types: GemmTypes) -> int:
    """Return the number of steps of k in a block."""
    segment_steps = _ceil(p.k, types.k_per_step)
    steps = segment_steps * p.segments
    limit = _GEMM_BLOCK_STEPS[types.machine.vector_bytes == 64 and p.m > _GEMM_SKINNY_ROWS]
    limit = limit * types.sums_row_bytes // types.panel_row_bytes
    if types.has_tile_registers:
        limit = _GEMM_TILE_BLOCK_STEPS
    elif _is_stream(p, types):
        limit = _GEMM_SKINNY_ROWS_OF_B[p.m >= types.rows] // types.k_per_step
    along = _is_along(p, types)
    if not along and p.a[1] > MODEL.cache_line and _reads_a_by_lists(p, types):
        limit = _GEMM_ACROSS_BYTES // types.panel_row_bytes
    if along or steps <= _GEMM_ONE_BLOCK * limit:
        limit = max(steps, 1)
    per_segment = _ceil(segment_steps, limit)
    if p.segments > 1 and segment_steps > limit // 2 and segment_steps % (8 * per_segment) == 0:
        # no block crosses segments
        return segment_steps // per_segment
    multiple = max(types.tile_steps, 8)
    return _up(_ceil(max(steps, 1), max(_ceil(steps, limit), 1)), multiple)


def _square(types: GemmTypes) -> int:
    """Return the number of rows of A that are transposed together."""
    return max(types.machine.vector_bytes // types.step_bytes, 1)


def _parts(p: Problem, types: GemmTypes, blocks: int) -> int:
    """Return the number of parts of a sum: more than 1 for a long sum and fewer results than threads need.

    If steps of A are not adjacent, all row tiles access the same cache lines of A and all of B.
    Parts then have their own segments of both, with all rows. A power of two of parts is divided
    evenly among threads.
    """
    results = max(p.m // (2 * types.rows), 1) * _ceil(p.n, types.panel_cols) * p.batches
    if not results or p.grouped:
        return 1
    parts = _GEMM_PARTS // results
    if p.a[1] != types.in_bytes:
        parts = max(parts, min(_GEMM_STRIDED_PARTS[0], _GEMM_STRIDED_PARTS[1] // results))
    most = max(min(parts, blocks // _GEMM_PART_BLOCKS), 1)
    return 1 << most.bit_length() - 1


def _recomputes_previous_rows(m: int, tile_rows: int, strip_rows: int, most: int) -> bool:
    """True if recomputing some previous rows is better than a kernel for the last rows, which would
    have to be compiled."""
    spare, last = -m % most, (m - 1) % tile_rows % strip_rows + 1
    return spare > 0 and m >= _GEMM_ROWS_PER_REPEATED * spare and last >= most


def _a_direct(p: Problem, types: GemmTypes, block: int) -> bool:
    """True if rows of A can be read in place: bits as packed, dense, no block across segments."""
    dense = p.a[1] == types.in_bytes and not p.rows and _whole_steps(p, types)
    return (
        dense
        and types.can_read_a_in_place
        and (p.segments == 1 or _ceil(p.k, types.k_per_step) % block == 0)
    )


def _whole_steps(p: Problem, types: GemmTypes) -> bool:
    """True if no step crosses the end of k."""
    return p.k % types.k_per_step == 0 and (p.grouped != "k" or types.k_per_step == 1)


def _a_collides(p: Problem, types: GemmTypes, block: int) -> bool:
    """True if rows of A collide in cache sets, so that the L2 cache cannot hold a strip while many
    panels of B pass.

    This matters with short vectors only: a strip is then in use for longer, and its rows are read
    often enough for the misses to cost time.
    """
    block_bytes = block * types.step_bytes
    strip = min(p.m, _GEMM_STRIP_BYTES // block_bytes)
    short = types.machine.vector_bytes < 64
    return (
        short
        and p.n >= _GEMM_COLLIDING_COLUMNS
        and strip > _count_cached_runs(MODEL.l2_bytes, p.a[0], block_bytes)
    )


def _count_cached_runs(cache_bytes: int, stride: int, run_bytes: int) -> int:
    """Return the number of runs, `stride` bytes apart, that a cache holds; runs one cache way apart
    share a set."""
    spacing = math.gcd(stride, _way(cache_bytes)) if stride else 0
    return cache_bytes // max(spacing, run_bytes, MODEL.cache_line)


def _way(cache_bytes: int) -> int:
    """Return the bytes of a cache way: addresses that far apart share a set.

    The rounding to a power of two allows for caches with half again as many ways.
    """
    return 1 << (cache_bytes // MODEL.cache_ways).bit_length() - 1


def _reads_a_by_lists(p: Problem, types: GemmTypes) -> bool:
    """True if kernels should read A in place through lists, because packing takes longer.

    Rows that are dense in runs qualify if they overlap, as windows do, or if their runs are long.
    For strided rows, a step of k loads one or two cache lines for six elements: that pays if few
    panels of B would use the packed A (one panel for evenly spaced rows, which pack faster), and if
    caches hold lines that far power_of_two.
    """
    if not assembler_support.has_indirect_kernels(types) or p.k < _GEMM_RUN:
        return False
    uneven, power_of_two = bool(p.rows) or p.segments > 1, math.gcd(p.a[1], 1 << 16)
    if p.a[1] == types.in_bytes and _whole_steps(p, types):
        return uneven and p.k * types.in_bytes >= min(p.a[0] // 2, _GEMM_LONG_RUN_BYTES)
    if types.joined_type:
        return False
    if uneven:
        return p.n <= 2 * types.panel_cols and power_of_two <= _GEMM_STRIDE_BYTES
    near = 2 * p.n > types.panel_cols or power_of_two <= _GEMM_EVEN_STRIDE_BYTES
    return p.a[0] == types.in_bytes and p.n <= types.panel_cols and near


def _is_stream(p: Problem, types: GemmTypes) -> bool:
    """True if the product is memory-bound: B is large, dense along n and used by few rows of A."""
    large = p.k * p.segments * p.n * types.in_bytes > _GEMM_CACHED_BYTES[p.m > 2 * types.rows]
    return (
        large and p.m <= _GEMM_SKINNY_ROWS and p.b[1] == types.in_bytes and p.n > types.panel_cols
    )


def _is_along(p: Problem, types: GemmTypes) -> bool:
    """True if B should be read along its rows: by a single row of A, or by few rows if B is large,
    and wide enough for several tasks."""
    size = p.k * p.segments * p.n * types.in_bytes
    large = size > _GEMM_CACHED_BYTES[types.can_read_b_in_place or p.m > _GEMM_ALONG_ROWS[0]]
    near = p.m * _ceil(p.k, types.k_per_step) * types.step_bytes <= _GEMM_ALONG_BYTES
    has_few_rows = p.m == 1 or (
        p.m <= _GEMM_ALONG_ROWS[1] and near and large and p.n >= 2 * types.panel_cols
    )
    dense = (
        p.b[1] == types.in_bytes and p.segments == 1 and not p.cols and p.k % types.k_per_step == 0
    )
    whole = types.machine.masks or p.n % types.cols_along_b_row == 0
    return (
        has_few_rows
        and dense
        and whole
        and (not types.tiles or _tiles_suit_few_rows(p, types))
        and not p.grouped
        and not types.is_complex
        and not types.quads
    )


def _tiles_suit_few_rows(p: Problem, types: GemmTypes) -> bool:
    """True if all rows of A fit in one tile of a register, and k in whole tiles."""
    unit = types.unit
    return (
        types.has_tile_registers
        and unit is not None
        and p.m <= unit.rows
        and p.k % (types.tile_steps * types.k_per_step) == 0
    )


def _b_direct_ok(p: Problem, types: GemmTypes) -> bool:
    dense = p.b[1] == types.in_bytes and _b_even(p) and not p.cols and types.can_read_b_in_place
    return dense and (types.machine.masks or p.n % types.lanes == 0)


def _b_even(p: Problem) -> bool:
    """True if the steps of B are evenly spaced across all segments."""
    steps = p.k
    for extent, _, stride in reversed(p.outer):
        if stride != steps * p.b[0]:
            return False
        steps *= extent
    return True


def _b_direct_pays(p: Problem, types: GemmTypes) -> bool:
    """True if reading B in place is faster: B is small, or few rows of A would use a copy."""
    if not _b_direct_ok(p, types):
        return False
    size, aligned = (
        p.k * p.segments * p.n * types.in_bytes,
        p.b[0] % types.machine.vector_bytes == 0,
    )
    if aligned and p.b[0] == p.n * types.in_bytes <= types.panel_row_bytes:
        # B is stored as if packed
        return True
    small, most_rows = _GEMM_IN_PLACE_BYTES, _GEMM_IN_PLACE_ROWS
    if not aligned:
        small, most_rows = small >> 3, most_rows >> 2
    if types.machine.vector_bytes < 64 and not _b_near(p, types):
        return p.m <= 2 * types.rows or _is_stream(p, types)
    has_few_rows = (
        p.m <= most_rows >> (size > 2 * _GEMM_CACHED_BYTES[0])
        and size <= _GEMM_CACHED_BYTES[1] >> 1
    )
    return has_few_rows or size <= small or p.m <= 2 * types.rows or _is_stream(p, types)


def _b_near(p: Problem, types: GemmTypes) -> bool:
    """True if the rows of a panel of B in place stay in the L1 cache, or in L2 for few rows of A.

    The latter is not enough if all rows share one set of the L1 cache: they would evict each other
    while one row of A is multiplied.
    """
    steps = min(_block_steps(p, types), p.k * p.segments)
    capacities = [
        _count_cached_runs(cache, p.b[0], types.panel_row_bytes)
        for cache in (MODEL.l1_bytes, MODEL.l2_bytes)
    ]
    return steps <= capacities[p.m <= _GEMM_NEAR_ROWS and p.b[0] % _way(MODEL.l1_bytes) != 0]


class _SplitProblem:
    """The facts that a split is chosen by; `k_steps` and `blocks` count one part of the sum."""

    def __init__(self, p: Problem, types: GemmTypes, threads: int) -> None:
        self.problem, self.types, self.threads = p, types, threads
        segment_steps = _ceil(p.k, types.k_per_step)
        self.segment_steps, self.steps = max(segment_steps, 1), segment_steps * p.segments
        self.block_steps = _block_steps(p, types)
        self.all_blocks = max(_ceil(self.steps, self.block_steps), 1)
        self.blocks = _ceil(self.all_blocks, _parts(p, types, self.all_blocks))
        self.parts = _ceil(self.all_blocks, self.blocks)
        part_steps = _ceil(self.steps, self.parts)
        self.k_steps = part_steps * types.k_steps_per_step
        self.along = _is_along(p, types)
        self.simple = (
            self.parts == 1
            and types.out_type == types.packed_type
            and p.c[1] == types.out_bytes
            and p.epilogue_args is None
        )
        self.a_direct = self._a_direct()
        packed_row = _up(self.block_steps * types.step_bytes, 64) + types.machine.vector_bytes
        self.a_row_bytes = {0: packed_row, 1: 0, IN_RUNS: 8}[self.a_direct]
        self.panels = max(_ceil(p.n, types.panel_cols), 1)
        self.panel_bytes = (
            (self.block_steps + types.lanes) * types.k_steps_per_step * types.panel_row_bytes
        )
        self.vectors = _ceil(p.n * types.real_parts, types.lanes)  # per row of C
        # Estimated cycles per vector.
        self.pack_a = 0 if self.a_direct else _pack_cost(p.a[1], p.a[0], types)
        self.pack_b = _pack_cost(p.b[1], p.b[0], types)
        if p.segments > 1 and p.k < 4 * types.lanes:
            self.pack_a = max(self.pack_a, _GEMM_PACK_SCALAR)
            self.pack_b = max(self.pack_b, _GEMM_PACK_SCALAR)
        # Tiles have a multiple of `unit` rows, so that transposed squares begin at cache lines.
        self.unit = types.rows
        #: vectors of products per cycle; an instruction takes about a cycle for each row of its tiles
        self.speed = types.tile_steps
        if self.pack_a == _GEMM_PACK_TRANSPOSE:
            self.unit = math.lcm(types.rows, _square(types))
        # Number of rows of A whose block fits in the L2 cache.
        row_bytes = max(_ceil(part_steps, self.blocks) * types.step_bytes, 1)
        fit = _GEMM_STRIP_BYTES // row_bytes // self.unit * self.unit
        self.fit = min(max(fit, _GEMM_STRIP_ROWS[0]), _GEMM_STRIP_ROWS[1])

    def _a_direct(self) -> int:
        """Return the kernels' access to A: packed (0), in place (1), or IN_RUNS."""
        p, types, block = self.problem, self.types, self.block_steps
        # A few rows of A, which often share cache sets, are all in use at once.
        collides = (self.along and p.m > 1) or _a_collides(p, types, block)
        if not collides and _a_direct(p, types, block):
            return 1
        return IN_RUNS if not self.along and _reads_a_by_lists(p, types) else 0


@record
class _TileSplit:
    mode: int
    tile_rows: int
    tile_panels: int
    task_batch: int = 1


def _best_split(work: _SplitProblem) -> _TileSplit:
    """Return the split with the least estimated time among a few dozen candidates."""
    return min(
        [
            _estimate_cycles(work, mode, *tile)
            for mode in _modes(work)
            for tile in _tiles(work, mode)
        ],
        key=lambda timed: timed[0],
    )[1]


def _modes(work: _SplitProblem) -> list[int]:
    """Return the candidate modes of access to B."""
    p, types = work.problem, work.types
    if _is_along(p, types):
        return [ALONG]
    if _b_direct_pays(p, types):
        return [DIRECT]
    can_share = (
        work.blocks * work.panel_bytes <= _GEMM_SHARED_BYTES
        and work.parts == 1
        and not _is_stream(p, types)
    )
    return [PRIVATE, SHARED] if can_share else [PRIVATE]


def _tiles(work: _SplitProblem, mode: int) -> Iterator[tuple[int, int]]:
    """Yield candidate tiles as (rows, panels).

    A tile that packs its own B is divided into strips of rows, so it may have many rows, which then
    share the packed B.
    """
    m, panels, threads, unit = work.problem.m, work.panels, work.threads, work.unit
    row_bytes = work.types.sums_row_bytes
    in_c = work.simple and (
        (mode == PRIVATE and not work.types.has_tile_registers) or work.blocks == 1
    )
    most_rows, most_panels = work.fit, panels
    if mode == PRIVATE:
        most_panels = min(
            panels, max((_GEMM_PRIVATE_BYTES << bool(work.pack_a)) // work.panel_bytes, 1)
        )
        most_rows = m if in_c else max(_GEMM_SUMS_BYTES // (most_panels * row_bytes), work.fit)
    if mode == ALONG:
        most_rows, most_panels = m, min(panels, _most_panels_along(work))
    if mode == SHARED:
        most_panels = min(panels, max(_GEMM_SHARED_BYTES // (work.blocks * work.panel_bytes), 1))
    min_tiles = max(_ceil(m, most_rows), 1)
    for row_tiles in sorted(
        {
            min_tiles,
            min_tiles + 1,
            min_tiles + 2,
            min_tiles + 3,
            min_tiles * 2,
            threads,
            2 * threads,
        }
    ):
        rows = max(_up(_ceil(m, row_tiles), unit), unit)
        if (
            row_tiles < min_tiles
            or (mode == ALONG and row_tiles > 1)
            or (rows < 2 * work.types.rows and row_tiles > 1)
        ):
            continue
        least_cols = _ceil(
            panels,
            most_panels
            if in_c
            else max(min(most_panels, _GEMM_SUMS_BYTES // (rows * row_bytes)), 1),
        )
        for col_tiles in range(least_cols, max(min(panels, max(4 * threads, 4)), least_cols) + 1):
            yield rows, _ceil(panels, col_tiles)


def _most_panels_along(work: _SplitProblem) -> int:
    """Return the number of panels whose sums stay in the L1 cache, or whose tiles do."""
    unit = work.types.unit
    rows = unit.rows if unit and work.types.tiles else work.problem.m
    return max(_GEMM_ALONG_SUMS_BYTES // (rows * work.types.sums_row_bytes), 1)


def _estimate_cycles(
    work: _SplitProblem, mode: int, rows: int, tile_panels: int
) -> tuple[float, _TileSplit]:
    """Return the estimated cycles of a split, and the split."""
    p, threads, panels, k_steps = work.problem, work.threads, work.panels, work.k_steps
    batches = max(p.batches, 1) * work.parts
    share = min(tile_panels / panels, 1.0) * work.vectors
    each = (
        min(rows, max(p.m, 1)) * share * k_steps / work.speed
        + rows * k_steps / work.types.lanes * work.pack_a
    )
    if mode == PRIVATE:
        far = (
            MODEL.gemm_pack_far
            if p.k * p.segments * p.n * work.types.in_bytes > _GEMM_CACHED_BYTES[0]
            else 0
        )
        each += share * k_steps * (work.pack_b + far)
    if mode == SHARED:
        each += share * k_steps * _GEMM_PASS
    tiles = _ceil(p.m, rows) * _ceil(panels, tile_panels)
    task_batch = _task_batch(each, batches * tiles, batches, threads) if work.parts == 1 else 1
    tasks = tiles * _ceil(batches, task_batch)
    each = each * task_batch + _GEMM_TASK_CYCLES
    # The last round of tasks is rarely full: a quarter of a task accounts for uneven progress.
    uneven = each / 4 + _GEMM_FORK_CYCLES if tasks > 1 and threads > 1 else 0
    time = math.ceil(tasks / threads) * each + uneven
    if mode == SHARED:
        rounds = _ceil(panels, _chunk(panels, work.blocks * work.panel_bytes, tile_panels))
        packed = math.ceil(batches / p.b_share) * work.vectors * k_steps
        time += packed * (work.pack_b + MODEL.gemm_pack_far) / threads + 2 * _GEMM_FORK_CYCLES
        time += (rounds - 1) * uneven
        time *= _GEMM_SHARED_GAIN
    return time, _TileSplit(mode, rows, tile_panels, task_batch)


def _chunk(panels: int, panel_bytes: int, tile_panels: int) -> int:
    """Return the number of panels that are packed for all tasks at a time.

    It is a number of whole tiles, in chunks of about equal size.
    """
    most = max(_GEMM_SHARED_BYTES // max(panel_bytes, 1), 1)
    if panels <= most or tile_panels >= most:
        return min(panels, most)
    tiles = _ceil(panels, tile_panels)
    return _ceil(tiles, _ceil(tiles, most // tile_panels)) * tile_panels


def _strip_rows(work: _SplitProblem, split: _TileSplit) -> int:
    """Return the number of rows of a tile that all panels multiply together, in about equal strips."""
    strips = _ceil(split.tile_rows, work.fit)
    return _up(_ceil(split.tile_rows, strips), work.unit)


def _task_batch(work_per_task: float, tasks: int, batches: int, threads: int) -> int:
    """Return the batch elements per task: enough for 20000 cycles, with four tasks per thread."""
    elements = max(int(20000 / max(work_per_task, 1)), 1)
    if threads == 1 or work_per_task * tasks < 2 * _GEMM_FORK_CYCLES:
        return batches
    return max(min(elements, batches // (4 * threads)), 1)


def _pack_cost(row_stride: int, other_stride: int, types: GemmTypes) -> int:
    if row_stride == types.in_bytes:
        return MODEL.gemm_pack_copy
    return (
        _GEMM_PACK_TRANSPOSE
        if other_stride == types.in_bytes and not types.is_complex
        else _GEMM_PACK_SCALAR
    )


def _words(p: Problem, chosen: dict[int, int]) -> tuple[int, ...]:
    words = [0] * Word.LISTS
    words[Word.M], words[Word.N], words[Word.K], words[Word.SEGMENTS] = p.m, p.n, p.k, p.segments
    words[Word.A_MS], words[Word.A_KS] = p.a
    words[Word.B_KS], words[Word.B_NS] = p.b
    words[Word.C_MS], words[Word.C_NS] = p.c
    words[Word.ROW_RUN] = max(p.m // math.prod(e for e, _ in p.rows), 1)
    words[Word.COL_RUN] = max(p.n // math.prod(e for e, _ in p.cols), 1)
    words[Word.SWAPPED], words[Word.B_SHARE], words[Word.BATCH] = (
        int(p.swapped),
        p.b_share,
        p.batches,
    )
    low, high = p.band or (-BAND_ZERO, BAND_ZERO)
    words[Word.ANY_ROWS] = int(p.grouped == "m")
    words[Word.BAND_FROM], words[Word.BAND_TO] = BAND_ZERO - high, BAND_ZERO - low
    named = p.epilogue_streams
    words[Word.EPILOGUE_STREAMS] = sum(
        [(named[i % len(named)] + 1) << 8 * i for i in range(STREAMS if named else 0)]
    )
    for word, value in chosen.items():
        words[word] = value
    lists = [
        (Word.BATCH_DIMS, Word.BATCH_AT, p.batch),
        (Word.OUTER_DIMS, Word.OUTER_AT, p.outer),
        (Word.ROW_DIMS, Word.ROWS_AT, p.rows),
        (Word.COL_DIMS, Word.COLS_AT, p.cols),
        (Word.EPILOGUE_ARGS, Word.EPILOGUE_AT, ((0,),) * (p.epilogue_args or 0)),
    ]
    for count, at, dims in lists:
        words[count], words[at] = len(dims), len(words)
        words += [x for dim in dims for x in dim]
    return tuple(words)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _up(a: int, multiple: int) -> int:
    return _ceil(a, multiple) * multiple
