"""Which functions and branches of the generated code a matmul needs, by name.

In:   the words of a descriptor.
Out:  the names of the required functions, and what a driver may assume from those of all its matmuls.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from weft._engine.codegen.gemm import assembly
from weft._engine.codegen.gemm.descriptor import (
    ALONG,
    BAND_ZERO,
    DIRECT,
    IN_RUNS,
    PRIVATE,
    SHARED,
    Word,
    packing,
    packings,
)
from weft._engine.codegen.ir.gemm_types import Recipe
from weft._engine.codegen.ir.microkernels import kernel_name, row_counts, shapes


def all_features(recipe: Recipe) -> frozenset[str]:
    """Return the names of all functions and branches that only some matmuls need."""
    usable = [shape for shape in shapes(recipe) if shape[0] or recipe.half_lanes]
    kinds = (False, True) if assembly.finds_runs(recipe) else (False,)
    named = [
        kernel_name(r, *shape, runs)
        for runs in kinds
        for r in row_counts(recipe)
        for shape in usable
    ]
    named += [] if recipe.is_complex or recipe.quads else ["along", "along_row"]
    packs_a = [] if recipe.quads else packings(recipe, "a")
    stated = [
        f"{name}={value}" for name in _STATED for value in (*range(_LARGEST_STATED + 1), "many")
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
            *packings(recipe, "b"),
            *stated,
        ]
    )


def features(recipe: Recipe, words: Sequence[int]) -> frozenset[str]:
    """Return the names of the functions and branches that the matmul described by `words` needs.

    Tiles have a multiple of `recipe.rows` rows but for the last, so all kernels but the full ones follow from M, where that is known.
    """
    width, rest = (
        words[Word.N] * recipe.parts,
        0 if words[Word.BACK] else words[Word.M] % recipe.rows,
    )
    over = width % recipe.panel_lanes
    rows = [
        r
        for r in row_counts(recipe)
        if words[Word.ANY_ROWS] or (words[Word.M] >= r if r == recipe.rows else rest & r)
    ]
    used = [(recipe.vectors, False)] if width >= recipe.panel_lanes else []
    used += [(0 if over <= recipe.half_lanes else -(-over // recipe.lanes), True)] if over else []
    along, in_runs = words[Word.B_MODE] == ALONG, words[Word.A_DIRECT] == IN_RUNS
    found = (
        ["along" if words[Word.M] > 1 else "along_row"]
        if along
        else [kernel_name(r, *shape, in_runs) for r in rows for shape in used]
    )
    found += ["add"] if words[Word.PARTS] > 1 else []
    found += ["back"] if words[Word.BACK] else []
    found += ["band"] if (words[Word.BAND_FROM], words[Word.BAND_TO]) != (0, 2 * BAND_ZERO) else []
    found += ["blocks"] if words[Word.BLOCKS] > 1 else []
    found += ["epilogue"] if words[Word.EPILOGUE_ARGS] else [] if words[Word.SIMPLE] else ["finish"]
    found += [] if words[Word.A_DIRECT] else [packing(recipe, "a", words)]
    found += [] if words[Word.B_MODE] in (DIRECT, ALONG) else [packing(recipe, "b", words)]
    stated = {
        name: words[word] if words[word] <= _LARGEST_STATED else "many"
        for name, word in _STATED.items()
    }
    return frozenset([*found, *(f"{name}={value}" for name, value in stated.items())])


#: words of a matmul that a driver may be specialized for: each value that occurs is a feature, and one that is the only one is a constant
_STATED = {
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
_LARGEST_STATED = max(SHARED, DIRECT, PRIVATE, ALONG)  # larger ones are not distinguished


def is_driver_feature(feature: str) -> bool:
    """Whether a feature is the driver's alone."""
    return "=" in feature


def known_words(wanted: Collection[str]) -> dict[int, str]:
    """The words that are the same in all wanted matmuls."""
    seen: dict[str, list[str]] = {}
    for feature in wanted:
        name, separator, value = feature.partition("=")
        if separator:
            seen.setdefault(name, []).append(value)
    found = {
        _STATED[name]: values[0]
        for name, values in seen.items()
        if len(values) == 1 and values[0] != "many"
    }
    found |= {} if "blocks" in wanted else {Word.BLOCKS: "1"}
    return found | ({} if "add" in wanted else {Word.PARTS: "1"})


def has_runs(wanted: Collection[str]) -> bool:
    return any("_runs" in name for name in wanted)


def packs(wanted: Collection[str], operand: str) -> bool:
    return any(name.startswith(f"pack_{operand}") for name in wanted)


def ends_panels(recipe: Recipe, wanted: Collection[str]) -> bool:
    return recipe.flips and packs(wanted, "b")


def along_names(wanted: Collection[str]) -> list[str]:
    return [name for name in ("along", "along_row") if name in wanted]


def kernel_names(wanted: Collection[str]) -> list[str]:
    return [name for name in wanted if name.startswith("kernel")]
