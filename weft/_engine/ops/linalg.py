"""Linear algebra: factorizations and triangular solves, one LAPACK call per matrix.

In:   arrays whose last two dims are matrices; all other dims are batch dims.
Laws: a matrix without a factorization (cholesky of one that is not positive definite) gives NaN,
      not an exception. Derivatives are the published formulas (Giles 2008; Murray 2016; Townsend
      2016), written with other operations, for distinct eigen- and singular values and full rank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine.core.primitive import LibraryOp, Primitive, declare_unsupported
from weft._engine.core.trace import Zero, is_undef, typeof
from weft._engine.ir.factors import RuleBuilder
from weft._engine.ir.symbolic import min_dim
from weft._engine.ir.types import ShapedArray
from weft._engine.ops import lapack, lapack_reductions, matrices
from weft._engine.ops.arithmetic import is_complex
from weft._engine.ops.elementwise import add, conj, div, mul, neg, real, sub
from weft._engine.ops.families import add_tangents, joined_vma, shape_error, zero_tangent
from weft._engine.ops.layout import reshape, squeeze
from weft._engine.ops.lowering_specs import ExpandSpec, HostLowering
from weft._engine.ops.matrix_operands import (
    EighImplementation,
    EigImplementation,
    SvdAlgorithm,
    check_choice,
    check_matrix,
    check_subset,
    map_matrices,
    real_dtype,
    stacked_type,
)
from weft._engine.ops.rule_helpers import batch_dim_to_front
from weft._engine.ops.slicing import slice_in_dim
from weft._engine.util import dtypes
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

_NOT_LINEAR = "is not linear in its operand; derivatives come from its jvp rule"


def _library(
    name: str,
    compiled: Callable[..., Any] | None,
    multiple_results: bool = True,
    is_unique: bool = True,
) -> Primitive:
    """Return a factorization, rebuilt by `compiled` or, without it, run on the host."""
    p = LibraryOp(name, multiple_results=multiple_results, is_unique=is_unique)
    lower = HostLowering() if compiled is None else ExpandSpec(compiled)
    return p.define(lower=lower, transpose=declare_unsupported(_NOT_LINEAR))


cholesky_p = _library("cholesky", lapack.cholesky, multiple_results=False)
triangular_solve_p = _library("triangular_solve", lapack.triangular_solve, multiple_results=False)
lu_p = _library("lu", lapack.lu, is_unique=False)
lu_pivots_to_permutation_p = _library(
    "lu_pivots_to_permutation", lapack.lu_pivots_to_permutation, multiple_results=False
)
qr_p = _library("qr", lapack.qr)
eigh_p = _library("eigh", lapack.eigh, is_unique=False)
svd_p = _library("svd", lapack.svd, is_unique=False)
eig_p = _library("eig", lapack_reductions.eig, is_unique=False)


# --- the functions


def cholesky(x: ArrayLike, *, symmetrize_input: bool = True) -> Array:
    """Return the lower triangular L with L L^H = x for positive definite x, and NaN for other x.

    Without `symmetrize_input` only the lower triangle of x is read and differentiated.

    >>> np.asarray(cholesky(np.array([[4.0, 2.0], [2.0, 5.0]], np.float32))).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    return cholesky_p.bind(matrices.symmetrize(x) if symmetrize_input else x)


