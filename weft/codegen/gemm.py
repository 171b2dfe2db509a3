"""Matmul: native functions for `Gemm` steps, generated per combination of types, generic in every size and stride.

In:   a `Gemm` step.
Out:  `describe(step)`: a function's name and the i64 words of its argument; `ensure(name)`: the function's address.
      The caller copies the words to memory, stores the addresses of A, B, C and the bias (or null) at the word indices
      `POINTERS` (0 to 3), and calls `void name(ptr words)`; it returns when C is written. The words are only read.
Laws: C is rounded once, from `acc_type`; the bits do not depend on the number of threads or on how tasks are split;
      bias elements have `out_type`; operands may overlap nothing that is written.
Next: `gemm_plan` chooses; `gemm_tile` and `gemm_dot` are the variants; `gemm_micro` has the kernels, `gemm_pack` packs.
"""

from __future__ import annotations

import functools
import platform

from weft.codegen import gemm_dot, gemm_plan, gemm_tile, pool, target
from weft.codegen._link import link
from weft.codegen.gemm_types import Machine, Recipe
from weft.codegen.gemm_words import POINTERS as POINTERS
from weft.ir.program import Gemm

_VARIANTS = {"tile": gemm_tile.module, "dot": gemm_dot.module}
_addresses: dict[tuple[str, Machine], int] = {}


def machine() -> Machine:
    """Return the vector unit that code is compiled for."""
    return _machine(target.current().features)


@functools.cache
def _machine(features: str) -> Machine:
    return Machine.of((name[1:] for name in features.split(",") if name.startswith("+")), platform.machine())


def describe(step: Gemm) -> tuple[str, tuple[int, ...]]:
    """Plan one matmul: return the name of its function and the words of its argument, pointers left 0.

    >>> from weft.ir.program import BufRef, Gemm
    >>> step = Gemm(4, 5, 6, BufRef(0), BufRef(1), BufRef(2), (6, 1), (5, 1), (5, 1), "f32", "f32", "f32")
    >>> describe(step)[0]
    'weft_gemm_f32_f32_f32_tile'
    """
    return _describe(step, machine())


@functools.lru_cache(maxsize=4096)
def _describe(step: Gemm, machine: Machine) -> tuple[str, tuple[int, ...]]:
    recipe = Recipe(step.in_type, step.acc_type, step.out_type, machine)
    variant, words = gemm_plan.plan(step, recipe, pool.num_threads())
    return f"weft_gemm_{recipe.name}_{variant}", words


def source(symbol: str, machine: Machine) -> str:
    """Return the LLVM IR of the function that `describe` named."""
    in_type, acc_type, out_type, variant = symbol.removeprefix("weft_gemm_").split("_")
    return _VARIANTS[variant](Recipe(in_type, acc_type, out_type, machine), symbol)


def ensure(symbol: str) -> int:
    """Return the address of a matmul function, compiling it on first use; it stays valid to the end."""
    key = (symbol, machine())
    address = _addresses.get(key)
    if address is None:  # two threads may both compile it; either result will do
        text = functools.partial(source, *key)
        made = link(symbol, text, (symbol,), pool.symbols(), libc=("memset", "memcpy"))
        address = _addresses.setdefault(key, made[symbol])
    return address
