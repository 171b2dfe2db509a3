"""The functions and branches of the generated code that a matmul needs, by name.

In:   the words of a descriptor.
Out:  the names of the required functions, and the words that a driver may assume to be constant.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from weft._engine.codegen.gemm import assembler_support
from weft._engine.codegen.gemm.descriptor import (
    ALONG,
    BAND_ZERO,
    DIRECT,
    IN_RUNS,
    PRIVATE,
    SHARED,
    Word,
    packing_feature,
    packings,
)
from weft._engine.codegen.ir.gemm_types import GemmTypes
from weft._engine.codegen.ir.microkernels import kernel_name, row_counts, shapes


def all_features(types: GemmTypes) -> frozenset[str]:
    """Return the names of all optional functions and branches."""
    usable = [
        shape for shape in shapes(types) if shape[0] or types.half_lanes or types.has_tile_registers
    ]
    kinds = (False, True) if assembler_support.has_indirect_kernels(types) else (False,)
    named = [
        kernel_name(r, *shape, runs)
        for runs in kinds
        for r in row_counts(types)
        for shape in usable
    ]
    if types.has_tile_registers:
        named.append("along")
    elif not (types.is_complex or types.quads or types.tiles):
        named += ["along", "along_row"]
    packs_a = [] if types.quads else packings(types, "a")
    stated = [
        f"{name}={value}"
        for name in _SPECIALIZED_WORDS
        for value in (*range(_LARGEST_SPECIALIZED + 1), "many")
    ]
    return frozenset(
        [
            *named,
            "add",
            "back",
            "band",
            "blocks",
            "finish",
            "epilogue",
            *packs_a,
            *packings(types, "b"),
            *stated,
        ]
    )


def features(types: GemmTypes, words: Sequence[int]) -> frozenset[str]:
    """Return the names of the functions and branches that the matmul of `words` needs."""
    has_band = (words[Word.BAND_FROM], words[Word.BAND_TO]) != (0, 2 * BAND_ZERO)
    conditions = {
        "add": words[Word.PARTS] > 1,
        "back": words[Word.REPEATS_ROWS],
        "band": has_band,
        "blocks": words[Word.BLOCKS] > 1,
        "epilogue": words[Word.EPILOGUE_ARGS],
        "finish": not words[Word.EPILOGUE_ARGS] and not words[Word.SIMPLE],
        packing_feature(types, "a", words): not words[Word.A_DIRECT],
        packing_feature(types, "b", words): words[Word.B_MODE] not in (DIRECT, ALONG),
    }
    stated = [
        f"{name}={words[word] if words[word] <= _LARGEST_SPECIALIZED else 'many'}"
        for name, word in _SPECIALIZED_WORDS.items()
    ]
    named = [name for name, is_needed in conditions.items() if is_needed]
    return frozenset([*_kernels(types, words), *named, *stated])


def _kernels(types: GemmTypes, words: Sequence[int]) -> list[str]:
    """Return the names of the kernels of a matmul.

    Tiles have a multiple of `types.rows` rows except the last one, so the smaller kernels follow
    from M if it is known.
    """
    if words[Word.B_MODE] == ALONG:
        return ["along" if words[Word.M] > 1 else "along_row"]
    if types.has_tile_registers:
        return _tile_kernels(types, words)
    m, in_runs = words[Word.M], words[Word.A_DIRECT] == IN_RUNS
    last_rows = 0 if words[Word.REPEATS_ROWS] else m % types.rows
    *smaller_counts, full = row_counts(types)
    rows = [r for r in smaller_counts if words[Word.ANY_ROWS] or r & last_rows]
    if words[Word.ANY_ROWS] or m >= full:
        rows.append(full)
    width = words[Word.N] * types.real_parts
    over = width % types.panel_lanes
    used = [(types.vectors, False)] if width >= types.panel_lanes else []
    if over:
        used.append((0 if over <= types.half_lanes else -(-over // types.lanes), True))
    return [kernel_name(r, *shape, in_runs) for r in rows for shape in used]


def _tile_kernels(types: GemmTypes, words: Sequence[int]) -> list[str]:
    """Return the names of the kernels of a matmul in tiles: for whole pairs of tiles, and for the last
    rows and columns."""
    tile_rows, _ = row_counts(types)

    def tiles_along(size: int, tile: int) -> list[int]:
        """Return the numbers of tiles, 1 or 2, that kernels need to cover `size` rows or columns."""
        last = size % (2 * tile)
        return [1] * (0 < last <= tile) + [2] * (size >= 2 * tile or last > tile)

    rows = [1, 2] if words[Word.ANY_ROWS] else tiles_along(words[Word.M], tile_rows)
    cols = tiles_along(words[Word.N], types.lanes)
    return [kernel_name(row * tile_rows, col, False) for row in rows for col in cols]


#: words that a driver may be specialized for: each value in use is a feature, and the only value in
#: use is a constant
_SPECIALIZED_WORDS = {
    "swapped": Word.SWAPPED,
    "simple": Word.SIMPLE,
    "a direct": Word.A_DIRECT,
    "b mode": Word.B_MODE,
    "in c": Word.SUMS_IN_C,
    "segments": Word.SEGMENTS,
    "batch": Word.BATCH,
    "share": Word.B_SHARE,
    "group": Word.GROUP,
    "task batch": Word.TASK_BATCH,
    "batch dims": Word.BATCH_DIMS,
    "outer dims": Word.OUTER_DIMS,
    "row dims": Word.ROW_DIMS,
    "col dims": Word.COL_DIMS,
}
_LARGEST_SPECIALIZED = max(SHARED, DIRECT, PRIVATE, ALONG)  # greater values are not distinguished


def is_driver_feature(feature: str) -> bool:
    """Return whether a feature concerns the driver only."""
    return "=" in feature


def find_constant_words(needed: Collection[str]) -> dict[int, str]:
    """Return the words that are equal in all needed matmuls, as constants."""
    values_of: dict[str, list[str]] = {}
    for feature in needed:
        name, separator, value = feature.partition("=")
        if separator:
            values_of.setdefault(name, []).append(value)
    constants = {
        _SPECIALIZED_WORDS[name]: values[0]
        for name, values in values_of.items()
        if len(values) == 1 and values[0] != "many"
    }
    constants |= {} if "blocks" in needed else {Word.BLOCKS: "1"}
    return constants | ({} if "add" in needed else {Word.PARTS: "1"})


def has_runs(needed: Collection[str]) -> bool:
    return any("_runs" in name for name in needed)


def packs(needed: Collection[str], operand: str) -> bool:
    return any(name.startswith(f"pack_{operand}") for name in needed)


def ends_panels(types: GemmTypes, needed: Collection[str]) -> bool:
    return types.flips_signs and packs(needed, "b")


def skinny_kernel_names(needed: Collection[str]) -> list[str]:
    return [name for name in ("along", "along_row") if name in needed]


def kernel_names(needed: Collection[str]) -> list[str]:
    return [name for name in needed if name.startswith("kernel")]
