"""Linear algebra as LAPACK calls: the compiled form of the factorizations of `ops.linalg`.

In:   matrices in the last two dims, row-major; all other dims are batch dims.
Out:  the results of the primitives, from `library_call` and operations that fuse around it.
Laws: LAPACK is column-major, so it sees every matrix transposed. If this gives the same numbers
      (Cholesky, triangular solves), nothing is moved; other matrices are transposed before and
      after, by the surrounding kernels. `info` other than 0 gives NaN. No matrix is empty: results
      for empty ones do not call LAPACK.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.primitive import LibraryOp
from weft._engine.core.trace import typeof
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.arithmetic import is_complex
from weft._engine.ops.elementwise import add, conj, convert_element_type, eq, select_n, sub
from weft._engine.ops.families import full
from weft._engine.ops.layout import broadcast_in_dim, broadcasted_iota, reshape
from weft._engine.ops.lowering_specs import LibrarySpec
from weft._engine.ops.matrices import identity, matrix_transpose, tril, triu
from weft._engine.ops.slicing import pad, slice_in_dim
from weft._engine.util import dtypes, lapack

if TYPE_CHECKING:
    from weft._engine.ops.rule_types import NumPyArray, Value

#: the most columns that blocked routines take at a time
BLOCK = 64

#: Calls one routine on every matrix of a batch. Its `arguments` are written as in
#: `ir.program.LibraryCall`; its operands are the arrays x0, x1, ..., its results y0, y1, ...; y0
#: begins as a copy of x0, and `results` has the core shapes and dtypes of the others. Only the
#: compiler makes it.
library_call_p = LibraryOp("library_call", multiple_results=True, register=False)
library_call_p.define(lower=LibrarySpec())

Arguments = Sequence[Any]


@library_call_p.def_type
def _library_call_type(
    *avals: ShapedArray,
    routine: str,
    arguments: Arguments,
    results: Sequence[tuple[tuple[int, ...], Any]],
):
    lead = avals[0].shape[:-2]
    others = [
        ShapedArray((*lead, *core), np.dtype(dtype), False, None, avals[0].vma)
        for core, dtype in results
    ]
    return (avals[0].strip_weak_type(), *others)


@library_call_p.def_reference
def _library_call_reference(
    *operands: NumPyArray,
    routine: str,
    arguments: Arguments,
    results: Sequence[tuple[tuple[int, ...], Any]],
):
    lead = operands[0].shape[:-2]
    outs = [
        np.array(operands[0], order="C"),
        *(np.zeros((*lead, *core), dtype) for core, dtype in results),
    ]
    for at in np.ndindex(lead):
        arrays = {f"x{i}": np.ascontiguousarray(x[at]) for i, x in enumerate(operands)}
        arrays |= {f"y{i}": np.array(y[at]) for i, y in enumerate(outs)}
        lapack.call(routine, arguments, arrays)
        for i, out in enumerate(outs):
            out[at] = arrays[f"y{i}"]
    return outs


def call_routine(
    name: str,
    operands: Sequence[Any],
    arguments: Arguments,
    results: Sequence[tuple[tuple[int, ...], Any]],
) -> list[Any]:
    """Call the routine for the dtype of the operands.

    `name` is the part after the type letter (for real and complex, if they differ).
    """
    dtype = typeof(operands[0]).dtype
    letter = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}[dtype.name]
    real_name, _, complex_name = name.partition(" ")
    routine = letter + ((complex_name or real_name) if letter in "cz" else real_name)
    results = tuple((tuple(core), np.dtype(kind).name) for core, kind in results)
    return library_call_p.bind(
        *operands, routine=routine, arguments=tuple(arguments), results=results
    )


def real_of(dtype: np.dtype[Any]) -> np.dtype:
    return (
        np.dtype(dtypes.to_real_dtype(dtype))
        if dtypes.issubdtype(dtype, np.complexfloating)
        else dtype
    )


def workspace_arguments(dtype: dtypes.DTypeLike, count: int) -> tuple[Any, ...]:
    """Return two arguments of a routine: workspace and its size."""
    return (("work", np.dtype(dtype).name, count), count)


def nan_if_failed(info: Value, *values: Value) -> list[Any]:
    """Return `values`, with NaN where `info` is not 0."""
    fine = eq(info, full(typeof(info).shape, 0, np.int32))
    out: list[Value] = []
    for value in values:
        aval = typeof(value)
        mask = broadcast_in_dim(fine, aval.shape, tuple(range(typeof(info).ndim)))
        out.append(select_n(mask, full(aval.shape, np.nan, aval.dtype), value))
    return out


def _resize_rows(x: Value, count: int):
    """Return the matrices `x`, cut or padded with zeros to `count` rows."""
    rows = typeof(x).shape[-2]
    if count <= rows:
        return slice_in_dim(x, 0, count, 1, typeof(x).ndim - 2)
    config = [(0, 0, 0)] * (typeof(x).ndim - 2) + [(0, count - rows, 0), (0, 0, 0)]
    return pad(x, np.zeros((), typeof(x).dtype)[()], config)


def identities(x: Value, rows: int, columns: int):
    """Return an identity of `rows` and `columns` for every matrix of `x`."""
    return identity(ShapedArray((*typeof(x).shape[:-2], rows, columns), np.dtype(typeof(x).dtype)))


def zeros_of(x: Value, *core: int, dtype: np.dtype[Any] | None = None):
    return full((*typeof(x).shape[:-2], *core), 0, dtype or typeof(x).dtype)


def cholesky(x: Value):
    """Return the lower factor, which in memory is the upper factor of the transpose."""
    n = typeof(x).shape[-1]
    if n == 0:
        return x
    factor, info = call_routine("potrf", [x], ("U", n, "y0", n, "y1"), [((), np.int32)])
    return nan_if_failed(info, tril(factor))[0]


def triangular_solve(
    a: Value,
    b: Value,
    *,
    left_side: bool,
    lower: bool,
    transpose_a: bool,
    conjugate_a: bool,
    unit_diagonal: bool,
):
    """Solve op(a) x = b transposed, x' op(a)' = b': the sides and the triangles are exchanged."""
    if 0 in typeof(b).shape:
        return b
    if conjugate_a and not transpose_a and is_complex(a):
        a = conj(a)
    rows, columns = typeof(b).shape[-2:]
    n = typeof(a).shape[-1]
    op = ("C" if conjugate_a else "T") if transpose_a else "N"
    arguments = (
        "R" if left_side else "L",
        "U" if lower else "L",
        op,
        "U" if unit_diagonal else "N",
        columns,
        rows,
        1.0,
        "x1",
        n,
        "y0",
        columns,
    )
    return call_routine("trsm", [b, a], arguments, [])[0]


