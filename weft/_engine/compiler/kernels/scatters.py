"""Kernels of scatters: each update is combined with the element at its position.

In:   a scatter equation, and the strides of its updates.
Out:  kernels. All apply the updates of one position in order, except for the second:
      - sequentially (`sequential_kernel`), parallel over the columns of wide windows;
      - few positions: private tables (`compiler.kernels.privatized_scatter`), in an order that does not depend on threads;
      - single elements into many positions, and rows into rows (`owned_ranges_kernel`): each task owns a range of positions and applies
        the updates of that range;
      - windows that are rows of the operand (`sort_updates_kernel`, `row_by_row`): updates are sorted by row, then every row is
        read, combined and written once, without copying the operand first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from weft._engine.compiler.fusion.classify import flat_index, row_major
from weft._engine.compiler.kernels.library_calls import loops_around
from weft._engine.compiler.loops.loop_levels import segment_length
from weft._engine.compiler.loops.prefetch import (
    PREFETCH_GATHER_DISTANCE,
    PREFETCH_GATHER_FROM_BYTES,
    PREFETCH_GATHER_ROWS,
)
from weft._engine.compiler.lowering.let_placement import Emitter
from weft._engine.compiler.lowering.lower import combining_operation
from weft._engine.ir.build import HALVES, LoopsBuilder, type_name
from weft._engine.ir.jaxpr import Eqn, Literal
from weft._engine.ir.loops import (
    ITEMSIZE,
    Accum,
    Buf,
    Expr,
    For,
    If,
    Init,
    Let,
    Load,
    LoopKind,
    LoopsKernel,
    Pack,
    Prefetch,
    ScalarRef,
    Stmt,
    StoreElement,
)
from weft._engine.util.machine_model import MODEL

# thresholds, measured on several machines
#: minimal number of updates for private tables, or for tasks that own ranges
SCATTER_FEWEST_UPDATES = 1 << 15
#: number of tasks that each own a range of the result; each task reads all indices
SCATTER_OWNERS = 2
#: columns of an update are processed in multiples of this number, which are whole vectors
_SCATTER_WHOLE_COLUMNS = 64
#: updates whose positions are computed before the first is combined
SCATTER_BLOCK = 1024
#: columns of a scatter window that a task owns
_SCATTER_TASK_COLUMNS = 64
#: minimal size of an operand whose rows are all written once
_SCATTER_ROWS_BYTES = 1 << 20
#: maximal ratio of operand elements to update elements if all rows are written once and not in place
_SCATTER_FEWEST_UPDATED = 8
#: maximal number of elements of a row that are combined at a time
_SCATTER_ROW_SEGMENT = 2048


def is_contiguous(dims: Sequence[int], strides: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Return whether successive elements, in row-major order along `dims`, have a constant distance in memory."""
    return all(strides[d] == strides[e] * shape[e] for d, e in pairwise(dims))


