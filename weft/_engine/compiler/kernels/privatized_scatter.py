"""Scatters into few elements by privatization: each private table accumulates a share of the updates; the tables are then combined.

In:   a scatter of single elements with many more updates than elements of the operand, and the strides of its updates.
Out:  two kernels: `table_kernel` with a task per table, and `combine_kernel`.
Laws: the order of the updates follows from the shapes, not from the number of threads.

Positions of a block of updates are computed in vectors; positions out of bounds map to one extra element. Each update is then a
load and a store without a branch, about one element per cycle. Successive updates of one element would depend on each other
(2.8 ns per float), so adjacent updates go to different tables if these fit into the first-level cache.
"""

from __future__ import annotations

import math

from weft._engine.compiler.fusion.classify import row_major
from weft._engine.compiler.kernels.scatters import (
    SCATTER_BLOCK,
    SCATTER_FEWEST_UPDATES,
    Scatter,
    is_contiguous,
)
from weft._engine.core.primitive import registry
from weft._engine.ir.build import type_name
from weft._engine.ir.jaxpr import Eqn
from weft._engine.ir.loops import (
    INTEGERS,
    ITEMSIZE,
    Buf,
    Expr,
    For,
    LoopKind,
    LoopsKernel,
    Stmt,
    StoreElement,
)
from weft._engine.util.machine_model import MODEL

# thresholds, measured on several machines
#: number of tasks that fill private tables
_TABLE_TASKS = 8
#: maximal number of elements of a table
_TABLE_LARGEST = 1 << 14
#: number of tables per task for adjacent updates
_TABLE_COPIES = 4
#: maximal bytes of these tables; otherwise a task has 1 table. The first-level cache also holds indices and updates
_TABLE_NEAR_BYTES = 20 << 10
#: updates of one iteration, a multiple of `_TABLE_COPIES`
_TABLE_UNROLLED = 8


_REDUCE = {"add": "reduce_sum", "mul": "reduce_prod", "min": "reduce_min", "max": "reduce_max"}


def has_tables(eqn: Eqn, update_strides: tuple[int, ...]) -> bool:
    """Return whether a scatter combines many single elements into few elements, so that private tables are faster."""
    operand, _, updates = (a.aval for a in eqn.invars)
    numbers = eqn.params["dimension_numbers"]
    is_small = (
        operand.size <= _TABLE_LARGEST
        and max(SCATTER_FEWEST_UPDATES, 8 * _TABLE_TASKS * operand.size) <= updates.size < 1 << 31
    )
    known = eqn.primitive.lower.combine in _REDUCE and type_name(operand.dtype) in INTEGERS | {
        "f32",
        "f64",
    }
    dims = [d for d, n in enumerate(updates.shape) if n > 1]
    alike = not (numbers.update_window_dims or numbers.operand_batching_dims) and is_contiguous(
        dims, update_strides, updates.shape
    )
    return is_small and known and alike


def _combine_of(eqn: Eqn) -> str:
    """Return the operation of a scatter with tables, one of `_REDUCE`."""
    return eqn.primitive.lower.combine