def lu(x: Value) -> list[Any]:
    """Return the LU factors; rows are exchanged, so the routine needs column-major matrices."""
    m, n = typeof(x).shape[-2:]
    k = min(m, n)
    if k == 0:
        order = broadcasted_iota(np.int32, (*typeof(x).shape[:-2], m), typeof(x).ndim - 2)
        return [x, zeros_of(x, 0, dtype=np.dtype(np.int32)), order]
    packed, pivots, _ = call_routine(
        "getrf",
        [matrix_transpose(x)],
        (m, n, "y0", m, "y1", "y2"),
        [((k,), np.int32), ((), np.int32)],
    )
    return [
        matrix_transpose(packed),
        sub(pivots, full(typeof(pivots).shape, 1, np.int32)),
        _apply_exchanges(pivots, m),
    ]


def lu_pivots_to_permutation(pivots: Value, *, permutation_size: int):
    """Return the permutation that results from exchanges of the numbers 0, 1, ..."""
    aval = typeof(pivots)
    if 0 in aval.shape or permutation_size == 0:
        return broadcasted_iota(aval.dtype, (*aval.shape[:-1], permutation_size), aval.ndim - 1)
    counted = convert_element_type(pivots, np.int32)
    counted = add(counted, full(aval.shape, 1, np.int32))
    return convert_element_type(_apply_exchanges(counted, permutation_size), aval.dtype)


def _apply_exchanges(pivots: Value, size: int):
    """Return the numbers below `size` after exchanges; `pivots` count from 1.

    The routine moves them as floats, which represent them exactly.
    """
    lead, k = typeof(pivots).shape[:-1], typeof(pivots).shape[-1]
    numbers = broadcasted_iota(
        dtypes.canonicalize_dtype(np.float64), (*lead, 1, size), len(lead) + 1
    )
    moved = call_routine("laswp", [numbers, pivots], (1, "y0", size, 1, k, "x1", 1), [])[0]
    return convert_element_type(reshape(moved, (*lead, size)), np.int32)


def qr(x: Value, *, pivoting: bool, full_matrices: bool) -> list[Any]:
    """Return Q and R, from R and the reflectors of Q in one matrix."""
    m, n = typeof(x).shape[-2:]
    dtype, k = typeof(x).dtype, min(m, n)
    columns = m if full_matrices else k
    if k == 0:
        order = broadcasted_iota(np.int32, (*typeof(x).shape[:-2], n), typeof(x).ndim - 2)
        return [identities(x, m, columns), zeros_of(x, columns, n), *([order] if pivoting else [])]
    turned, taus, order = matrix_transpose(x), ((k,), dtype), []
    if pivoting:
        scratch = [("work", real_of(dtype).name, 2 * n)] if is_complex(x) else []
        arguments = (
            m,
            n,
            "y0",
            m,
            "y1",
            "y2",
            *workspace_arguments(dtype, 2 * n + (n + 1) * BLOCK),
            *scratch,
            "y3",
        )
        packed, pivots, tau, _ = call_routine(
            "geqp3", [turned], arguments, [((n,), np.int32), taus, ((), np.int32)]
        )
        order = [sub(pivots, full(typeof(pivots).shape, 1, np.int32))]
    else:
        packed, tau = _reflectors(turned, m, n)
    arguments = (m, columns, k, "y0", m, "x1", *workspace_arguments(dtype, columns * BLOCK), "y1")
    q, _ = call_routine(
        "orgqr ungqr", [_resize_rows(packed, columns), tau], arguments, [((), np.int32)]
    )
    return [matrix_transpose(q), _resize_rows(triu(matrix_transpose(packed)), columns), *order]