class Scatter:
    """The common parts of the kernels of one scatter: buffers, positions of updates, and their combination."""

    def __init__(self, eqn: Eqn, update_strides: tuple[int, ...]):
        self.eqn, self.b = eqn, LoopsBuilder()
        operand, _, updates = (a.aval for a in eqn.invars)
        self.operand, self.shape = operand, updates.shape
        self.bufs: list[Buf] = []
        self.reads: list[int] = []
        self.strides = {1: row_major(eqn.invars[1].aval.shape), 2: update_strides}
        self.stored = type_name(operand.dtype)
        combine = eqn.primitive.lower.combine
        combine = combining_operation(combine, self.stored)
        self.combine = None if combine == "set" else combine
        self.window = eqn.params["dimension_numbers"].update_window_dims
        self.outer = [d for d in range(len(self.shape)) if d not in self.window]
        self.inner = [d for d in self.window if self.shape[d] > 1]

    def reader(self, number: int) -> Callable:
        """Return a function of an index (and a guard) that loads that element of operand `number`."""
        atom, b = self.eqn.invars[number], self.b
        type_ = type_name(atom.aval.dtype)
        if type(atom) is Literal:
            value = b.const(np.asarray(atom.val, atom.aval.dtype).item(), type_)
            return lambda at, guard=None: value
        strides, name = self.strides[number], f"x{len(self.bufs)}"
        size = (
            1 + sum((n - 1) * s for n, s in zip(atom.aval.shape, strides)) if atom.aval.size else 0
        )
        self.bufs.append(Buf(name, type_, size))
        self.reads.append(number)
        return lambda at, guard=None: b.load(name, flat_index(b, at, strides), type_, guard)

    def place(self, index: tuple, read_indices: Callable) -> tuple[Expr, Expr | None]:
        """Return the flat position in the operand of an update, and the condition that it is in bounds (None if always)."""
        from weft._engine.ops.windows import (
            scatter_position,
        )

        position, inside = scatter_position(
            self.b, index, read_indices, self.operand.shape, self.shape, **self.eqn.params
        )
        return flat_index(self.b, position, row_major(self.operand.shape)), inside

    def owns(self, place: Expr, inside: Expr | None, first: Expr, count: Expr) -> Expr:
        """Return the condition that a position is one of the `count` positions from `first` on, and in bounds."""
        owned = _is_in_range(self.b, place, first, count)
        # with one dim, the range implies the bounds
        return (
            owned if inside is None or self.operand.ndim == 1 else self.b.logical_and(inside, owned)
        )

    def update(self, target: Expr, value: Expr, inside: Expr | None) -> tuple[StoreElement, bool]:
        """Return the statement that combines `value` with the element at `target`, and whether it may be vectorized."""
        b, stored = self.b, self.stored
        if (stored in HALVES or stored in ("c64", "c128")) and self.combine is not None:
            old = b.load("y0", target, stored, inside)
            return StoreElement(
                "y0", target, b.storage_form(b.op(self.combine, old, value), stored), inside
            ), False
        return StoreElement("y0", target, b.storage_form(value, stored), inside, self.combine), True


