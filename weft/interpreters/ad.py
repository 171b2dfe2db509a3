"""Differentiation rules of primitives: forward derivatives and transposes.

In:   a primitive and rules: `jvp(primals, tangents, **params) -> (out, tangent_out)`, where tangents may be `Zero`;
      `transpose(ct, *args, **params)` -> one cotangent or None per argument; arguments in which the primitive is linear
      are `UndefinedPrimal`.
Out:  entries of `primitive_jvps` and `primitive_transposes`, which `weft.grad` and the other transformations use.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.core.primitive import Primitive
from weft._engine.core.trace import UndefPrimal, Zero as Zero, is_undef, typeof
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.arithmetic import add_any, add_any_p
from weft._engine.ops.families import instantiate, zeros
from weft._engine.transforms.jvp import JVPTrace as JVPTrace, JVPTracer as JVPTracer, jvp_flat
from weft._engine.transforms.linearize import linearize_flat
from weft.extend.linear_util import WrappedFun
from weft.interpreters.rule_table import RuleTable

UndefinedPrimal = UndefPrimal
is_undefined_primal = is_undef
instantiate_zeros = instantiate
zeros_like_aval = zeros
add_jaxvals = add_any
add_jaxvals_p = add_any_p

primitive_jvps = RuleTable("jvp")
primitive_transposes = RuleTable("transpose")


def get_primitive_transpose(p: Primitive) -> Callable:
    """Return the transpose rule of a primitive. Raise NotImplementedError if it has none.

    >>> get_primitive_transpose(lax.neg_p)(2.0, UndefinedPrimal(weft.typeof(1.0)))
    [Array(-2., dtype=float32, weak_type=True)]
    """
    return p.transpose


def add_tangents(x: Any, y: Any) -> Any:
    """Return the sum of two tangents; either may be `Zero`."""
    if type(x) is Zero:
        return y
    return x if type(y) is Zero else add_any(x, y)


def _zeros_of(primitive: Primitive, out: Any) -> Any:
    make = lambda x: Zero(typeof(x).to_tangent_aval())
    return [make(x) for x in out] if primitive.multiple_results else make(out)


def deflinear(primitive: Primitive, transpose_rule: Callable) -> None:
    """Declare a primitive linear in all its operands; `transpose_rule(ct, **params)` returns their cotangents."""
    _deflinear(primitive, lambda ct, *args, **params: transpose_rule(ct, **params))


def deflinear2(primitive: Primitive, transpose_rule: Callable) -> None:
    """Declare a primitive linear in all its operands; `transpose_rule(ct, *operands, **params)` returns their cotangents."""
    _deflinear(primitive, transpose_rule)


def _deflinear(primitive: Primitive, transpose_rule: Callable) -> None:
    def jvp(primals, tangents, **params):
        out = primitive.bind(*primals, **params)
        if all(type(t) is Zero for t in tangents):
            return out, _zeros_of(primitive, out)
        return out, primitive.bind(*map(instantiate, tangents), **params)

    def transpose(ct, *args, **params):
        if type(ct) is Zero:
            return [Zero(typeof(x).to_tangent_aval()) for x in args]
        return transpose_rule(ct, *args, **params)

    primitive_jvps[primitive] = jvp
    primitive_transposes[primitive] = transpose


def defjvp(primitive: Primitive, *jvprules: Callable | None) -> None:
    """Define the JVP by one rule or None for each operand, `rule(tangent, *operands, **params)`; the results are added."""
    defjvp2(primitive, *[None if rule is None else _without_out(rule) for rule in jvprules])


def _without_out(rule: Callable) -> Callable:
    return lambda t, out, *primals, **params: rule(t, *primals, **params)


def defjvp2(primitive: Primitive, *jvprules: Callable | None) -> None:
    """Define the JVP by one rule or None for each operand, `rule(tangent, out, *operands, **params)`; the results are added."""

    def jvp(primals, tangents, **params):
        out = primitive.bind(*primals, **params)
        terms = [
            rule(t, out, *primals, **params)
            for rule, t in zip(jvprules, tangents)
            if rule is not None and type(t) is not Zero
        ]
        return out, functools.reduce(add_tangents, terms, Zero(typeof(out).to_tangent_aval()))

    primitive_jvps[primitive] = jvp


def defbilinear(prim: Primitive, lhs_rule: Callable, rhs_rule: Callable) -> None:
    """Declare a primitive linear in each of its two operands. Each rule, `rule(ct, lhs, rhs, **params)`, returns the
    cotangent of its operand, which is an `UndefinedPrimal` in the call."""

    def transpose(ct, lhs, rhs, **params):
        if is_undef(lhs):
            return [Zero(lhs.aval) if type(ct) is Zero else lhs_rule(ct, lhs, rhs, **params), None]
        return [None, Zero(rhs.aval) if type(ct) is Zero else rhs_rule(ct, lhs, rhs, **params)]

    defjvp(
        prim,
        lambda t, x, y, **params: prim.bind(t, y, **params),
        lambda t, x, y, **params: prim.bind(x, t, **params),
    )
    primitive_transposes[prim] = transpose


def jvp(
    fun: Callable,
    primals: Sequence | None = None,
    tangents: Sequence | None = None,
    has_aux: bool = False,
    instantiate: bool = True,
    transform_stack: bool = True,
) -> Any:
    """Return values and tangents of `fun` on flat values: `(out, tangent_out)`. Tangents may be `Zero`,
    except in results with `instantiate`.

    >>> jvp(lambda x: x * x, (3.0,), (1.0,))
    (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))
    """
    if has_aux:
        raise NotImplementedError(
            "weft.interpreters.ad.jvp: has_aux is not supported; use weft.jvp(fun, primals, tangents, has_aux=True)."
        )
    call = fun.call_wrapped if isinstance(fun, WrappedFun) else fun
    if primals is None or tangents is None:
        raise TypeError(
            "weft.interpreters.ad.jvp: give the values and their tangents, jvp(fun, primals, tangents)."
        )
    single = False

    def flat(*xs):
        nonlocal single
        out = call(*xs)
        single = not isinstance(out, (tuple, list))
        return [out] if single else list(out)

    outs, out_tangents = jvp_flat(flat, primals, tangents)
    if instantiate:
        out_tangents = [instantiate_zeros(t) for t in out_tangents]
    return (outs[0], out_tangents[0]) if single else (outs, out_tangents)


def linearize(
    traceable: Any, *primals: Any, has_aux: bool = False, is_vjp: bool = False
) -> tuple[list, list[ShapedArray], Any]:
    """Return the values of a function of flat values, the types of the result tangents, and its derivative as a closed jaxpr of tangents.

    >>> outs, avals, derivative = linearize(lambda x: [x * x], 3.0)
    >>> outs, weft.eval_jaxpr(derivative.jaxpr, derivative.consts, 1.0)
    ([Array(9., dtype=float32, weak_type=True)], [Array(6., dtype=float32)])
    """
    call = traceable.call_wrapped if isinstance(traceable, WrappedFun) else traceable
    if has_aux:
        raise NotImplementedError(
            "weft.interpreters.ad.linearize: has_aux is not supported; use weft.linearize(fun, *primals, "
            "has_aux=True)."
        )
    values, program, nonzero = linearize_flat(call, primals)
    if not all(nonzero):
        raise NotImplementedError(
            "weft.interpreters.ad.linearize: a result does not depend on the arguments; use weft.linearize."
        )
    return values, list(program.out_avals), program
