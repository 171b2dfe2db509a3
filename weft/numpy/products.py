"""Products of arrays: dot, matmul, einsum, tensordot and their kin; rounding and polynomials of single arrays."""

from __future__ import annotations

import builtins

import numpy as np

from weft.numpy import manipulation as mp, ufuncs as uf
from weft.numpy.promote import (
    broadcast_shapes,
    broadcast_to_shape,
    cast,
    check_arraylike,
    concrete,
    promote_dtypes,
    promote_dtypes_inexact,
    value,
)
from weft.ops import elementwise as ew, layout
from weft.ops.contraction import dot_general
from weft.ops.placement import takes_out_sharding
from weft.ops.reduce import reduce_sum
from weft.util import dtypes
from weft.util.errors import ShapeError, describe
from weft.util.source import user_frame


def _operands(api: str, *args, preferred=None):
    check_arraylike(api, *args)
    return [concrete(x) for x in promote_dtypes(*[value(a) for a in args])]


def _contract(a, b, contract, batch=((), ()), precision=None, preferred=None):
    return dot_general(a, b, (contract, batch), precision=precision,
                       preferred_element_type=None if preferred is None else np.dtype(preferred))


def _mismatch(api: str, a, b, i: int, j: int):
    hint = ""
    if a.ndim == b.ndim == 2 and a.shape[1] == b.shape[1]:
        hint = f"Did you mean {api}(x, y.T)?"
    return ShapeError(describe(f"{api}", "contracted dims differ in size.", [
        ("lhs", a.aval.str_short(True), f"contracts dim {i}, size {a.shape[i]}"),
        ("rhs", b.aval.str_short(True), f"contracts dim {j}, size {b.shape[j]}")], where=user_frame(),
        rule="Contracted dims must have equal size.", remedy=hint))


@takes_out_sharding
def dot(a, b, *, precision=None, preferred_element_type=None):
    """NumPy's dot: product of vectors and matrices, over the last dim of `a` and the second to last of `b`.

    >>> import weft.numpy as wnp
    >>> float(wnp.dot(wnp.arange(3.), wnp.ones(3)))
    3.0
    """
    a, b = _operands("dot", a, b)
    if a.ndim == 0 or b.ndim == 0:
        result = uf.multiply(a, b)
        return result if preferred_element_type is None else cast(result, np.dtype(preferred_element_type))
    j = max(0, b.ndim - 2)
    if a.shape[-1] != b.shape[j]:
        raise _mismatch("dot", a, b, a.ndim - 1, j)
    return _contract(a, b, ((a.ndim - 1,), (j,)), precision=precision, preferred=preferred_element_type)


@takes_out_sharding
def matmul(a, b, *, precision=None, preferred_element_type=None):
    """Matrix product of the last two dims, broadcast over the others; vectors count as rows or columns.

    >>> import weft.numpy as wnp
    >>> wnp.matmul(wnp.ones((5, 2, 3)), wnp.ones((3, 4))).shape
    (5, 2, 4)
    """
    a, b = _operands("matmul", a, b)
    for x, who in ((a, "first"), (b, "second")):
        if x.ndim < 1:
            raise ValueError(f"matmul: the {who} operand is a scalar; it must have at least one dim. Use multiply.")
    j = max(0, b.ndim - 2)
    if a.shape[-1] != b.shape[j]:
        raise _mismatch("matmul", a, b, a.ndim - 1, j)
    if a.ndim <= 2 and b.ndim <= 2:
        return _contract(a, b, ((a.ndim - 1,), (j,)), precision=precision, preferred=preferred_element_type)
    lead_a, lead_b = a.shape[:-2] if a.ndim > 1 else (), b.shape[:-2] if b.ndim > 1 else ()
    if builtins.all(n == 1 for n in lead_b) or b.ndim <= 2:        # only `a` has batch dims: they are free dims
        b2 = layout.reshape(b, b.shape[len(lead_b):]) if lead_b else b
        out = _contract(a, b2, ((a.ndim - 1,), (max(0, b2.ndim - 2),)), precision=precision, preferred=preferred_element_type)
        batch = broadcast_shapes(lead_a, lead_b)
        return layout.reshape(out, batch + tuple(out.shape[len(lead_a):])) if len(batch) > len(lead_a) else out
    batch = broadcast_shapes(lead_a, lead_b)
    keep = [d for d, n in enumerate(batch)]
    a = broadcast_to_shape(a, batch + tuple(a.shape[-2:] if a.ndim > 1 else a.shape))
    b = broadcast_to_shape(b, batch + tuple(b.shape[-2:] if b.ndim > 1 else b.shape))
    n = len(keep)
    contract = ((a.ndim - 1,), (max(n, b.ndim - 2),))
    return _contract(a, b, contract, (tuple(range(n)), tuple(range(n))), precision, preferred_element_type)


