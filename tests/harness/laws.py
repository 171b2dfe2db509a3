"""The laws that every op keeps, checked on a `Case` with the NumPy references alone: no compiler takes part.

check_all(case) asks: does the reference give the expected values, and what the type rule says; is jvp the directional
derivative; is transpose the adjoint; is batching a loop; do shards, put together by the factor rule, give the whole;
may partial sums pass where the rule says so; does the lowering compute what the reference does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from tests.harness.rule_checks import (
    COMBINE,
    Array,
    DimFactors,
    Params,
    check_lower,
    is_inexact,
    random_like,
)
from weft._engine.core.interpret import run_reference
from weft._engine.core.primitive import BatchAxis, Primitive, has_rule
from weft._engine.core.stage import stage
from weft._engine.core.trace import UndefPrimal, Zero, typeof
from weft._engine.ir.factors import FactorRule
from weft._engine.ir.jaxpr import Jaxpr, Literal, Var
from weft._engine.transforms.batch import batch_flat
from weft._engine.transforms.jvp import instantiate, jvp_flat
from weft._engine.transforms.transpose import backward_pass
from weft._engine.util import dtypes
from weft._engine.util.config import config

TOLERANCE = {
    "float64": 1e-9,
    "complex128": 1e-9,
    "float32": 2e-6,
    "complex64": 2e-6,
    "float16": 2e-3,
    "bfloat16": 1.6e-2,
}


@dataclass(frozen=True)
class Case:
    """One use of an op: `fn` on NumPy arrays `args`, giving an array or a list of them.

    expect  the same in NumPy, or None
    diff    operands to differentiate in (None: all inexact ones; () where the derivative is not tested)
    linear  groups of operands in which the op is linear together, for the adjoint identity
    batch   operands that may be batched (None: all)
    """

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    expect: Callable[..., Any] | None = None
    diff: tuple[int, ...] | None = None
    linear: tuple[tuple[int, ...], ...] = ()
    batch: tuple[int, ...] | None = None

    def __str__(self) -> str:
        return self.name


@contextmanager
def wide_types() -> Generator[None]:
    """64-bit types on, so that references and finite differences are exact enough to compare."""
    old = config.enable_x64
    config.update("enable_x64", True)
    try:
        yield
    finally:
        config.update("enable_x64", old)


def outputs(out: Any) -> list[Any]:
    return list(cast("Sequence[Any]", out)) if isinstance(out, (list, tuple)) else [out]


def program(fn: Callable[..., Any], args: Sequence[Any]) -> Jaxpr:
    """`fn` staged on the types of `args`."""

    def flat(*xs: Any) -> list[Any]:
        return outputs(fn(*xs))

    types: list[Any] = [typeof(a) for a in args]
    return stage(flat, types)


def run(fn: Callable[..., Any], args: Sequence[Any]) -> list[Array]:
    """Stage `fn` and run it by the references, which also compare types with the type rules."""
    return run_reference(program(fn, args), *args)


def assert_close(got: Any, want: Any, what: str = "", rtol: float | None = None) -> None:
    """Equal dtype and shape, and equal values to the tolerance of the dtype."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype, f"{what}: dtype {got.dtype}, expected {want.dtype}"
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    if not dtypes.issubdtype(got.dtype, np.inexact):
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    tolerance = TOLERANCE.get(got.dtype.name, 0.1) if rtol is None else rtol
    wide = np.complex128 if np.iscomplexobj(got) else np.float64
    np.testing.assert_allclose(
        got.astype(wide), want.astype(wide), rtol=tolerance, atol=tolerance, err_msg=what
    )


def check_all(case: Case) -> None:
    """Check all laws on one case."""
    with wide_types():
        check_reference(case)
        check_jvp(case)
        check_transpose(case)
        check_batch(case)
        check_equations(case)


# --- values -----------------------------------------------------------------------------------------------------------


