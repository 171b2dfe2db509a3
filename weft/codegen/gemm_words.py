"""The words of a matmul description: what `gemm.describe` writes and the native driver reads.

A description is an array of i64. The first four are pointers that the caller fills in (`POINTERS`); strides are in
bytes. After the fixed words come the batch dims, (extent, a, b, c) each, then the outer k dims, (extent, a, b) each.
"""

from __future__ import annotations

from enum import IntEnum


class Word(IntEnum):
    """Index of each fixed word."""

    A = 0
    B = 1
    C = 2
    BIAS = 3
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
    BIAS_MS = 14
    BIAS_NS = 15
    ACCUMULATE = 16
    SIMPLE = 17  # kernels may write C themselves: dense rows of accumulators, no bias
    A_DIRECT = 18  # A is read where it lies
    B_MODE = 19  # SHARED, DIRECT or PRIVATE
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
    BATCH_DIMS = 38
    OUTER_DIMS = 39
    SWAPPED = 40  # the pointers A and B change places: all other words speak of the exchanged operands
    DIMS = 41


#: index of the pointers that the caller stores: A, B, C, bias (null when there is none)
POINTERS = (Word.A, Word.B, Word.C, Word.BIAS)

SHARED, DIRECT, PRIVATE = range(3)  # B packed once for all tasks; read where it lies; packed by each task for itself
