"""Kernels and steps of equations that do not fuse: updates, matmuls, host calls."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from weft._engine.compiler.fusion.classify import merge_adjacent_dims, row_major
from weft._engine.compiler.lowering.let_placement import Emitter
from weft._engine.core.primitive import CallbackOp
from weft._engine.ir.build import HALVES, LoopsBuilder, type_name
from weft._engine.ir.jaxpr import Eqn, Literal
from weft._engine.ir.loops import Buf, Expr, LoopKind, LoopsKernel, Prefetch, StoreElement
from weft._engine.ir.program import BufRef, Gemm
from weft._engine.util.machine_model import MODEL
from weft._engine.util.threads import allowed_threads, share_work

if TYPE_CHECKING:
    from weft._engine.compiler.fusion.band_analysis import Bands

# thresholds, measured on several machines
#: minimal number of adjacent result columns; other dims then become batch dims
_GEMM_FEWEST_COLUMNS = 8
#: minimal number of elements per thread in calls of SciPy's elementwise functions
HOST_PART = 1 << 10


def update_kernel(eqn: Eqn) -> tuple[LoopsKernel, list[int]]:
    """Return a kernel that writes the window of a dynamic_update_slice into a buffer with the operand's values, and the
    numbers of the operands that it reads."""
    operand, update, *starts = eqn.invars
    b = LoopsBuilder()
    stored = type_name(operand.aval.dtype)
    bufs, reads = [Buf("x0", stored, update.aval.size)], [1]
    shape, window = operand.aval.shape, update.aval.shape
    target: Expr = b.const(0, "i64")
    source: Expr = b.const(0, "i64")
    names, extents = [], []
    for d, (n, size, start) in enumerate(zip(shape, window, starts)):
        if type(start) is Literal:
            at = b.const(int(start.val), "i64")
        else:
            type_ = type_name(start.aval.dtype)
            if size != n:
                bufs.append(Buf(f"x{len(bufs)}", type_, 1))
                reads.append(2 + d)
            at = b.to_index(b.load(bufs[-1].name, 0, type_)) if size != n else b.const(0, "i64")
        at = b.imax(b.imin(at, n - size), 0)
        i = b.index(f"i{d}", size, d) if size > 1 else b.const(0, "i64")
        if size > 1:
            names.append(f"i{d}")
            extents.append(size)
        target = b.iadd(target, b.imul(b.iadd(at, i), row_major(shape)[d]))
        source = b.iadd(source, b.imul(i, row_major(window)[d]))
    bufs.append(Buf("y0", stored, operand.aval.size, "inout"))
    parallel = update.aval.nbytes > MODEL.parallel_bytes and len(names) > 1
    kinds: list[LoopKind] = [LoopKind.SERIAL] * len(names)
    if parallel:
        kinds[0] = LoopKind.PARALLEL
    if names:
        kinds[-1] = LoopKind.VECTOR
    body = loops_around(
        b, names, extents, kinds, lambda: [StoreElement("y0", target, b.load("x0", source, stored))]
    )
    return LoopsKernel(tuple(bufs), body, name="update"), reads


def loops_around(
    b: LoopsBuilder, names: list[str], extents: list, kinds: list[LoopKind], body: Callable
) -> tuple:
    """Return nested loops around the prefetches and stores of `body`; each expression is computed at the outermost possible level."""
    emit = Emitter(b)
    for level in range(len(names)):
        emit.open(level)
    stmts = body()
    emit.written = frozenset(stmt.buf for stmt in stmts)
    fields = [
        (stmt.index,) if type(stmt) is Prefetch else (stmt.index, stmt.value, stmt.guard)
        for stmt in stmts
    ]
    done = iter(emit.compute([x for parts in fields for x in parts if x is not None]))
    for stmt in stmts:
        if type(stmt) is Prefetch:
            emit.append(Prefetch(stmt.buf, next(done)))
            continue
        index, value = next(done), next(done)
        emit.append(
            StoreElement(stmt.buf, index, value, stmt.guard and next(done), stmt.accumulate)
        )
    for name, extent, kind in zip(reversed(names), reversed(extents), reversed(kinds)):
        emit.close(name, extent, kind)
    return tuple(emit.scopes[0].body)


def host_function(eqn: Eqn) -> Callable:
    """Return the Python function of a host call: the NumPy reference of the op, writing into views of the results.

    Errors of a user's callback name the user's source line."""
    reference, params = eqn.primitive.reference, eqn.params
    count, multiple = len(eqn.invars), eqn.primitive.multiple_results
    if isinstance(eqn.primitive, CallbackOp):
        from weft._engine.ops.callback import wrap_reference

        reference = wrap_reference(eqn.primitive, eqn.source)

    lower = eqn.primitive.lower
    into, in_parts = getattr(lower, "into", None), getattr(lower, "elementwise", False)

    def call(*views) -> None:
        if into is not None:
            into(*views, **params)
        elif in_parts and views[-1].size >= HOST_PART:
            share_work(compute, _parts(views, views[-1].size // HOST_PART))
        else:
            compute(*views)

    def compute(*views) -> None:
        out = reference(*views[:count], **params)
        for view, value in zip(views[count:], out if multiple else (out,)):
            view[...] = value

    call.__name__ = eqn.primitive.name
    return call


def _parts(views: tuple, most: int) -> list[tuple]:
    """Split the elements of arrays of one shape into parts, one per thread and at most `most`; each part has all scalars."""
    size, count = views[-1].size, min(allowed_threads(), most)
    ends = [size * k // count for k in range(count + 1)]
    flat = [view.reshape(-1) if view.ndim else view for view in views]
    return [
        tuple([x[start:stop] if x.ndim else x for x in flat])
        for start, stop in itertools.pairwise(ends)
    ]


def _free_dims(ndim: int, contract: Sequence[int], batch: Sequence[int]) -> list[int]:
    return [d for d in range(ndim) if d not in contract and d not in batch]


def _merge_batch_dims(batch: list, rows: list, columns: list) -> tuple:
    """Return the batch dims and the remaining rows and columns, merged into as few dims as possible, in the order of the result."""
    batch = batch + [(e, a, 0, c) for e, a, c in rows] + [(e, 0, b, c) for e, b, c in columns]
    batch.sort(key=lambda e: -e[3])
    return tuple(merge_adjacent_dims(batch))


class Contraction:
    """A dot_general as extents and strides: rows, columns and k; other rows and columns are batch dims, other k are `outer_k`.

    With `dense_rows`, the operands are exchanged if that makes columns of the result adjacent in memory.
    """

    def __init__(self, eqn: Eqn, a_strides, b_strides, dense_rows: bool = False):
        (a_contract, b_contract), (a_batch, b_batch) = eqn.params["dimension_numbers"]
        a_shape, b_shape = eqn.invars[0].aval.shape, eqn.invars[1].aval.shape
        c_strides = row_major(eqn.outvars[0].aval.shape)
        order = eqn.params.get("permutation")
        if order is not None:
            c_strides = tuple(c_strides[order.index(d)] for d in range(len(order)))
        a_free = _free_dims(len(a_shape), a_contract, a_batch)
        b_free = _free_dims(len(b_shape), b_contract, b_batch)
        n = len(a_batch)
        batch = [
            (a_shape[x], a_strides[x], b_strides[y], c_strides[i])
            for i, (x, y) in enumerate(zip(a_batch, b_batch))
        ]
        rows = [(a_shape[x], a_strides[x], c_strides[n + i]) for i, x in enumerate(a_free)]
        cols = [
            (b_shape[y], b_strides[y], c_strides[n + len(a_free) + i]) for i, y in enumerate(b_free)
        ]
        inner = [(a_shape[x], a_strides[x], b_strides[y]) for x, y in zip(a_contract, b_contract)]
        inner.sort(key=lambda e: -e[1])
        k, self.outer_k = _split_largest(merge_adjacent_dims(inner))
        m, more_m = _even_run(merge_adjacent_dims(rows))
        n_, more_n = _even_run(merge_adjacent_dims(cols))
        self.batch = _merge_batch_dims(batch, more_m, more_n)
        self.k, self.a_strides, self.b_strides = k[0], (m[-1][1], k[1]), (k[2], n_[-1][1])
        self.m, self.n = (math.prod(e for e, *_ in dims) for dims in (m, n_))
        self.c_strides = (m[-1][2], n_[-1][2])
        self.a_rows, self.b_cols = (tuple((e, s) for e, s, _ in dims[:-1]) for dims in (m, n_))
        self.exchanged = dense_rows and (
            self.n == 1 or (self.c_strides[1] != 1 and self.c_strides[0] == 1)
        )
        if self.exchanged:
            self._exchange()

    def shape(self) -> tuple:
        """Return the facts that determine positions in the result; contractions with equal facts can share an epilogue."""
        return self.m, self.n, self.c_strides, tuple((e, c) for e, _, _, c in self.batch)

    def band(self, shape: tuple[int, ...], known: Bands) -> tuple[int, int] | None:
        """Return the bounds of (column - row) of the elements that are read; None if all elements are read."""
        sides = list(zip(shape, row_major(shape)))
        rows, cols = (self.m, self.c_strides[0]), (self.n, self.c_strides[1])
        for (i, j), (low, high) in known.items():
            if (sides[j], sides[i]) == (rows, cols):
                i, j, low, high = j, i, -high, -low
            if (sides[i], sides[j]) == (rows, cols):
                low, high = min(max(low, 1 - self.m), self.n), max(min(high, self.n - 1), -self.m)
                return None if (low, high) == (1 - self.m, self.n - 1) else (low, high)
        return None

    def _exchange(self) -> None:
        self.m, self.n, self.a_rows, self.b_cols = self.n, self.m, self.b_cols, self.a_rows
        self.a_strides, self.b_strides = self.b_strides[::-1], self.a_strides[::-1]
        self.c_strides = self.c_strides[::-1]
        self.batch = tuple((e, b, a, c) for e, a, b, c in self.batch)
        self.outer_k = tuple((e, b, a) for e, a, b in self.outer_k)


def grouped_gemm_step(eqn: Eqn, a_strides: tuple[int, ...], b_strides: tuple[int, ...]) -> Gemm:
    """Return the step of a grouped_dot, with placeholders for its buffers."""
    lhs, rhs, first, _ = (a.aval for a in eqn.invars)
    out, here = eqn.outvars[0].aval, BufRef(0)
    in_type, out_type = type_name(lhs.dtype), type_name(out.dtype)
    types = in_type, accumulator(in_type, out_type), out_type
    c_strides, at = row_major(out.shape), lhs.ndim - 2
    batch = [*zip(lhs.shape[:at], a_strides, b_strides, c_strides)]
    groups, n = first.shape[-1], rhs.shape[-1]
    if eqn.params["contracted"]:
        m, k, kind, a, by_group = (
            lhs.shape[-1],
            lhs.shape[-2],
            "k",
            (a_strides[-1], a_strides[-2]),
            (groups, 0, 0, c_strides[at]),
        )
    else:
        m, k, kind, a, by_group = (
            lhs.shape[-2],
            lhs.shape[-1],
            "m",
            (a_strides[-2], a_strides[-1]),
            (groups, 0, b_strides[at], 0),
        )
    return Gemm(
        m,
        n,
        k,
        here,
        here,
        here,
        a,
        (b_strides[-2], b_strides[-1]),
        (c_strides[-2], c_strides[-1]),
        *types,
        grouped=kind,
        groups=(*batch, by_group),
        first=here,
        count=here,
    )


def _even_run(entries: list[tuple]) -> tuple[list[tuple], list[tuple]]:
    """Return the best run of (extent, operand stride, result stride) entries that is evenly spaced in the result, and the other
    entries. The best run is the longest that is dense and not too short, or else the longest."""
    runs: list[list[tuple]] = []
    for entry in entries:
        if runs and runs[-1][-1][2] == entry[0] * entry[2]:
            runs[-1].append(entry)
        else:
            runs.append([entry])
    if not runs:
        return [(1, 0, 0)], []

    def suits(run: list[tuple]) -> tuple[bool, int]:
        extent = math.prod(e for e, *_ in run)
        return extent >= _GEMM_FEWEST_COLUMNS and run[-1][2] == 1, extent

    best = max(runs, key=suits)
    return best, [entry for run in runs if run is not best for entry in run]


def _split_largest(entries: list[tuple]) -> tuple[tuple, tuple]:
    """Return the entry of the largest extent, and the others."""
    if not entries:
        return (1, 0, 0), ()
    best = max(range(len(entries)), key=lambda i: entries[i][0])
    return entries[best], tuple(e for i, e in enumerate(entries) if i != best)


def accumulator(in_type: str, out_type: str) -> str:
    """Return the accumulator type of a matmul."""
    if in_type in HALVES or in_type == "f32":
        return "f64" if out_type == "f64" else "f32"
    return in_type if in_type in ("f64", "c64", "c128") else out_type


def sum_type(accumulate: str) -> str:
    """Return the type of a matmul's sums in its epilogue: narrow integers are accumulated in 32 bits."""
    return "i32" if accumulate in ("i8", "u8", "i16", "u16") else accumulate