def vdot(a, b, *, precision=None, preferred_element_type=None):
    """The dot product of flattened arrays, the first one conjugated."""
    a, b = _operands("vdot", a, b)
    if dtypes.issubdtype(a.dtype, np.complexfloating):
        a = ew.conj(a)
    return dot(mp.ravel(a), mp.ravel(b), precision=precision, preferred_element_type=preferred_element_type)


def inner(a, b, *, precision=None, preferred_element_type=None):
    """The product over the last dims of both arrays."""
    a, b = _operands("inner", a, b)
    if a.ndim == 0 or b.ndim == 0:
        return uf.multiply(a, b)
    if a.shape[-1] != b.shape[-1]:
        raise _mismatch("inner", a, b, a.ndim - 1, b.ndim - 1)
    return _contract(a, b, ((a.ndim - 1,), (b.ndim - 1,)), precision=precision, preferred=preferred_element_type)


def outer(a, b, out=None):
    """All products of two flattened arrays."""
    a, b = _operands("outer", a, b)
    return uf.multiply(mp.reshape(mp.ravel(a), (-1, 1)), mp.reshape(mp.ravel(b), (1, -1)))


def kron(a, b):
    """The Kronecker product."""
    a, b = _operands("kron", a, b)
    n = max(a.ndim, b.ndim)
    a, b = [layout.reshape(x, (1,) * (n - x.ndim) + tuple(x.shape)) for x in (a, b)]
    wide_a = layout.reshape(a, tuple(k for s in a.shape for k in (s, 1)))
    wide_b = layout.reshape(b, tuple(k for s in b.shape for k in (1, s)))
    return layout.reshape(uf.multiply(wide_a, wide_b), tuple(s * t for s, t in zip(a.shape, b.shape)))


@takes_out_sharding
def tensordot(a, b, axes=2, *, precision=None, preferred_element_type=None):
    """The product over chosen dims of both arrays: `axes` pairs of dims, or how many trailing and leading ones."""
    a, b = _operands("tensordot", a, b)
    if isinstance(axes, (int, np.integer)):
        k = int(axes)
        if k > min(a.ndim, b.ndim):
            raise TypeError(f"Number of tensordot axes (axes {k}) exceeds input ranks ({a.ndim} and {b.ndim})")
        contract = (tuple(range(a.ndim - k, a.ndim)), tuple(range(k)))
    else:
        first, second = axes
        first = (first,) if isinstance(first, (int, np.integer)) else tuple(first)
        second = (second,) if isinstance(second, (int, np.integer)) else tuple(second)
        if len(first) != len(second):
            raise TypeError(f"tensordot requires axes lists to have equal length, got {axes}.")
        contract = (tuple(int(d) % a.ndim for d in first), tuple(int(d) % b.ndim for d in second))
    for i, j in zip(*contract):
        if a.shape[i] != b.shape[j]:
            raise _mismatch("tensordot", a, b, i, j)
    return _contract(a, b, contract, precision=precision, preferred=preferred_element_type)


def vecdot(x1, x2, /, *, axis: int = -1, precision=None, preferred_element_type=None):
    """Dot products along `axis`, the first argument conjugated, broadcast over the other dims."""
    a, b = _operands("vecdot", x1, x2)
    a, b = mp.moveaxis(a, axis, -1), mp.moveaxis(b, axis, -1)
    if dtypes.issubdtype(a.dtype, np.complexfloating):
        a = ew.conj(a)
    shape = broadcast_shapes(a.shape, b.shape)
    a, b = broadcast_to_shape(a, shape), broadcast_to_shape(b, shape)
    n = len(shape) - 1
    return _contract(a, b, ((n,), (n,)), (tuple(range(n)), tuple(range(n))), precision, preferred_element_type)


def matvec(x1, x2, /):
    """Matrix times vector, broadcast over leading dims."""
    return mp.squeeze(matmul(x1, mp.expand_dims(x2, -1)), -1)


