"""Operations that say where or when, and change no value: `sharding_constraint` and `optimization_barrier`."""

from __future__ import annotations

from collections.abc import Sequence

from weft.core.primitive import Primitive, unsupported
from weft.core.trace import UndefPrimal, Zero
from weft.ir.factors import RuleBuilder, elementwise_rule

#: params: sharding. The value, with the promise of its layout; partitioning drops it.
sharding_constraint_p = Primitive("sharding_constraint", "constraint")


def sharding_constraint(x, sharding):
    """`x`, laid out as `sharding` says wherever the program computes it."""
    return sharding_constraint_p.bind(x, sharding=sharding)


@sharding_constraint_p.def_type
def _constraint_type(aval, *, sharding):
    sharding.check_shape(aval.shape, "the value given to with_sharding_constraint")
    return aval


@sharding_constraint_p.def_jvp
def _constraint_jvp(primals, tangents, *, sharding):
    out = sharding_constraint(primals[0], sharding)
    return out, tangents[0] if type(tangents[0]) is Zero else sharding_constraint(tangents[0], sharding)


@sharding_constraint_p.def_batch
def _constraint_batch(axis, args, dims, *, sharding):
    return sharding_constraint(args[0], sharding.with_free_dim(dims[0])), dims[0]


sharding_constraint_p.define(
    reference=lambda x, *, sharding: x,
    transpose=lambda ct, x, *, sharding: (sharding_constraint(ct, sharding),),
    factors=lambda in_avals, out_avals, *, sharding: elementwise_rule(in_avals, out_avals, linear_ins=(0,)),
    lower=lambda b, index, x, *, in_avals, out_avals, sharding: x(index))


#: The operands, unchanged; simplification does not look through it.
optimization_barrier_p = Primitive("optimization_barrier", "barrier", multiple_results=True)


def optimization_barrier(operands: Sequence) -> list:
    """The operands as they are, hidden from simplification: what is computed from them is not merged with the same computation
    elsewhere."""
    return optimization_barrier_p.bind(*operands)


@optimization_barrier_p.def_jvp
def _barrier_jvp(primals, tangents):
    outs = optimization_barrier(primals)
    nonzero = [t for t in tangents if type(t) is not Zero]
    moved = iter(optimization_barrier(nonzero) if nonzero else [])
    return outs, [t if type(t) is Zero else next(moved) for t in tangents]


@optimization_barrier_p.def_transpose
def _barrier_transpose(cts, *args):
    given = [ct for ct in cts if type(ct) is not Zero]
    moved = iter(optimization_barrier(given) if given else [])
    passed = [None if type(ct) is Zero else next(moved) for ct in cts]
    return [ct if isinstance(x, UndefPrimal) else None for ct, x in zip(passed, args)]


def _barrier_factors(in_avals, out_avals):
    b = RuleBuilder()
    dims = [b.news(a.shape) for a in in_avals]
    return b.rule(dims, dims)


optimization_barrier_p.define(
    type=lambda *avals: avals, reference=lambda *xs: list(xs), batch=lambda axis, args, dims: (optimization_barrier(args), dims),
    factors=_barrier_factors, lower=unsupported("barriers are gone before fusion"))
