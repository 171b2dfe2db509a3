"""Checks of one primitive's rules against each other, on NumPy values and through the reference rules alone.

A case is (primitive, args, params). `check_all` runs every check that applies:

  type        the reference gives what the type rule says
  jvp         against central differences, in float64
  transpose   <f(u), v> == <u, f_T(v)>
  batch       against a loop over the examples, for every choice of batch dims
  factors     splitting a factor, running the parts and putting them together changes nothing
  lower       a pull-style lowering, as a Loops kernel run on NumPy, gives what the reference gives
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft._engine.core.primitive import BatchAxis, Primitive
from weft._engine.core.trace import UndefPrimal, Zero, typeof
from weft._engine.util import dtypes
from weft._engine.util.config import enable_x64

Array = NDArray[Any]
Params = dict[str, Any]
#: the factors of each dim
DimFactors = Sequence[tuple[int, ...]]

COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def as_list(primitive: Primitive, out: Any) -> list[Any]:
    return list(out) if primitive.multiple_results else [out]


def run(primitive: Primitive, args: Sequence[Any], params: Params) -> list[Array]:
    """Return the results of the reference rule."""
    return [
        np.asarray(o)
        for o in as_list(primitive, primitive.reference(*map(np.asarray, args), **params))
    ]


def close(got: Any, want: Any, tol: float) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, (got.shape, want.shape)
    if dtypes.issubdtype(want.dtype, np.inexact):
        wide = np.complex128 if np.iscomplexobj(want) else np.float64
        np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=tol, atol=tol)
    else:
        np.testing.assert_array_equal(got, want)


def check_type(primitive: Primitive, args: Sequence[Any], params: Params) -> None:
    outs = run(primitive, args, params)
    avals = primitive.abstract([typeof(a) for a in args], params)
    assert len(outs) == len(avals)
    for out, aval in zip(outs, avals):
        assert (out.shape, out.dtype) == (aval.shape, aval.dtype), (out.shape, out.dtype, aval)


def is_inexact(x: Any) -> bool:
    return dtypes.issubdtype(np.asarray(x).dtype, np.inexact)


def random_like(rng: np.random.Generator, shape: Sequence[int], dtype: Any) -> Array:
    """Return normal numbers with the shape and dtype of the argument."""
    x = rng.normal(size=shape)
    if np.issubdtype(dtype, np.complexfloating):
        x = x + 1j * rng.normal(size=shape)
    return np.asarray(x, dtype)


def check_jvp(
    primitive: Primitive,
    args: Sequence[Any],
    params: Params,
    wrt: Sequence[int] | None = None,
    tol: float = 1e-6,
) -> None:
    """Check the derivative by each operand alone, and by all together."""
    wrt = [i for i, a in enumerate(args) if is_inexact(a)] if wrt is None else list(wrt)
    rng = np.random.default_rng(1)
    choices = [[i] for i in wrt] + ([wrt] if len(wrt) > 1 else [])
    eps = 1e-6
    for chosen in choices:
        directions = {i: random_like(rng, args[i].shape, args[i].dtype) for i in chosen}
        tangents = [
            directions.get(i, Zero(typeof(a).to_tangent_aval())) for i, a in enumerate(args)
        ]
        outs, t_outs = primitive.jvp(tuple(args), tuple(tangents), **params)
        ahead, behind = [
            run(
                primitive,
                [a + s * directions[i] if i in directions else a for i, a in enumerate(args)],
                params,
            )
            for s in (eps, -eps)
        ]
        for out, t, up, down, want in zip(
            as_list(primitive, outs),
            as_list(primitive, t_outs),
            ahead,
            behind,
            run(primitive, args, params),
        ):
            close(out, want, 1e-10)
            if is_inexact(want):
                slope = (up - down) / (2 * eps)
                close(
                    np.zeros(want.shape, want.dtype) if type(t) is Zero else t,
                    slope,
                    tol * max(1.0, np.abs(slope).max(initial=0)),
                )


def check_transpose(
    primitive: Primitive,
    args: Sequence[Any],
    params: Params,
    linear: Sequence[int],
    tol: float = 1e-9,
) -> None:
    """The adjoint identity for the operands at `linear`, zero elsewhere being a linear function of them together."""
    rng = np.random.default_rng(2)
    u = {i: random_like(rng, np.shape(args[i]), np.asarray(args[i]).dtype) for i in linear}
    outs = run(primitive, [u.get(i, a) for i, a in enumerate(args)], params)
    v = [random_like(rng, o.shape, o.dtype) for o in outs]
    given = [UndefPrimal(typeof(a)) if i in u else a for i, a in enumerate(args)]
    cts = primitive.transpose(v if primitive.multiple_results else v[0], *given, **params)
    assert len(cts) == len(args)
    left = sum(np.sum(o * w) for o, w in zip(outs, v))
    right = 0
    for i, x in u.items():
        if cts[i] is None or type(cts[i]) is Zero:
            continue
        assert np.shape(cts[i]) == x.shape and np.asarray(cts[i]).dtype == x.dtype
        right = right + np.sum(x * np.asarray(cts[i]))
    close(right, left, tol * max(1.0, abs(left)))
    assert all(cts[i] is None for i in range(len(args)) if i not in u)


def check_batch(
    primitive: Primitive,
    args: Sequence[Any],
    params: Params,
    size: int = 3,
    tol: float = 1e-6,
    vary: Callable[[Array, int], Array] | None = None,
    limit: int = 40,
) -> None:
    """Every choice of batch dims (evenly sampled beyond `limit`); example k of operand i is `vary(arg, k)`."""
    rng = np.random.default_rng(3)

    def examples(x: Array) -> list[Array]:
        if vary is not None and not is_inexact(x):
            return [vary(x, k) for k in range(size)]
        return [
            x + random_like(rng, x.shape, x.dtype) * 0.5 if is_inexact(x) else np.roll(x, k)
            for k in range(size)
        ]

    many = [examples(np.asarray(a)) for a in args]
    choices = [
        c
        for c in itertools.product(*[(None, *range(np.ndim(a) + 1)) for a in args])
        if any(d is not None for d in c)
    ]
    step = max(1, len(choices) // limit)
    for dims in choices[::step]:
        stacked = [
            np.stack(m, d) if d is not None else np.asarray(a) for m, d, a in zip(many, dims, args)
        ]
        outs, out_dims = primitive.batch(BatchAxis(size), stacked, list(dims), **params)
        wants = [
            run(
                primitive,
                [m[k] if d is not None else a for m, d, a in zip(many, dims, args)],
                params,
            )
            for k in range(size)
        ]
        pairs = zip(outs, out_dims) if primitive.multiple_results else [(outs, out_dims)]
        for o, (out, dim) in enumerate(pairs):
            for k in range(size):
                close(
                    np.asarray(out) if dim is None else np.take(np.asarray(out), k, dim),
                    wants[k][o],
                    tol,
                )


def check_factors(
    primitive: Primitive, args: Sequence[Any], params: Params, tol: float = 1e-5
) -> int:
    """Split every factor that may be split in two parts; return the number of factors."""
    args = [np.asarray(a) for a in args]
    wholes = run(primitive, args, params)
    rule = primitive.factors([typeof(a) for a in args], [typeof(o) for o in wholes], **params)
    for factors, value in [*zip(rule.ins, args), *zip(rule.outs, wholes)]:
        assert len(factors) == value.ndim
        for dim, n in zip(factors, value.shape):
            assert int(np.prod([rule.sizes[f] for f in dim])) == n
    tested = 0
    for f, size in enumerate(rule.sizes):
        if f in rule.special or size < 2:
            continue
        tested += 1
        cut = [0, size // 2, size] if size % 2 == 0 else [0, *range(1, size + 1)]
        parts: list[list[Array]] = []
        for lo, hi in itertools.pairwise(cut):
            ins = [_cut(a, fs, rule.sizes, f, lo, hi) for a, fs in zip(args, rule.ins)]
            outs = [_cut(o, fs, rule.sizes, f, lo, hi) for o, fs in zip(wholes, rule.outs)]
            hook = primitive.localize
            local = (
                params
                if hook is None
                else hook(params, [typeof(a) for a in ins], [typeof(o) for o in outs])
            )
            parts.append(run(primitive, ins, local))
        for o, (whole, factors) in enumerate(zip(wholes, rule.outs)):
            dims = [d for d, fs in enumerate(factors) if f in fs]
            pieces = [p[o] for p in parts]
            if dims:
                together = _joined(pieces, factors, rule.sizes, f, cut)
            elif f in rule.reduced:
                together = pieces[0]
                for piece in pieces[1:]:
                    together = COMBINE[rule.reduced[f]](together, piece)
            else:
                together = pieces[0]
                for piece in pieces[1:]:
                    close(piece, pieces[0], tol)
            close(together, whole, tol)
    return tested


def _cut(
    x: Array,
    factors: DimFactors,
    sizes: Sequence[int],
    f: int,
    lo: int,
    hi: int,
) -> Array:
    for d, dim in enumerate(factors):
        if f in dim:
            apart = x.reshape(*x.shape[:d], *[sizes[g] for g in dim], *x.shape[d + 1 :])
            taken = apart.take(range(lo, hi), d + dim.index(f))
            x = taken.reshape(*x.shape[:d], x.shape[d] // sizes[f] * (hi - lo), *x.shape[d + 1 :])
    return x


def _joined(
    pieces: Sequence[Array],
    factors: DimFactors,
    sizes: Sequence[int],
    f: int,
    cut: Sequence[int],
) -> Array:
    d = next(d for d, dim in enumerate(factors) if f in dim)
    dim, at = factors[d], d + factors[d].index(f)
    apart: list[Array] = []
    for piece, (lo, hi) in zip(pieces, itertools.pairwise(cut)):
        inner = [hi - lo if g == f else sizes[g] for g in dim]
        apart.append(piece.reshape(*piece.shape[:d], *inner, *piece.shape[d + 1 :]))
    whole = np.concatenate(apart, at)
    return whole.reshape(
        *pieces[0].shape[:d], sum(p.shape[d] for p in pieces), *pieces[0].shape[d + 1 :]
    )


def check_lower(
    primitive: Primitive, args: Sequence[Any], params: Params, tol: float = 1e-6
) -> None:
    """Check the pull-style lowering against the reference."""
    from weft._engine.ir.build import LoopsBuilder, type_name
    from weft._engine.ir.loops import Buf, For, LoopsKernel, StoreElement
    from weft._engine.ir.loops_eval import DTYPES, evaluate

    args = [np.asarray(a) for a in args]
    wants = run(primitive, args, params)
    in_avals, out_avals = [typeof(a) for a in args], [typeof(o) for o in wants]
    b = LoopsBuilder()
    bufs = [Buf(f"x{i}", type_name(a.dtype), max(a.size, 1), "in") for i, a in enumerate(args)]
    bufs += [Buf(f"y{i}", type_name(o.dtype), max(o.size, 1), "out") for i, o in enumerate(wants)]

    def reader(i: int, shape: tuple[int, ...]) -> Callable[..., Any]:
        def read(position: Sequence[Any], guard: Any = None) -> Any:
            return b.load(f"x{i}", _flat(b, position, shape), bufs[i].type, guard)

        return read

    readers = [reader(i, a.shape) for i, a in enumerate(args)]
    body: list[Any] = []
    for o, want in enumerate(wants):
        index = tuple(b.index(f"i{o}_{d}", n) for d, n in enumerate(want.shape))
        expr = primitive.lower(b, index, *readers, in_avals=in_avals, out_avals=out_avals, **params)
        expr = (expr if primitive.multiple_results else [expr])[o]
        store = StoreElement(
            f"y{o}", _flat(b, index, want.shape), b.storage_form(expr, type_name(want.dtype))
        )
        statement: Any = store
        for d in reversed(range(want.ndim)):
            statement = For(f"i{o}_{d}", want.shape[d], (statement,))
        if want.size:
            body.append(statement)
    memory = [np.ascontiguousarray(a).ravel() if a.size else np.zeros(1, a.dtype) for a in args]
    results = [np.zeros(max(w.size, 1), DTYPES[type_name(w.dtype)]) for w in wants]
    evaluate(LoopsKernel(tuple(bufs), tuple(body)), *memory, *results)
    for want, got in zip(wants, results):
        close(got[: want.size].reshape(want.shape), want, tol)


def _flat(b: Any, position: Sequence[Any], shape: Sequence[int]) -> Any:
    at: Any = 0
    stride = 1
    for i, n in zip(reversed(position), reversed(shape)):
        at = b.iadd(at, b.imul(i, stride))
        stride *= n
    return at if hasattr(at, "type") else b.const(at, "i64")


def check_all(
    primitive: Primitive,
    args: Sequence[Any],
    params: Params,
    *,
    linear: Sequence[Sequence[int]] = (),
    vary: Callable[[Array, int], Array] | None = None,
    wrt: Sequence[int] | None = None,
    lower: bool = True,
) -> None:
    """Run all checks; `linear` lists groups of operands in which the op is jointly linear."""
    with enable_x64(True):
        check_type(primitive, args, params)
        check_jvp(primitive, args, params, wrt)
        for group in linear:
            check_transpose(primitive, args, params, group)
        check_batch(primitive, args, params, vary=vary)
        check_factors(primitive, args, params)
        if lower:
            check_lower(primitive, args, params)
