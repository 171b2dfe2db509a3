"""Simple control flow primitives with NumPy references, which test the scheduler in isolation."""

from __future__ import annotations

import numpy as np

import weft._engine.control  # noqa: F401  (announces the operations)
from weft._engine.core.interpret import run_reference
from weft._engine.core.primitive import BranchLike, LoopLike, Primitive
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Var
from weft._engine.ir.types import ShapedArray

scan_p = LoopLike("scan", multiple_results=True, register=False, carried="num_carry", counted=True)
while_p = LoopLike(
    "while",
    multiple_results=True,
    register=False,
    body="body_jaxpr",
    constants="body_nconsts",
    cond_constants="cond_nconsts",
)
cond_p = BranchLike("cond", multiple_results=True, register=False)


@scan_p.def_type
def _scan_type(*avals, jaxpr, length, reverse, num_consts, num_carry, linear, unroll):
    stacked = [ShapedArray((length, *a.shape), a.dtype) for a in jaxpr.out_avals[num_carry:]]
    return (*jaxpr.out_avals[:num_carry], *stacked)


@scan_p.def_reference
def _scan(*args, jaxpr, length, reverse, num_consts, num_carry, linear, unroll):
    consts, carry, xs = (
        args[:num_consts],
        list(args[num_consts : num_consts + num_carry]),
        args[num_consts + num_carry :],
    )
    ys = [np.empty((length, *a.shape), a.dtype) for a in jaxpr.out_avals[num_carry:]]
    for i in reversed(range(length)) if reverse else range(length):
        outs = run_reference(jaxpr, *consts, *carry, *[x[i] for x in xs])
        carry = outs[:num_carry]
        for y, value in zip(ys, outs[num_carry:]):
            y[i] = value
    return [*carry, *ys]


@while_p.def_type
def _while_type(*avals, cond_jaxpr, body_jaxpr, cond_nconsts, body_nconsts):
    return body_jaxpr.out_avals


@while_p.def_reference
def _while(*args, cond_jaxpr, body_jaxpr, cond_nconsts, body_nconsts):
    cond_consts, body_consts = args[:cond_nconsts], args[cond_nconsts : cond_nconsts + body_nconsts]
    carry = list(args[cond_nconsts + body_nconsts :])
    while run_reference(cond_jaxpr, *cond_consts, *carry)[0]:
        carry = run_reference(body_jaxpr, *body_consts, *carry)
    return carry


@cond_p.def_type
def _cond_type(*avals, branches):
    return branches[0].out_avals


@cond_p.def_reference
def _cond(index, *ops, branches):
    return run_reference(branches[int(np.clip(index, 0, len(branches) - 1))], *ops)


def program(primitive: Primitive, in_avals, **params) -> Jaxpr:
    """Return a program of one equation."""
    ins = [Var(a) for a in in_avals]
    outs = [Var(a) for a in primitive.abstract(in_avals, params)]
    return Jaxpr((), (), ins, outs, [Eqn(primitive, ins, outs, params)])


def scan(
    jaxpr: Jaxpr, in_avals, length: int, num_consts: int, num_carry: int, reverse: bool = False
) -> Jaxpr:
    """Return a program of one scan."""
    return program(
        scan_p,
        in_avals,
        jaxpr=jaxpr,
        length=length,
        reverse=reverse,
        num_consts=num_consts,
        num_carry=num_carry,
        linear=(False,) * len(in_avals),
        unroll=1,
    )
