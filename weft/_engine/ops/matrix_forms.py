"""Reductions of matrices to simpler forms by orthogonal transformations, and products of their
reflectors.

In:   arrays whose last two dims are matrices; all other dims are batch dims.
Out:  QR factors as reflectors; Hessenberg, tridiagonal and Schur forms; solutions of tridiagonal
      systems; the orthogonal matrices that reflectors represent.
Laws: as in `ops.linalg`: one LAPACK call per matrix; failures give NaN. Only tridiagonal systems
      have derivatives.
Next: `ops.lapack_reductions` has the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.primitive import LibraryOp, Primitive, declare_unsupported
from weft._engine.core.trace import Zero, is_undef, typeof
from weft._engine.ir.factors import RuleBuilder
from weft._engine.ir.types import ShapedArray
from weft._engine.ops import lapack, lapack_reductions
from weft._engine.ops.elementwise import add, mul, neg
from weft._engine.ops.families import (
    add_tangents,
    instantiate,
    joined_vma,
    shape_error,
    zero_tangent,
)
from weft._engine.ops.layout import broadcast_in_dim
from weft._engine.ops.lowering_specs import ExpandSpec
from weft._engine.ops.matrix_operands import check_matrix, map_matrices, real_dtype, stacked_type
from weft._engine.ops.rule_helpers import batch_dim_to_front
from weft._engine.ops.slicing import pad
from weft._engine.util.lazy import scipy_module

if TYPE_CHECKING:
    from weft._engine.core.primitive import BatchAxis
    from weft._engine.ops.rule_types import (
        Array,
        ArrayLike,
        Avals,
        BatchDims,
        NumPyArray,
        Value,
        Values,
    )

_NO_DERIVATIVE = "has no derivative: the form is not unique, and its parts are not smooth"


def _form(
    name: str,
    compiled: Callable[..., Any],
    multiple_results: bool,
    ranks: Sequence[int],
    is_unique: bool = True,
) -> Primitive:
    """Return the primitive of a transformation of each matrix.

    The last `ranks` dims of operands are core dims.
    """
    p = LibraryOp(name, multiple_results=multiple_results, is_unique=is_unique)
    p.define(
        lower=ExpandSpec(compiled),
        transpose=declare_unsupported(_NO_DERIVATIVE),
        jvp=declare_unsupported(_NO_DERIVATIVE),
    )

    @p.def_batch
    def batch(axis: BatchAxis, args: Values, dims: BatchDims, **params: Any):
        out = p.bind(*[batch_dim_to_front(x, d, axis.size) for x, d in zip(args, dims)], **params)
        return (out, [0] * len(out)) if multiple_results else (out, 0)

    @p.def_factors
    def factors(in_avals: Avals, out_avals: Avals, **params: Any):
        b = RuleBuilder()
        lead = b.add_factors(in_avals[0].shape[: in_avals[0].ndim - ranks[0]])
        special: dict[int, str] = {}

        def with_core(aval: ShapedArray):
            inner = b.add_factors(aval.shape[len(lead) :])
            special.update(dict.fromkeys(inner, "replicate"))
            return [*lead, *inner]

        ins, outs = [[with_core(a) for a in avals] for avals in (in_avals, out_avals)]
        return b.rule(ins, outs, special=special)

    return p


geqrf_p = _form("geqrf", lapack.geqrf, True, (2,))
hessenberg_p = _form("hessenberg", lapack_reductions.hessenberg, True, (2,), is_unique=False)
tridiagonal_p = _form("tridiagonal", lapack_reductions.tridiagonal, True, (2,), is_unique=False)
schur_p = _form("schur", lapack_reductions.schur, True, (2,), is_unique=False)
householder_product_p = _form(
    "householder_product", lapack_reductions.householder_product, False, (2, 1)
)
ormqr_p = _form("ormqr", lapack_reductions.ormqr, False, (2, 1, 2))


def geqrf(a: Value) -> tuple[Any, ...]:
    """Return the factors of `qr` in LAPACK's form.

    They are R with the reflectors of Q below its diagonal, and the scalar factors of the
    reflectors.

    `householder_product` computes Q from them, `ormqr` multiplies by it. Raise TypeError unless the
    dtype is floating or complex with at least 32 bits per part.

    >>> packed, taus = geqrf(np.ones((3, 2), np.float32))
    >>> packed.shape, taus.shape
    ((3, 2), (2,))
    """
    return tuple(geqrf_p.bind(a))


def hessenberg(a: ArrayLike) -> tuple[Any, ...]:
    """Return the Hessenberg form H = Q^H a Q of square matrices.

    Also return the scalar factors of the reflectors.

    The reflectors of Q are below the first subdiagonal of H.

    `householder_product(h[..., 1:, :-1], taus)` is Q without its first row and column. Raise
    TypeError unless the dtype is floating or complex with at least 32 bits per part, ShapeError for
    matrices that are not square.

    >>> h, taus = hessenberg(np.arange(9, dtype=np.float32).reshape(3, 3))
    >>> h.shape, taus.shape
    ((3, 3), (2,))
    """
    return tuple(hessenberg_p.bind(a))


def tridiagonal(a: ArrayLike, *, lower: bool = True) -> tuple[Any, ...]:
    """Return the tridiagonal form of symmetric or Hermitian matrices.

    The results are the reflectors of the transformation in one triangle, the diagonal, the
    off-diagonal, and the scalar factors of the reflectors. Only the triangle that `lower` selects
    is read.

    >>> packed, d, e, taus = tridiagonal(np.eye(3, dtype=np.float32))
    >>> d.shape, e.shape, taus.shape
    ((3,), (2,), (2,))
    """
    return tuple(tridiagonal_p.bind(a, lower=bool(lower)))


def schur(
    x: ArrayLike,
    *,
    compute_schur_vectors: bool = True,
    sort_eig_vals: bool = False,
    select_callable: Callable[..., Any] | None = None,
) -> Any:
    """Return the Schur form T = Q^H x Q of square matrices and Q, in a tuple.

    Without `compute_schur_vectors`, return T alone.

    T is upper triangular for complex matrices; for real ones it has 2 x 2 blocks where eigenvalues are conjugate pairs. Raises
    NotImplementedError for sorted eigenvalues.

    >>> t, q = schur(np.array([[1., 2.], [0., 3.]], np.float32))
    >>> np.asarray(t).tolist()
    [[1.0, 2.0], [0.0, 3.0]]
    """
    if sort_eig_vals or select_callable is not None:
        raise NotImplementedError(
            "schur: eigenvalues cannot be sorted; leave sort_eig_vals and select_callable out."
        )
    return tuple(schur_p.bind(x, compute_schur_vectors=bool(compute_schur_vectors)))


def householder_product(a: ArrayLike, taus: ArrayLike) -> Array:
    """Return the columns of the orthogonal (unitary) product of Householder reflectors.

    The reflectors are in the form of LAPACK's `qr`.

    Reflector k is 1 - taus[k] v v^H, where v has zeros, a one at k, and column k of `a` below.
    Raise ShapeError unless `a` has at least as many rows as columns, and `taus` at most one entry
    per column.

    >>> householder_product(np.eye(3, 2, dtype=np.float32), np.zeros(2, np.float32)).shape
    (3, 2)
    """
    return householder_product_p.bind(a, taus)


def ormqr(
    a: ArrayLike, taus: ArrayLike, c: ArrayLike, *, left: bool = True, transpose: bool = False
) -> Array:
    """Return Q c, or c Q unless `left`, for the square Q of the reflectors in `a` and `taus`.

    With `transpose`, Q^H replaces Q.

    >>> ormqr(np.eye(3, 2, dtype=np.float32), np.zeros(2, np.float32), np.ones((3, 4), np.float32)).shape
    (3, 4)
    """
    return ormqr_p.bind(a, taus, c, left=bool(left), transpose=bool(transpose))


# --- types


@geqrf_p.def_type
def _geqrf_type(a: ShapedArray):
    check_matrix("geqrf", a, square=False)
    return stacked_type(a, a.shape[-2:]), stacked_type(a, (min(a.shape[-2:]),))


@hessenberg_p.def_type
def _hessenberg_type(a: ShapedArray):
    check_matrix("hessenberg", a, square=True)
    return stacked_type(a, a.shape[-2:]), stacked_type(a, (max(a.shape[-1] - 1, 0),))


@tridiagonal_p.def_type
def _tridiagonal_type(a: ShapedArray, *, lower: bool):
    check_matrix("tridiagonal", a, square=True)
    n, real = a.shape[-1], real_dtype(a.dtype)
    off_diagonal = max(n - 1, 0)
    return (
        stacked_type(a, (n, n)),
        stacked_type(a, (n,), real),
        stacked_type(a, (off_diagonal,), real),
        stacked_type(a, (off_diagonal,)),
    )


@schur_p.def_type
def _schur_type(a: ShapedArray, *, compute_schur_vectors: bool):
    check_matrix("schur", a, square=True)
    return (stacked_type(a, a.shape[-2:]),) * (2 if compute_schur_vectors else 1)


def _check_reflectors(name: str, a: ShapedArray, taus: ShapedArray) -> None:
    check_matrix(name, a, square=False)
    m, n = a.shape[-2:]
    if m < n or taus.ndim != a.ndim - 1 or taus.shape[:-1] != a.shape[:-2] or taus.shape[-1] > n:
        raise shape_error(
            name,
            "the shapes do not fit.",
            [("a", a.str_short()), ("taus", taus.str_short())],
            "a must have at least as many rows as columns, and taus one entry for each reflector, at most one a column.",
        )
    if taus.dtype != a.dtype:
        raise TypeError(f"{name}: requires equal dtypes, got {a.dtype.name} and {taus.dtype.name}.")


@householder_product_p.def_type
def _householder_type(a: ShapedArray, taus: ShapedArray):
    _check_reflectors("householder_product", a, taus)
    return ShapedArray(a.shape, a.dtype, False, None, joined_vma((a, taus)))


@ormqr_p.def_type
def _ormqr_type(a: ShapedArray, taus: ShapedArray, c: ShapedArray, *, left: bool, transpose: bool):
    _check_reflectors("ormqr", a, taus)
    check_matrix("ormqr", c, square=False)
    if c.dtype != a.dtype:
        raise TypeError(f"ormqr: requires equal dtypes, got {a.dtype.name} and {c.dtype.name}.")
    if c.shape[:-2] != a.shape[:-2] or c.shape[-2 if left else -1] != a.shape[-2]:
        raise shape_error(
            "ormqr",
            "the shapes do not fit.",
            [("a", a.str_short()), ("c", c.str_short())],
            f"Batch dims must be equal, and dim {-2 if left else -1} of c must have as many entries as a has rows.",
        )
    return ShapedArray(c.shape, c.dtype, False, None, joined_vma((a, taus, c)))


# --- references: SciPy's, one matrix at a time


@geqrf_p.def_reference
def _geqrf_reference(a: NumPyArray):
    m, n = a.shape[-2:]

    def apply_to_matrix(x: Value):
        if 0 in (m, n):
            return x, np.zeros(0, x.dtype)
        packed, taus = np.linalg.qr(x, mode="raw")
        return packed.T, taus

    return map_matrices(a, apply_to_matrix, [(m, n), (min(m, n),)], [a.dtype, a.dtype], many=False)


@hessenberg_p.def_reference
def _hessenberg_reference(a: NumPyArray):
    get_lapack_funcs = scipy_module("linalg").get_lapack_funcs
    n = a.shape[-1]

    def apply_to_matrix(x: Value):
        if n < 2:
            return x, np.zeros(max(n - 1, 0), x.dtype)
        (gehrd,) = get_lapack_funcs(("gehrd",), (x,))
        h, taus, _info = gehrd(x, lo=0, hi=n - 1)
        return h, taus

    return map_matrices(
        a, apply_to_matrix, [(n, n), (max(n - 1, 0),)], [a.dtype, a.dtype], many=False
    )


@tridiagonal_p.def_reference
def _tridiagonal_reference(a: NumPyArray, *, lower: bool):
    get_lapack_funcs = scipy_module("linalg").get_lapack_funcs
    n, real = a.shape[-1], real_dtype(a.dtype)

    def apply_to_matrix(x: Value):
        if n == 0:
            return x, np.zeros(0, real), np.zeros(0, real), np.zeros(0, x.dtype)
        (reduce,) = get_lapack_funcs(("hetrd" if np.iscomplexobj(x) else "sytrd",), (x,))
        return reduce(x, lower=int(lower))[:4]

    off_diagonal = max(n - 1, 0)
    return map_matrices(
        a,
        apply_to_matrix,
        [(n, n), (n,), (off_diagonal,), (off_diagonal,)],
        [a.dtype, real, real, a.dtype],
        many=False,
    )


@schur_p.def_reference
def _schur_reference(a: NumPyArray, *, compute_schur_vectors: bool):
    general = scipy_module("linalg").schur
    n = a.shape[-1]

    def apply_to_matrix(x: Value):
        if not np.isfinite(x).all():
            raise np.linalg.LinAlgError
        factors = general(x, "complex" if np.iscomplexobj(x) else "real") if n else (x, x)
        return factors[: 2 if compute_schur_vectors else 1]

    count = 2 if compute_schur_vectors else 1
    return map_matrices(a, apply_to_matrix, [(n, n)] * count, [a.dtype] * count, many=False)


def _product(a: np.ndarray, taus: np.ndarray) -> np.ndarray:
    """Return the square matrix that the reflectors of one matrix represent."""
    m = a.shape[-2]
    out = np.eye(m, dtype=a.dtype)
    for k, tau in enumerate(taus):
        v = np.concatenate([np.zeros(k), np.ones(1), a[k + 1 :, k]]).astype(a.dtype)
        out = out - tau * np.outer(out @ v, v.conj())
    return out


@householder_product_p.def_reference
def _householder_reference(a: NumPyArray, taus: NumPyArray):
    out = np.zeros(a.shape, a.dtype)
    for at in np.ndindex(a.shape[:-2]):
        out[at] = _product(a[at], taus[at])[:, : a.shape[-1]]
    return out


@ormqr_p.def_reference
def _ormqr_reference(
    a: NumPyArray, taus: NumPyArray, c: NumPyArray, *, left: bool, transpose: bool
):
    out = np.zeros(c.shape, c.dtype)
    for at in np.ndindex(c.shape[:-2]):
        q = _product(a[at], taus[at])
        q = q.conj().T if transpose else q
        out[at] = q @ c[at] if left else c[at] @ q
    return out


# --- tridiagonal systems


tridiagonal_solve_p = LibraryOp("tridiagonal_solve")
tridiagonal_solve_p.define(lower=ExpandSpec(lapack_reductions.tridiagonal_solve))


@tridiagonal_solve_p.def_type
def _tridiagonal_solve_type(dl: ShapedArray, d: ShapedArray, du: ShapedArray, b: ShapedArray):
    check_matrix("tridiagonal_solve", b, square=False)
    if any(x.dtype != b.dtype for x in (dl, d, du)):
        raise TypeError(
            f"tridiagonal_solve: requires equal dtypes, got {', '.join(x.dtype.name for x in (dl, d, du, b))}."
        )
    if any(x.shape != b.shape[:-1] for x in (dl, d, du)):
        raise shape_error(
            "tridiagonal_solve",
            "the shapes do not fit.",
            [(name, x.str_short()) for name, x in (("dl", dl), ("d", d), ("du", du), ("b", b))],
            "The diagonals must have the shape of b without its last dim.",
        )
    return ShapedArray(b.shape, b.dtype, False, None, joined_vma((dl, d, du, b)))


@tridiagonal_solve_p.def_reference
def _tridiagonal_solve_reference(dl: NumPyArray, d: NumPyArray, du: NumPyArray, b: NumPyArray):
    out = np.zeros(b.shape, b.dtype)
    for at in np.ndindex(b.shape[:-2]):
        matrix = np.diag(d[at]) + np.diag(dl[at][1:], -1) + np.diag(du[at][:-1], 1)
        try:
            out[at] = np.linalg.solve(matrix, b[at])
        except np.linalg.LinAlgError:
            out[at] = np.nan
    return out


def _shift_entries(x: Value, by: int):
    """Shift entries of the last dim by `by` positions and fill with zeros."""
    dim, n = typeof(x).ndim - 1, typeof(x).shape[-1]
    config = [(0, 0, 0)] * dim + [(by, -by, 0)]
    return pad(x, np.zeros((), typeof(x).dtype)[()], config) if n else x


def _times(dl: Value, d: Value, du: Value, x: Value):
    """Return A x for the tridiagonal A."""
    shape, rows = typeof(x).shape, typeof(x).ndim - 2
    wide: Callable[[Value], Value] = lambda v: broadcast_in_dim(
        v, shape, tuple(range(len(shape) - 1))
    )
    n = shape[rows]
    zero = np.zeros((), typeof(x).dtype)[()]
    shift: Callable[[int], Value] = lambda by: (
        pad(x, zero, [(0, 0, 0)] * rows + [(by, -by, 0), (0, 0, 0)]) if n else x
    )
    return add(add(mul(wide(dl), shift(1)), mul(wide(d), x)), mul(wide(du), shift(-1)))


@tridiagonal_solve_p.def_jvp
def _tridiagonal_solve_jvp(primals: Values, tangents: Values):
    dl, d, du, b = primals
    out = tridiagonal_solve_p.bind(dl, d, du, b)
    total: Any = zero_tangent(out)
    if type(tangents[3]) is not Zero:
        total = tridiagonal_solve_p.bind(dl, d, du, tangents[3])
    if any(type(t) is not Zero for t in tangents[:3]):
        of_dl, of_d, of_du = (instantiate(t) for t in tangents[:3])
        change = neg(_times(of_dl, of_d, of_du, out))
        total = add_tangents(total, tridiagonal_solve_p.bind(dl, d, du, change))
    return out, total


@tridiagonal_solve_p.def_transpose
def _tridiagonal_solve_transpose(ct: Value, dl: Value, d: Value, du: Value, b: Value):
    if any(is_undef(x) for x in (dl, d, du)):
        raise NotImplementedError("tridiagonal_solve: is not linear in the matrix")
    return [
        None,
        None,
        None,
        tridiagonal_solve_p.bind(_shift_entries(du, 1), d, _shift_entries(dl, -1), ct),
    ]


@tridiagonal_solve_p.def_batch
def _tridiagonal_solve_batch(axis: BatchAxis, args: Values, dims: BatchDims):
    return tridiagonal_solve_p.bind(
        *[batch_dim_to_front(x, d, axis.size) for x, d in zip(args, dims)]
    ), 0


@tridiagonal_solve_p.def_factors
def _tridiagonal_solve_factors(in_avals: Avals, out_avals: Avals):
    r = RuleBuilder()
    lead = r.add_factors(in_avals[0].shape[:-1])
    rows, before, after = [r.new(in_avals[0].shape[-1]) for _ in range(3)]
    columns = r.new(in_avals[3].shape[-1])
    diagonal = [*lead, rows]
    special = dict.fromkeys((rows, before, after), "replicate")
    return r.rule(
        [diagonal, diagonal, diagonal, [*lead, before, columns]],
        [[*lead, after, columns]],
        special=special,
        linear_ins=(3,),
    )
