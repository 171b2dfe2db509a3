"""Matmul problems in normal form: byte strides, collapsed dims and chosen orientation.

In:   a `Gemm` step, the `GemmTypes` of its types.
Out:  a `Problem`; `fold` and `orient` return equivalent problems.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from weft._engine.codegen.ir.gemm_types import GemmTypes
from weft._engine.codegen.ir.microkernels import STREAMS
from weft._engine.ir.loops import ITEMSIZE
from weft._engine.ir.program import Gemm
from weft._engine.util.record import record, replace

# thresholds, measured on several machines
#: minimum number of rows that the plan of a group assumes
_GEMM_GROUP_ROWS = 24
#: steps that the inner dim of a sum should have at least, and steps beyond which more do not help
_GEMM_WANTED_RUN = (8, 16)


@record
class Problem:
    """A matmul with byte strides: `batch` is (extent, a, b, c), `outer` (extent, a, b), `rows` and
    `cols` (extent, stride).

    `rows` and `cols` are the outer dims of the rows of A and of the columns of B if these are not
    evenly spaced.
    """

    m: int
    n: int
    k: int
    a: tuple[int, int]  # strides (m, k)
    b: tuple[int, int]  # (k, n)
    c: tuple[int, int]  # (m, n)
    batch: tuple[tuple[int, int, int, int], ...]
    outer: tuple[tuple[int, int, int], ...]
    rows: tuple[tuple[int, int], ...] = ()
    cols: tuple[tuple[int, int], ...] = ()
    band: tuple[int, int] | None = None  # only the elements of C with low <= n - m <= high are read
    # number of epilogue arguments; None: C is stored without an epilogue
    epilogue_args: int | None = None
    # positions of the epilogue arguments that have the layout of C
    epilogue_streams: tuple[int, ...] = ()
    swapped: bool = False  # True if A and B are exchanged
    # run-time groups of rows ("m", `m` is the average) or k ("k", `k` is the maximum)
    grouped: str = ""

    @property
    def segments(self) -> int:
        return math.prod(extent for extent, *_ in self.outer)

    @property
    def batches(self) -> int:
        return math.prod(extent for extent, *_ in self.batch)

    @property
    def b_share(self) -> int:
        """Number of consecutive batch elements with the same B."""
        shared_dims = itertools.takewhile(lambda dim: dim[2] == 0, reversed(self.batch))
        return max(math.prod(extent for extent, *_ in shared_dims), 1)

    def transpose_problem(self) -> "Problem":
        """Return the transposed problem, C' = B' A'."""
        return replace(
            self,
            m=self.n,
            n=self.m,
            a=(self.b[1], self.b[0]),
            b=(self.a[1], self.a[0]),
            c=(self.c[1], self.c[0]),
            batch=tuple((e, b, a, c) for e, a, b, c in self.batch),
            outer=tuple((e, b, a) for e, a, b in self.outer),
            rows=self.cols,
            cols=self.rows,
            band=self.band and (-self.band[1], -self.band[0]),
            swapped=not self.swapped,
        )


