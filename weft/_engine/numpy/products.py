"""Products of arrays: dot, matmul, einsum, tensordot and others.

Only functions that need `manipulation` load it.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from weft._engine.ir.symbolic import SymbolicDim
from weft._engine.numpy import promote, ufuncs as uf
from weft._engine.numpy.dtype_kinds import check_no_out
from weft._engine.ops import elementwise as ew, layout, slicing
from weft._engine.ops.contraction import Precision, dot_general
from weft._engine.ops.placement import takes_out_sharding
from weft._engine.ops.reduce import reduce_or, reduce_sum
from weft._engine.util import dtypes
from weft._engine.util.errors import ShapeError, describe
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import user_frame


def arrays_of(api: str, *args):
    """Return the arguments of `api` as arrays of one dtype."""
    promote.check_arraylike(api, *args)
    return [promote.concrete(x) for x in promote.promote_dtypes(*[promote.value(a) for a in args])]


def _factors_of(api: str, a, b, preferred=None) -> tuple:
    """Return the arguments of `api` as arrays, and the dtype of the product.

    Arrays keep their dtypes, since a contraction accepts mixed dtypes, except integers for which a
    product of floats would need 64 bits. Both are weakly typed if the product is.
    """
    promote.check_arraylike(api, a, b)
    a, b = promote.value(a), promote.value(b)
    dtype, weak = dtypes.result_type(a, b, return_weak_type_flag=True)
    weak = weak and preferred is None
    is_inexact = dtypes.issubdtype(dtype, np.inexact)

    def stays(x) -> bool:
        if not hasattr(x, "dtype") or getattr(x, "weak_type", False):
            return False
        return not (is_inexact and x.dtype.itemsize > 2 and dtypes.issubdtype(x.dtype, np.integer))

    a, b = [promote.concrete(x if stays(x) else promote.cast(x, dtype, weak)) for x in (a, b)]
    return a, b, dtype if preferred is None else np.dtype(preferred)


def _contract(a, b, contract, batch, dtype, precision=None):
    out = dot_general(a, b, (contract, batch), precision, dtype)
    return promote.cast(out, dtype, True) if a.weak_type and b.weak_type else out


def _mismatch(api: str, a, b, i: int, j: int):
    hint = ""
    if a.ndim == b.ndim == 2 and a.shape[1] == b.shape[1]:
        hint = f"Did you mean {api}(x, y.T)?"
    return ShapeError(
        describe(
            f"{api}",
            f"dot_general requires contracting dimensions to have the same shape, got ({a.shape[i]},) "
            f"and ({b.shape[j]},).",
            [
                ("lhs", a.aval.str_short(True), f"contracts dim {i}, size {a.shape[i]}"),
                ("rhs", b.aval.str_short(True), f"contracts dim {j}, size {b.shape[j]}"),
            ],
            where=user_frame(),
            rule="Contracted dims must have equal size.",
            remedy=hint,
        )
    )


@takes_out_sharding(contracts=True)
def dot(a, b, *, precision=None, preferred_element_type=None):
    """Return NumPy's dot: the product over the last dim of `a` and the second to last dim of `b`.

    The result has the other dims of `a`, then the other dims of `b`, and the common dtype, or
    `preferred_element_type`.
    Raises ShapeError if the contracted dims differ in size, TypeError for lists.

    >>> wnp.dot(wnp.ones((2, 3)), wnp.arange(3.0))
    Array([3., 3.], dtype=float32)
    """
    a, b, dtype = _factors_of("dot", a, b, preferred_element_type)
    if a.ndim == 0 or b.ndim == 0:
        return (
            uf.multiply(a, b)
            if preferred_element_type is None
            else _contract(a, b, ((), ()), ((), ()), dtype, precision)
        )
    j = max(0, b.ndim - 2)
    if a.shape[-1] != b.shape[j]:
        raise _mismatch("dot", a, b, a.ndim - 1, j)
    return _contract(a, b, ((a.ndim - 1,), (j,)), ((), ()), dtype, precision)


@takes_out_sharding(contracts=True)
def matmul(a, b, *, precision=None, preferred_element_type=None):
    """Return the matrix product of the last two dims, broadcast over the others.

    Vectors count as rows or columns.

    The dtype is the common dtype, or `preferred_element_type`. Raises ShapeError if the contracted
    dims differ in size or the others do not broadcast, ValueError for scalars.

    >>> wnp.matmul(wnp.ones((5, 2, 3)), wnp.ones((3, 4))).shape
    (5, 2, 4)
    """
    a, b, dtype = _factors_of("matmul", a, b, preferred_element_type)
    for x, who in ((a, "first"), (b, "second")):
        if x.ndim < 1:
            raise ValueError(
                f"matmul: the {who} operand is a scalar; it must have at least one dim. Use multiply."
            )
    j = max(0, b.ndim - 2)
    if a.shape[-1] != b.shape[j]:
        raise _mismatch("matmul", a, b, a.ndim - 1, j)
    if a.ndim <= 2 and b.ndim <= 2:
        return _contract(a, b, ((a.ndim - 1,), (j,)), ((), ()), dtype, precision)
    lead_a, lead_b = a.shape[:-2] if a.ndim > 1 else (), b.shape[:-2] if b.ndim > 1 else ()
    if builtins.all(n == 1 for n in lead_b) or b.ndim <= 2:
        # only `a` has batch dims: they are free dims
        b2 = layout.reshape(b, b.shape[len(lead_b) :]) if lead_b else b
        out = _contract(a, b2, ((a.ndim - 1,), (max(0, b2.ndim - 2),)), ((), ()), dtype, precision)
        batch = promote.broadcast_shapes(lead_a, lead_b)
        return (
            layout.reshape(out, batch + tuple(out.shape[len(lead_a) :]))
            if len(batch) > len(lead_a)
            else out
        )
    batch = promote.broadcast_shapes(lead_a, lead_b)
    a = promote.broadcast_to_shape(a, batch + tuple(a.shape[-2:] if a.ndim > 1 else a.shape))
    b = promote.broadcast_to_shape(b, batch + tuple(b.shape[-2:] if b.ndim > 1 else b.shape))
    n = len(batch)
    contract = ((a.ndim - 1,), (max(n, b.ndim - 2),))
    return _contract(a, b, contract, (tuple(range(n)), tuple(range(n))), dtype, precision)


def precise_matmul(a, b):
    """Return `matmul` in the common dtype of the operands, whatever `default_matmul_precision` is.

    Factorizations and functions of matrices use it: an error of their products would grow.
    """
    return matmul(a, b, precision=Precision.HIGHEST)


def vdot(a, b, *, precision=None, preferred_element_type=None):
    """Return the dot product of flattened arrays; the first one is conjugated."""
    a, b = arrays_of("vdot", a, b)
    if dtypes.issubdtype(a.dtype, np.complexfloating):
        a = ew.conj(a)
    a, b = layout.reshape(a, (a.size,)), layout.reshape(b, (b.size,))
    return dot(a, b, precision=precision, preferred_element_type=preferred_element_type)


def inner(a, b, *, precision=None, preferred_element_type=None):
    """Return the product over the last dims of both arrays."""
    a, b, dtype = _factors_of("inner", a, b, preferred_element_type)
    if a.ndim == 0 or b.ndim == 0:
        return (
            uf.multiply(a, b)
            if preferred_element_type is None
            else _contract(a, b, ((), ()), ((), ()), dtype, precision)
        )
    if a.shape[-1] != b.shape[-1]:
        raise _mismatch("inner", a, b, a.ndim - 1, b.ndim - 1)
    return _contract(a, b, ((a.ndim - 1,), (b.ndim - 1,)), ((), ()), dtype, precision)


def outer(a, b, out=None):
    """Return all products of elements of two flattened arrays."""
    check_no_out(out, "outer")
    a, b = arrays_of("outer", a, b)
    return uf.multiply(
        *[layout.expand_dims(layout.reshape(x, (x.size,)), (dim,)) for x, dim in ((a, 1), (b, 0))]
    )


def kron(a, b):
    """Return the Kronecker product."""
    a, b = arrays_of("kron", a, b)
    n = max(a.ndim, b.ndim)
    a, b = [layout.reshape(x, (1,) * (n - x.ndim) + tuple(x.shape)) for x in (a, b)]
    wide_a = layout.reshape(a, tuple(k for s in a.shape for k in (s, 1)))
    wide_b = layout.reshape(b, tuple(k for s in b.shape for k in (1, s)))
    return layout.reshape(
        uf.multiply(wide_a, wide_b), tuple(s * t for s, t in zip(a.shape, b.shape))
    )


@takes_out_sharding(contracts=True)
def tensordot(a, b, axes: int | Sequence[Any] = 2, *, precision=None, preferred_element_type=None):
    """Return the product over chosen dims of both arrays.

    `axes` is pairs of dims, or the number of trailing and leading dims.
    """
    a, b, dtype = _factors_of("tensordot", a, b, preferred_element_type)
    if isinstance(axes, (int, np.integer)):
        k = int(axes)
        if k > min(a.ndim, b.ndim):
            raise TypeError(
                f"Number of tensordot axes (axes {k}) exceeds input ranks ({a.ndim} and {b.ndim})"
            )
        contract = (tuple(range(a.ndim - k, a.ndim)), tuple(range(k)))
    else:
        if not isinstance(axes, (list, tuple, np.ndarray)) or len(axes) != 2:
            raise TypeError(
                f"tensordot: axes must be an int, a pair of ints, or a pair of sequences of ints, got {axes!r}."
            )
        first, second = axes
        if any(isinstance(d, str) for d in (first, second)) or np.ndim(first) != np.ndim(second):
            raise TypeError(
                f"tensordot: axes of both arrays must be ints or sequences of ints alike, got {first!r} and {second!r}."
            )
        first = (first,) if isinstance(first, (int, np.integer)) else tuple(first)
        second = (second,) if isinstance(second, (int, np.integer)) else tuple(second)
        if len(first) != len(second):
            raise TypeError(f"tensordot requires axes lists to have equal length, got {axes}.")
        contract = tuple(
            [
                tuple([promote.canonical_axis(d, x.ndim, "tensordot") for d in dims])
                for x, dims in ((a, first), (b, second))
            ]
        )
    for i, j in zip(*contract):
        if a.shape[i] != b.shape[j]:
            raise _mismatch("tensordot", a, b, i, j)
    return _contract(a, b, contract, ((), ()), dtype, precision)


def vecdot(x1, x2, /, *, axis: int = -1, precision=None, preferred_element_type=None):
    """Return dot products along `axis`, broadcast over the other dims.

    The first argument is conjugated.
    """
    from weft._engine.numpy import manipulation as mp

    a, b, dtype = _factors_of("vecdot", x1, x2, preferred_element_type)
    a, b = mp.moveaxis(a, axis, -1), mp.moveaxis(b, axis, -1)
    if dtypes.issubdtype(a.dtype, np.complexfloating):
        a = ew.conj(a)
    shape = promote.broadcast_shapes(a.shape, b.shape)
    a, b = promote.broadcast_to_shape(a, shape), promote.broadcast_to_shape(b, shape)
    n = len(shape) - 1
    return _contract(a, b, ((n,), (n,)), (tuple(range(n)), tuple(range(n))), dtype, precision)


def matvec(x1, x2, /):
    """Return matrix times vector, broadcast over leading dims."""
    from weft._engine.numpy import manipulation as mp

    return mp.squeeze(matmul(x1, mp.expand_dims(promote.array_of("matvec", x2, "x2", 1), -1)), -1)


def vecmat(x1, x2, /):
    """Return conjugated vector times matrix, broadcast over leading dims."""
    from weft._engine.numpy import manipulation as mp

    x1, x2 = promote.array_of("vecmat", x1, "x1", 1), promote.array_of("vecmat", x2, "x2", 2)
    return mp.squeeze(matmul(mp.expand_dims(uf.conjugate(x1), -2), x2), -2)


def cross(a, b, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None):
    """Return the cross product of 3-vectors (or 2-vectors) along a dim."""
    from weft._engine.numpy import manipulation as mp

    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = arrays_of("cross", a, b)
    a, b = mp.moveaxis(a, axisa, -1), mp.moveaxis(b, axisb, -1)
    if a.shape[-1] not in (2, 3) or b.shape[-1] not in (2, 3):
        raise ValueError("Dimension must be either 2 or 3 for cross product")
    if a.shape[-1] == b.shape[-1] == 2:
        return uf.subtract(uf.multiply(a[..., 0], b[..., 1]), uf.multiply(a[..., 1], b[..., 0]))
    a, b = [
        slicing.pad(x, promote.cast(0, x.dtype), [(0, 0, 0)] * (x.ndim - 1) + [(0, 1, 0)])
        if x.shape[-1] == 2
        else x
        for x in (a, b)
    ]
    parts = [
        uf.subtract(uf.multiply(a[..., i], b[..., j]), uf.multiply(a[..., j], b[..., i]))
        for i, j in ((1, 2), (2, 0), (0, 1))
    ]
    return mp.moveaxis(mp.stack(parts, -1), -1, axisc)


# ---- einsum
@takes_out_sharding(contracts=True)
def einsum(
    subscripts,
    /,
    *operands,
    out=None,
    optimize="auto",
    precision=None,
    preferred_element_type=None,
    _dot_general=None,
):
    """Return the Einstein summation of the operands.

    Products over shared dims are summed over dims that the result lacks.

    opt_einsum chooses the order of contractions. The dtype is the common dtype, or
    `preferred_element_type`. Libraries may pass a function that replaces `lax.dot_general` for each
    pair of operands.
    Raises ValueError if subscripts and ranks differ or an index has several sizes.

    >>> wnp.einsum('ij,kj->ik', wnp.ones((2, 3)), wnp.ones((4, 3))).shape
    (2, 4)
    """
    check_no_out(out, "einsum")
    from opt_einsum.parser import parse_einsum_input

    if not isinstance(subscripts, str):
        subscripts, operands = _subscripts_from_lists(subscripts, operands)
    if len(operands) == 2:
        *arrays, dtype = _factors_of("einsum", *operands)
    else:
        arrays = arrays_of("einsum", *operands)
        dtype = arrays[0].dtype if arrays else None
    inputs, output, arrays = parse_einsum_input((subscripts, *arrays), shapes=False)
    terms = inputs.split(",")
    _check_ranks(terms, arrays)
    _check_sizes(terms, arrays)
    steps: Collection = [tuple(range(len(arrays)))]
    if len(arrays) > 2:
        order = "optimal" if optimize is True else optimize or "auto"
        steps = _contraction_path(f"{inputs}->{output}", arrays, order)[0]
    product = dot_general if _dot_general is None else _dot_general
    out_dtype = dtype if preferred_element_type is None else np.dtype(preferred_element_type)

    def multiply(a, b, numbers):
        return product(a, b, numbers, precision, preferred_element_type=out_dtype)

    term, result = _contract_all(list(zip(terms, arrays)), steps, output, dtype, multiply)
    if term != output:
        result = layout.transpose(result, tuple(term.index(c) for c in output))
    if preferred_element_type is not None:
        return promote.cast(result, np.dtype(preferred_element_type))
    return promote.cast(result, result.dtype, True) if all(x.weak_type for x in arrays) else result


def _check_ranks(terms: list[str], arrays) -> None:
    for term, x in zip(terms, arrays):
        if len(term) != x.ndim:
            raise ValueError(
                f"einsum: subscript {term!r} has {quantity(len(term), 'index')}, its operand has shape {tuple(x.shape)}."
            )


def _contract_all(work: list, steps: Collection, output: str, dtype, multiply: Callable) -> tuple:
    """Contract pairs of (term, array) in the order of `steps` to one pair with the indices of `output`."""
    for step in steps:
        chosen = [work[i] for i in step]
        work = [w for i, w in enumerate(work) if i not in step]
        while chosen:
            # a given path may name more than two operands: these are contracted from the left
            pair, chosen = chosen[:2], chosen[2:]
            others = [t for t, _ in chosen + work]
            product = _pairwise(
                pair, set(output).union(*others), None if others else output, dtype, multiply
            )
            if not chosen:
                work.append(product)
                break
            chosen.insert(0, product)
    return work[0]


def _subscripts_from_lists(first, rest):
    """Convert the interleaved form einsum(op, [0, 1], op, [1, 2], [0, 2])."""
    args = [first, *rest]
    operands, terms = args[:-1:2], args[1::2]
    if not operands:
        raise TypeError(
            f"`subscripts` must be a string, or an operand and the list of its indices follow each other, got "
            f"{type(first).__name__} alone."
        )
    has_result = len(args) % 2
    result = args[-1] if has_result else ()
    dims = _ordered_indices(terms, result)
    if unknown := [d for d in result if d is not Ellipsis and d not in dims]:
        raise ValueError(f"`subscripts` of the result name {unknown[0]!r}, which no operand has.")
    # the implicit result has its dims in this order
    names = {Ellipsis: "...", **{d: chr(ord("a") + n) for n, d in enumerate(dims)}}
    letters = ["".join(names[d] for d in term) for term in (*terms, result)]
    text = ",".join(letters[:-1])
    return f"{text}->{letters[-1]}" if has_result else text, tuple(operands)


def _ordered_indices(terms: list, result) -> list:
    """Return the sorted indices of all operands, without Ellipsis."""
    try:
        if not all(isinstance(term, (list, tuple)) for term in (*terms, result)):
            raise TypeError
        return sorted({d for term in terms for d in term if d is not Ellipsis})
    except TypeError:
        raise TypeError(
            f"`subscripts` of operands must be lists of indices that have an order, as integers, and Ellipsis, got "
            f"{terms!r:.80}."
        ) from None


#: the assumed value of symbolic sizes in the choice of a contraction path
_TYPICAL_SIZE = 64


def _is_strategy(optimize) -> bool:
    """Return whether opt_einsum accepts the argument `optimize`."""
    from opt_einsum.paths import PathOptimizer

    if isinstance(optimize, (list, tuple)):
        return all(isinstance(step, (list, tuple)) for step in optimize)
    return (
        optimize is None
        or isinstance(optimize, (bool, str, PathOptimizer))
        or (callable(optimize) and not isinstance(optimize, type))
    )


def _contraction_path(subscripts: str, operands, optimize):
    """Return opt_einsum's contraction path for operands of these shapes."""
    import opt_einsum

    if not _is_strategy(optimize):
        raise TypeError(
            f"`optimize` must be a bool, the name of a strategy of opt_einsum, one of its optimizers, or a list of the "
            f"operands of each step, got {optimize!r:.60}."
        )
    try:
        shapes = [
            tuple(_TYPICAL_SIZE if isinstance(n, SymbolicDim) else n for n in np.shape(x))
            for x in operands
        ]
        return opt_einsum.contract_path(subscripts, *shapes, shapes=True, optimize=optimize)
    except KeyError as error:
        if not isinstance(optimize, str) or optimize not in str(error):
            raise
        raise ValueError(
            f"`optimize` must name a strategy of opt_einsum ('auto', 'optimal', 'greedy', 'dp', ...), got "
            f"{optimize!r}."
        ) from None


