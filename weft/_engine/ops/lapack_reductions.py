"""LAPACK calls that reduce matrices to simpler forms: the compiled form of `ops.matrix_forms` and
`eig`.

In, out and laws: as in `ops.lapack`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.trace import typeof
from weft._engine.ops.arithmetic import is_complex
from weft._engine.ops.elementwise import (
    bitwise_and,
    complex as complex_of,
    gt,
    imag,
    lt,
    neg,
    real,
    select_n,
)
from weft._engine.ops.families import full
from weft._engine.ops.functions import is_finite
from weft._engine.ops.lapack import (
    BLOCK,
    call_routine,
    identities,
    nan_if_failed,
    real_of,
    workspace_arguments,
    zeros_of,
)
from weft._engine.ops.layout import broadcast_in_dim, reshape
from weft._engine.ops.matrices import matrix_transpose
from weft._engine.ops.reduce import reduce_and
from weft._engine.ops.slicing import concatenate, pad, slice_in_dim
from weft._engine.util import dtypes

if TYPE_CHECKING:
    from weft._engine.ops.rule_types import Value

_INFO = ((), np.int32)


def hessenberg(x: Value) -> list[Any]:
    """Return the Hessenberg form; reflectors are columns, so matrices are passed column-major."""
    n, dtype = typeof(x).shape[-1], typeof(x).dtype
    if n < 2:
        return [x, zeros_of(x, max(n - 1, 0))]
    arguments = (n, 1, n, "y0", n, "y1", *workspace_arguments(dtype, n * BLOCK), "y2")
    packed, taus, info = call_routine(
        "gehrd", [matrix_transpose(x)], arguments, [((n - 1,), dtype), _INFO]
    )
    return nan_if_failed(info, matrix_transpose(packed), taus)


def tridiagonal(x: Value, *, lower: bool) -> list[Any]:
    """Return the tridiagonal form, from the triangle that the routine sees.

    Reflectors are columns.
    """
    n, dtype = typeof(x).shape[-1], typeof(x).dtype
    real = real_of(dtype)
    if n == 0:
        return [x, zeros_of(x, 0, dtype=real), zeros_of(x, 0, dtype=real), zeros_of(x, 0)]
    arguments = (
        "L" if lower else "U",
        n,
        "y0",
        n,
        "y1",
        "y2",
        "y3",
        *workspace_arguments(dtype, n * BLOCK),
        "y4",
    )
    off_diagonal = max(n - 1, 1)  # results without elements need no memory
    packed, d, e, taus, info = call_routine(
        "sytrd hetrd",
        [matrix_transpose(x)],
        arguments,
        [((n,), real), ((off_diagonal,), real), ((off_diagonal,), dtype), _INFO],
    )
    last = typeof(e).ndim - 1
    e, taus = [slice_in_dim(v, 0, n - 1, 1, last) for v in (e, taus)]
    return nan_if_failed(info, matrix_transpose(packed), d, e, taus)


def schur(x: Value, *, compute_schur_vectors: bool) -> list[Any]:
    """Return the Schur form; vectors are columns."""
    n, dtype = typeof(x).shape[-1], typeof(x).dtype
    if n == 0:
        return [x, x][: 2 if compute_schur_vectors else 1]
    # nothing is sorted: the selection function is not called, and its workspace is not read
    if is_complex(x):
        values, scratch = [((n,), dtype)], [("work", real_of(dtype).name, n)]
    else:
        values, scratch = [((n,), dtype), ((n,), dtype)], []
    names = [f"y{1 + i}" for i in range(len(values))]
    vectors, info = f"y{1 + len(values)}", f"y{2 + len(values)}"
    arguments = (
        "V" if compute_schur_vectors else "N",
        "N",
        ("work", "int32", 1),
        n,
        "y0",
        n,
        ("work", "int32", 1),
        *names,
        vectors,
        n,
        *workspace_arguments(dtype, (BLOCK + 3) * n),
        *scratch,
        ("work", "int32", n),
        info,
    )
    turned, fine = _finite(matrix_transpose(x))
    form, *_, q, status = call_routine(
        "gees", [turned], arguments, [*values, ((n, n), dtype), _INFO]
    )
    status = select_n(fine, full(typeof(status).shape, 1, np.int32), status)
    return nan_if_failed(
        status, *[matrix_transpose(v) for v in (form, q)[: 2 if compute_schur_vectors else 1]]
    )


def householder_product(a: Value, taus: Value):
    """Return the matrices that column reflectors stand for."""
    m, n = typeof(a).shape[-2:]
    k = typeof(taus).shape[-1]
    if 0 in (m, n):
        return a
    if k == 0:
        return identities(a, m, n)
    arguments = (m, n, k, "y0", m, "x1", *workspace_arguments(typeof(a).dtype, n * BLOCK), "y1")
    q, info = call_routine("orgqr ungqr", [matrix_transpose(a), taus], arguments, [_INFO])
    return nan_if_failed(info, matrix_transpose(q))[0]


def ormqr(a: Value, taus: Value, c: Value, *, left: bool, transpose: bool):
    """Return the product with the matrix of the reflectors, which are columns of `a`."""
    m, n = typeof(c).shape[-2:]
    k = typeof(taus).shape[-1]
    if 0 in (m, n, k):
        return c
    arguments = (
        "L" if left else "R",
        ("C" if is_complex(a) else "T") if transpose else "N",
        m,
        n,
        k,
        "x1",
        typeof(a).shape[-2],
        "x2",
        "y0",
        m,
        *workspace_arguments(typeof(a).dtype, (m + n) * BLOCK + 65 * BLOCK),
        "y1",
    )
    out, info = call_routine(
        "ormqr unmqr", [matrix_transpose(c), matrix_transpose(a), taus], arguments, [_INFO]
    )
    return nan_if_failed(info, matrix_transpose(out))[0]


def tridiagonal_solve(dl: Value, d: Value, du: Value, b: Value):
    """Solve tridiagonal systems.

    The routine leaves the diagonals unchanged, and reports a nearly singular matrix by a larger
    number.
    """
    n, columns = typeof(b).shape[-2:]
    if 0 in (n, columns):
        return b
    lead, last = typeof(d).shape[:-1], typeof(d).ndim - 1
    turned = reshape(matrix_transpose(b), (*lead, columns * n))
    # the routine overwrites all of its operands, so they are parts of one array
    whole = reshape(concatenate([turned, dl, d, du], last), (*lead, columns + 3, n))
    at = n * columns
    arguments = (n, columns, ("y0", at + 1), ("y0", at + n), ("y0", at + 2 * n), "y0", n, "y1")
    out, info = call_routine("gtsv", [whole], arguments, [_INFO])
    return nan_if_failed(info, matrix_transpose(slice_in_dim(out, 0, columns, 1, last)))[0]


def eig(
    x: Value,
    *,
    compute_left_eigenvectors: bool,
    compute_right_eigenvectors: bool,
    enable_eigvec_derivs: bool = False,
) -> list[Any]:
    """Return eigenvalues and eigenvectors, as columns.

    For a real matrix the columns are real; a conjugate pair is a pair of real and imaginary parts.
    """
    n, dtype = typeof(x).shape[-1], np.dtype(typeof(x).dtype)
    computed = [compute_left_eigenvectors, compute_right_eigenvectors]
    kind = np.dtype(dtypes.to_complex_dtype(dtype))
    if n == 0:
        return [zeros_of(x, 0, dtype=kind), *[zeros_of(x, 0, 0, dtype=kind)] * sum(computed)]
    turned, fine = _finite(matrix_transpose(x))
    jobs = ["V" if w else "N" for w in computed]
    if is_complex(x):
        arguments = (
            *jobs,
            n,
            "y0",
            n,
            "y1",
            "y2",
            n,
            "y3",
            n,
            *workspace_arguments(dtype, n * BLOCK),
            ("work", real_of(dtype).name, 2 * n),
            "y4",
        )
        _, w, *eigenvectors, info = call_routine(
            "geev", [turned], arguments, [((n,), dtype), *[((n, n), dtype)] * 2, _INFO]
        )
        vectors = [matrix_transpose(v) for v, needed in zip(eigenvectors, computed) if needed]
    else:
        arguments = (
            *jobs,
            n,
            "y0",
            n,
            "y1",
            "y2",
            "y3",
            n,
            "y4",
            n,
            *workspace_arguments(dtype, n * BLOCK),
            "y5",
        )
        _, wr, wi, *eigenvectors, info = call_routine(
            "geev", [turned], arguments, [*[((n,), dtype)] * 2, *[((n, n), dtype)] * 2, _INFO]
        )
        w = complex_of(wr, wi)
        vectors = [
            _join(matrix_transpose(v), wi) for v, needed in zip(eigenvectors, computed) if needed
        ]
    return nan_if_failed(select_n(fine, full(typeof(info).shape, 1, np.int32), info), w, *vectors)


def _join(v: Value, wi: Value):
    """Return complex eigenvectors from real columns.

    Where `wi` is positive, the next column is the imaginary part; the column after it is the
    conjugate.
    """
    shape, last = typeof(v).shape, typeof(v).ndim - 1
    zero = np.zeros((), typeof(v).dtype)[()]
    shifted: Callable[[int], Value] = lambda by: pad(v, zero, [(0, 0, 0)] * last + [(by, -by, 0)])
    sign = broadcast_in_dim(wi, shape, (*range(last - 1), last))
    nothing = full(shape, 0, typeof(v).dtype)
    first, second = gt(sign, nothing), lt(sign, nothing)
    return complex_of(
        select_n(second, v, shifted(1)),
        select_n(second, select_n(first, nothing, shifted(-1)), neg(v)),
    )


def _finite(x: Value) -> tuple[Any, ...]:
    """Return `x` with zeros for matrices that contain infinities or NaN, and a mask of the others.

    Routines may not terminate on such matrices.
    """
    parts = [is_finite(part) for part in ((real(x), imag(x)) if is_complex(x) else (x,))]
    fine = reduce_and(
        parts[0] if len(parts) == 1 else bitwise_and(*parts),
        (typeof(x).ndim - 2, typeof(x).ndim - 1),
    )
    mask = broadcast_in_dim(fine, typeof(x).shape, tuple(range(typeof(x).ndim - 2)))
    return select_n(mask, full(typeof(x).shape, 0, typeof(x).dtype), x), fine
