"""The words of a matmul descriptor: what `gemm.describe` writes and the native driver reads; and the packing of operands.

A descriptor is an array of i64. The first four are pointers that the caller fills in (`POINTERS`); strides are in bytes. After
the fixed words come lists, whose places are in the words `*_AT`: the batch dims, (extent, a, b, c) each; the outer k dims, (extent,
a, b) each; the outer dims of the rows of A and of the columns of B, (extent, stride) each; and room for the pointers of an
epilogue, which the caller fills in too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft._engine.codegen.ir.gemm_types import Recipe


class Word:
    """Index of each fixed word. (An enumeration would take longer to define than the plan of a matmul takes.)"""

    A = 0
    B = 1
    C = 2
    EPILOGUE = 3
    M = 4
    N = 5
    K = 6  # elements of one segment along k
    SEGMENTS = 7  # product of the outer k extents
    A_MS = 8
    A_KS = 9
    B_KS = 10
    B_NS = 11
    C_MS = 12
    C_NS = 13
    ROW_RUN = 14  # rows of A that have one stride
    COL_RUN = 15  # columns of B that have one stride
    SIMPLE = 16  # kernels may write C themselves: dense rows of accumulators, no epilogue
    A_DIRECT = 17  # A is read in place: in even rows (1), or IN_RUNS
    B_MODE = 18  # SHARED, DIRECT, PRIVATE or ALONG
    B_SHARE = 19  # batch elements in a row that have the same B
    BLOCK_STEPS = 20
    STEPS = 21  # of all segments together
    BLOCKS = 22  # at least 1, so that an empty sum writes zeros
    SEGMENT_STEPS = 23
    TILE_ROWS = 24
    ROW_TILES = 25
    TILE_PANELS = 26
    CHUNK_PANELS = 27
    BATCH = 28
    GROUP = 29  # batch elements per round of packing and multiplying
    TASK_BATCH = 30  # batch elements per task
    A_ROW_BYTES = 31
    PANEL_BYTES = 32
    SHARED_BYTES = 33
    WORKER_BYTES = 34
    SUMS_OFFSET = 35
    PANEL_OFFSET = 36
    WORKERS = 37
    SWAPPED = (
        38  # the pointers A and B change places: all other words refer to the exchanged operands
    )
    BATCH_DIMS = 39
    BATCH_AT = 40
    OUTER_DIMS = 41
    OUTER_AT = 42
    ROW_DIMS = 43
    ROWS_AT = 44
    COL_DIMS = 45
    COLS_AT = 46
    EPILOGUE_ARGS = 47
    EPILOGUE_AT = 48
    PARTS = 49  # of the sum, that tasks share and that are added afterwards
    PART_BLOCKS = 50
    PART_BYTES = 51  # of one task's sums
    STRIP_ROWS = 52  # rows of a tile that are multiplied by a block's panels together
    SUMS_IN_C = 53  # unfinished sums wait in C
    BACK = 54  # the last rows of a tile are made together with some before them, so that they are as many as any
    SUMS_ROWS = 55  # of each panel that a tile keeps
    EPILOGUE_STREAMS = 56  # which of an epilogue's arguments are prefetched: a byte for each of `STREAMS`, its place + 1, or 0
    SUMS_STRIDE = 57  # bytes between its rows of sums
    BAND_FROM = 58  # of column n rows m are read where n + this <= m + BAND_ZERO <= n + the next
    BAND_TO = 59
    ANY_ROWS = 60  # rows are those of a group, and M is set at run time
    LISTS = 61


#: index of the pointers that the caller stores: A, B, C, the epilogue's function (null when there is none)
POINTERS = (Word.A, Word.B, Word.C, Word.EPILOGUE)

#: what keeps differences of rows and columns from being negative
BAND_ZERO = 1 << 40

#: rows of A are in runs, or what is summed does, and the kernels find them by lists
IN_RUNS = 2

#: B packed once for all tasks; read in place; packed by each task for its tile; read in place, along its rows
SHARED, DIRECT, PRIVATE, ALONG = range(4)


def packing(recipe: Recipe, operand: str, words: Sequence[int]) -> str:
    """Return the name of the feature that packs "a" or "b" of the matmul described by `words`."""
    along, across = (Word.A_KS, Word.A_MS) if operand == "a" else (Word.B_NS, Word.B_KS)
    if words[along] == recipe.in_bytes:
        return f"pack_{operand}_copy"
    squares = has_squares(recipe, operand) and words[across] == recipe.in_bytes
    return f"pack_{operand}_transpose" if squares else f"pack_{operand}_scalar"


def packings(recipe: Recipe, operand: str) -> list[str]:
    """Return the names of all features that pack "a" or "b"."""
    names = ["copy", "transpose", "scalar"] if has_squares(recipe, operand) else ["copy", "scalar"]
    return [f"pack_{operand}_{name}" for name in names]


def has_squares(recipe: Recipe, operand: str) -> bool:
    """True when an operand that has to be transposed may be so in registers."""
    return recipe.step_bytes <= 8 if operand == "a" else not recipe.is_complex and not recipe.quads