def vecmat(x1, x2, /):
    """Conjugated vector times matrix, broadcast over leading dims."""
    return mp.squeeze(matmul(mp.expand_dims(uf.conjugate(x1), -2), x2), -2)


def cross(a, b, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None):
    """The cross product of 3-vectors (or 2-vectors) along a dim."""
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = _operands("cross", a, b)
    a, b = mp.moveaxis(a, axisa, -1), mp.moveaxis(b, axisb, -1)
    if a.shape[-1] not in (2, 3) or b.shape[-1] not in (2, 3):
        raise ValueError("Dimension must be either 2 or 3 for cross product")
    if a.shape[-1] == b.shape[-1] == 2:
        return uf.subtract(uf.multiply(a[..., 0], b[..., 1]), uf.multiply(a[..., 1], b[..., 0]))
    a, b = [mp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 1)]) if x.shape[-1] == 2 else x for x in (a, b)]
    parts = [uf.subtract(uf.multiply(a[..., i], b[..., j]), uf.multiply(a[..., j], b[..., i]))
             for i, j in ((1, 2), (2, 0), (0, 1))]
    return mp.moveaxis(mp.stack(parts, -1), -1, axisc)


# ---- einsum
@takes_out_sharding
def einsum(subscripts, /, *operands, out=None, optimize="auto", precision=None, preferred_element_type=None,
           _dot_general=None):
    """Einstein summation; the order of contractions is chosen by opt_einsum.

    >>> import weft.numpy as wnp
    >>> wnp.einsum('ij,kj->ik', wnp.ones((2, 3)), wnp.ones((4, 3))).shape
    (2, 4)
    """
    import opt_einsum
    if not isinstance(subscripts, str):
        subscripts, operands = _subscripts_from_lists(subscripts, operands)
    arrays = _operands("einsum", *operands)
    inputs, output, arrays = opt_einsum.parser.parse_einsum_input((subscripts, *arrays), shapes=False)
    terms = inputs.split(",")
    for term, x in zip(terms, arrays):
        if len(term) != x.ndim:
            raise ValueError(f"einsum: subscript {term!r} has {len(term)} indices, its operand has shape {tuple(x.shape)}.")
    _check_sizes(terms, arrays)
    work = list(zip(terms, arrays))
    if len(work) > 2:
        how = "optimal" if optimize is True else "auto" if optimize in ("auto", False) else optimize
        steps, _ = opt_einsum.contract_path(f"{inputs}->{output}", *[tuple(x.shape) for x in arrays], shapes=True, optimize=how)
    else:
        steps = [tuple(range(len(work)))]
    for step in steps:
        chosen = [work[i] for i in step]
        work = [w for i, w in enumerate(work) if i not in step]
        keep = set(output).union(*(set(t) for t, _ in work)) if work else set(output)
        work.append(_pairwise(chosen, keep, output if not work else None, precision, preferred_element_type))
    term, result = work[0]
    if term != output:
        result = layout.transpose(result, tuple(term.index(c) for c in output))
    return result if preferred_element_type is None else cast(result, np.dtype(preferred_element_type))


def _subscripts_from_lists(first, rest):
    """The interleaved form einsum(op, [0, 1], op, [1, 2], [0, 2])."""
    args = [first, *rest]
    pairs = [(args[i], args[i + 1]) for i in range(0, len(args) - 1, 2)]
    names = {}

    def letters(dims):
        return "".join("..." if d is Ellipsis else names.setdefault(d, chr(ord("a") + len(names))) for d in dims)
    text = ",".join(letters(d) for _, d in pairs)
    if len(args) % 2:
        text += "->" + letters(args[-1])
    return text, tuple(op for op, _ in pairs)


def _check_sizes(terms, arrays) -> None:
    sizes: dict[str, int] = {}
    for term, x in zip(terms, arrays):
        for c, n in zip(term, x.shape):
            if sizes.setdefault(c, n) != n and 1 not in (sizes[c], n):
                raise ValueError(f"einsum: index {c!r} has size {sizes[c]} in one operand and {n} in another ({','.join(terms)}).")


