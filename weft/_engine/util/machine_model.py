"""The machine model: everything that passes know about caches, lanes, memory and what code costs, in one record.

In:   the name of this kind of machine (`util.machine`).
Out:  `MODEL`, the `MachineModel` that all passes read; `measured()`, the same with the system's cache sizes.
Laws: no pass holds such a number itself; a test finds those that do. What passes read depends on the kind of machine, never on
      the single one: equal processors get equal kernels. The facts at the top are for people and reports, passes read the rest.

Every known machine has the same thresholds until somebody measures a better one: add it to `_KNOWN`, with the facts. Costs are in
simple vector instructions unless a comment says otherwise.
"""

from __future__ import annotations

import os
from typing import Any, cast

from weft._engine.util import machine
from weft._engine.util.record import record, replace


@record
class MachineModel:
    """One kind of machine. A comment says what a field counts, and what it decides."""

    name: str

    # ---- facts of the machine
    l1_bytes: int = 32 << 10  # data cache of a core
    l2_bytes: int = 256 << 10  # second-level cache of a core
    l3_bytes: int = 8 << 20  # last-level cache, shared by cores
    cache_ways: int = 8  # lines with the same place in the first-level cache, or in the second
    vector_bytes: int = 32  # width of a register
    vector_registers: int = 16

    # ---- memory
    cache_line: int = 64  # bytes
    buffer_alignment: int = 64  # bytes
    huge_page: int = 2 << 20  # bytes
    stream_bytes: int = 1 << 25  # results from this size on are stored past the caches
    near_stride: int = (
        4  # elements: the longest stride at which the rest of a cache line is wanted soon
    )
    spill_bytes: int = (
        1 << 17
    )  # values of one row that a later pass may read from scratch instead of computing them again

    # ---- software prefetch
    prefetch_from_bytes: int = 1 << 20  # operands of this size are in no cache near the core
    prefetch_distance: int = 1 << 13  # bytes between a window and what is prefetched for it
    prefetch_window: int = 1 << 22  # bytes: accesses farther apart are not one stream
    prefetch_gather_from_bytes: int = (
        1 << 23
    )  # operands of this size are in no cache at all: gathered rows are prefetched
    prefetch_gather_distance: int = 4096  # bytes of gathered rows
    prefetch_gather_rows: int = 16  # and at most so many rows

    # ---- tasks
    parallel_work: int = (
        1 << 19
    )  # memory traffic that is worth a second thread: some 10 µs in cached data
    task_bytes: int = (
        1 << 16
    )  # and of one task of such work: enough tasks that few threads finish together
    most_tasks: int = 256  # of one kernel
    serial_elements: int = 1 << 15  # elements that one task may process alone
    parallel_bytes: int = 1 << 17  # an update of this size is worth several tasks

    # ---- costs of computing a value again, in simple vector instructions
    index_cost: int = 6  # of an element that is gathered
    expensive: int = 12  # a value of this cost that is used twice is worth a buffer
    most_spread: int = 256  # most cost of a value that is padded between its elements and computed where it is read
    most_spread_sum: int = 512  # and of all such values that are added up
    most_concatenated: int = (
        20  # most cost of a part of a concatenated row that is computed where it is read
    )
    longest_chain: int = 48  # equations inlined into one another
    largest_code: int = 384  # cost of the code of one value with all that is inlined into it
    most_joined: int = 128  # operands that one kernel concatenates
    join_from_bytes: int = 1 << 16  # results from which many operands are copied instead,
    interleaved: int = 4  # and more than these, whose elements alternate,
    join_block_bytes: int = 8 << 10  # in blocks that stay in the first-level cache,
    join_block_rows: int = 16  # of so many rows at least,
    join_unrolled: int = 4  # which an iteration moves so many of
    most_roots: int = 12  # results of one kernel
    once_per_row_columns: int = 16  # columns from which what is computed once a row costs little

    # ---- reductions
    reduction_rows_parallel: int = 16  # rows that keep several threads busy
    reduction_short_row: int = 64  # elements of a row from which the order of rows does not matter
    reduction_strip: int = 1024  # adjacent accumulators, at most,
    reduction_narrowest_strip: int = 64  # and at least, where there would be too few strips
    reduction_strip_elements: int = 1 << 20  # of a strip of rows that is read more than once
    reduction_fewest_strips: int = 4  # strips that keep several threads busy,
    reduction_fewest_streamed: int = (
        2  # where each is read once: narrower ones are shorter streams from memory
    )
    reduction_fewest_strip_rows: int = 16  # rows that are worth accumulators in memory
    reduction_unrolled_rows: int = 8  # rows that are added at a time, if their code is short,
    reduction_unrolled_cost: int = 16  # that is, of no more than this cost
    reduction_prefetch_rows: int = (
        16  # rows between those that are added and those that are prefetched,
    )
    reduction_prefetch_width: int = 512  # elements of a strip: longer ones the hardware follows
    reduction_split_from: int = 1 << 16  # elements from which a reduction to few rows is split
    reduction_split_rows: int = 32  # rows that are enough for all threads
    reduction_split_tasks: int = 48  # strips of columns that are enough for them
    reduction_split_columns: int = 1024  # columns that one task reduces side by side
    reduction_split_parts: int = 128  # parts of a reduction to one element
    column_reduction_parts: int = 4  # parts that keep threads busy
    column_reduction_shortest: int = 64  # results of a part: fewer are better kept in registers
    variance_part: int = 1 << 16  # elements that stay in the second-level cache
    variance_from: int = 1 << 20  # elements that do not
    variance_fewest_parts: int = 32  # parts that keep all threads busy

    # ---- vector loops: unrolling by residue, splitting, collapsing
    vector_outer_iterations: int = 16  # elements of a dim that is worth being the vector dim, or of one that has a short dim inside
    unrolled_rows: int = 16  # rows that an unrolled iteration computes, each with
    unrolled_elements: int = 8  # adjacent elements at most,
    unrolled_iterations: int = 4  # if there are so many iterations
    unrolled_cost: int = 2048  # of an unrolled iteration
    unrolled_short: int = 16  # elements of short innermost dims,
    unrolled_short_cost: int = 64  # and the cost of all of them
    widest_window: int = 18  # places of a window whose iterations are unrolled
    split_from_bytes: int = (
        1 << 20
    )  # results from which guards cost more than compiling several loops
    split_places: int = 8  # where a loop is split, at most
    split_segment: int = 64  # elements of the mean segment
    collapsed_row: int = 512  # elements: a shorter row is worth collapsing with the next
    collapsed_loads: int = 32  # of code that is repeated for each segment of a row

    # ---- transposes through tiles
    tile_stream_bytes: int = (
        1 << 24
    )  # results are stored past the caches from this size on: they are written across their lines
    tile_least_side: int = 16  # elements that a side of a tiled operand has
    tile_run: int = (
        4096  # elements of an operand along which tiles follow one another; no less than 512
    )
    tile_conflict_bytes: int = (
        1 << 10
    )  # lines at a multiple of this distance compete for the same sets of a cache
    tile_rows: int = 4  # rows of tiles side by side that are stored past the caches,
    tile_rows_skewed: int = 8  # or skewed ones, if no more than
    tile_cache_bytes: int = 1 << 19  # of lines are in the sets of the cache near a core,
    tile_cache_way_bytes: int = 1 << 16  # one way of which has this size
    tile_block_rows: int = 128  # rows of a block that is transposed as a whole in the cache,
    tile_block_tiles: int = 4  # and tiles along its lines
    tile_prefetch_distance: int = 2  # tiles: the hardware loses sight of that many lines;
    tile_short_line: int = (
        1 << 9
    )  # bytes: a shorter line ends before the hardware has found its stream
    tile_transposed_lines: int = (
        16  # lines that are transposed in registers at a time, or half a tile
    )

    # ---- scans
    scan_task_bytes: int = 1 << 16  # of each operand that a task reads, at least
    scan_strip: int = 1024  # running values that a task keeps side by side, at most,
    scan_narrowest_strip: int = 64  # and at least,
    scan_few_tasks: int = 4  # even if that leaves fewer tasks than this
    scan_register_values: int = 8  # fewer running values than this are kept in registers
    scan_prefetch_rows: int = 2  # rows between those that are scanned and those that are prefetched
    scan_block: int = 1 << 14  # elements of a block, all strips together
    scan_stretch_bytes: int = (
        1 << 21
    )  # of a group of blocks; two groups stay in the last-level cache
    scan_split_from: int = 1 << 18  # elements from which a dim is divided into blocks

    # ---- scatters
    scatter_fewest_updates: int = 1 << 15  # updates that are worth private tables, or owners
    scatter_owners: int = 2  # tasks that own a part of the result each: every one reads all indices
    scatter_whole_columns: int = 64  # columns of an update, and multiples of it, are whole vectors
    scatter_block: int = 1024  # updates whose places are looked up before any is combined
    scatter_task_columns: int = 64  # columns of a scatter window that a task owns
    scatter_rows_bytes: int = 1 << 20  # of an operand all of whose rows are written once,
    scatter_fewest_updated: int = 8  # if no less than one row in so many is updated
    scatter_row_segment: int = 2048  # elements of a row that are combined at a time
    table_tasks: int = 8  # that fill private tables
    table_largest: int = 1 << 14  # elements of each, at most
    table_copies: int = (
        4  # adjacent updates go to different tables, if these are no larger together than
    )
    table_near_bytes: int = (
        20 << 10
    )  # so that the first-level cache holds them along with indices and updates
    table_unrolled: int = 8  # updates of one iteration, a multiple of `table_copies`

    # ---- matrix products, as the compiler prepares them
    tiny_product: int = (
        1024  # multiplications of a product that is cheaper as multiply and sum, in any batch
    )
    unrolled_sum: int = 7  # terms of such a sum that are written out instead of reduced,
    tiny_row_product: int = (
        36  # also if many rows take no more multiplications each, of sums no longer than its root
    )
    gemm_fewest_columns: int = 8  # columns of a result that are worth more than many rows
    gemm_split_columns: int = (
        512  # adjacent elements of each part of a sum that a matmul reads in place
    )
    gemm_narrowest_band: int = 32  # rows and columns of a product of which unused ones are left out
    hoisted_most_work: int = (
        1 << 25
    )  # multiplications of one iteration, from which a product is as fast alone
    hoisted_most_bytes: int = 1 << 26  # of stacked operands
    hoisted_few_rows: int = (
        64  # for which transposing a constant in every iteration costs as much as the product
    )
    hoisted_least_transposed: int = 1 << 14  # elements of a constant that is worth a copy,
    hoisted_least_iterations: int = 4  # and iterations

    # ---- Fourier transforms
    fft_longest: int = (
        1 << 14
    )  # the longest rows of which a vector's worth is processed fast enough
    fft_long: int = (
        1 << 10
    )  # elements of a row for each row: few long rows leave most of a vector empty
    fft_few_rows: int = 15  # rows of which each is computed as a matrix,
    fft_few_rows_length: int = 48  # and elements of a row for each of them
    fft_matrix_from: int = 1 << 8  # lengths of such rows, from
    fft_matrix_to: int = 1 << 22  # to,
    fft_convolved_to: int = 1 << 18  # and those in which others are convolved
    fft_most_lanes: int = 16  # lanes that rows of such a matrix fill

    # ---- loops that become one kernel
    outlined_names: int = 400  # values in a kernel: LLVM's time grows faster than a function
    outlined_bytes: int = 1 << 14  # that an iteration touches: longer ones take long anyway
    outlined_unrolled: int = (
        4  # iterations of a loop that is unrolled fully, elements of a buffer kept in registers,
    )
    outlined_iterations: int = 16  # if no more than so many iterations come of it,
    outlined_cost: int = 512  # and so many operations
    outlined_call_bytes: int = 1 << 27  # of memory traffic of one call

    # ---- vector loops in the code generator
    masked_loop_cost: int = (
        40  # bodies of this cost have one masked loop instead of a loop and a masked remainder
    )
    unmasked_vectors: int = 8  # registers of narrow elements that are worth a rest of single elements, where none is masked
    many_loads: int = 8  # loads of one vector each that keep memory busy without unrolling
    product_parts: int = 8  # vectors of products: fewer factors in each, so that fewer become subnormal, which is slow
    scan_steps: int = 8  # cost of a running combination across the lanes of a vector
    transpose_registers: int = 16  # registers that a transpose in registers may take
    transpose_block_bytes: int = 16  # shuffles within this many bytes are the cheapest
    widest_stride: int = 8  # loads at strides up to this are whole vectors and shuffles
    stack_scratch_bytes: int = 1 << 16  # scratch up to this size is on the thread's stack

    # ---- matrix products in the code generator
    gemm_block_steps: tuple[int, int] = (
        384,
        512,
    )  # steps of k between two visits of C; the second for many rows and wide vectors
    gemm_one_block: float = (
        9 / 8
    )  # by this factor a single block may be longer: 513 steps need not visit C twice
    gemm_strip_bytes: int = (
        200 << 10
    )  # of A that stay in the second-level cache while panels of B and sums pass through
    gemm_strip_rows: tuple[int, int] = (
        48,
        512,
    )  # rows of A in a strip: as many fit with any block, and more do not pay
    gemm_shared_bytes: int = (
        9 << 20
    )  # of B that are packed for all tasks at a time: 16 panels of 2048 steps, and what follows each
    gemm_private_bytes: int = (
        400 << 10
    )  # of B that a task packs for itself; twice that where strips of A are packed too
    gemm_sums_bytes: int = 512 << 10  # of unfinished sums that stay in the second-level cache too
    gemm_group_rows: int = 24  # a group of rows is planned for as many at least
    gemm_skinny_rows: int = 128  # up to here a large B is read once, as a stream
    gemm_along_rows: tuple[int, int] = (
        16,
        64,
    )  # B is read along its rows up to here, if it would be packed otherwise, or is in no cache
    gemm_along_bytes: int = (
        4 << 20
    )  # of A, which each task packs whole and reads once for a stretch of B
    gemm_along_sums_bytes: int = 32 << 10  # of sums that wait meanwhile in the first-level cache
    gemm_skinny_rows_of_b: tuple[int, int] = (
        16,
        64,
    )  # rows of B read together, for fewer rows of A than a kernel has and for more
    gemm_parts: int = 16  # tasks that a long sum with few results gives,
    gemm_part_blocks: int = 4  # and the blocks that are worth one
    gemm_strided_parts: tuple[int, int] = (
        4,
        192,
    )  # parts, and tasks of all, that are worth their additions where steps of A are far apart
    gemm_run_rows: int = 64  # adjacent rows of A that are a product of their own
    gemm_rows_per_repeated: int = 32  # rows for each that is computed twice
    gemm_quads: tuple[int, int] = (
        32,
        1 << 18,
    )  # rows and k that pay for packing B by fours, and elements of A that pay for compiling it
    gemm_run: int = 8  # steps of A in a run that pay for finding it
    gemm_long_run_bytes: int = 512  # of a run that is found wherever it begins
    gemm_stride_bytes: int = (
        1 << 10
    )  # between steps of A, or its power of two, up to which a block of them fits into a cache
    gemm_even_stride_bytes: int = (
        1 << 12
    )  # the same for even rows that are multiplied by half a panel of B at most
    gemm_across_bytes: int = (
        32 << 10
    )  # of a block of B in the first-level cache where steps of A are more than a line apart
    gemm_vector_rows: int = 8  # rows that are multiplied by a vector side by side
    gemm_cached_bytes: tuple[int, int] = (
        1 << 19,
        8 << 20,
    )  # of B that stay in the second-level and in the last-level cache
    gemm_in_place_bytes: int = 1 << 19  # of B that are never copied,
    gemm_in_place_rows: int = 512  # and rows of A that it is not copied for
    gemm_unrolled_beats: int = 4  # of an iteration of a kernel whose vectors are short: 4, 2 or 1
    gemm_near_rows: int = (
        256  # and for which it need not be in the first-level cache, if vectors are short
    )
    gemm_colliding_columns: int = (
        512  # of B from which rows of A are copied that compete for the same sets of a cache
    )
    gemm_wanted_run: tuple[int, int] = (
        8,
        16,
    )  # steps of the inner dim of a sum that are wanted, and that are enough
    gemm_pack_prefetch_rows: int = (
        16  # rows between those that are packed and those that are prefetched
    )
    gemm_vector_sums: int = 64  # sums of a column that are finished together
    gemm_along_streams: int = (
        8  # rows of B that are read along side by side: the hardware follows that many streams
    )
    gemm_ahead: int = (
        16 << 10
    )  # bytes, at least, between what products of few rows read and what they prefetch
    gemm_bf16_dots: bool = True  # the instruction for pairs of bfloat16 multiplies more elements per cycle than float32's
    gemm_line_beats: int = 4  # beats in which the full kernel fetches one cache line ahead

    # ---- costs of matrix products, in cycles for 64 bytes
    gemm_pack_copy: int = 2  # copying an operand into its packed form,
    gemm_pack_transpose: int = 20  # transposing it,
    gemm_pack_scalar: int = 48  # gathering it element by element,
    gemm_pack_far: int = (
        5  # and more, where it leaves the core's own caches or comes from beyond them
    )
    gemm_shared_gain: float = (
        1.01  # by this factor B packed for all must be faster: it takes memory, and shares a cache
    )
    gemm_pass: int = 2  # cycles for a tile to use what is packed for all
    gemm_task_cycles: int = 300  # of one task
    gemm_fork_cycles: int = 6000  # of starting all

    # ---- library routines
    fft_task: int = 1 << 11  # elements of a task, at least
    fft_transposed_blocks: int = 4  # blocks of sixteen rows that are transposed at a time
    sort_insertion: int = 32  # elements of a row that is sorted by insertion
    sort_long: int = 2048  # elements of a row that is counted by wide digits
    sort_wide_digit: int = 11  # bits
    sort_narrow_digit: int = 8  # bits
    copy_shortest_run: int = 64  # bytes that are worth a call
    copy_task_bytes: int = 1 << 18  # that a task copies
    copy_parallel_bytes: int = 1 << 20  # a copy of this size is divided among the threads,
    copy_chunk_bytes: int = 1 << 18  # into parts of this size
    pad_bytes: int = 1 << 15  # the results of a padding that is copied in runs, at least
    pad_run_bytes: int = 1 << 8  # and the runs
    pad_task_bytes: int = 1 << 17  # that a task writes
    lapack_most_tasks: int = 64  # of a batch
    lapack_threaded: int = (
        1 << 17
    )  # elements from which a single problem may use the library's own threads
    lapack_unrolled: int = (
        8  # rows of triangles that are factored and solved with, element by element,
    )
    lapack_unrolled_lu: int = 6  # of matrices with pivoting,
    lapack_unrolled_solve: int = 216  # and multiplications of a solve; else the library is faster
    lapack_unrolled_problems: int = 256  # and such problems that are worth a task
    lapack_tiny_trsm: int = (
        1 << 11
    )  # elements of a problem; smaller ones are solved by one thread: some routines of OpenBLAS
    lapack_tiny_potrf: int = (
        1 << 10
    )  # allocate under a lock. On problems of less than a microsecond, two threads
    lapack_tiny_getrf: int = (
        1 << 9
    )  # gain nothing, and wait for each other for milliseconds if one loses its CPU
    host_part: int = 1 << 10  # elements of a function of SciPy that are worth a thread

    # ---- thread pool
    pool_spin_hints: int = (
        3000  # hints to the processor for which a worker spins before it sleeps, some 50 µs,
    )
    pool_spin_hints_crowded: int = (
        50  # or with more threads than CPUs, where it takes time from one that works
    )

    # ---- exchanges between the processes of one machine, and moves between layouts
    exchange_spin_hints: int = (
        500  # hints for which a waiting process spins before it lets others run: a few microseconds
    )
    exchange_slot_bytes: int = (
        128 << 10
    )  # of a message: two slots of all members stay in the caches of the cores
    exchange_split_bytes: int = (
        8 << 10
    )  # an all_reduce of more bytes among more than two processes is split among them
    exchange_stream_bytes: int = 8 << 20  # results of this size are stored past the caches
    relayout_compiled_bytes: int = 1 << 20  # of an array that is worth a compiled copy,
    relayout_repeated_bytes: int = (
        1 << 26
    )  # and of one that is worth it when it is moved for the first time

    # ---- compile time, and the time between signal checks
    brief_iterations: int = 64  # of the loops of a kernel that is not worth optimizing
    outline_from: int = 4  # a function that occurs this often in one kernel is called, not repeated
    call_work: int = 4  # operations that cost little compared with one call of a function
    draft_iterations: int = (
        1 << 24
    )  # of a kernel for which a draft takes about 1 ms longer (drafts take up to 1.7 times as long)
    draft_multiply_adds: int = 1 << 26  # of a matmul for which a draft takes about 2 ms longer
    draft_sort_elements: int = (
        1 << 18
    )  # for which a draft takes about 2 ms longer (drafts take up to 3.5 times as long)
    draft_fft_elements: int = 1 << 21  # for which a draft takes about 2 ms longer
    long_call_bytes: int = (
        1 << 18
    )  # of memory traffic in which other Python threads should run: about 20 µs
    task_loop_iterations: int = (
        8  # of a loop that carries nothing: from so many on they run in parallel
    )
    task_loop_bytes: int = 1 << 26  # of memory of its own that such an iteration may need
    signal_check_bytes: int = 1 << 28  # of memory traffic after which signals are checked
    numpy_argument_bytes: int = (
        1 << 19
    )  # of an array of NumPy that is copied by one thread, as a part of the call
    queue_from_bytes: int = (
        1 << 26
    )  # of memory traffic of a program that is worth being queued, so that its caller goes on
    queue_bytes: int = (
        1 << 29
    )  # of results of queued programs that are not done: one more has to wait
    while_loop_trips: int = 64  # assumed of a loop when the work of a program is estimated
    flops_per_byte: int = 16  # multiply-adds that take as long as a byte of memory traffic