def check_reference(case: Case) -> None:
    """The reference gives what NumPy says, in the types that the type rule says."""
    got = run(case.fn, case.args)
    if case.expect is None:
        return
    with np.errstate(all="ignore"):
        want = outputs(case.expect(*case.args))
    assert len(got) == len(want)
    for i, (g, w) in enumerate(zip(got, want)):
        assert_close(g, w, f"{case.name}: result {i}")


# --- derivatives ------------------------------------------------------------------------------------------------------


def _wide(args: Sequence[Any]) -> tuple[Array, ...]:
    up: dict[Any, Any] = {
        np.dtype(np.float32): np.float64,
        np.dtype(np.complex64): np.complex128,
    }
    return tuple(np.asarray(a, up.get(np.asarray(a).dtype)) for a in args)


def _diff_operands(case: Case) -> tuple[int, ...]:
    return (
        tuple(i for i, a in enumerate(case.args) if is_inexact(a))
        if case.diff is None
        else case.diff
    )


def check_jvp(case: Case, step: float = 1e-6) -> None:
    """The tangent is the central difference along a random direction: per operand, and in all together."""
    args, operands = _wide(case.args), _diff_operands(case)
    rng = np.random.default_rng(0)
    groups = [(i,) for i in operands] + ([operands] if len(operands) > 1 else [])
    for group in groups:
        directions = {i: random_like(rng, args[i].shape, args[i].dtype) for i in group}
        tangents = [
            directions[i] if i in directions else Zero(typeof(a).to_tangent_aval())
            for i, a in enumerate(args)
        ]
        primals, got = jvp_flat(lambda *xs: outputs(case.fn(*xs)), args, tangents)
        ahead, behind = (
            [a + s * directions[i] if i in directions else a for i, a in enumerate(args)]
            for s in (step, -step)
        )
        for primal, t, after, before in zip(
            primals, got, run(case.fn, ahead), run(case.fn, behind)
        ):
            if not is_inexact(primal):
                assert type(t) is Zero and t.aval.dtype == dtypes.float0
                continue
            want = (np.asarray(after) - np.asarray(before)) / (2 * step)
            np.testing.assert_allclose(
                np.asarray(instantiate(t)),
                want,
                rtol=2e-5,
                atol=2e-5,
                err_msg=f"{case.name}: jvp in operands {group}",
            )


def pairing(xs: Iterable[Any], ys: Iterable[Any]) -> float:
    """The bilinear product that transposition keeps."""
    return float(sum(np.sum(np.asarray(x) * np.asarray(y)).real for x, y in zip(xs, ys)))


def check_transpose(case: Case) -> None:
    """<f(u), v> == <u, fT(v)> in each group of operands in which the case is linear."""
    args = _wide(case.args)
    jaxpr = program(case.fn, args)
    rng = np.random.default_rng(1)
    for group in case.linear:
        us = {i: random_like(rng, args[i].shape, args[i].dtype) for i in group}
        outs = run_reference(jaxpr, *[us.get(i, a) for i, a in enumerate(args)])
        vs = [random_like(rng, o.shape, o.dtype) for o in outs]
        holes = [UndefPrimal(typeof(a)) if i in us else a for i, a in enumerate(args)]
        cts = [
            instantiate(ct) if ct is not None else None for ct in backward_pass(jaxpr, holes, vs)
        ]
        for i in group:
            assert typeof(cts[i]).shape == args[i].shape, (
                f"{case.name}: cotangent of operand {i} has another shape"
            )
            assert typeof(cts[i]).dtype == args[i].dtype, (
                f"{case.name}: cotangent of operand {i} has another dtype"
            )
        got, want = pairing(us.values(), [cts[i] for i in group]), pairing(outs, vs)
        np.testing.assert_allclose(
            got, want, rtol=1e-9, atol=1e-9, err_msg=f"{case.name}: transpose in {group}"
        )


# --- batching ---------------------------------------------------------------------------------------------------------

BATCH = 3
BatchDims = tuple[int | None, ...]


