"""`linear_call`: a linear function with a custom transpose.

In:   a function of residuals and linear arguments, and its transpose.
Out:  one operation: its derivative is the same operation on tangents, and its transpose calls the
      given transpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._engine.control.call_rules import WholeCall
from weft._engine.control.custom_values import map_over_axis, to_front, unbatch_ct
from weft._engine.control.hijax_types import flatten_linear
from weft._engine.core.stage import hoist_tracers, stage
from weft._engine.core.trace import Zero, is_undef, typeof
from weft._engine.transforms.batch import batch_jaxpr
from weft._engine.transforms.jvp import instantiate
from weft._engine.util import tree
from weft._engine.util.source import function_name

#: params: jaxpr (of constants, residuals, linear values), transpose (residuals, cotangents -> cotangents, flat), num_consts,
#: num_res (residuals), name
linear_call_p = WholeCall("linear_call", multiple_results=True, only_derivatives=("transpose",))


def linear_call(
    fun: Callable, fun_transpose: Callable, residual_args: Any, linear_args: Any
) -> Any:
    """Return `fun(residual_args, linear_args)`, linear in the second argument.

    Its transpose is `fun_transpose(residual_args, cotangent)`.

    Arguments and results are trees. Raises TypeError if the transpose returns another structure
    than `linear_args`, and NotImplementedError under differentiation with respect to
    `residual_args`.

    >>> scale = lambda r, x: x / r
    >>> f = lambda x: weft.custom_derivatives.linear_call(scale, scale, 4.0, x)
    >>> float(f(2.0)), float(weft.linear_transpose(f, 1.0)(8.0)[0])
    (0.5, 2.0)
    """
    name = function_name(fun)
    residuals, res_tree = flatten_linear(residual_args)
    linear, lin_tree = flatten_linear(linear_args)
    out_tree: list = []
    n = len(residuals)

    def flat_fun(*xs):
        outs, structure = flatten_linear(
            fun(tree.tree_unflatten(res_tree, xs[:n]), tree.tree_unflatten(lin_tree, xs[n:]))
        )
        out_tree[:] = [structure]
        return outs

    def transpose(res, cts):
        flat_cts, structure = flatten_linear(
            fun_transpose(tree.tree_unflatten(res_tree, res), tree.tree_unflatten(out_tree[0], cts))
        )
        if structure != lin_tree:
            raise TypeError(
                f"linear_call: the transpose of {name} must give the structure of the linear arguments, {lin_tree}, got "
                f"{structure}."
                f"{tree.describe_difference(lin_tree, structure, 'linear arguments', 'transpose')}"
            )
        return flat_cts

    transpose.__name__ = function_name(fun_transpose)
    jaxpr, consts = hoist_tracers(stage(flat_fun, [typeof(x) for x in (*residuals, *linear)], name))
    outs = linear_call_p.bind(
        *consts,
        *residuals,
        *linear,
        jaxpr=jaxpr,
        transpose=transpose,
        num_consts=len(consts),
        num_res=n,
        name=name,
    )
    return tree.tree_unflatten(out_tree[0], outs)


linear_call_p.define(partial_eval=None, partial_eval_eqn=None)  # never split


@linear_call_p.def_jvp
def _jvp(primals: Sequence, tangents: Sequence, *, num_consts, num_res, name, **params):
    n = num_consts + num_res
    if any(type(t) is not Zero for t in tangents[:n]):
        raise NotImplementedError(
            f"linear_call: {name} is differentiated with respect to a residual, or a value that it closes over. Its "
            "derivative is known in its linear arguments alone; use stop_gradient or a custom_jvp rule."
        )
    params.update(num_consts=num_consts, num_res=num_res, name=name)
    outs = linear_call_p.bind(*primals, **params)
    return outs, linear_call_p.bind(*primals[:n], *map(instantiate, tangents[n:]), **params)


@linear_call_p.def_transpose
def _transpose(cts: Sequence, *args, jaxpr, transpose, num_consts, num_res, name):
    n = num_consts + num_res
    fixed, linear = args[:n], args[n:]
    if any(map(is_undef, fixed)):
        raise NotImplementedError(
            f"linear_call: {name} is not known to be linear in its residuals, or in what it closes over."
        )
    consts, residuals = list(fixed[:num_consts]), list(fixed[num_consts:])
    dense_cts = [instantiate(ct) for ct in cts]
    flat = lambda *xs: transpose(list(xs[:num_res]), list(xs[num_res:]))
    backward, more = hoist_tracers(
        stage(flat, [typeof(x) for x in (*residuals, *dense_cts)], function_name(transpose))
    )

    def again(res, xs):  # the transpose of the transpose
        return linear_call_p.bind(
            *consts,
            *res,
            *xs,
            jaxpr=jaxpr,
            transpose=transpose,
            num_consts=num_consts,
            num_res=num_res,
            name=name,
        )

    again.__name__ = name
    outs = linear_call_p.bind(
        *more,
        *residuals,
        *dense_cts,
        jaxpr=backward,
        transpose=again,
        num_consts=len(more),
        num_res=num_res,
        name=function_name(transpose),
    )
    return [None] * n + [ct if is_undef(x) else None for x, ct in zip(linear, outs)]


@linear_call_p.def_batch
def _batch(axis, args: Sequence, dims: Sequence, *, jaxpr, transpose, num_consts, num_res, name):
    args, flags = to_front(args, dims)
    mapped, batched = batch_jaxpr(jaxpr, axis, tuple(flags), True)
    res_flags = flags[num_consts : num_consts + num_res]

    def mapped_transpose(res, cts):
        flat = lambda *xs: transpose(list(xs[:num_res]), list(xs[num_res:]))
        in_cts = map_over_axis(flat, axis, [*res_flags, *batched])(*res, *cts)
        return [unbatch_ct(ct, f) for ct, f in zip(in_cts, flags[num_consts + num_res :])]

    mapped_transpose.__name__ = function_name(transpose)
    outs = linear_call_p.bind(
        *args,
        jaxpr=mapped,
        transpose=mapped_transpose,
        num_consts=num_consts,
        num_res=num_res,
        name=name,
    )
    return outs, [0] * len(outs)
