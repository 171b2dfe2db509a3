"""The names and sizes of the microkernels of a matmul, which the driver needs without their texts."""

from __future__ import annotations

from collections.abc import Collection

from weft._engine.codegen.ir.gemm_types import Recipe
from weft._engine.codegen.ir.writer import Declarations

# thresholds, measured on several machines
#: rows between those that are packed and those that are prefetched
GEMM_PACK_PREFETCH_ROWS = 16
#: rows of B that are read along side by side: the hardware follows that many streams
GEMM_ALONG_STREAMS = 8
#: bytes, at least, between what products of few rows read and what they prefetch
GEMM_AHEAD = 16 << 10
#: beats in which the full kernel fetches one cache line ahead
GEMM_LINE_BEATS = 4


#: addresses of rows of A in a list after those of a tile: they are prefetched, and need not be valid
SPARE_ROWS = 16
#: arrays of an epilogue that are prefetched while the last block is multiplied: one word of a descriptor has a byte for each
STREAMS = 8


def row_counts(recipe: Recipe) -> tuple[int, ...]:
    """Return the rows of the kernels there are; the last few rows of a tile take some of the smaller ones."""
    return (1, 2, 4, recipe.rows)


def shapes(recipe: Recipe) -> list[tuple[int, bool]]:
    """Return (vectors, edge) of the kernels for one number of rows, in the order of their table; 0 is half a vector."""
    return [(0, True), *((v, True) for v in range(1, recipe.vectors + 1)), (recipe.vectors, False)]


def tiles(recipe: Recipe) -> list[tuple[int, int, bool]]:
    """Return (rows, vectors, edge) of all kernels."""
    return [(rows, *shape) for rows in row_counts(recipe) for shape in shapes(recipe)]


def kernel_name(rows: int, vectors: int, edge: bool, runs: bool = False) -> str:
    """Return the name of a kernel's function; one for `runs` finds the elements of A by lists.

    >>> kernel_name(6, 3, True)
    'kernel_6_3_edge'
    """
    return f"kernel_{rows}_{vectors}" + ("_runs" if runs else "") + ("_edge" if edge else "")


def kernel_table(recipe: Recipe, decls: Declarations, wanted: Collection[str]) -> str:
    """Return `@kernels`: the addresses of all kernels by rows and shape, null where one is not wanted; then of those for runs."""
    names = [kernel_name(*tile, runs) for runs in (False, True) for tile in tiles(recipe)]
    for name in names:
        if name in wanted:
            decls.use(f"declare void @{name}()")
    listed = ", ".join([f"ptr @{name}" if name in wanted else "ptr null" for name in names])
    return f"@kernels = internal constant [{len(names)} x ptr] [{listed}]"


def unrolled(recipe: Recipe, rows: int, vectors: int, edge: bool) -> int:
    """Beats of one iteration: a wide tile has work enough for one, and each costs its share of compiling."""
    if recipe.quads:
        return 64 // recipe.step_bytes
    if recipe.by_element:  # two elements of a row of A are one load
        return 2
    return (
        2 * GEMM_LINE_BEATS if rows == recipe.rows and vectors == 1 and edge else 1
    )  # about a cache line of every row