def problem_of(step: Gemm, types: GemmTypes) -> Problem:
    """Return a step's problem, with strides in bytes and without trivial dims."""
    i, o, m = types.in_bytes, types.out_bytes, step.m
    if step.grouped == "m":
        m = min(m, max(-(-m // step.groups[-1][0]), _GEMM_GROUP_ROWS))
    return Problem(
        m,
        step.n,
        step.k,
        (step.a_strides[0] * i, step.a_strides[1] * i),
        (step.b_strides[0] * i, step.b_strides[1] * i),
        (step.c_strides[0] * o, step.c_strides[1] * o),
        tuple((e, a * i, b * i, c * o) for e, a, b, c in step.batch if e != 1),
        tuple((e, a * i, b * i) for e, a, b in step.outer_k if e != 1),
        tuple((e, a * i) for e, a in step.a_rows if e != 1),
        tuple((e, b * i) for e, b in step.b_cols if e != 1),
        step.band,
        None if step.epilogue is None else len(step.epilogue_args),
        _streams(step, o),
        grouped=step.grouped,
    )


def _streams(step: Gemm, out_bytes: int) -> tuple[int, ...]:
    """Return the positions of the arguments of a step's epilogue that are arrays like C."""
    elements = step.m * step.n * math.prod(dim[0] for dim in step.batch)
    bufs = () if step.epilogue is None else step.epilogue.bufs[2:]
    return tuple(
        [
            i
            for i, buf in enumerate(bufs)
            if buf.size == elements and ITEMSIZE[buf.type] == out_bytes
        ][:STREAMS]
    )


def fold(p: Problem, types: GemmTypes) -> Problem:
    """Merge dims that are contiguous in memory: outer k into k, batch into rows or columns, batch
    dims into one.

    Batch dims over which B is constant come last, so that one packed B serves all their elements.
    """
    p = _fold_sum(p, types)
    # Epilogues count rows, columns and batch elements in the original order.
    return p if p.epilogue_args is not None else _fold_batch(p)


def _fold_sum(p: Problem, types: GemmTypes) -> Problem:
    """Merge the dims of the sum, and choose the inner one."""
    k, a, b, outer = p.k, p.a, p.b, list(p.outer)
    if 0 in (k, p.segments):  # the sum is empty
        k, outer = 0, []
    if k == 1 and outer:  # any dim of the sum may be the inner one
        k, *strides = outer.pop()
        a, b = (a[0], strides[0]), (strides[1], b[1])
    dims = [(k, a[1], b[0]), *outer]
    other = [stride == types.in_bytes for stride in (a[0], b[1])]

    def suits(dim: tuple[int, ...]) -> tuple[bool, int, int, int]:
        """Return the key of an inner dim: long enough, dense in operands that are not dense in the
        other direction, short strides."""
        useful = sum(
            stride == types.in_bytes and not dense for stride, dense in zip(dim[1:], other)
        )
        longest = min(dim[0], _GEMM_WANTED_RUN[1])
        return dim[0] >= _GEMM_WANTED_RUN[0], useful, longest, -dim[1] - dim[2]

    inner, *outer_dims = sorted(_merge(sorted(dims, key=lambda d: d[1:])), key=suits, reverse=True)
    # Outer dims in memory order, so that B may be evenly spaced.
    outer = sorted(outer_dims, key=lambda dim: (dim[2], dim[1]), reverse=True)
    return replace(p, k=inner[0], a=(a[0], inner[1]), b=(inner[2], b[1]), outer=tuple(outer))


def _fold_batch(p: Problem) -> Problem:
    """Merge batch dims into rows, columns, or one another."""
    m, n, a, b, c, batch = p.m, p.n, p.a, p.b, p.c, list(p.batch)
    for dim in sorted(p.batch, key=lambda d: d[3]):
        e, sa, sb, sc = dim
        if sb == 0 and not p.rows and (m == 1 or (sa, sc) == (m * a[0], m * c[0])):
            if m == 1:
                a, c = (sa, a[1]), (sc, c[1])
            m *= e
            batch.remove(dim)
        elif sa == 0 and not p.cols and (n == 1 or (sb, sc) == (n * b[1], n * c[1])):
            if n == 1:
                b, c = (b[0], sb), (c[0], sc)
            n *= e
            batch.remove(dim)
    merged = _merge(sorted(batch, key=lambda d: d[3]))
    return replace(
        p,
        m=m,
        n=n,
        a=a,
        b=b,
        c=c,
        band=p.band if (m, n) == (p.m, p.n) else None,
        batch=tuple(sorted(merged, key=lambda d: (d[2] == 0, -d[3]))),
    )


def _merge(dims: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Merge each dim into an earlier one that it continues in all operands; inner dims first."""
    out: list[tuple[int, ...]] = []
    for dim in dims:
        for i, inner in enumerate(out):
            if all(
                outer_stride == inner[0] * stride
                for outer_stride, stride in zip(dim[1:], inner[1:])
            ):
                out[i] = (inner[0] * dim[0], *inner[1:])
                break
        else:
            out.append(dim)
    return out


def orient(p: Problem, types: GemmTypes) -> Problem:
    """Exchange A and B if C' = B' A' suits the kernels better, since they store rows of C.

    Grouped problems are not exchanged. With an epilogue, rows of C must keep their order; only a
    single row may be exchanged, if dot products can compute it.
    """
    if p.grouped:
        return p
    if p.epilogue_args is not None:
        exchanged = p.transpose_problem()
        return (
            exchanged if p.m == 1 and p.b[0] == types.in_bytes and is_dot(exchanged, types) else p
        )
    if p.m == 1 and p.n == 1:
        p = replace(p, c=(types.out_bytes, types.out_bytes))
    return p.transpose_problem() if _is_better_transposed(p, types) else p


def _is_better_transposed(p: Problem, types: GemmTypes) -> bool:
    """True if only columns of C are dense, or if columns suit the kernels as well as rows."""
    i, o = types.in_bytes, types.out_bytes
    row_like, col_like = p.c[1] == o or p.n == 1, p.c[0] == o or p.m == 1
    if not (row_like and col_like):
        return col_like
    if p.n == 1:  # a column: dot products if the rows of A are dense, else one row of C
        return p.m > 1 and p.a[1] != i and p.a[0] == i
    # A row: dot products if the columns of B are dense.
    dots = p.b[0] == i and p.b[1] != i and not types.is_complex and p.segments == 1
    return p.m == 1 and dots


def is_dot(p: Problem, types: GemmTypes) -> bool:
    dense = (p.a[1] == types.in_bytes or p.k == 1) and (p.b[0] == types.in_bytes or p.k == 1)
    even = p.segments == 1 and not p.rows and not p.cols
    in_stretches = p.epilogue_args is None or (p.swapped and p.n == 1)
    return p.n <= 2 and dense and even and in_stretches and not types.is_complex and p.k > 0