def _pairwise(chosen, keep: set, order: str | None, precision, preferred):
    """One or two operands contracted to the indices in `keep`."""
    chosen = [_diagonals(t, x) for t, x in chosen]
    if len(chosen) == 1:
        term, x = chosen[0]
        return _sum_out(term, x, [c for c in term if c not in keep])
    (ta, a), (tb, b) = chosen
    ta, a = _sum_out(ta, a, [c for c in ta if c not in keep and c not in tb])
    tb, b = _sum_out(tb, b, [c for c in tb if c not in keep and c not in ta])
    ta, a, tb, b = _drop_ones(ta, a, tb, b)
    batch = [c for c in ta if c in tb and c in keep]
    contract = [c for c in ta if c in tb and c not in keep]
    if order is not None and _free_first(order, batch, ta, tb, contract):
        (ta, a), (tb, b) = (tb, b), (ta, a)
    batch = [c for c in ta if c in tb and c in keep]
    pick = lambda t, cs: tuple(t.index(c) for c in cs)
    out = _contract(a, b, (pick(ta, contract), pick(tb, contract)), (pick(ta, batch), pick(tb, batch)), precision, preferred)
    term = "".join(batch) + "".join(c for c in ta if c not in batch + contract) + "".join(c for c in tb if c not in batch + contract)
    return term, out


def _free_first(order: str, batch, ta, tb, contract) -> bool:
    """Whether swapping the operands gives the result in the wanted order."""
    free_a = "".join(c for c in ta if c not in batch and c not in contract)
    free_b = "".join(c for c in tb if c not in batch and c not in contract)
    return order == "".join(batch) + free_b + free_a and free_a != "" and free_b != ""


def _drop_ones(ta, a, tb, b):
    """Indices of size one in one operand only are broadcast: they are dropped there."""
    for c in [c for c in ta if c in tb and a.shape[ta.index(c)] != b.shape[tb.index(c)]]:
        if a.shape[ta.index(c)] == 1:
            a, ta = mp.squeeze(a, ta.index(c)), ta.replace(c, "")
        else:
            b, tb = mp.squeeze(b, tb.index(c)), tb.replace(c, "")
    return ta, a, tb, b


def _diagonals(term: str, x):
    """Repeated indices of one operand become its diagonal."""
    for c in sorted(set(term)):
        while term.count(c) > 1:
            i = term.index(c)
            j = term.index(c, i + 1)
            x = mp.diagonal(x, 0, i, j)
            term = "".join(k for p, k in enumerate(term) if p not in (i, j)) + c
    return term, x


def _sum_out(term: str, x, cs):
    if not cs:
        return term, x
    return "".join(c for c in term if c not in cs), reduce_sum(x, tuple(term.index(c) for c in cs))


def einsum_path(subscripts, /, *operands, optimize="greedy"):
    """The order in which `einsum` contracts its operands."""
    import opt_einsum
    if not isinstance(subscripts, str):
        subscripts, operands = _subscripts_from_lists(subscripts, operands)
    return opt_einsum.contract_path(subscripts, *[tuple(np.shape(x)) for x in operands], shapes=True, optimize=optimize)


# ---- rounding and polynomials
def round(a, decimals: int = 0, out=None):  # noqa: A001
    """Rounded to `decimals` places, halves to even."""
    check_arraylike("round", a)
    x = concrete(value(a))
    if not dtypes.issubdtype(x.dtype, np.inexact):
        if decimals >= 0 or x.dtype == np.bool_:
            return x
        step = x.dtype.type(10 ** -decimals)
        low = uf.multiply(uf.floor_divide(x, step), step)
        twice = uf.multiply(uf.subtract(x, low), 2)
        odd = uf.equal(uf.remainder(uf.floor_divide(x, step), 2), 1)
        up = uf.logical_or(uf.greater(twice, step), uf.logical_and(uf.equal(twice, step), odd))
        return mp.where(up, uf.add(low, step), low)
    if dtypes.issubdtype(x.dtype, np.complexfloating):
        return ew.complex(round(ew.real(x), decimals), round(ew.imag(x), decimals))
    if decimals == 0:
        return ew.round(x, ew.RoundingMethod.TO_NEAREST_EVEN)
    scale = 10.0 ** decimals
    return ew.div(ew.round(ew.mul(x, scale), ew.RoundingMethod.TO_NEAREST_EVEN), scale)


around = round


def polyval(p, x, *, unroll: int = 16):
    """The polynomial with coefficients `p` (highest first) at `x`, by Horner's rule."""
    p, x = _operands("polyval", p, x)
    if p.ndim != 1:
        raise ValueError(f"polyval: coefficients must be 1-dimensional, got shape {tuple(p.shape)}.")
    out = uf.multiply(x, 0)
    for i in range(p.shape[0]):
        out = uf.add(uf.multiply(out, x), p[i])
    return out


