"""Names of TPU kernels that are meaningful on CPUs: memory spaces, prefetched scalars, copies, random bits.

Features without a meaning on one core with one memory raise NotImplementedError with an explanation.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft._engine.ir.types import ShapedArray
from weft._engine.pallas.memory import (
    AsyncCopy as AsyncCopy,
    async_copy as async_copy,
    load as load,
    make_async_copy as make_async_copy,
    store as store,
    sync_copy as sync_copy,
)
from weft._engine.pallas.specs import (
    SEMAPHORE_TYPE,
    GridSpec,
    MemoryRef,
    _Space,
    no_block_spec,
)
from weft._engine.util.record import record


class MemorySpace(_Space):
    """Memory spaces, which are all the same memory here. Called with a shape and a dtype, a member returns a type of scratch memory.

    >>> from weft.experimental.pallas import tpu as pltpu
    >>> pltpu.SMEM((2,), wnp.int32).dtype.name
    'int32'
    """

    ANY = "any"
    VMEM = "vmem"
    VMEM_SHARED = "vmem_shared"
    SMEM = "smem"
    CMEM = "cmem"
    HBM = "hbm"
    HOST = "host"
    SEMAPHORE = "semaphore_mem"


ANY, VMEM, VMEM_SHARED, SMEM = (
    MemorySpace.ANY,
    MemorySpace.VMEM,
    MemorySpace.VMEM_SHARED,
    MemorySpace.SMEM,
)
CMEM, HBM, HOST, SEMAPHORE = (
    MemorySpace.CMEM,
    MemorySpace.HBM,
    MemorySpace.HOST,
    MemorySpace.SEMAPHORE,
)


class SemaphoreType(enum.Enum):
    """Types of semaphores, which are counters that start at 0; called with a shape, a member returns a type of several semaphores.

    >>> from weft.experimental.pallas import tpu as pltpu
    >>> pltpu.SemaphoreType.DMA((2,)).shape
    (2,)
    """

    REGULAR = "regular"
    DMA = "dma"
    BARRIER = "barrier"

    def __call__(self, shape: Sequence[int]) -> MemoryRef:
        return MemoryRef(ShapedArray(tuple(shape), np.int32), SEMAPHORE, True)

    def as_scratch(self) -> MemoryRef:
        """Return the type of one semaphore."""
        return MemoryRef(SEMAPHORE_TYPE, SEMAPHORE, True)


class GridDimensionSemantics(enum.Enum):
    """The dependence between iterations along an axis of the grid: parallel or arbitrary."""

    PARALLEL = "parallel"
    CORE_PARALLEL = "core_parallel"
    SUBCORE_PARALLEL = "subcore_parallel"
    ARBITRARY = "arbitrary"


PARALLEL, ARBITRARY = GridDimensionSemantics.PARALLEL, GridDimensionSemantics.ARBITRARY
CORE_PARALLEL, SUBCORE_PARALLEL = (
    GridDimensionSemantics.CORE_PARALLEL,
    GridDimensionSemantics.SUBCORE_PARALLEL,
)


class SideEffectType(enum.Enum):
    """Options for dropping or repeating a kernel."""

    PURE = "pure"
    DATAFLOW_SIDE_EFFECTING = "dataflow_side_effecting"
    SIDE_EFFECTING = "side_effecting"


class PrefetchScalarGridSpec(GridSpec):
    """A grid spec whose first `num_scalar_prefetch` arguments are whole arrays that index maps read as well.

    >>> from weft.experimental import pallas as pl
    >>> from weft.experimental.pallas import tpu as pltpu
    >>> def kernel(order_ref, x_ref, o_ref): o_ref[...] = x_ref[...]
    >>> spec = pltpu.PrefetchScalarGridSpec(1, (3,), [pl.BlockSpec((1,), lambda i, order: order[i])], pl.BlockSpec((1,), lambda i, _: i))
    >>> call = pl.pallas_call(kernel, weft.ShapeDtypeStruct((3,), "float32"), grid_spec=spec)
    >>> call(wnp.array([2, 0, 1]), wnp.array([5., 6., 7.])).tolist()
    [7.0, 5.0, 6.0]
    """

    __slots__ = ("num_scalar_prefetch",)

    def __init__(
        self,
        num_scalar_prefetch: int,
        grid: Any = (),
        in_specs: Any = no_block_spec,
        out_specs: Any = no_block_spec,
        scratch_shapes: Any = (),
    ):
        super().__init__(grid, in_specs, out_specs, scratch_shapes)
        self.num_scalar_prefetch = num_scalar_prefetch


class CompilerParams:
    """Options of the TPU compiler. `dimension_semantics` states the parallel axes of the grid; the others have no effect.

    >>> from weft.experimental.pallas import tpu as pltpu
    >>> pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")).dimension_semantics
    ('parallel', 'arbitrary')
    """

    def __init__(
        self,
        dimension_semantics: Sequence[Any] | None = None,
        allow_input_fusion: Sequence[bool] | None = None,
        vmem_limit_bytes: int | None = None,
        collective_id: int | None = None,
        has_side_effects: Any = False,
        flags: Mapping[str, Any] | None = None,
        **others: Any,
    ):
        self.dimension_semantics = (
            None if dimension_semantics is None else tuple(dimension_semantics)
        )
        self.allow_input_fusion, self.vmem_limit_bytes, self.collective_id = (
            allow_input_fusion,
            vmem_limit_bytes,
            collective_id,
        )
        self.has_side_effects, self.flags = has_side_effects, flags
        self.__dict__.update(others)

    def __repr__(self) -> str:
        return f"CompilerParams(dimension_semantics={self.dimension_semantics})"


@record
class InterpretParams:
    """Options of the kernel interpreter. weft compiles kernels instead: `uninitialized_memory` is the initial content of
    scratch memory; the others have no effect.

    >>> from weft.experimental.pallas import tpu as pltpu
    >>> pltpu.InterpretParams(uninitialized_memory="zero").detect_races
    False
    """

    detect_races: bool = False
    out_of_bounds_reads: str = "raise"
    skip_floating_point_ops: bool = False
    uninitialized_memory: str = "nan"
    num_cores_or_threads: int = 1
    vector_clock_size: int | None = None
    logging_mode: Any = None
    dma_execution_mode: str = "on_wait"
    random_seed: int | None = None
    grid_point_recorder: Callable | None = None
    allow_hbm_allocation_in_run_scoped: bool = False
    buffer_bounds: str = "logical"


# ---- values


def bitcast(x: Any, ty: Any) -> Any:
    """Return the bits of `x` as another dtype; if the sizes differ, the second to last dim is split or joined.

    >>> from weft.experimental.pallas import tpu as pltpu
    >>> pltpu.bitcast(wnp.zeros((8, 4), wnp.float32), wnp.int8).shape
    (32, 4)
    """
    from weft._engine.ops.casting import bitcast_convert_type

    old, new = np.dtype(x.dtype).itemsize, np.dtype(ty).itemsize
    if old == new:
        return bitcast_convert_type(x, ty)
    if x.ndim < 2:
        raise ValueError(
            f"bitcast: between sizes of elements, an array needs two dims, got {x.ndim}."
        )
    *lead, rows, cols = x.shape
    if old > new:
        parts = bitcast_convert_type(x, ty)  # [..., rows, cols, old // new]
        return wnp.reshape(wnp.moveaxis(parts, -1, -2), (*lead, rows * (old // new), cols))
    if rows % (new // old):
        raise ValueError(
            f"bitcast: {rows} rows of {x.dtype} do not make whole elements of {np.dtype(ty).name}."
        )
    parts = x.reshape(*lead, rows // (new // old), new // old, cols)
    return bitcast_convert_type(wnp.moveaxis(parts, -2, -1), ty)


def roll(
    x: Any, shift: Any, axis: int, *, stride: int | None = None, stride_axis: int | None = None
) -> Any:
    """Return `x` rotated along a dim; with `stride`, by `stride` more for each index along `stride_axis`.

    ValueError if only one of `stride` and `stride_axis` is given.

    >>> from weft.experimental.pallas import tpu as pltpu
    >>> pltpu.roll(wnp.arange(4), 1, 0).tolist()
    [3, 0, 1, 2]
    """
    if (stride is None) != (stride_axis is None):
        raise ValueError(
            "roll: stride and stride_axis must be both specified or both not specified."
        )
    if stride is None:
        return wnp.roll(x, shift, axis)
    axis, along = axis % x.ndim, stride_axis % x.ndim  # type: ignore[operator]
    n, shape = x.shape[axis], [1] * x.ndim
    places = wnp.reshape(wnp.arange(n), [n if d == axis else 1 for d in range(x.ndim)])
    shape[along] = x.shape[along]
    shifts = shift + stride * wnp.reshape(wnp.arange(x.shape[along]), shape)
    return wnp.take_along_axis(x, wnp.broadcast_to((places - shifts) % n, x.shape), axis)


def touch(ref: Any) -> None:
    """Read a reference and discard the value.

    >>> weft.experimental.pallas.tpu.touch(weft.new_ref(1.0))
    """
    ref[...]


def with_memory_space_constraint(x: Any, memory_space: Any) -> Any:
    """Return `x`: there is one memory space.

    >>> weft.experimental.pallas.tpu.with_memory_space_constraint(wnp.ones(1), None).tolist()
    [1.0]
    """
    return x


def trace_value(label: str, value: Any) -> None:
    """Do nothing: values are not recorded in profiles; `debug_print` prints them.

    >>> weft.experimental.pallas.tpu.trace_value("x", wnp.ones(1))
    """


def is_tpu_device() -> bool:
    """Return False: programs do not run on a TPU.

    >>> weft.experimental.pallas.tpu.is_tpu_device()
    False
    """
    return False


def force_tpu_interpret_mode(
    params: InterpretParams | None = None,
) -> contextlib.AbstractContextManager[None]:
    """Return a context manager without effect: weft compiles kernels for the CPU.

    >>> with weft.experimental.pallas.tpu.force_tpu_interpret_mode(): pass
    """
    return contextlib.nullcontext()


def set_tpu_interpret_mode(params: InterpretParams | None = None) -> None:
    """Do nothing: see `force_tpu_interpret_mode`.

    >>> weft.experimental.pallas.tpu.set_tpu_interpret_mode()
    """


def reset_tpu_interpret_mode_state() -> None:
    """Do nothing: there is no interpreter state.

    >>> weft.experimental.pallas.tpu.reset_tpu_interpret_mode_state()
    """