def _check_sizes(terms, arrays) -> None:
    sizes: dict[str, int] = {}
    for term, x in zip(terms, arrays):
        for c, n in zip(term, x.shape):
            if sizes.setdefault(c, n) != n and 1 not in (sizes[c], n):
                raise ValueError(
                    f"einsum: index {c!r} has size {sizes[c]} in one operand and {n} in another ({','.join(terms)})."
                )


def _pairwise(chosen, keep: set, order: str | None, dtype, multiply: Callable) -> tuple:
    """Contract one or two operands to the indices in `keep`.

    They are in the order `order` if a swap produces it.
    """
    chosen = [_diagonals(t, x) for t, x in chosen]
    if len(chosen) == 1:
        return _sum_out(*chosen[0], keep, dtype)
    (ta, a), (tb, b) = chosen
    ta, a, tb, b = _drop_ones(ta, a, tb, b)
    ta, a = _sum_out(ta, a, keep.union(tb), dtype)
    tb, b = _sum_out(tb, b, keep.union(ta), dtype)
    shared = [c for c in ta if c in tb]
    contract = [c for c in shared if c not in keep]
    batch = [c for c in shared if c in keep]
    free_a = "".join(c for c in ta if c not in shared)
    free_b = "".join(c for c in tb if c not in shared)
    if free_a and free_b and order == "".join(batch) + free_b + free_a:
        ta, a, free_a, tb, b, free_b = tb, b, free_b, ta, a, free_a
        batch = [c for c in ta if c in batch]
    pick = lambda t, cs: tuple(t.index(c) for c in cs)
    numbers = (pick(ta, contract), pick(tb, contract)), (pick(ta, batch), pick(tb, batch))
    return "".join(batch) + free_a + free_b, multiply(a, b, numbers)


