"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft._engine.control.ref_index import Slice, ds, ds as dslice
from weft._engine.pallas.call import pallas_call, pallas_call_p
from weft._engine.pallas.costs import estimate_cost
from weft._engine.pallas.inside import (
    align_to, broadcast_to, cdiv, debug_check, debug_print, delay, empty, empty_like,
    empty_ref_like, get_global, loop, multiple_of, next_power_of_2, num_programs, program_id,
    reciprocal, run_scoped, run_state, select_ref, strides_from_shape, when, with_scoped,
)
from weft._engine.pallas.memory import (
    DeviceIdType, load, semaphore_read, semaphore_signal, semaphore_wait, store, swap,
)
from weft._engine.pallas.specs import (
    ANY, BlockDim, BlockSpec, Blocked, BoundedSlice, Buffered, CostEstimate, Element, GridSpec,
    HOST, MemoryRef, MemorySpace, RevisitMode, Squeezed, no_block_spec, squeezed,
)
from weft._engine.util.config import (
    pallas_enable_debug_checks as enable_debug_checks,
    pallas_poison_buffers as enable_poison_buffers,
)
from weft.experimental.pallas import ops, tpu, triton
from weft.experimental.pallas.triton import dot

__all__ = [
    "ANY", "BlockDim", "BlockSpec", "Blocked", "BoundedSlice", "Buffered", "CostEstimate",
    "DeviceIdType", "Element", "GridSpec", "HOST", "MemoryRef", "MemorySpace", "RevisitMode",
    "Slice", "Squeezed", "align_to", "broadcast_to", "cdiv", "debug_check", "debug_print", "delay",
    "dot", "ds", "dslice", "empty", "empty_like", "empty_ref_like", "enable_debug_checks",
    "enable_poison_buffers", "estimate_cost", "get_global", "load", "loop", "multiple_of",
    "next_power_of_2", "no_block_spec", "num_programs", "ops", "pallas_call", "pallas_call_p",
    "program_id", "reciprocal", "run_scoped", "run_state", "select_ref", "semaphore_read",
    "semaphore_signal", "semaphore_wait", "squeezed", "store", "strides_from_shape", "swap", "tpu",
    "triton", "when", "with_scoped",
]