#: what differs from the defaults on the machines we know
_KNOWN: dict[str, dict[str, Any]] = {
    "zen3": {"l2_bytes": 512 << 10, "l3_bytes": 32 << 20, "gemm_pack_copy": 8, "gemm_pack_far": 16},
    "zen4": {"l2_bytes": 1 << 20, "l3_bytes": 32 << 20, "vector_bytes": 64, "vector_registers": 32},
    "zen5": {
        "l1_bytes": 48 << 10,
        "l2_bytes": 1 << 20,
        "l3_bytes": 32 << 20,
        "vector_bytes": 64,
        "vector_registers": 32,
    },
    "intel-avx512": {
        "l2_bytes": 1 << 20,
        "l3_bytes": 16 << 20,
        "vector_bytes": 64,
        "vector_registers": 32,
        "gemm_bf16_dots": False,
    },  # one in two cycles, of float32 two in one
    "avx2": {},
    "neoverse": {
        "l1_bytes": 64 << 10,
        "l2_bytes": 1 << 20,
        "l3_bytes": 32 << 20,
        "vector_bytes": 16,
        "vector_registers": 32,
        "pool_spin_hints": 50_000,
    },  # its hint takes a cycle
    "generic": {"vector_bytes": 16},
}


def known(name: str) -> MachineModel:
    """The model of that name.

    >>> known("zen3").l2_bytes, known("zen3").cache_line
    (524288, 64)
    """
    if name not in _KNOWN:
        raise ValueError(f"WEFT_MACHINE_MODEL: {name!r} is not one of {', '.join(_KNOWN)}.")
    return MachineModel(name, **_KNOWN[name])


_current: MachineModel | None = None


def machine_model() -> MachineModel:
    """The model of this machine."""
    global _current
    if _current is None:
        _current = known(machine.name())
    return _current


class _AtHand:
    """The model of this machine, determined on first use."""

    def __getattr__(self, name: str) -> Any:
        model = machine_model()
        self.__dict__.update({field: getattr(model, field) for field in MachineModel.__slots__})  # pyright: ignore[reportAttributeAccessIssue]
        return getattr(model, name)


#: what passes read
MODEL: MachineModel = cast(MachineModel, _AtHand())


def measured() -> MachineModel:
    """The model of this machine with the cache sizes that its system reports, where it does."""
    folder, found = "/sys/devices/system/cpu/cpu0/cache", {}
    try:
        for index in os.listdir(folder):
            level, kind, size = [
                _line(f"{folder}/{index}/{fact}") for fact in ("level", "type", "size")
            ]
            if kind in ("Data", "Unified") and level in "123" and size.endswith("K"):
                found[f"l{level}_bytes"] = int(size[:-1]) << 10
    except OSError:
        pass
    return replace(machine_model(), **found)


def _line(path: str) -> str:
    with open(path) as file:
        return file.read().strip()