def _drop_ones(ta, a, tb, b):
    """Drop indices of size one that only one operand has, since they are broadcast."""
    for c in [c for c in ta if c in tb and a.shape[ta.index(c)] != b.shape[tb.index(c)]]:
        if a.shape[ta.index(c)] == 1:
            a, ta = layout.squeeze(a, (ta.index(c),)), ta.replace(c, "")
        else:
            b, tb = layout.squeeze(b, (tb.index(c),)), tb.replace(c, "")
    return ta, a, tb, b


def _diagonals(term: str, x):
    """Replace repeated indices of one operand by its diagonal."""
    from weft._engine.numpy.selection import diagonal

    for c in sorted(set(term)):
        while term.count(c) > 1:
            i = term.index(c)
            j = term.index(c, i + 1)
            x = diagonal(x, 0, i, j)
            term = "".join(k for p, k in enumerate(term) if p not in (i, j)) + c
    return term, x


def _sum_out(term: str, x, keep: set, dtype):
    """Sum over the indices of `term` that are not in `keep`."""
    summed = [c for c in term if c not in keep]
    if not summed:
        return term, x
    x = promote.cast(x, dtype, x.weak_type)
    total = reduce_or if x.dtype == np.bool_ else reduce_sum
    return "".join(c for c in term if c in keep), total(x, tuple(term.index(c) for c in summed))


def einsum_path(subscripts, /, *operands, optimize="greedy"):
    """Return the order in which `einsum` contracts its operands."""
    if not isinstance(subscripts, str):
        subscripts, operands = _subscripts_from_lists(subscripts, operands)
    return _contraction_path(subscripts, operands, optimize)
