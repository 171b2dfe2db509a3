"""Functions for use in kernels: grid indices, conditions, loops, scratch memory.

In:   a kernel that is being traced.
Out:  values and references of its program.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft._engine.api.callbacks import debug_callback
from weft._engine.api.placement.device_put import device_put
from weft._engine.api.refs import freeze, new_ref
from weft._engine.control.cond import cond
from weft._engine.control.hijax_types import ValueRef
from weft._engine.control.loops import fori_loop
from weft._engine.control.ref import Ref, TransformedRef
from weft._engine.core.trace import Tracer, typeof
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.families import full
from weft._engine.pallas.specs import MemoryRef, scratch_type
from weft._engine.util import dtypes, tree
from weft._engine.util.config import config
from weft._engine.util.errors import describe
from weft._engine.util.refusals import refusal
from weft._engine.util.source import api_boundary, user_frame, wraps

#: the module that exports these functions
_PUBLIC_MODULE = "weft.experimental.pallas"


class _Grids(threading.local):
    """The grids of the kernels that are being traced.

    They have indices, sizes, and the content of uninitialized memory.
    """

    def __init__(self) -> None:
        self.stack: list[tuple[Sequence[Any], Sequence[Any], str]] = []


_grids = _Grids()


@contextlib.contextmanager
def in_grid(indices: Sequence[Any], sizes: Sequence[Any], blank: str) -> Iterator[None]:
    """Context manager: a kernel is traced in its body."""
    _grids.stack.append((indices, sizes, blank))
    try:
        yield
    finally:
        _grids.stack.pop()


def _of_grid(api: str, axis: int, part: int) -> Any:
    if not _grids.stack:
        raise ValueError(
            describe(
                api,
                "there is no grid here.",
                (),
                user_frame(),
                "It can be called only in a kernel that pallas_call runs.",
            )
        )
    grid_part = _grids.stack[-1][part]
    if not 0 <= axis < len(grid_part):
        raise ValueError(
            describe(
                api,
                f"axis {axis} is not an axis of the grid, which has {len(grid_part)}.",
                (),
                user_frame(),
            )
        )
    return grid_part[axis]


@api_boundary
def program_id(axis: int) -> Any:
    """Return the index of the iteration along a grid axis, an int32 scalar.

    Raises ValueError outside a kernel.

    >>> from weft.experimental import pallas as pl
    >>> def kernel(o_ref): o_ref[...] = wnp.full((2,), pl.program_id(0))
    >>> pl.pallas_call(kernel, weft.ShapeDtypeStruct((4,), "int32"), grid=2, out_specs=pl.BlockSpec((2,), lambda i: i))().tolist()
    [0, 0, 1, 1]
    """
    return _of_grid("program_id", axis, 0)


@api_boundary
def num_programs(axis: int) -> Any:
    """Return the size of a grid axis. Raises ValueError outside a kernel.

    >>> from weft.experimental import pallas as pl
    >>> def kernel(o_ref): o_ref[...] = pl.num_programs(0)
    >>> pl.pallas_call(kernel, weft.ShapeDtypeStruct((), "int32"), grid=3)().item()
    3
    """
    return _of_grid("num_programs", axis, 1)


def blank_value(aval: ShapedArray, blank: str = "nan") -> Any:
    """Return the content of uninitialized memory: NaN, the least integer, False; or zeros."""
    fill: Any = 0
    if blank == "nan" and aval.dtype != np.bool_:
        fill = (
            int(dtypes.iinfo(aval.dtype).min)
            if dtypes.issubdtype(aval.dtype, np.integer)
            else np.nan
        )
    return full(aval.shape, fill, aval.dtype)


# ---- conditions and loops


@api_boundary
def when(condition: Any, /) -> Callable[[Callable[[], None]], None]:
    """Return a decorator that calls a function if the condition holds.

    The function reads and writes references.

    >>> from weft.experimental import pallas as pl
    >>> total = weft.new_ref(0)
    >>> @pl.when(total[...] == 0)
    ... def _(): total[...] = 5
    >>> total
    Ref(5, dtype=int32)
    """

    def decorate(fun: Callable[[], None]) -> None:
        if isinstance(condition, (bool, np.bool_)):
            if condition:
                fun()
        else:
            cond(condition, lambda: (fun(), None)[1], lambda: None)

    return decorate


@api_boundary
def loop(
    lower: Any,
    upper: Any,
    *,
    init_carry: Any = None,
    step: Any = 1,
    unroll: int | bool | None = None,
) -> Callable[[Callable], Any]:
    """Return a decorator that calls a function with lower, lower + step, ... below `upper`.

    It also passes the carry if `init_carry` is given.

    >>> from weft.experimental import pallas as pl
    >>> pl.loop(0, 5, init_carry=32)(lambda i, total: total + i).item()
    42
    """
    known = not any(isinstance(x, Tracer) for x in (lower, upper, step))
    if known:
        lower, upper, step = int(lower), int(upper), int(step)
    else:
        dtype = dtypes.result_type(
            *[x if isinstance(x, (int, float)) else typeof(x).dtype for x in (lower, upper, step)]
        )
        lower, upper, step = (wnp.asarray(x, dtype) for x in (lower, upper, step))
    count = cdiv(upper - lower, step)

    def decorate(body: Callable) -> Any:
        if init_carry is None:
            return fori_loop(
                0 if known else wnp.zeros_like(count),
                count,
                lambda i, _: (body(lower + i * step), None)[1],
                None,
                unroll=unroll,
            )
        return fori_loop(
            0 if known else wnp.zeros_like(count),
            count,
            lambda i, carry: body(lower + i * step, carry),
            init_carry,
            unroll=unroll,
        )

    return decorate


# ---- memory


def new_memory(what: Any, blank: str = "nan") -> Ref:
    """Return a reference to new memory of a type."""
    aval, semaphore = scratch_type(what)
    return Ref.make(blank_value(aval, "zero" if semaphore else blank))


@api_boundary
def run_scoped(
    f: Callable[..., Any], *types: Any, collective_axes: Any = (), **kw_types: Any
) -> Any:
    """Call `f` with references to new private memory of these types, and return its result.

    Raises NotImplementedError for `collective_axes`: there is one core.

    >>> from weft.experimental import pallas as pl
    >>> from weft.experimental.pallas import tpu as pltpu
    >>> def f(ref):
    ...     ref[...] = wnp.ones(2)
    ...     return ref[...].sum()
    >>> pl.run_scoped(f, pltpu.VMEM((2,), wnp.float32)).item()
    2.0
    """
    if collective_axes:
        raise NotImplementedError(
            "run_scoped: collective_axes is not supported. A kernel runs on one core, so no memory is shared between cores."
        )
    blank = _grids.stack[-1][2] if _grids.stack else "nan"
    refs = [tree.tree_map(lambda t: new_memory(t, blank), t, is_leaf=_is_type) for t in types]
    named = {
        name: tree.tree_map(lambda t: new_memory(t, blank), t, is_leaf=_is_type)
        for name, t in kw_types.items()
    }
    return f(*refs, **named)


def run_state(f: Callable[[Any], None]) -> Callable[[Any], Any]:
    """Return a function of a tree of arrays that calls `f` with references to their values.

    It returns the final values.

    The arrays themselves do not change. It works outside kernels too, and is differentiable if `f`
    is.

    >>> from weft.experimental import pallas as pl
    >>> def add(refs):
    ...     x, total = refs
    ...     total[...] = total[...] + x[...]
    >>> [v.tolist() for v in pl.run_state(add)((wnp.ones(2), wnp.arange(2.0)))]
    [[1.0, 1.0], [1.0, 2.0]]
    """

    @api_boundary
    def run(init_val: Any) -> Any:
        refs = tree.tree_map(new_ref, init_val)
        f(refs)
        return tree.tree_map(freeze, refs, is_leaf=lambda x: isinstance(x, (Ref, ValueRef)))

    return wraps(f)(run)


def _is_type(x: Any) -> bool:
    return (
        isinstance(x, MemoryRef)
        or hasattr(x, "as_scratch")
        or (hasattr(x, "shape") and hasattr(x, "dtype"))
    )


def with_scoped(
    *types: Any, collective_axes: Any = (), **kw_types: Any
) -> Callable[[Callable], Callable]:
    """Return a decorator that appends references to new memory to the arguments.

    The memory has these types; others are passed by name.

    >>> from weft.experimental import pallas as pl
    >>> from weft.experimental.pallas import tpu as pltpu
    >>> @pl.with_scoped(pltpu.SMEM((), wnp.int32))
    ... def f(x, ref):
    ...     ref[...] = x
    ...     return ref[...] + 1
    >>> f(wnp.int32(1)).item()
    2
    """

    def decorate(f: Callable) -> Callable:
        def run(*args: Any, **kwargs: Any) -> Any:
            return run_scoped(
                lambda *refs, **named: f(*args, *refs, **kwargs, **named),
                *types,
                collective_axes=collective_axes,
                **kw_types,
            )

        return run

    return decorate


def empty(shape: Sequence[int], dtype: Any, *, out_sharding: Any = None) -> Any:
    """Return an uninitialized array: NaN, or the least integer.

    >>> weft.experimental.pallas.empty((2,), "int8").tolist()
    [-128, -128]
    """
    blank = wnp.asarray(
        blank_value(ShapedArray((shape,) if isinstance(shape, int) else tuple(shape), dtype))
    )
    return blank if out_sharding is None else device_put(blank, out_sharding)


def empty_like(x: Any) -> Any:
    """Return a tree of uninitialized arrays with the shapes and dtypes of a tree.

    >>> weft.experimental.pallas.empty_like([wnp.zeros(2)])[0].shape
    (2,)
    """
    return tree.tree_map(lambda leaf: empty(leaf.shape, leaf.dtype), x)


def empty_ref_like(x: Any) -> Ref:
    """Return a reference to new memory for an array or a type.

    Raises ValueError for other arguments.

    >>> weft.experimental.pallas.empty_ref_like(weft.ShapeDtypeStruct((2,), "int8")).shape
    (2,)
    """
    if not _is_type(x):
        raise ValueError(f"empty_ref_like: expected a type with a shape and a dtype, got {x!r}.")
    return new_memory(x)


def get_global(what: Any) -> Any:
    """Raise NotImplementedError: memory shared by all kernels of a program is not supported."""
    raise refusal(_PUBLIC_MODULE, "get_global")


def select_ref(idx: Any, *refs: Any) -> Any:
    """Return reference number `idx`, which must be known while tracing.

    Raises ValueError for fewer than two references.

    Raises NotImplementedError for a traced number: use `when` instead.
    """
    if len(refs) < 2:
        raise ValueError("select_ref: at least two refs are required.")
    if isinstance(idx, Tracer) and idx.concrete() is None:
        raise NotImplementedError(
            "select_ref: the index must not be traced. Write `@pl.when(idx == i)` for each reference."
        )
    return refs[int(idx)]


# ---- numbers


def cdiv(a: Any, b: Any) -> Any:
    """Return `a / b`, rounded up.

    >>> weft.experimental.pallas.cdiv(7, 3)
    3
    """
    if isinstance(a, int) and isinstance(b, int):
        return -(-a // b)
    return wnp.floor_divide(a + (b - 1), b)


def align_to(a: Any, alignment: Any) -> Any:
    """Return the least multiple of `alignment` that is at least `a`.

    >>> weft.experimental.pallas.align_to(7, 4)
    8
    """
    return cdiv(a, alignment) * alignment


def next_power_of_2(x: int) -> int:
    """Return the least power of two that is at least `x`. Raises ValueError for a negative number.

    >>> weft.experimental.pallas.next_power_of_2(5)
    8
    """
    if x < 0:
        raise ValueError(f"next_power_of_2: the number must not be negative, got {x}.")
    return 1 if x == 0 else 1 << (x - 1).bit_length()


def strides_from_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of a dense row-major array.

    >>> weft.experimental.pallas.strides_from_shape((2, 3, 4))
    (12, 4, 1)
    """
    strides, n = [], 1
    for size in reversed(shape):
        strides.append(n)
        n *= size
    return tuple(reversed(strides))