def vary(x: Array, i: int) -> Array:
    """Return another array with the shape, dtype and domain of `x`: example i of a batch."""
    x = np.asarray(x)
    if x.ndim:
        return np.roll(x.ravel(), i).reshape(x.shape)
    return (x * (1 - 0.03 * i)).astype(x.dtype) if is_inexact(x) else x


def check_batch(case: Case) -> None:
    """The batched op is the loop over examples, for batch dims anywhere and in any of the operands."""
    allowed = range(len(case.args)) if case.batch is None else case.batch
    subsets = [s for n in range(1, len(allowed) + 1) for s in itertools.combinations(allowed, n)]
    for subset in subsets:
        for dims in _dims_to_try(case.args, subset):
            _check_batch_at(case, dims)


def _dims_to_try(args: Sequence[Any], subset: Sequence[int]) -> list[BatchDims]:
    """Some choices of batch dims: all the same, from either end, and two of them mixed."""
    most = max(np.ndim(args[i]) for i in subset) + 1
    positions = range(len(args))
    choices = [*([d] * len(args) for d in range(most)), positions, [-1 - i for i in positions]]
    tried = [
        tuple(
            dim % (np.ndim(a) + 1) if i in subset else None
            for i, (a, dim) in enumerate(zip(args, dims))
        )
        for dims in choices
    ]
    return list(dict.fromkeys(tried))


def _check_batch_at(case: Case, dims: BatchDims) -> None:
    examples = [
        [a if d is None else vary(a, i) for a, d in zip(case.args, dims)] for i in range(BATCH)
    ]
    stacked = [
        np.asarray(a) if d is None else np.stack([e[i] for e in examples], d)
        for i, (a, d) in enumerate(zip(case.args, dims))
    ]

    def fn(*xs: Any) -> list[Any]:
        return outputs(case.fn(*xs))

    outs, out_dims = batch_flat(fn, BatchAxis(BATCH), stacked, dims)
    wants = [run(case.fn, e) for e in examples]
    for o, (out, d) in enumerate(zip(outs, out_dims)):
        for i in range(BATCH):
            got = np.asarray(out) if d is None else np.take(np.asarray(out), i, axis=d)
            assert_close(
                got, wants[i][o], f"{case.name}: batched over {dims}, result {o}, example {i}"
            )


# --- factors and lowering ---------------------------------------------------------------------------------------------


def check_equations(case: Case) -> None:
    """Every equation of the case: its shards by the factor rule, and its pull-style lowering, give what the whole
    gives."""
    jaxpr = program(case.fn, case.args)
    env: dict[Var, Array] = dict(zip(jaxpr.invars, map(np.asarray, case.args)))
    env.update(zip(jaxpr.constvars, map(np.asarray, jaxpr.consts)))
    for eqn in jaxpr.eqns:
        ins = [
            np.asarray(a.val, a.aval.dtype) if type(a) is Literal else env[a] for a in eqn.invars
        ]
        outs = _apply(eqn.primitive, ins, eqn.params)
        env.update(zip(eqn.outvars, outs))
        check_factor_rule(eqn.primitive, ins, outs, eqn.params, case.name)
        if has_rule(eqn.primitive.lower):
            check_lower(eqn.primitive, ins, eqn.params)


def _apply(primitive: Primitive, ins: Sequence[Array], params: Params) -> list[Array]:
    with np.errstate(all="ignore"):
        return [np.asarray(o) for o in outputs(primitive.reference(*ins, **params))]


class Application(NamedTuple):
    """An application of a primitive to arrays, with its results and the name of its case."""

    primitive: Primitive
    ins: Sequence[Array]
    outs: Sequence[Array]
    params: Params
    name: str


