"""Names and sizes of the micro-kernels of a matmul, without their text."""

from __future__ import annotations

from collections.abc import Collection

from weft._engine.codegen.ir.gemm_types import GemmTypes
from weft._engine.codegen.ir.writer import Declarations

# thresholds, measured on several machines
#: distance in rows between the row that is packed and the row that is prefetched
GEMM_PACK_PREFETCH_ROWS = 16
#: rows of B that are read in parallel; the hardware prefetcher follows that many streams
GEMM_ALONG_STREAMS = 8
#: minimum distance in bytes between the reads of a product of few rows and its prefetches
GEMM_AHEAD = 16 << 10
#: k steps of the full kernel per prefetched cache line
GEMM_LINE_K_STEPS = 4


#: spare row addresses after the addresses of a tile in a list of rows of A; they are prefetched and
#: need not be valid
SPARE_ROWS = 16
#: maximum number of epilogue arrays that are prefetched during the last block; a descriptor word
#: has one byte for each
STREAMS = 8


#: functions that set up the registers of tiles for full kernels, and release them; a task calls them
TILE_STATE_FUNCTIONS = ("configure_tiles", "release_tiles")


def row_counts(types: GemmTypes) -> tuple[int, ...]:
    """Return the row counts of the kernels; smaller kernels compute the last rows of a tile.

    With tile registers, they are maximal row counts.
    """
    return (types.rows // 2, types.rows) if types.has_tile_registers else (1, 2, 4, types.rows)


def shapes(types: GemmTypes) -> list[tuple[int, bool]]:
    """Return (vectors, edge) of the kernels for one row count, in order; 0 is half a vector.

    Kernels with tile registers compute edges, too.
    """
    if types.has_tile_registers:
        return [(v, False) for v in range(1, types.vectors + 1)]
    return [(0, True), *((v, True) for v in range(1, types.vectors + 1)), (types.vectors, False)]


def tiles(types: GemmTypes) -> list[tuple[int, int, bool]]:
    """Return (rows, vectors, edge) of all kernels."""
    return [(rows, *shape) for rows in row_counts(types) for shape in shapes(types)]


def kernel_name(rows: int, vectors: int, edge: bool, runs: bool = False) -> str:
    """Return the name of a kernel's function; a `runs` kernel finds A through lists.

    >>> kernel_name(6, 3, True)
    'kernel_6_3_edge'
    """
    return f"kernel_{rows}_{vectors}" + ("_runs" if runs else "") + ("_edge" if edge else "")


def kernel_table(types: GemmTypes, decls: Declarations, needed: Collection[str]) -> str:
    """Return `@kernels`: the kernel addresses by rows and shape, then of the `runs` kernels; null
    if not needed."""
    names = [kernel_name(*tile, runs) for runs in (False, True) for tile in tiles(types)]
    for name in names:
        if name in needed:
            decls.use(f"declare void @{name}()")
    listed = ", ".join([f"ptr @{name}" if name in needed else "ptr null" for name in names])
    return f"@kernels = internal constant [{len(names)} x ptr] [{listed}]"


def k_steps_per_iteration(types: GemmTypes, rows: int, vectors: int, edge: bool) -> int:
    """Return the k steps per iteration. A wide tile needs no unrolling, which costs compile time."""
    if types.quads:
        return 64 // types.step_bytes
    if types.multiplies_by_element:  # two elements of a row of A are one load
        return 2
    # about a cache line of every row
    return 2 * GEMM_LINE_K_STEPS if rows == types.rows and vectors == 1 and edge else 1
