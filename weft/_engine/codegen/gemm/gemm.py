"""Matmul: native functions for `Gemm` steps, one per combination of types, generic in all sizes.

In:   a `Gemm` step.
Out:  `describe(step)`: a function's name and the i64 words of its descriptor; `features(step)`: the
      optional functions that the step needs; `ensure(name, features)`: the function's address. The
      caller copies the words to memory, stores the addresses of A, B, C and the epilogue (or null)
      at the word indices `POINTERS` (0 to 3) and the epilogue's own pointers at the end, and calls
      `void name(ptr words)`, which returns when C is complete. The words are read only.
Laws: C is rounded once, from `acc_type`; the bits do not depend on the number of threads or the
      split into tasks; operands may not overlap results.
Next: `gemm_problem` normalizes the problem, `gemm_plan` plans it, `required_functions` lists the
      code it needs. `gemm_tile` (with `gemm_panel`) and `gemm_dot` are the variants;
      `operand_addressing` computes addresses; `microkernels` names the kernels, `gemm_micro`
      compiles them (`assembler_modules` has assembly versions), `skinny_gemm` multiplies few rows of A;
      `gemm_pack` packs (`gemm_pack_pairs` for pairs of rows and columns), `gemm_epilogue` stores results.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from types import ModuleType

from weft._engine.codegen.gemm import gemm_plan, gemm_problem, gemm_tile, required_functions
from weft._engine.codegen.gemm.descriptor import POINTERS as POINTERS
from weft._engine.codegen.ir.gemm_types import GemmTypes, VectorUnit, machine
from weft._engine.codegen.runtime import pool
from weft._engine.codegen.toolchain.native_library import LibraryModule, is_on_disk, link, request
from weft._engine.codegen.toolchain.objects import ObjectRequest, is_there
from weft._engine.ir.program import Gemm
from weft._engine.util.record import record

# thresholds, measured on several machines
#: number of multiply-adds at which a draft takes about 2 ms longer
_DRAFT_MULTIPLY_ADDS = 1 << 26


@record
class _LinkedMatmul:
    address: int
    features: frozenset[str]


_linked_matmuls: dict[tuple[str, VectorUnit], _LinkedMatmul] = {}
# addresses of functions with unoptimized helpers, by symbol, machine and features
_drafts: dict[tuple[str, VectorUnit, frozenset[str]], int] = {}


def describe(step: Gemm) -> tuple[str, tuple[int, ...]]:
    """Plan one matmul: return its function's name and the descriptor's words; pointers are 0.

    >>> from weft._engine.ir.program import BufRef, Gemm
    >>> step = Gemm(4, 5, 6, BufRef(0), BufRef(1), BufRef(2), (6, 1), (5, 1), (5, 1), "f32", "f32", "f32")
    >>> describe(step)[0]
    'weft_gemm_f32_f32_f32_tile'
    """
    types = _make_types(step.in_type, step.acc_type, step.out_type, machine())
    return _describe(gemm_problem.problem_of(step, types), types)


def types_of(step: Gemm) -> GemmTypes:
    """Return the types of one matmul, in the form that its plan chose."""
    return _types_of_symbol(describe(step)[0], machine())


@functools.lru_cache(maxsize=4096)
def _describe(problem: gemm_problem.Problem, types: GemmTypes) -> tuple[str, tuple[int, ...]]:
    name, words = gemm_plan.plan(problem, types, pool.num_threads())
    return f"weft_gemm_{name}", words


def features(step: Gemm) -> frozenset[str]:
    """Return the names of the optional functions that one matmul needs.

    >>> from weft._engine.ir.program import BufRef, Gemm
    >>> step = Gemm(6, 1, 6, BufRef(0), BufRef(1), BufRef(2), (1, 6), (1, 1), (1, 1), "c64", "c64", "c64")
    >>> "pack_b_copy" in features(step)
    True
    """
    return _features(*describe(step), machine())


@functools.lru_cache(maxsize=4096)
def _features(symbol: str, words: tuple[int, ...], machine: VectorUnit) -> frozenset[str]:
    return _module_of(symbol).features(_types_of_symbol(symbol, machine), words)


@functools.lru_cache(maxsize=4096)
def _all_features(symbol: str, machine: VectorUnit) -> frozenset[str]:
    return _module_of(symbol).all_features(_types_of_symbol(symbol, machine))


def _module_of(symbol: str) -> ModuleType:
    if symbol.endswith("_tile"):
        return gemm_tile
    from weft._engine.codegen.gemm import gemm_dot  # lazy: few programs need it

    return gemm_dot


def _types_of_symbol(symbol: str, machine: VectorUnit) -> GemmTypes:
    in_type, acc_type, out_type, *form, _ = symbol.removeprefix("weft_gemm_").split("_")
    return _make_types(in_type, acc_type, out_type, machine, "quads" in form, "tiles" in form)


#: one object per combination of types, for fast comparison
_make_types = functools.cache(GemmTypes)


def parts(
    symbol: str, machine: VectorUnit, needed: frozenset[str] | None = None, draft: bool = False
) -> list[LibraryModule]:
    """Return the modules of the function `symbol` with the `needed` optional functions (None: all).

    The modules of a `draft` are not optimized.
    """
    types, module = _types_of_symbol(symbol, machine), _module_of(symbol)
    modules = module.parts(
        types, symbol, _all_features(symbol, machine) if needed is None else needed
    )
    return [part.as_draft() for part in modules] if draft else modules


def is_slow_to_make(symbol: str, needed: frozenset[str]) -> bool:
    """Return whether the needed functions require a compilation that takes long to optimize."""
    have = _features_to_compile(symbol, needed)
    return have is not None and any(
        not part.quick and not is_there(request(part)) for part in parts(symbol, machine(), have)
    )


def is_small(step: Gemm) -> bool:
    """Return whether a matmul is small enough to run as a draft."""
    extents = [step.m, step.n, step.k, *[extent for extent, *_ in (*step.batch, *step.outer_k)]]
    return math.prod(extents) <= _DRAFT_MULTIPLY_ADDS


def ensure(symbol: str, needed: frozenset[str] | None = None, draft: bool = False) -> int:
    """Return the address of a matmul function with the `needed` optional functions (None: all).

    The address stays valid.

    The first compilation includes only the needed functions, which takes half the time. The second
    one includes all, or all variants of the driver if nothing else was missing. A draft has only
    the needed functions.
    """
    key = (symbol, machine())
    have = _features_to_compile(symbol, needed, draft)
    if have is not None:  # two threads may both compile it; either result is valid
        address = link(parts(*key, have, draft), pool.symbols(), libc=("memset", "memcpy"))[symbol]
        if draft:
            _drafts[*key, have] = address
        else:
            _linked_matmuls[key] = _LinkedMatmul(address, have)
    return _drafts[*key, needed] if draft and needed is not None else _linked_matmuls[key].address


_copies: dict[tuple[str, VectorUnit, frozenset[str]], int] = {}


def link_copy(symbol: str, needed: frozenset[str], pool_functions: Mapping[str, int]) -> int:
    """Return the address of a second copy of a matmul function, which calls `pool_functions`, not the pool.

    All copies call the same functions.
    """
    key = (symbol, machine(), needed)
    if key not in _copies:
        _copies[key] = link(parts(*key), pool_functions, libc=("memset", "memcpy"))[symbol]
    return _copies[key]


def requests(
    symbol: str, needed: frozenset[str] | None = None, draft: bool = False
) -> list[ObjectRequest]:
    """Return the objects to prepare before `ensure` is called."""
    have = _features_to_compile(symbol, needed, draft)
    # The driver comes first: it takes longest to compile if kernels and packing functions are
    # assembled.
    return (
        []
        if have is None
        else [*pool.requests(), *map(request, reversed(parts(symbol, machine(), have, draft)))]
    )


def stored_object_keys(
    symbol: str, needed: frozenset[str] | None = None, draft: bool = False
) -> list[str]:
    """Return the keys of the objects of a matmul function that `ensure` has linked."""
    have = needed if draft else _linked_matmuls[symbol, machine()].features
    return [request(part).key for part in parts(symbol, machine(), have, draft)]


def _features_to_compile(
    symbol: str, needed: frozenset[str] | None, draft: bool = False
) -> frozenset[str] | None:
    """Return the optional functions to compile; None if the linked function suffices."""
    key = (symbol, machine())
    if draft and needed is not None:
        return None if (*key, needed) in _drafts else needed
    everything = _all_features(*key)
    needed = everything if needed is None else needed
    linked = _linked_matmuls.get(key)
    if linked is not None and needed <= linked.features:
        return None
    if linked is not None and all(
        required_functions.is_driver_feature(feature) for feature in needed - linked.features
    ):
        return linked.features | {
            feature for feature in everything if required_functions.is_driver_feature(feature)
        }
    return (
        everything
        if linked is not None
        or is_on_disk(_module_of(symbol).driver(_types_of_symbol(*key), symbol, everything))
        else needed
    )