def check_factor_rule(
    primitive: Primitive, ins: Sequence[Array], outs: Sequence[Array], params: Params, name: str
) -> None:
    """The factor rule of one application: shape, then split against whole, then partial sums."""
    application = Application(primitive, ins, outs, params, name)
    rule = primitive.factors([typeof(x) for x in ins], [typeof(x) for x in outs], **params)
    for arrays, factors in ((ins, rule.ins), (outs, rule.outs)):
        assert len(arrays) == len(factors), (
            f"{name}: {primitive} has factors for {len(factors)} values"
        )
        for x, dims in zip(arrays, factors):
            sizes = tuple(int(np.prod([rule.sizes[f] for f in d], dtype=int)) for d in dims)
            assert sizes == x.shape, f"{name}: factors of {primitive} make {sizes} of {x.shape}"
    for f, size in enumerate(rule.sizes):
        parts = next((n for n in (2, 3, 5) if size and size % n == 0), None)
        if parts is not None and f not in rule.special:
            _check_split(application, rule, f, parts)
    _check_partial_sums(application, rule)


def _cut(x: Array, dims: DimFactors, rule: FactorRule, f: int, part: int, parts: int) -> Array:
    """Return part `part` of `x` along factor f (all of `x` if it does not have the factor)."""
    if not any(f in d for d in dims):
        return x
    flat = [g for d in dims for g in d]
    spread = x.reshape([rule.sizes[g] for g in flat])
    piece = np.split(spread, parts, axis=flat.index(f))[part]
    return piece.reshape(_cut_shape(dims, rule, f, parts))


def _cut_shape(dims: DimFactors, rule: FactorRule, f: int, parts: int) -> tuple[int, ...]:
    return tuple(
        int(np.prod([rule.sizes[g] // (parts if g == f else 1) for g in d], dtype=int))
        for d in dims
    )


def _join(pieces: Sequence[Array], dims: DimFactors, rule: FactorRule, f: int, parts: int) -> Array:
    flat = [g for d in dims for g in d]
    local = [rule.sizes[g] // (parts if g == f else 1) for g in flat]
    whole = np.concatenate([p.reshape(local) for p in pieces], axis=flat.index(f))
    return whole.reshape([int(np.prod([rule.sizes[g] for g in d], dtype=int)) for d in dims])


def _check_split(application: Application, rule: FactorRule, f: int, parts: int) -> None:
    primitive, ins, outs, params, name = application
    localize = primitive.localize
    results: list[list[Array]] = []
    for part in range(parts):
        local_ins = [_cut(x, d, rule, f, part, parts) for x, d in zip(ins, rule.ins)]
        local_params = params
        if localize is not None:
            out_avals = [
                typeof(o).update(shape=_cut_shape(d, rule, f, parts))
                for o, d in zip(outs, rule.outs)
            ]
            local_params = localize(params, [typeof(x) for x in local_ins], out_avals)
        results.append(_apply(primitive, local_ins, local_params))
    for o, (whole, dims) in enumerate(zip(outs, rule.outs)):
        pieces = [r[o] for r in results]
        if any(f in d for d in dims):
            got = _join(pieces, dims, rule, f, parts)
        elif f in rule.reduced:
            got = pieces[0]
            for piece in pieces[1:]:
                got = COMBINE[rule.reduced[f]](got, piece)
        else:
            got = pieces[0]
        assert_close(got, whole, f"{name}: {primitive} split in {parts} along factor {f}")


def _check_partial_sums(application: Application, rule: FactorRule) -> None:
    primitive, ins, outs, params, name = application
    rng = np.random.default_rng(2)
    groups: list[tuple[int, ...]] = (
        [tuple(rule.linear_ins)] if rule.additive else [(i,) for i in rule.linear_ins]
    )
    for group in groups:
        if not group or not all(is_inexact(ins[i]) for i in group) or not is_inexact(outs[0]):
            continue
        parts = [{i: random_like(rng, ins[i].shape, ins[i].dtype) for i in group} for _ in range(2)]
        total = {i: parts[0][i] + parts[1][i] for i in group}
        one, two, both = [
            _apply(primitive, [changed.get(i, x) for i, x in enumerate(ins)], params)[0]
            for changed in (*parts, total)
        ]
        assert_close(
            one + two,
            both,
            f"{name}: {primitive} on partial sums of operands {group}",
            rtol=0.05 if both.dtype.itemsize == 2 else None,
        )