def sequential_kernel(eqn: Eqn, update_strides: tuple[int, ...]) -> tuple[LoopsKernel, list[int]]:
    """Return a kernel that combines the updates in order into a buffer with the operand's values, and the numbers of the operands
    that it reads. Positions may be equal."""
    s = Scatter(eqn, update_strides)
    b, shape, outer, inner = s.b, s.shape, s.outer, s.inner
    read_indices, read_updates = s.reader(1), s.reader(2)
    index: list[Expr] = [b.const(0, "i64")] * len(shape)
    names: list[str] = []
    extents: list[int | Expr] = []
    kinds: list[LoopKind] = []
    start, lanes = b.const(0, "i64"), shape[inner[-1]] if inner else 0
    if _owns_columns(eqn, lanes):
        # a task owns some columns of the window and applies all updates of these in order
        tasks = -(-lanes // _SCATTER_TASK_COLUMNS)
        start = b.imul(b.index("t", tasks, 0), _SCATTER_TASK_COLUMNS)
        names, extents, kinds = ["t"], [tasks], [LoopKind.PARALLEL]
    for d in [*outer, *inner]:
        if shape[d] == 1:
            continue
        n: int | Expr = shape[d]
        if names[:1] == ["t"] and d == inner[-1]:
            lanes_left = b.isub(lanes, start)
            n = (
                _SCATTER_TASK_COLUMNS
                if lanes % _SCATTER_TASK_COLUMNS == 0
                else b.imin(lanes_left, _SCATTER_TASK_COLUMNS)
            )
            index[d] = b.iadd(start, b.index(f"i{d}", _SCATTER_TASK_COLUMNS, len(names)))
        else:
            index[d] = b.index(f"i{d}", shape[d], len(names))
        names.append(f"i{d}")
        extents.append(n)
        kinds.append(LoopKind.SERIAL)
    place, inside = s.place(tuple(index), read_indices)
    store, side_by_side = s.update(place, read_updates(tuple(index)), inside)
    body: list[Stmt] = [store]
    if inner and side_by_side:
        kinds[-1] = LoopKind.VECTOR
        body = [*_places_later(s, tuple(index), inner[-1], read_indices), store]
    bufs = (*s.bufs, Buf("y0", s.stored, s.operand.size, "inout"))
    return LoopsKernel(
        bufs, loops_around(b, names, extents, kinds, lambda: body), name=eqn.primitive.name
    ), s.reads


def _places_later(
    s: Scatter, index: tuple[Expr, ...], along: int, read_indices: Callable
) -> list[Prefetch]:
    """Return prefetches of the positions of later updates if the operand exceeds the caches; the hardware prefetcher cannot
    predict them."""
    weight = s.operand.dtype.itemsize
    rows = [d for d in s.outer if s.shape[d] > 1]
    if s.operand.nbytes < PREFETCH_GATHER_FROM_BYTES or not rows:
        return []
    columns = min(s.shape[along], _SCATTER_TASK_COLUMNS)
    ahead = min(max(2, PREFETCH_GATHER_DISTANCE // (columns * weight)), PREFETCH_GATHER_ROWS)
    d, b = rows[-1], s.b
    later = (*index[:d], b.imin(b.iadd(index[d], ahead), s.shape[d] - 1), *index[d + 1 :])
    return [Prefetch("y0", s.place(later, read_indices)[0])]


def _owns_columns(eqn: Eqn, lanes: int) -> bool:
    """Return whether tasks own columns of a window with `lanes` columns."""
    return lanes >= 2 * _SCATTER_TASK_COLUMNS and eqn.invars[2].aval.nbytes > MODEL.parallel_bytes


# ---- single elements into many positions, rows into rows


def has_owners(eqn: Eqn) -> bool:
    """Return whether tasks should own ranges of positions: there are many updates along one dim, single elements or rows."""
    operand, updates = eqn.invars[0].aval, eqn.invars[2].aval
    window = eqn.params["dimension_numbers"].update_window_dims
    has_many_rows = (
        max(n for d, n in enumerate(updates.shape) if d not in window)
        if len(window) < updates.ndim
        else 1
    )
    width = updates.size // has_many_rows
    if width == 1:
        has_many_updates = updates.size >= SCATTER_FEWEST_UPDATES
    else:  # wide rows are divided by columns instead, so that tasks read no indices of updates of other tasks
        lanes = next(n for n in reversed(updates.shape) if n > 1)
        has_many_updates = (
            updates.nbytes > MODEL.parallel_bytes
            and _rows_of(eqn) == width
            and not _owns_columns(eqn, lanes)
        )
    return (
        has_many_updates
        and 1 < has_many_rows < 1 << 31
        and operand.size >= SCATTER_OWNERS * width
        and type(eqn.invars[1]) is not Literal
    )


def owned_ranges_kernel(eqn: Eqn, update_strides: tuple[int, ...]) -> tuple[LoopsKernel, list[int]]:
    """Return a kernel whose tasks own ranges of positions, and the numbers of the operands that it reads.

    A task collects the numbers of its own updates, block by block, and combines these in order."""
    s = Scatter(eqn, update_strides)
    b, n = s.b, max(s.shape[d] for d in s.outer)
    read_indices, read_updates = s.reader(1), s.reader(2)
    zero = b.const(0, "i64")

    def index(number: Expr, columns: dict[int, Expr]) -> tuple:
        return tuple(
            columns.get(d, number if d in s.outer and size > 1 else zero)
            for d, size in enumerate(s.shape)
        )

    width = math.prod(s.shape[d] for d in s.inner)
    share = -(-s.operand.size // (SCATTER_OWNERS * width)) * width
    first = b.imul(b.index("t", SCATTER_OWNERS, 0), share)
    start = b.imul(b.index("block", -(-n // SCATTER_BLOCK), 1), SCATTER_BLOCK)
    number = b.iadd(start, b.index("k", SCATTER_BLOCK, 2))
    place, inside = s.place(index(number, {}), read_indices)
    mine = s.owns(place, inside, first, b.imin(b.isub(s.operand.size, first), share))
    extent = SCATTER_BLOCK if n % SCATTER_BLOCK == 0 else b.imin(b.isub(n, start), SCATTER_BLOCK)
    find = For(
        "k", extent, (Pack("count", "numbers", b.cast(number, "i32"), mine),), LoopKind.VECTOR
    )
    own = b.cast(b.load("numbers", b.index("q", SCATTER_BLOCK, 0), "i32"), "i64")

    def update(columns: dict[int, Expr]) -> tuple[StoreElement, bool]:
        at = index(own, columns)
        return s.update(s.place(at, read_indices)[0], read_updates(at), None)

    body = For(
        "block",
        -(-n // SCATTER_BLOCK),
        (
            Init("count", zero),
            find,
            For("q", ScalarRef("count", "i64"), _loop_over_columns(s, update)),
        ),
    )
    bufs = (*s.bufs, Buf("y0", s.stored, s.operand.size, "inout"))
    tasks, numbers = (
        For("t", SCATTER_OWNERS, (body,), LoopKind.PARALLEL),
        Buf("numbers", "i32", SCATTER_BLOCK),
    )
    return LoopsKernel(bufs, (tasks,), (numbers,), eqn.primitive.name), s.reads


def _loop_over_columns(s: Scatter, update: Callable) -> tuple[Stmt, ...]:
    """Return loops over the window dims of an update around the store of `update`. The last dim is processed in whole vectors, whose
    sizes are halved toward its end: a masked store would delay the load of the next update of the row (no store forwarding)."""
    b, emit, columns = s.b, Emitter(s.b), {}
    emit.open(0)
    for level, d in enumerate(s.inner[:-1], 1):
        columns[d] = b.index(f"i{d}", s.shape[d], level)
        emit.open(level)
    last, start = s.shape[s.inner[-1]] if s.inner else 1, 0
    while start < last:
        columns_left = last - start
        size = (
            columns_left // _SCATTER_WHOLE_COLUMNS * _SCATTER_WHOLE_COLUMNS
            or 1 << columns_left.bit_length() - 1
        )
        if s.inner:
            columns[s.inner[-1]] = b.iadd(b.index(f"from{start}", size, len(s.inner)), start)
        store, side_by_side = update(columns)
        emit.open(len(s.inner))
        emit.written = frozenset([store.buf])
        index, value = emit.compute([store.index, store.value])
        emit.append(StoreElement(store.buf, index, value, None, store.accumulate))
        emit.close(
            f"from{start}", size, LoopKind.VECTOR if s.inner and side_by_side else LoopKind.SERIAL
        )
        start += size
    for d in reversed(s.inner[:-1]):
        emit.close(f"i{d}", s.shape[d], LoopKind.SERIAL)
    return tuple(emit.scopes[1].body)


def _is_in_range(b: LoopsBuilder, place: Expr, first: Expr, count: Expr) -> Expr:
    """Return the condition `first <= place < first + count`, computed in 32 bits if the differences fit."""
    low, high = b.range(place)
    if (
        -(1 << 31) <= low
        and high < 1 << 31
        and b.range(first)[1] <= 1 << 30
        and b.range(count)[1] <= 1 << 30
    ):
        narrow = lambda x: b.cast(b.cast(x, "i32"), "u32")
        return b.op("lt", b.op("sub", narrow(place), narrow(first)), narrow(count))
    aside = b.isub(place, first)
    return b.logical_and(b.icmp("ge", aside, 0), b.icmp("lt", aside, count))


# ---- rows


def _rows_of(eqn: Eqn) -> int:
    """Return the number of elements of a window if windows are rows of the operand (all of its trailing dims); otherwise 0."""
    operand, _, updates = (a.aval for a in eqn.invars)
    numbers = eqn.params["dimension_numbers"]
    lead = operand.ndim - len(numbers.update_window_dims)
    dropped_dims = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    width = math.prod(operand.shape[lead:])
    whole = (
        dropped_dims == set(range(lead))
        and all(d < lead for d in numbers.scatter_dims_to_operand_dims)
        and tuple(updates.shape[d] for d in numbers.update_window_dims) == operand.shape[lead:]
    )
    return width if whole else 0


def row_width(eqn: Eqn) -> int:
    """Return the number of elements of a row of the operand if windows are rows longer than a cache line; otherwise 0."""
    width = _rows_of(eqn)
    return width if width * eqn.invars[0].aval.dtype.itemsize > MODEL.cache_line else 0


def has_rows(eqn: Eqn, in_place: bool) -> bool:
    """Return whether all rows of the operand should be read, combined and written once, after sorting the updates by row.

    `in_place`: other kernels would touch only the updated rows. A single update needs no sorting."""
    operand, _, updates = (a.aval for a in eqn.invars)
    enough, width = (
        operand.size if in_place else operand.size // _SCATTER_FEWEST_UPDATED,
        row_width(eqn),
    )
    return (
        operand.nbytes >= _SCATTER_ROWS_BYTES
        and updates.size >= enough
        and 0 < width < updates.size
        and max(updates.size, operand.size) < (1 << 31) * width
    )


def sort_updates_kernel(eqn: Eqn) -> tuple[LoopsKernel, list[int]]:
    """Return a kernel that sorts the updates in bounds by row: its results are the end of each row's updates, and the numbers of the
    updates. Also return the numbers of the operands that it reads."""
    width, s = row_width(eqn), Scatter(eqn, row_major(eqn.invars[2].aval.shape))
    b, shape = s.b, s.shape
    read_indices = s.reader(1)
    rows, count = s.operand.size // width, math.prod(shape[d] for d in s.outer)
    index: list[Expr] = [b.const(0, "i64")] * len(shape)
    dims = [d for d in s.outer if shape[d] > 1]
    for level, d in enumerate(dims):
        index[d] = b.index(f"i{d}", shape[d], level)
    place, inside = s.place(tuple(index), read_indices)
    row, one = b.idiv(place, width), b.const(1, "i32")
    number = flat_index(
        b, tuple(index[d] for d in s.outer), row_major(tuple(shape[d] for d in s.outer))
    )
    over_updates = lambda *stores: loops_around(
        b,
        [f"i{d}" for d in dims],
        [shape[d] for d in dims],
        [LoopKind.SERIAL] * len(dims),
        lambda: stores,
    )
    j, total, end = (
        b.index("j", rows, 0),
        ScalarRef("total", "i32"),
        b.load("y0", row, "i32", inside),
    )
    body = (
        For("j", rows, (StoreElement("y0", j, b.const(0, "i32")),), LoopKind.VECTOR),
        *over_updates(StoreElement("y0", row, one, inside, "add")),
        Init("total", b.const(0, "i32")),
        For(
            "j",
            rows,
            (
                Let("many", b.load("y0", j, "i32")),
                StoreElement("y0", j, total),
                Accum("total", "add", ScalarRef("many", "i32")),
            ),
        ),
        *over_updates(
            StoreElement("y1", b.cast(end, "i64"), b.cast(number, "i32"), inside),
            StoreElement("y0", row, one, inside, "add"),
        ),
    )
    bufs = (*s.bufs, Buf("y0", "i32", rows, "out"), Buf("y1", "i32", count, "out"))
    return LoopsKernel(bufs, body, name="sorted_by_row"), s.reads


def row_by_row(eqn: Eqn, update_strides: tuple[int, ...]) -> tuple[LoopsKernel, list[int]]:
    """Return the kernel from the updates, the operand and the results of `sort_updates_kernel` to the result, and the numbers of the
    operands that it reads before the latter."""
    s = Scatter(eqn, update_strides)
    kernel = _RowByRow(s, row_width(eqn)).kernel()
    return kernel, [*s.reads, 0]


class _RowByRow:
    """The writer of the kernel that combines rows with their updates."""

    def __init__(self, s: Scatter, width: int):
        self.s, self.b, self.width = s, s.b, width
        self.rows, self.count = s.operand.size // width, math.prod(s.shape[d] for d in s.outer)
        self.wide = "f32" if s.stored in HALVES else s.stored
        self.read_updates = s.reader(2)

    def kernel(self) -> LoopsKernel:
        s, b, width = self.s, self.b, self.width
        segment = (
            width
            if width <= _SCATTER_ROW_SEGMENT
            else segment_length(width, -(-width // _SCATTER_ROW_SEGMENT))
        )
        segments = -(-width // segment)
        total = self.rows * segments
        per = max(1, MODEL.task_bytes // (segment * ITEMSIZE[s.stored]))
        tasks = -(-total // per)
        at = b.imul(b.index("t", tasks, 0), per)
        n = per if total % per == 0 else b.imin(b.isub(total, at), per)
        at = b.iadd(at, b.index("r", per, 1))
        self.row, start = b.idiv(at, segments), b.imul(b.irem(at, segments), segment)
        self.extent = segment if width % segment == 0 else b.imin(b.isub(width, start), segment)
        self.aside = b.iadd(start, b.index("j", segment, 3))
        self.prefetch_rows = min(
            max(2, PREFETCH_GATHER_DISTANCE // (segment * ITEMSIZE[s.stored])),
            PREFETCH_GATHER_ROWS,
        )
        operand = f"x{len(s.bufs)}"
        bufs = (
            *s.bufs,
            Buf(operand, s.stored, s.operand.size),
            Buf("ends", "i32", self.rows),
            Buf("order", "i32", self.count),
            Buf("y0", s.stored, s.operand.size, "out"),
        )
        body = (For("t", tasks, (For("r", n, self.one_row(operand)),), LoopKind.PARALLEL),)
        return LoopsKernel(bufs, body, (Buf("row", self.wide, segment),), s.eqn.primitive.name)

    def one_row(self, operand: str) -> tuple[Stmt, ...]:
        """Return the code that combines a row with its updates and stores it. A single update, the most frequent case, is combined
        while the row is copied; otherwise the row is first loaded into scratch. Both cases prefetch the next row and update."""
        s, b, j, stored = self.s, self.b, self.b.index("j"), self.s.stored
        here, first, count = (
            b.iadd(b.imul(self.row, self.width), self.aside),
            ScalarRef("first", "i64"),
            ScalarRef("count", "i64"),
        )
        k = b.iadd(first, b.index("k", self.count, 2))
        row_values, old = (
            b.load("row", j, self.wide),
            b.cast(b.load(operand, here, stored), self.wide),
        )
        update, later = (
            self.read_updates(self.index(ScalarRef(name, "i64"))) for name in ("update", "later")
        )
        updated = lambda x: (
            b.cast(update, self.wide)
            if s.combine is None
            else b.op(s.combine, x, b.cast(update, self.wide))
        )
        next_row = Prefetch(operand, b.iadd(here, self.prefetch_rows * self.width))
        next_update = [Prefetch(later.buf, later.index)] if isinstance(later, Load) else []
        along = lambda *stmts: For("j", self.extent, stmts, LoopKind.VECTOR)
        written = lambda x: StoreElement(
            "y0", here, b.storage_form(x, stored), streaming=s.operand.nbytes >= MODEL.stream_bytes
        )
        once = (*self.numbers(first), along(next_row, *next_update, written(updated(old))))
        often = (
            along(next_row, StoreElement("row", j, old)),
            For(
                "k",
                count,
                (
                    *self.numbers(k),
                    along(*next_update, StoreElement("row", j, updated(row_values))),
                ),
            ),
            along(written(row_values)),
        )
        return (
            Let("first", self.entry("ends", b.isub(self.row, 1), b.icmp("gt", self.row, 0))),
            Let("count", b.isub(self.entry("ends", self.row), first)),
            If(b.icmp("eq", count, 1), once, often),
        )

    def entry(self, buf: str, at: Expr, guard: Expr | None = None) -> Expr:
        return self.b.cast(self.b.load(buf, at, "i32", guard), "i64")

    def numbers(self, k: Expr) -> tuple[Stmt, ...]:
        """Return definitions of `update`, the number of the k-th update in the order of rows, and of `later`, a following one."""
        later = self.b.imin(self.b.iadd(k, self.prefetch_rows), self.count - 1)
        return Let("update", self.entry("order", k)), Let("later", self.entry("order", later))

    def index(self, number: Expr) -> tuple:
        """Return the index of an element of update `number`."""
        s, b = self.s, self.b
        index: list[Expr] = [b.const(0, "i64")] * len(s.shape)
        for dims, flat in ((s.outer, number), (s.inner, self.aside)):
            merged = is_contiguous(dims, s.strides[2], s.shape)
            for d in reversed(dims[1:]) if not merged else ():
                index[d], flat = b.irem(flat, s.shape[d]), b.idiv(flat, s.shape[d])
            if dims:
                index[dims[-1] if merged else dims[0]] = flat
        return tuple(index)
