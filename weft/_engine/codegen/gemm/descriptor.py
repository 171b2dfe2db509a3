"""The words of a matmul descriptor, and the names of packings.

`gemm.describe` writes a descriptor, and the native driver reads it. A descriptor is an array of
i64. The first four words are pointers that the caller fills in (`POINTERS`); strides are in bytes.
After the fixed words come lists, whose positions are in the words `*_AT`: the batch dims as
(extent, a, b, c), the outer k dims as (extent, a, b), the outer dims of the rows of A and of the
columns of B as (extent, stride), and space for the pointers of an epilogue, which the caller fills
in, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft._engine.codegen.ir.gemm_types import GemmTypes


class Word:
    """Index of each fixed word. (An enumeration would take longer to define than a plan.)"""

    A = 0
    B = 1
    C = 2
    EPILOGUE = 3
    M = 4
    N = 5
    K = 6  # number of elements along k in one segment
    SEGMENTS = 7  # product of the extents of the outer k dims
    A_MS = 8
    A_KS = 9
    B_KS = 10
    B_NS = 11
    C_MS = 12
    C_NS = 13
    ROW_RUN = 14  # number of consecutive rows of A with one stride
    COL_RUN = 15  # number of consecutive columns of B with one stride
    SIMPLE = 16  # 1 if kernels may write C themselves: dense rows of accumulators, no epilogue
    A_DIRECT = 17  # 0 if A is packed, 1 if evenly spaced rows are read in place, else IN_RUNS
    B_MODE = 18  # SHARED, DIRECT, PRIVATE or ALONG
    B_SHARE = 19  # number of consecutive batch elements with the same B
    BLOCK_STEPS = 20
    STEPS = 21  # in all segments
    BLOCKS = 22  # at least 1, so that an empty sum writes zeros
    SEGMENT_STEPS = 23
    TILE_ROWS = 24
    ROW_TILES = 25
    TILE_PANELS = 26
    CHUNK_PANELS = 27
    BATCH = 28
    GROUP = 29  # batch elements per task
    TASK_BATCH = 30  # batch elements per task
    A_ROW_BYTES = 31
    PANEL_BYTES = 32
    SHARED_BYTES = 33
    WORKER_BYTES = 34
    SUMS_OFFSET = 35
    PANEL_OFFSET = 36
    WORKERS = 37
    SWAPPED = 38  # 1 if A and B are exchanged; all other words refer to the exchanged operands
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
    # number of parts of the sum that separate tasks compute and that are added afterwards
    PARTS = 49
    PART_BLOCKS = 50
    PART_BYTES = 51  # bytes of the sums of one task
    STRIP_ROWS = 52  # rows of a tile that are multiplied by all panels of a block together
    SUMS_IN_C = 53  # 1 if C holds unfinished sums
    REPEATS_ROWS = 54  # 1 if a full kernel computes the last rows of a tile with some previous rows
    SUMS_ROWS = 55  # rows of sums per panel in a tile's scratch memory
    EPILOGUE_STREAMS = 56  # arguments to prefetch: a byte for each stream, position + 1, or 0
    SUMS_STRIDE = 57  # bytes between the rows of sums
    BAND_FROM = 58  # C is read where BAND_FROM + n <= m + BAND_ZERO <= BAND_TO + n
    BAND_TO = 59
    ANY_ROWS = 60  # 1 if the rows belong to a group and M is set at run time
    LISTS = 61


#: indices of the pointers that the caller stores: A, B, C and the epilogue's function (null if
#: there is none)
POINTERS = (Word.A, Word.B, Word.C, Word.EPILOGUE)

#: added to row numbers so that differences of rows and columns are not negative
BAND_ZERO = 1 << 40

#: the value of A_DIRECT if the rows or steps of A are in runs and kernels find them through lists
IN_RUNS = 2

#: B is packed once for all tasks; read in place; packed by each task for its tile; read in place
#: along its rows
SHARED, DIRECT, PRIVATE, ALONG = range(4)


def packing_feature(types: GemmTypes, operand: str, words: Sequence[int]) -> str:
    """Return the name of the feature that packs "a" or "b" of the matmul described by `words`."""
    along, across = (Word.A_KS, Word.A_MS) if operand == "a" else (Word.B_NS, Word.B_KS)
    if words[along] == types.in_bytes:
        return f"pack_{operand}_copy"
    squares = has_squares(types, operand) and words[across] == types.in_bytes
    return f"pack_{operand}_transpose" if squares else f"pack_{operand}_scalar"


def packings(types: GemmTypes, operand: str) -> list[str]:
    """Return the names of all features that pack operand "a" or "b"."""
    names = ["copy", "transpose", "scalar"] if has_squares(types, operand) else ["copy", "scalar"]
    return [f"pack_{operand}_{name}" for name in names]


def has_squares(types: GemmTypes, operand: str) -> bool:
    """True if an operand can be transposed in registers."""
    return types.step_bytes <= 8 if operand == "a" else not types.is_complex and not types.quads