def convolve(a, v, mode: str = "full", *, precision=None, preferred_element_type=None):
    """The convolution of two vectors."""
    return _convolve(a, v, mode, True, precision, preferred_element_type)


def correlate(a, v, mode: str = "valid", *, precision=None, preferred_element_type=None):
    """The cross-correlation of two vectors."""
    return _convolve(a, uf.conjugate(v), mode, False, precision, preferred_element_type)


def _convolve(a, v, mode: str, flip: bool, precision, preferred):
    check_arraylike("convolve", a, v)
    a, v = [concrete(x) for x in promote_dtypes_inexact(value(a), value(v))]
    if a.ndim != 1 or v.ndim != 1:
        raise ValueError("convolve and correlate take 1-dimensional arrays.")
    if not a.shape[0] or not v.shape[0]:
        raise ValueError("convolve: inputs cannot be empty.")
    out_flip = False
    if a.shape[0] < v.shape[0]:
        if flip:
            a, v = v, a
        else:
            a, v, out_flip = v, a, True
    if flip:
        v = mp.flip(v)
    n, m = a.shape[0], v.shape[0]
    pads = {"full": (m - 1, m - 1), "same": (m // 2, m - m // 2 - 1), "valid": (0, 0)}
    if mode not in pads:
        raise ValueError(f"convolve: mode must be one of ['full', 'same', 'valid'], got {mode!r}.")
    from weft.ops.convolution import conv_general_dilated
    out = conv_general_dilated(layout.reshape(a, (1, 1, n)), layout.reshape(v, (1, 1, m)), (1,), [pads[mode]],
                               precision=precision)
    out = layout.reshape(out, (out.shape[-1],))
    out = mp.flip(out) if out_flip else out
    return out if preferred is None else cast(out, np.dtype(preferred))


def diff(a, n: int = 1, axis: int = -1, prepend=None, append=None):
    """Differences of neighbours along `axis`, `n` times."""
    check_arraylike("diff", a)
    a = concrete(value(a))
    axis = axis % a.ndim
    shape = tuple(1 if d == axis else k for d, k in enumerate(a.shape))
    for extra, first in ((prepend, True), (append, False)):
        if extra is not None:
            e = concrete(extra)
            e = broadcast_to_shape(cast(e, a.dtype), shape) if e.ndim == 0 else e
            a = mp.concatenate([e, a] if first else [a, e], axis)
    for _ in range(n):
        high = a[(slice(None),) * axis + (slice(1, None),)]
        low = a[(slice(None),) * axis + (slice(None, -1),)]
        a = uf.not_equal(high, low) if a.dtype == np.bool_ else uf.subtract(high, low)
    return a


def ediff1d(ary, to_end=None, to_begin=None):
    """Differences of neighbours of the flattened array."""
    out = diff(mp.ravel(ary))
    parts = [mp.ravel(concrete(x)) for x in (to_begin,) if x is not None] + [out]
    parts += [mp.ravel(concrete(x)) for x in (to_end,) if x is not None]
    return mp.concatenate(parts) if len(parts) > 1 else out


def gradient(f, *varargs, axis=None, edge_order=None):
    """Central differences along each dim (or `axis`), one-sided at the ends. Spacings are numbers or coordinate arrays, one for
    all dims or one for each."""
    if edge_order is not None:
        raise NotImplementedError("weft.numpy.gradient: edge_order is not there; leave it None.")
    check_arraylike("gradient", f)
    f = concrete(promote_dtypes_inexact(value(f))[0])
    f = cast(f, f.dtype)
    axes = range(f.ndim) if axis is None else [d % f.ndim for d in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    axes = list(axes)
    if len(varargs) not in (0, 1, len(axes)):
        raise TypeError(f"gradient: {len(varargs)} spacings for {len(axes)} dims; give none, one, or one for each.")
    spacing = list(varargs) * (len(axes) if len(varargs) == 1 else 1) or [1.0] * len(axes)
    out = [_gradient_along(f, d, h) for d, h in zip(axes, spacing)]
    return out[0] if len(out) == 1 else out


def _gradient_along(f, d: int, h):
    if f.shape[d] < 2:
        raise ValueError("Shape of array too small to calculate a numerical gradient, at least 2 elements are required.")
    at = lambda lo, hi: f[(slice(None),) * d + (slice(lo, hi),)]
    step = uf.subtract(at(1, None), at(None, -1))
    if np.ndim(h) == 0:
        middle = uf.multiply(uf.subtract(at(2, None), at(None, -2)), 0.5)
        return uf.divide(mp.concatenate([step[_first(d)], middle, step[_last(d)]], d), h)
    gaps = mp.reshape(diff(cast(concrete(h), f.dtype)), (-1,) + (1,) * (f.ndim - d - 1))
    slope = uf.divide(step, gaps)
    before, after = gaps[:-1], gaps[1:]
    low, high = slope[(slice(None),) * d + (slice(None, -1),)], slope[(slice(None),) * d + (slice(1, None),)]
    middle = uf.divide(uf.add(uf.multiply(low, after), uf.multiply(high, before)), uf.add(before, after))
    return mp.concatenate([slope[_first(d)], middle, slope[_last(d)]], d)


def _first(d: int) -> tuple:
    return (slice(None),) * d + (slice(0, 1),)


def _last(d: int) -> tuple:
    return (slice(None),) * d + (slice(-1, None),)


def interp(x, xp, fp, left=None, right=None, period=None):
    """Piecewise linear interpolation of the points (xp, fp) at `x`; beyond them `left` and `right`, or periodic."""
    from weft.numpy.sorting import argsort, searchsorted
    x, xp, fp = [concrete(v) for v in promote_dtypes_inexact(*[value(v) for v in (x, xp, fp)])]
    if xp.ndim != 1 or fp.ndim != 1 or xp.shape != fp.shape:
        raise ValueError("interp: xp and fp must be one-dimensional arrays of equal size")
    if period is not None:
        if isinstance(period, (int, float)) and period == 0:
            raise ValueError("interp: period must be a non-zero value")
        period = uf.abs(period)
        x, xp = uf.remainder(x, period), uf.remainder(xp, period)
        order = argsort(xp)
        xp, fp = xp[order], fp[order]
        xp = mp.concatenate([uf.subtract(xp[-1:], period), xp, uf.add(xp[:1], period)])
        fp = mp.concatenate([fp[-1:], fp, fp[:1]])
    i = mp.clip(searchsorted(xp, x, side="right"), 1, xp.shape[0] - 1)
    lo_f, hi_f, lo_x, hi_x = fp[i - 1], fp[i], xp[i - 1], xp[i]
    dx = uf.subtract(hi_x, lo_x)
    flat = uf.less_equal(uf.abs(dx), float(np.spacing(dtypes.finfo(xp.dtype).eps)))
    slope = uf.divide(uf.subtract(hi_f, lo_f), mp.where(flat, 1, dx))
    out = mp.where(flat, lo_f, uf.add(lo_f, uf.multiply(uf.subtract(x, lo_x), slope)))
    if period is not None:
        return out
    out = mp.where(uf.less(x, xp[0]), fp[0] if left is None else left, out)
    return mp.where(uf.greater(x, xp[-1]), fp[-1] if right is None else right, out)


def trapezoid(y, x=None, dx: float = 1.0, axis: int = -1):
    """The integral of samples `y` by the trapezoidal rule."""
    from weft.numpy.reductions import sum as total
    y = mp.moveaxis(y, axis, -1)
    steps = dx if x is None else diff(mp.moveaxis(x, axis, -1) if np.ndim(x) > 1 else x)
    return uf.multiply(total(uf.multiply(steps, uf.add(y[..., 1:], y[..., :-1])), -1), 0.5)


def apply_along_axis(func1d, axis: int, arr, *args, **kwargs):
    """`func1d` of every 1-d slice along `axis`."""
    from weft.api.vmap import vmap
    arr = concrete(value(arr))
    axis = axis % arr.ndim
    fun = lambda x: func1d(x, *args, **kwargs)
    for d in range(arr.ndim - axis - 1):
        fun = vmap(fun, in_axes=d + 1, out_axes=-1)
    for _ in range(axis):
        fun = vmap(fun, in_axes=0, out_axes=0)
    return fun(arr)


def vectorize(pyfunc, *, excluded=frozenset(), signature: str | None = None):
    """`pyfunc` mapped over broadcast arguments; `signature` like '(n),(m,n)->(m)' names the core dims."""
    from weft.numpy.vectorizing import vectorize as make
    return make(pyfunc, excluded=excluded, signature=signature)