def _layout(eqn: Eqn) -> tuple[int, int]:
    """Return the distance between tables in elements, including the extra element for updates out of bounds, and the number of
    tables per task."""
    aval = eqn.invars[0].aval
    line = MODEL.cache_line // ITEMSIZE[type_name(aval.dtype)]
    table_stride = (aval.size // line + 1) * line
    return (
        table_stride,
        _TABLE_COPIES
        if _TABLE_COPIES * table_stride * aval.dtype.itemsize <= _TABLE_NEAR_BYTES
        else 1,
    )


def table_bytes(eqn: Eqn) -> int:
    """Return the size of all tables in bytes."""
    return _TABLE_TASKS * math.prod(_layout(eqn)) * eqn.invars[0].aval.dtype.itemsize


def table_kernel(eqn: Eqn, update_strides: tuple[int, ...]) -> tuple[LoopsKernel, list[int]]:
    """Return the kernel from indices and updates to the first table of each task, and the numbers of the operands that it reads."""
    s, combine = Scatter(eqn, update_strides), _combine_of(eqn)
    b, n, (table_stride, copies) = s.b, math.prod(s.shape), _layout(eqn)
    read_indices, read_updates = s.reader(1), s.reader(2)
    last = max((d for d, size in enumerate(s.shape) if size > 1), default=0)

    def index(number: Expr) -> tuple:
        return tuple(number if d == last else b.const(0, "i64") for d in range(len(s.shape)))

    share = -(-n // (_TABLE_TASKS * _TABLE_UNROLLED)) * _TABLE_UNROLLED
    task = b.index("t", _TABLE_TASKS, 0)
    begin, table = b.imul(task, share), b.imul(task, copies * table_stride)
    start = b.iadd(begin, b.imul(b.index("block", -(-share // SCATTER_BLOCK), 1), SCATTER_BLOCK))
    num_updates = b.imin(b.imax(b.isub(b.imin(b.iadd(begin, share), n), start), 0), SCATTER_BLOCK)
    k = b.index("k", SCATTER_BLOCK, 2)
    place, inside = s.place(index(b.iadd(start, k)), read_indices)
    mine = s.owns(place, inside, b.const(0, "i64"), b.const(s.operand.size, "i64"))
    find = StoreElement(
        "places", k, b.select(mine, b.cast(place, "i32"), b.const(s.operand.size, "i32"))
    )

    def update(at: Expr, copy: int) -> StoreElement:
        place = b.cast(b.load("places", at, "i32"), "i64")
        return s.update(
            b.iadd(b.iadd(table, copy * table_stride), place),
            read_updates(index(b.iadd(start, at))),
            None,
        )[0]

    iterations = b.idiv(num_updates, _TABLE_UNROLLED)
    whole = b.imul(iterations, _TABLE_UNROLLED)
    at = b.imul(b.index("batch", SCATTER_BLOCK // _TABLE_UNROLLED, 2), _TABLE_UNROLLED)
    body: list[Stmt] = [
        For("k", num_updates, (find,), LoopKind.VECTOR),
        For(
            "batch",
            iterations,
            tuple([update(b.iadd(at, i), i % copies) for i in range(_TABLE_UNROLLED)]),
        ),
    ]
    if n % _TABLE_UNROLLED:
        body.append(
            For(
                "rest",
                b.isub(num_updates, whole),
                (update(b.iadd(whole, b.index("rest", _TABLE_UNROLLED, 2)), 0),),
            )
        )
    j = b.index("j", copies * table_stride, 1)
    # sums begin with -0.0, which preserves an element -0.0 of the operand without updates
    neutral = b.const(
        -0.0 if combine == "add" else registry[_REDUCE[combine]].lower.identity(s.operand.dtype),
        s.stored,
    )
    stmts: list[Stmt] = [
        For(
            "j",
            copies * table_stride,
            (StoreElement("y0", b.iadd(table, j), neutral),),
            LoopKind.VECTOR,
        ),
        For("block", -(-share // SCATTER_BLOCK), tuple(body)),
    ]
    if copies > 1:
        stmts.append(
            For(
                "j",
                s.operand.size,
                (
                    StoreElement(
                        "y0",
                        b.iadd(table, j),
                        _combine_tables(s, combine, "y0", b.iadd(table, j), copies, table_stride),
                    ),
                ),
                LoopKind.VECTOR,
            )
        )
    bufs = (*s.bufs, Buf("y0", s.stored, _TABLE_TASKS * copies * table_stride, "out"))
    tasks, places = (
        For("t", _TABLE_TASKS, tuple(stmts), LoopKind.PARALLEL),
        Buf("places", "i32", SCATTER_BLOCK),
    )
    return LoopsKernel(bufs, (tasks,), (places,), eqn.primitive.name), s.reads


def combine_kernel(eqn: Eqn) -> LoopsKernel:
    """Return the kernel that combines the first tables of all tasks into a buffer with the operand's values."""
    s, (table_stride, copies) = Scatter(eqn, row_major(eqn.invars[2].aval.shape)), _layout(eqn)
    j, combine = s.b.index("j", s.operand.size), _combine_of(eqn)
    bufs = (
        Buf("x0", s.stored, _TABLE_TASKS * copies * table_stride),
        Buf("y0", s.stored, s.operand.size, "inout"),
    )
    stored = StoreElement(
        "y0",
        j,
        _combine_tables(s, combine, "x0", j, _TABLE_TASKS, copies * table_stride),
        None,
        combine,
    )
    return LoopsKernel(
        bufs, (For("j", s.operand.size, (stored,), LoopKind.VECTOR),), name="combined_tables"
    )


def _combine_tables(
    s: Scatter, combine: str, buf: str, at: Expr, count: int, table_stride: int
) -> Expr:
    """Return the element at `at` of `count` tables, combined pairwise."""
    b = s.b
    terms = [b.load(buf, b.iadd(at, i * table_stride), s.stored) for i in range(count)]
    while len(terms) > 1:
        terms = [b.op(combine, *pair) for pair in zip(terms[0::2], terms[1::2])]
    return terms[0]