def multiple_of(x: Any, values: Sequence[int] | int) -> Any:
    """Return `x`, which the user asserts to be a multiple of `values`; the assertion has no effect.

    >>> weft.experimental.pallas.multiple_of(wnp.int32(8), 4).item()
    8
    """
    return x


def broadcast_to(a: Any, shape: tuple[int, ...]) -> Any:
    """Return `a` broadcast to the given shape.

    >>> weft.experimental.pallas.broadcast_to(wnp.zeros(()), (2,)).shape
    (2,)
    """
    return wnp.broadcast_to(a, shape)


def reciprocal(x: Any, *, approx: bool = False, full_range: bool = True) -> Any:
    """Return `1 / x`, correctly rounded even if approximations are allowed.

    >>> weft.experimental.pallas.reciprocal(wnp.float32(4)).item()
    0.25
    """
    return wnp.reciprocal(x)


def dot(
    a: Any,
    b: Any,
    trans_a: bool = False,
    trans_b: bool = False,
    allow_tf32: bool | None = None,
    precision: Any = None,
) -> Any:
    """Return the product of two matrices, each optionally transposed.

    It is accumulated in float32 (int32 for integers). Raises ValueError for other ranks.

    >>> weft.experimental.pallas.triton.dot(wnp.ones((2, 3)), wnp.ones((2, 3)), trans_b=True).tolist()
    [[3.0, 3.0], [3.0, 3.0]]
    """
    if typeof(a).ndim != 2 or typeof(b).ndim != 2:
        raise ValueError(
            f"dot: `a` and `b` must be 2D arrays, got {typeof(a).str_short()} and {typeof(b).str_short()}."
        )
    if allow_tf32 is not None and precision is not None:
        raise ValueError("dot: give either allow_tf32 or precision, not both.")
    sums = (
        wnp.int32
        if wnp.issubdtype(typeof(a).dtype, wnp.integer)
        else wnp.promote_types(typeof(a).dtype, wnp.float32)
    )
    return wnp.dot(
        a.T if trans_a else a,
        b.T if trans_b else b,
        precision=precision,
        preferred_element_type=sums,
    )


# ---- debugging


def debug_print(fmt: str, *args: Any) -> None:
    """Print values while the kernel runs, in iteration order.

    A format without braces is followed by the values.

    >>> weft.experimental.pallas.debug_print("x = {}", wnp.int32(2))
    x = 2
    """
    if args and "{" not in fmt:
        fmt += " {}" * len(args)
    debug_callback(
        lambda *xs: print(fmt.format(*xs)),
        *[x[...] if isinstance(x, (Ref, TransformedRef)) else x for x in args],
        ordered=True,
    )


def delay(nanos: Any) -> None:
    """Do nothing: a delay has no effect on values, and no other device depends on time."""
    typeof(nanos)


def debug_check(condition: Any, message: str) -> None:
    """Call `weft.experimental.checkify.check` if `enable_debug_checks` is on.

    >>> from weft.experimental import pallas as pl
    >>> with pl.enable_debug_checks(False):
    ...     pl.debug_check(False, "not checked")
    """
    if config.pallas_enable_debug_checks:
        from weft._engine.checkify import check

        check(condition, message)