def _reflectors(turned: Value, m: int, n: int) -> list[Any]:
    """Return R with the reflectors of Q, and their scalar factors, for column-major matrices."""
    dtype = typeof(turned).dtype
    arguments = (m, n, "y0", m, "y1", *workspace_arguments(dtype, n * BLOCK), "y2")
    return call_routine("geqrf", [turned], arguments, [((min(m, n),), dtype), ((), np.int32)])[:2]


def geqrf(x: Value) -> list[Any]:
    """Return R with the reflectors of Q, and their scalar factors, as columns."""
    m, n = typeof(x).shape[-2:]
    if 0 in (m, n):
        return [x, zeros_of(x, 0)]
    packed, taus = _reflectors(matrix_transpose(x), m, n)
    return [matrix_transpose(packed), taus]


def eigh(x: Value, *, lower: bool, sort_eigenvalues: bool) -> list[Any]:
    """Return eigenvectors and eigenvalues.

    Matrices are passed column-major: from the other triangle the vectors would have other signs.
    """
    n, dtype = typeof(x).shape[-1], typeof(x).dtype
    if n == 0:
        return [x, zeros_of(x, 0, dtype=real_of(dtype))]
    whole, square = 1 + 6 * n + 2 * n * n, n * n
    if is_complex(x):
        scratch = (
            *workspace_arguments(dtype, square + (BLOCK + 2) * n),
            *workspace_arguments(real_of(dtype), whole),
        )
    else:
        scratch = workspace_arguments(dtype, whole + BLOCK * n)
    arguments = (
        "V",
        "L" if lower else "U",
        n,
        "y0",
        n,
        "y1",
        *scratch,
        *workspace_arguments(np.int32, 3 + 5 * n),
        "y2",
    )
    v, w, info = call_routine(
        "syevd heevd", [matrix_transpose(x)], arguments, [((n,), real_of(dtype)), ((), np.int32)]
    )
    return nan_if_failed(info, matrix_transpose(v), w)


def svd(x: Value, *, full_matrices: bool, compute_uv: bool, steps_of_qr: bool = False) -> list[Any]:
    """Return the singular values and vectors.

    Matrices are passed column-major: the transpose has the same singular values, but vectors of
    other signs.
    """
    m, n = typeof(x).shape[-2:]
    dtype, k = typeof(x).dtype, min(m, n)
    real = real_of(dtype)
    left, right = (m, n) if full_matrices else (k, k)
    if k == 0:
        return [
            zeros_of(x, 0, dtype=real),
            *([identities(x, m, left), identities(x, right, n)] if compute_uv else []),
        ]
    spread = BLOCK * (m + n) + max(m, n)
    job = ("A" if full_matrices else "S") if compute_uv else "N"
    scratch = workspace_arguments(dtype, spread + 7 * k + (4 * k * k if compute_uv else 0))
    if is_complex(x):
        scratch = (
            *scratch,
            (
                "work",
                real.name,
                max(5 * k * k + 5 * k, 2 * (m + n) * k + 2 * k * k + k) if compute_uv else 7 * k,
            ),
        )
    vectors = ("y2", m, "y3", right) if compute_uv else ("y1", m, "y1", right)
    jobs, scratch = (job,), (*scratch, ("work", "int32", 8 * k))
    if steps_of_qr:
        work = workspace_arguments(dtype, spread + 5 * k)
        jobs, scratch = (job, job), (*work, *[("work", real.name, 5 * k)] * is_complex(x))
    info_at = f"y{4 if compute_uv else 2}"
    arguments = (*jobs, m, n, "y0", m, "y1", *vectors, *scratch, info_at)
    cores = [((left, m), dtype), ((n, right), dtype)] if compute_uv else []
    routine = "gesvd" if steps_of_qr else "gesdd"
    _, s, *vectors, info = call_routine(
        routine, [matrix_transpose(x)], arguments, [((k,), real), *cores, ((), np.int32)]
    )
    return nan_if_failed(info, s, *map(matrix_transpose, vectors))
