"""Names of GPU kernels that are meaningful on CPUs: masked loads and stores, atomic updates, products."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft._engine.pallas.inside import dot as dot
from weft._engine.pallas.memory import (
    atomic,
    atomic_cas as atomic_cas,
    load as load,
    store as store,
)
from weft._engine.util.record import record
from weft._engine.util.refusals import refusal

__all__ = [
    "CompilerParams",
    "approx_tanh",
    "atomic_add",
    "atomic_and",
    "atomic_cas",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_xchg",
    "atomic_xor",
    "debug_barrier",
    "dot",
    "elementwise_inline_asm",
    "load",
    "max_contiguous",
    "store",
]


@record
class CompilerParams:
    """Options of the GPU compiler, without effect.

    >>> weft.experimental.pallas.triton.CompilerParams(num_warps=4).num_warps
    4
    """

    num_warps: int | None = None
    num_stages: int | None = None


atomic_add = atomic("atomic_add", "the sum", lambda old, new: old + new)
atomic_max = atomic("atomic_max", "the greater", wnp.maximum)
atomic_min = atomic("atomic_min", "the lesser", wnp.minimum)
atomic_and = atomic("atomic_and", "the bitwise and", wnp.bitwise_and)
atomic_or = atomic("atomic_or", "the bitwise or", wnp.bitwise_or)
atomic_xor = atomic("atomic_xor", "the bitwise exclusive or", wnp.bitwise_xor)
atomic_xchg = atomic("atomic_xchg", "a value", None)


def approx_tanh(x: Any) -> Any:
    """Return the hyperbolic tangent, to full accuracy. Raise TypeError for other dtypes than floats.

    >>> round(weft.experimental.pallas.triton.approx_tanh(wnp.float32(1)).item(), 4)
    0.7616
    """
    if not wnp.issubdtype(x.dtype, wnp.floating):
        raise TypeError(f"approx_tanh: does not accept {x.dtype} arrays.")
    return wnp.tanh(x)


def debug_barrier() -> None:
    """Do nothing: an iteration of the grid runs on one thread.

    >>> weft.experimental.pallas.triton.debug_barrier()
    """


def max_contiguous(x: Any, values: Any) -> Any:
    """Return `x`; the hint about contiguous elements has no effect.

    >>> weft.experimental.pallas.triton.max_contiguous(wnp.int32(3), 4).item()
    3
    """
    return x


def elementwise_inline_asm(
    asm: str, *, args: Any, constraints: str, pack: int, result_shape_dtypes: Any
) -> Any:
    """Raise NotImplementedError: inline assembly is for GPUs.

    >>> weft.experimental.pallas.triton.elementwise_inline_asm("", args=[], constraints="", pack=1, result_shape_dtypes=[])
    Traceback (most recent call last):
    NotImplementedError: weft.experimental.pallas.triton.elementwise_inline_asm: it is assembler of a GPU. Write the function with weft.numpy.
    """
    raise refusal(__name__, "elementwise_inline_asm")