def triangular_solve(
    a: ArrayLike,
    b: ArrayLike,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Array:
    """Return the x with op(a) x = b (`left_side`) or x op(a) = b; b may be a vector.

    op applies `transpose_a` and `conjugate_a`. Only the triangle that `lower` selects is read.
    """
    conjugate_a = bool(conjugate_a) and is_complex(a)
    if typeof(a).ndim < 2 or not typeof(b).ndim:
        raise shape_error(
            "triangular_solve",
            "`a` must hold square matrices, and `b` matrices or vectors.",
            [("a", typeof(a).str_short()), ("b", typeof(b).str_short())],
        )
    vector = typeof(b).ndim == typeof(a).ndim - 1
    if vector:
        shape = typeof(b).shape
        b = reshape(b, (*shape, 1) if left_side else (*shape[:-1], 1, shape[-1]))
    out = triangular_solve_p.bind(
        a,
        b,
        left_side=bool(left_side),
        lower=bool(lower),
        transpose_a=bool(transpose_a),
        conjugate_a=conjugate_a,
        unit_diagonal=bool(unit_diagonal),
    )
    return squeeze(out, (typeof(out).ndim - (1 if left_side else 2),)) if vector else out


def lu(x: ArrayLike) -> tuple[Any, ...]:
    """Return the LU factors of x in one matrix, the row exchanges and their permutation."""
    return tuple(lu_p.bind(x))


def lu_pivots_to_permutation(pivots: ArrayLike, permutation_size: int) -> Array:
    """Return the permutation that the row exchanges `pivots` produce.

    >>> np.asarray(lu_pivots_to_permutation(np.array([2, 2, 2], np.int32), 3)).tolist()
    [2, 0, 1]
    """
    return lu_pivots_to_permutation_p.bind(pivots, permutation_size=int(permutation_size))


def qr(
    x: ArrayLike,
    *,
    pivoting: bool = False,
    full_matrices: bool = True,
    use_magma: bool | None = None,
) -> tuple[Any, ...]:
    """Return Q and R with Q R = x; with `pivoting`, Q R = x[:, p] and p is the third result."""
    return tuple(qr_p.bind(x, pivoting=bool(pivoting), full_matrices=bool(full_matrices)))


def eigh(
    x: ArrayLike,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    implementation: EighImplementation | None = None,
) -> tuple[Any, ...]:
    """Return eigenvectors (as columns) and ascending eigenvalues of a Hermitian matrix.

    Without `symmetrize_input` only the triangle that `lower` selects is read and differentiated.
    `subset_by_index` selects a range. Raise ValueError for indices out of bounds,
    NotImplementedError for an `implementation` other than QR.
    """
    check_choice(
        "eigh", "implementation", implementation, EighImplementation, (EighImplementation.QR,)
    )
    check_matrix("eigh", typeof(x), True)
    bounds = check_subset("eigh", subset_by_index, typeof(x).shape[-1])
    x = matrices.symmetrize(x) if symmetrize_input else x
    v, w = eigh_p.bind(x, lower=bool(lower), sort_eigenvalues=bool(sort_eigenvalues))
    return (v, w) if bounds is None else (matrices.columns(v, bounds), matrices.columns(w, bounds))


def svd(
    x: ArrayLike,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    algorithm: SvdAlgorithm | None = None,
) -> Any:
    """Return U, the singular values s, descending, and V^H with U diag(s) V^H = x.

    Return only s unless `compute_uv`. `subset_by_index` selects a range, without `full_matrices`.
    Raise ValueError for indices out of bounds, NotImplementedError for JACOBI and POLAR.
    """
    qr, divide_and_conquer = SvdAlgorithm.QR, SvdAlgorithm.DIVIDE_AND_CONQUER
    check_choice(
        "svd", "algorithm", algorithm, SvdAlgorithm, (SvdAlgorithm.DEFAULT, qr, divide_and_conquer)
    )
    check_matrix("svd", typeof(x), False)
    bounds = check_subset("svd", subset_by_index, min_dim(*typeof(x).shape[-2:]))
    if bounds is not None and full_matrices and compute_uv:
        raise ValueError(
            "svd: full_matrices and subset_by_index contradict each other; give full_matrices=False."
        )
    s, *uv = svd_p.bind(
        x,
        full_matrices=bool(full_matrices),
        compute_uv=bool(compute_uv),
        steps_of_qr=algorithm is qr,
    )
    s = s if bounds is None else matrices.columns(s, bounds)
    if not compute_uv:
        return s
    u, vh = uv
    return (
        (u, s, vh)
        if bounds is None
        else (matrices.columns(u, bounds), s, matrices.columns(vh, bounds, -2))
    )


def eig(
    x: ArrayLike,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False,
    implementation: EigImplementation | None = None,
    use_magma: bool | None = None,
) -> list[Any]:
    """Return complex eigenvalues of a square matrix and, if requested, left and right eigenvectors.

    Eigenvalues have derivatives; eigenvectors have them with `enable_eigvec_derivs`, if eigenvalues
    are distinct, as vectors of length 1 whose largest entry stays real. Raise NotImplementedError
    for implementations other than LAPACK.
    """
    check_choice(
        "eig", "implementation", implementation, EigImplementation, (EigImplementation.LAPACK,)
    )
    return eig_p.bind(
        x,
        compute_left_eigenvectors=bool(compute_left_eigenvectors),
        compute_right_eigenvectors=bool(compute_right_eigenvectors),
        enable_eigvec_derivs=bool(enable_eigvec_derivs),
    )


# --- types, batching, factors


def _one_operand_rules(primitive: Primitive) -> None:
    """Define batching and factors of an op on each matrix of one operand; other dims are free."""

    @primitive.def_batch
    def batch(axis: BatchAxis, args: Values, dims: BatchDims, **params: Any):
        out = primitive.bind(batch_dim_to_front(args[0], dims[0], axis.size), **params)
        return (out, [0] * len(out)) if primitive.multiple_results else (out, 0)

    core = 1 if primitive is lu_pivots_to_permutation_p else 2

    @primitive.def_factors
    def factors(in_avals: Avals, out_avals: Avals, **params: Any):
        b = RuleBuilder()
        lead = b.add_factors(in_avals[0].shape[:-core])
        special: dict[int, str] = {}

        def with_core(aval: ShapedArray):
            inner = b.add_factors(aval.shape[len(lead) :])
            special.update(dict.fromkeys(inner, "replicate"))
            return [*lead, *inner]

        ins, outs = [with_core(in_avals[0])], [with_core(a) for a in out_avals]
        return b.rule(ins, outs, special=special)


for _p in (cholesky_p, lu_p, lu_pivots_to_permutation_p, qr_p, eigh_p, svd_p, eig_p):
    _one_operand_rules(_p)
del _p


# --- cholesky


@cholesky_p.def_type
def _cholesky_type(aval: ShapedArray):
    check_matrix("cholesky", aval, square=True)
    return stacked_type(aval, aval.shape[-2:])


@cholesky_p.def_reference
def _cholesky_reference(x: NumPyArray):
    return map_matrices(x, lambda a: [np.linalg.cholesky(a)], [x.shape[-2:]], [x.dtype])[0]


@cholesky_p.def_jvp
def _cholesky_jvp(primals: Values, tangents: Values) -> tuple[Value, Value]:
    out = cholesky_p.bind(*primals)
    if type(tangents[0]) is Zero:
        return out, zero_tangent(out)
    tangent = matrices.hermitian_of_triangle(tangents[0], lower=True)
    inner = triangular_solve(out, tangent, lower=True, transpose_a=True, conjugate_a=True)
    inner = triangular_solve(out, inner, lower=True, left_side=True)
    inner = sub(matrices.tril(inner), matrices.half(matrices.diagonal_part(inner)))
    return out, matrices.dot(out, inner)


# --- triangular_solve


@triangular_solve_p.def_type
def _triangular_solve_type(a: ShapedArray, b: ShapedArray, *, left_side: bool, **_params: Any):
    check_matrix("triangular_solve", a, square=True)
    check_matrix("triangular_solve", b, square=False)
    if a.dtype != b.dtype:
        raise TypeError(
            f"triangular_solve: requires equal dtypes, got {a.dtype.name} and {b.dtype.name}."
        )
    if a.shape[:-2] != b.shape[:-2] or b.shape[-2 if left_side else -1] != a.shape[-1]:
        raise shape_error(
            "triangular_solve",
            "the shapes do not fit.",
            [("a", a.str_short()), ("b", b.str_short())],
            f"Batch dims must be equal, and dim {-2 if left_side else -1} of b must have the size of a.",
        )
    return ShapedArray(b.shape, b.dtype, False, None, joined_vma((a, b)))


@triangular_solve_p.def_reference
def _triangular_solve_reference(
    a: NumPyArray,
    b: NumPyArray,
    *,
    left_side: bool,
    lower: bool,
    transpose_a: bool,
    conjugate_a: bool,
    unit_diagonal: bool,
):
    get_blas_funcs = scipy_module("linalg").get_blas_funcs
    out = np.zeros(b.shape, b.dtype)
    if out.size == 0:
        return out
    (trsm,) = get_blas_funcs(("trsm",), (a, b))
    for at in np.ndindex(b.shape[:-2]):
        matrix = a[at].conj() if conjugate_a and not transpose_a else a[at]
        out[at] = trsm(
            1.0,
            matrix,
            b[at],
            side=not left_side,
            lower=lower,
            trans_a=(2 if conjugate_a else 1) if transpose_a else 0,
            diag=unit_diagonal,
        )
    return out


@triangular_solve_p.def_jvp
def _triangular_solve_jvp(primals: Values, tangents: Values, **params: Any):
    a, b = primals
    out = triangular_solve_p.bind(a, b, **params)
    t_a, t_b = tangents
    total: Any = zero_tangent(out)
    if type(t_b) is not Zero:
        total = triangular_solve_p.bind(a, t_b, **params)
    if type(t_a) is not Zero:
        t = matrices.tril(t_a) if params["lower"] else matrices.triu(t_a)
        t = sub(t, matrices.diagonal_part(t)) if params["unit_diagonal"] else t
        t = matrices.matrix_transpose(t) if params["transpose_a"] else t
        t = conj(t) if params["conjugate_a"] and is_complex(t) else t
        change = neg(matrices.dot(t, out) if params["left_side"] else matrices.dot(out, t))
        total = add_tangents(total, triangular_solve_p.bind(a, change, **params))
    return out, total


@triangular_solve_p.def_transpose
def _triangular_solve_transpose(ct: Value, a: Value, b: Value, *, transpose_a: bool, **params: Any):
    if is_undef(a):
        raise NotImplementedError("triangular_solve: is not linear in the triangular matrix")
    return [None, triangular_solve_p.bind(a, ct, transpose_a=not transpose_a, **params)]


@triangular_solve_p.def_batch
def _triangular_solve_batch(axis: BatchAxis, args: Values, dims: BatchDims, **params: Any):
    return triangular_solve_p.bind(
        *[batch_dim_to_front(x, d, axis.size) for x, d in zip(args, dims)], **params
    ), 0


@triangular_solve_p.def_factors
def _triangular_solve_factors(
    in_avals: Avals, out_avals: Avals, *, left_side: bool, **_params: Any
):
    a, b = in_avals
    r = RuleBuilder()
    lead = r.add_factors(a.shape[:-2])
    rows, columns, inner, outer = (
        r.new(a.shape[-2]),
        r.new(a.shape[-1]),
        r.new(a.shape[-1]),
        r.new(a.shape[-1]),
    )
    free = r.new(b.shape[-1 if left_side else -2])
    place: Callable[[int], list[int]] = lambda f: (
        [*lead, f, free] if left_side else [*lead, free, f]
    )
    special = dict.fromkeys((rows, columns, inner, outer), "replicate")
    return r.rule(
        [[*lead, rows, columns], place(inner)], [place(outer)], special=special, linear_ins=(1,)
    )


# --- lu


@lu_p.def_type
def _lu_type(aval: ShapedArray):
    check_matrix("lu", aval, square=False)
    m, n = aval.shape[-2:]
    integer = np.dtype(np.int32)
    return (
        stacked_type(aval, (m, n)),
        stacked_type(aval, (min_dim(m, n),), integer),
        stacked_type(aval, (m,), integer),
    )


@lu_p.def_reference
def _lu_reference(x: NumPyArray):
    get_lapack_funcs = scipy_module("linalg").get_lapack_funcs
    m, n = x.shape[-2:]
    k = min_dim(m, n)

    def apply_to_matrix(a: Value):
        if k == 0:
            no_pivots = np.zeros(0, np.int32)
            return a, no_pivots, _permutation(no_pivots, m)
        (getrf,) = get_lapack_funcs(("getrf",), (a,))
        packed, pivots, _info = getrf(a)
        return packed, pivots, _permutation(pivots, m)

    return map_matrices(
        x, apply_to_matrix, [(m, n), (k,), (m,)], [x.dtype, np.int32, np.int32], many=False
    )


def _permutation(pivots: np.ndarray, size: int) -> np.ndarray:
    order = np.arange(size, dtype=np.int32)
    for i, j in enumerate(pivots):
        order[i], order[j] = order[j], order[i]
    return order


@lu_p.def_jvp
def _lu_jvp(primals: Values, tangents: Values):
    packed, pivots, order = outs = lu_p.bind(*primals)
    if type(tangents[0]) is Zero:
        return outs, [zero_tangent(o) for o in outs]
    shape = typeof(packed).shape
    m, n = shape[-2:]
    k = min_dim(m, n)
    last = len(shape) - 1
    # L and U extended to squares by the identity
    lower = matrices.widen(slice_in_dim(packed, 0, k, 1, last), last, m - k)
    lower = add(matrices.strict_tril(lower), matrices.identity(typeof(lower)))
    upper = matrices.widen(slice_in_dim(matrices.triu(packed), 0, k, 1, last - 1), last - 1, n - k)
    upper = add(upper, matrices.identity(typeof(upper), start=k))
    moved = matrices.take_rows(tangents[0], order)
    inner = triangular_solve(lower, moved, left_side=True, lower=True, unit_diagonal=True)
    inner = triangular_solve(upper, inner)
    t = add(
        matrices.dot(lower, matrices.strict_tril(inner)), matrices.dot(matrices.triu(inner), upper)
    )
    return outs, [t, zero_tangent(pivots), zero_tangent(order)]


@lu_pivots_to_permutation_p.def_type
def _pivots_type(pivots: ShapedArray, *, permutation_size: int):
    if (
        pivots.ndim < 1
        or not dtypes.issubdtype(pivots.dtype, np.integer)
        or pivots.shape[-1] > permutation_size
    ):
        raise shape_error(
            "lu_pivots_to_permutation",
            f"takes at most {permutation_size} integer pivots in the last dim.",
            [("pivots", pivots.str_short())],
        )
    return pivots.update(shape=(*pivots.shape[:-1], permutation_size), weak_type=False)


@lu_pivots_to_permutation_p.def_reference
def _pivots_reference(pivots: NumPyArray, *, permutation_size: int):
    out = np.zeros((*pivots.shape[:-1], permutation_size), pivots.dtype)
    for at in np.ndindex(pivots.shape[:-1]):
        out[at] = _permutation(pivots[at], permutation_size)
    return out


@lu_pivots_to_permutation_p.def_jvp
def _pivots_jvp(primals: Values, tangents: Values, **params: Any):
    out = lu_pivots_to_permutation_p.bind(*primals, **params)
    return out, zero_tangent(out)


# --- qr


@qr_p.def_type
def _qr_type(aval: ShapedArray, *, pivoting: bool, full_matrices: bool):
    check_matrix("qr", aval, square=False)
    m, n = aval.shape[-2:]
    k = m if full_matrices else min_dim(m, n)
    outs = stacked_type(aval, (m, k)), stacked_type(aval, (k, n))
    return (*outs, stacked_type(aval, (n,), np.dtype(np.int32))) if pivoting else outs


@qr_p.def_reference
def _qr_reference(x: NumPyArray, *, pivoting: bool, full_matrices: bool):
    m, n = x.shape[-2:]
    k = m if full_matrices else min_dim(m, n)
    if not pivoting:
        mode = "complete" if full_matrices else "reduced"
        return map_matrices(
            x, lambda a: np.linalg.qr(a, mode), [(m, k), (k, n)], [x.dtype, x.dtype]
        )
    pivoted_qr = scipy_module("linalg").qr
    mode = "full" if full_matrices else "economic"
    shapes, kinds = [(m, k), (k, n), (n,)], [x.dtype, x.dtype, np.int32]
    return map_matrices(
        x, lambda a: pivoted_qr(a, mode=mode, pivoting=True), shapes, kinds, many=False
    )


@qr_p.def_jvp
def _qr_jvp(
    primals: Values, tangents: Values, *, pivoting: bool, full_matrices: bool
) -> tuple[Values, list[Value]]:
    outs = qr_p.bind(*primals, pivoting=pivoting, full_matrices=full_matrices)
    if type(tangents[0]) is Zero:
        return outs, [zero_tangent(o) for o in outs]
    q, r, *order = outs
    m, n = typeof(primals[0]).shape[-2:]
    k = min_dim(m, n)
    t = tangents[0]
    if pivoting:
        t = matrices.matrix_transpose(matrices.take_rows(matrices.matrix_transpose(t), order[0]))
    # dA R^-1 of the square part of R
    scaled = triangular_solve(
        matrices.columns(matrices.columns(r, (0, k)), (0, k), -2), matrices.columns(t, (0, k))
    )
    inner = matrices.dot(matrices.adjoint(q), scaled)
    top = matrices.columns(inner, (0, k), -2)
    low = matrices.strict_tril(top)
    rotation = sub(low, matrices.adjoint(low))  # Q^H dQ, antihermitian
    if is_complex(q):  # keeps the diagonal of R real
        diagonal = matrices.diagonal_part(top)
        rotation = add(rotation, sub(diagonal, matrices.like(real(diagonal), diagonal)))
    if full_matrices and m > n:
        # the columns beyond the matrix's rotate with it, but not among themselves
        rotation = matrices.border_matrix(rotation, matrices.columns(inner, (k, m), -2))
        t_q = matrices.dot(q, rotation)
    else:
        t_q = add(matrices.dot(q, sub(rotation, top)), scaled)
    t_r = matrices.triu(sub(matrices.dot(matrices.adjoint(q), t), matrices.dot(rotation, r)))
    return outs, [t_q, t_r, *map(zero_tangent, order)]


# --- eigh


@eigh_p.def_type
def _eigh_type(aval: ShapedArray, *, lower: bool, sort_eigenvalues: bool):
    check_matrix("eigh", aval, square=True)
    return stacked_type(aval, aval.shape[-2:]), stacked_type(
        aval, aval.shape[-1:], real_dtype(aval.dtype)
    )


@eigh_p.def_reference
def _eigh_reference(x: NumPyArray, *, lower: bool, sort_eigenvalues: bool):
    def apply_to_matrix(a: Value):
        w, v = np.linalg.eigh(a, "L" if lower else "U")
        return v, w

    return map_matrices(
        x, apply_to_matrix, [x.shape[-2:], x.shape[-1:]], [x.dtype, real_dtype(x.dtype)]
    )


@eigh_p.def_jvp
def _eigh_jvp(
    primals: Values, tangents: Values, *, lower: bool, sort_eigenvalues: bool
) -> tuple[Values, list[Value]]:
    v, w = outs = eigh_p.bind(*primals, lower=lower, sort_eigenvalues=sort_eigenvalues)
    if type(tangents[0]) is Zero:
        return outs, [zero_tangent(o) for o in outs]
    tangent = matrices.hermitian_of_triangle(tangents[0], lower=lower)
    inner = matrices.dot(matrices.adjoint(v), matrices.dot(tangent, v))
    diagonal = matrices.diagonal_of(inner)
    t_w = real(diagonal) if is_complex(v) else diagonal
    return outs, [
        matrices.dot(v, mul(matrices.like(matrices.reciprocal_differences(w), inner), inner)),
        t_w,
    ]


# --- svd


@svd_p.def_type
def _svd_type(
    aval: ShapedArray, *, full_matrices: bool, compute_uv: bool, steps_of_qr: bool = False
):
    check_matrix("svd", aval, square=False)
    m, n = aval.shape[-2:]
    k = min_dim(m, n)
    s = stacked_type(aval, (k,), real_dtype(aval.dtype))
    if not compute_uv:
        return (s,)
    return (
        s,
        stacked_type(aval, (m, m if full_matrices else k)),
        stacked_type(aval, (n if full_matrices else k, n)),
    )


@svd_p.def_reference
def _svd_reference(
    x: NumPyArray, *, full_matrices: bool, compute_uv: bool, steps_of_qr: bool = False
):
    m, n = x.shape[-2:]
    k = min_dim(m, n)
    kind = real_dtype(x.dtype)
    if not compute_uv:
        return map_matrices(x, lambda a: [np.linalg.svd(a, compute_uv=False)], [(k,)], [kind])

    def apply_to_matrix(a: Value):
        u, s, vh = np.linalg.svd(a, full_matrices)
        return s, u, vh

    shapes = [(k,), (m, m if full_matrices else k), (n if full_matrices else k, n)]
    return map_matrices(x, apply_to_matrix, shapes, [kind, x.dtype, x.dtype])


@svd_p.def_jvp
def _svd_jvp(
    primals: Values,
    tangents: Values,
    *,
    full_matrices: bool,
    compute_uv: bool,
    steps_of_qr: bool = False,
) -> tuple[Values, list[Value]]:
    outs = svd_p.bind(
        *primals, full_matrices=full_matrices, compute_uv=compute_uv, steps_of_qr=steps_of_qr
    )
    if type(tangents[0]) is Zero:
        return outs, [zero_tangent(o) for o in outs]
    m, n = typeof(primals[0]).shape[-2:]
    if full_matrices and compute_uv and m != n:
        raise NotImplementedError(
            "svd: full_matrices=True has no derivative unless the matrix is square."
        )
    t = tangents[0]
    s, u, vh = (
        outs
        if compute_uv
        else svd_p.bind(*primals, full_matrices=False, compute_uv=True, steps_of_qr=steps_of_qr)
    )
    v = matrices.adjoint(vh)
    inner = matrices.dot(matrices.adjoint(u), matrices.dot(t, v))
    diagonal = matrices.diagonal_of(inner)
    t_s = real(diagonal) if is_complex(u) else diagonal
    if not compute_uv:
        return outs, [t_s]
    shape = typeof(inner).shape
    s_matrix = matrices.like(s, inner)
    by_column, by_row = (
        mul(inner, matrices.as_rows(s_matrix, shape)),
        mul(inner, matrices.as_columns(s_matrix, shape)),
    )
    f = matrices.like(matrices.reciprocal_differences(mul(s, s)), inner)
    t_u = matrices.dot(
        u, _with_phases(mul(f, add(by_column, matrices.adjoint(by_column))), inner, s_matrix)
    )
    t_v = matrices.dot(v, mul(f, add(by_row, matrices.adjoint(by_row))))
    if m > n:  # the part of the columns outside the span of U
        outside = sub(matrices.dot(t, v), matrices.dot(u, inner))
        t_u = add(t_u, div(outside, matrices.as_rows(s_matrix, typeof(outside).shape)))
    if n > m:
        outside = sub(
            matrices.dot(matrices.adjoint(t), u), matrices.dot(v, matrices.adjoint(inner))
        )
        t_v = add(t_v, div(outside, matrices.as_rows(s_matrix, typeof(outside).shape)))
    return outs, [t_s, t_u, matrices.adjoint(t_v)]


def _with_phases(rotation: Value, inner: Value, s: Value):
    """Return `rotation` with the phases, which are free for complex matrices, assigned to U."""
    if not is_complex(inner):
        return rotation
    phases = matrices.half(matrices.diagonal_part(sub(inner, matrices.adjoint(inner))))
    return add(rotation, div(phases, matrices.as_rows(s, typeof(inner).shape)))


# --- eig


@eig_p.def_type
def _eig_type(
    aval: ShapedArray,
    *,
    compute_left_eigenvectors: bool,
    compute_right_eigenvectors: bool,
    **_: Any,
):
    check_matrix("eig", aval, square=True)
    kind = np.dtype(dtypes.to_complex_dtype(aval.dtype))
    count = int(compute_left_eigenvectors) + int(compute_right_eigenvectors)
    return (
        stacked_type(aval, aval.shape[-1:], kind),
        *[stacked_type(aval, aval.shape[-2:], kind)] * count,
    )


@eig_p.def_reference
def _eig_reference(
    x: NumPyArray, *, compute_left_eigenvectors: bool, compute_right_eigenvectors: bool, **_: Any
):
    general_eig = scipy_module("linalg").eig
    kind = np.dtype(dtypes.to_complex_dtype(x.dtype))
    computed = [compute_left_eigenvectors, compute_right_eigenvectors]

    def apply_to_matrix(a: Value):
        if a.size == 0 or not np.isfinite(a).all():
            raise np.linalg.LinAlgError
        out = general_eig(a, left=compute_left_eigenvectors, right=compute_right_eigenvectors)
        return out if any(computed) else [out]

    shapes = [x.shape[-1:], *[x.shape[-2:]] * sum(computed)]
    return map_matrices(x, apply_to_matrix, shapes, [kind] * len(shapes), many=False)


@eig_p.def_jvp
def _eig_jvp(
    primals: Values,
    tangents: Values,
    *,
    compute_left_eigenvectors: bool,
    compute_right_eigenvectors: bool,
    enable_eigvec_derivs: bool = False,
) -> tuple[Values, list[Value]]:
    outs = eig_p.bind(
        *primals,
        compute_left_eigenvectors=compute_left_eigenvectors,
        enable_eigvec_derivs=enable_eigvec_derivs,
        compute_right_eigenvectors=compute_right_eigenvectors,
    )
    if type(tangents[0]) is Zero:
        return outs, [zero_tangent(o) for o in outs]
    if (compute_left_eigenvectors or compute_right_eigenvectors) and not enable_eigvec_derivs:
        raise NotImplementedError(
            "eig: eigenvalues alone have a derivative, and eigenvectors with enable_eigvec_derivs=True."
        )
    w, *vectors = outs
    t = matrices.like(tangents[0], w)
    t_vectors: list[Value] = []
    if compute_left_eigenvectors:  # right eigenvectors of the adjoint
        t_vectors.append(_eigenvectors_jvp(conj(w), vectors[0], matrices.adjoint(t))[1])
    v = (
        vectors[-1]
        if compute_right_eigenvectors
        else eig_p.bind(
            primals[0],
            compute_left_eigenvectors=False,
            compute_right_eigenvectors=True,
            enable_eigvec_derivs=True,
        )[1]
    )
    t_w, t_v = _eigenvectors_jvp(w, v, t)
    return outs, [t_w, *t_vectors, *([t_v] if compute_right_eigenvectors else [])]


def _eigenvectors_jvp(w: Value, v: Value, t: Value):
    """Return tangents of eigenvalues `w` and right eigenvectors `v`; the matrix has tangent `t`."""
    inner = _solve(v, matrices.dot(t, v))
    t_v = matrices.dot(v, mul(matrices.reciprocal_differences(w), inner))
    return matrices.diagonal_of(inner), add(t_v, mul(v, matrices.gauge(v, t_v)))


def _solve(a: Value, b: Value):
    """Return the x with a x = b, for square matrices."""
    packed, _, order = lu_p.bind(a)
    x = triangular_solve(
        packed, matrices.take_rows(b, order), left_side=True, lower=True, unit_diagonal=True
    )
    return triangular_solve(packed, x, left_side=True)
